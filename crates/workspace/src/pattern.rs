//! The pattern of a search in paths.

/// A substring of the path, case-insensitive. With `*` (any characters) or `?` (one character), a pattern of
/// the whole path.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// In lower case.
    pattern: Vec<char>,
    glob: bool,
}

impl Pattern {
    pub fn new(text: &str) -> Self {
        Self {
            pattern: text.to_lowercase().chars().collect(),
            glob: text.contains(['*', '?']),
        }
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.to_lowercase().chars().collect();
        if self.glob {
            matches_glob(&self.pattern, &path)
        } else {
            let mut pieces = path.windows(self.pattern.len().max(1));
            self.pattern.is_empty() || pieces.any(|piece| piece == self.pattern)
        }
    }
}

/// Backtracks only to the last `*`, so the time is at most the product of both lengths.
fn matches_glob(pattern: &[char], path: &[char]) -> bool {
    let mut at = 0;
    let mut next = 0;
    let mut star = None;
    while next < path.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(symbol) if *symbol == '?' || *symbol == path[next] => {
                at += 1;
                next += 1;
            }
            _ => {
                let Some((after, matched)) = star else {
                    return false;
                };
                star = Some((after, matched + 1));
                at = after + 1;
                next = matched + 1;
            }
        }
    }
    pattern[at..].iter().all(|symbol| *symbol == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pattern_matches_substring_or_glob() {
        for (pattern, path, fits) in [
            ("", "a", true),
            ("MAIN", "src/main.rs", true),
            ("c/m", "src/main.rs", true),
            ("main.c", "src/main.rs", false),
            ("*.rs", "src/main.rs", true),
            ("*.rs", "src/main.rs.bak", false),
            ("src/*.r?", "src/a/b.rs", true),
            ("*main*", "src/MAIN.rs", true),
            ("?", "ab", false),
            ("*", "", true),
            ("É", "é", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(path),
                fits,
                "{pattern} {path}"
            );
        }
    }

    /// The same by an exhaustive search.
    fn slow(pattern: &[char], path: &[char]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, _) => path.is_empty(),
            (Some(('*', rest)), _) => {
                slow(rest, path)
                    || path
                        .split_first()
                        .is_some_and(|(_, path)| slow(pattern, path))
            }
            (Some((symbol, rest)), Some((next, path))) => {
                (*symbol == '?' || symbol == next) && slow(rest, path)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_exhaustive_search(pattern in "[ab*?]{1,6}", path in "[ab]{0,8}") {
            let pattern: Vec<char> = pattern.chars().collect();
            let path: Vec<char> = path.chars().collect();
            prop_assert_eq!(matches_glob(&pattern, &path), slow(&pattern, &path));
        }
    }
}
