//! The patterns of one `.gitignore` file. The file is read through a handle, and git is not involved.

use cap_std::fs::Dir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::place::open_entry;
use crate::stat::Owner;

/// The name of the files with patterns.
const FILE: &str = ".gitignore";
/// The maximum size of such a file. A larger file has no effect.
const MAX_BYTES: u64 = 64 << 10;
/// The maximum number of its lines. Further lines have no effect.
const MAX_LINES: usize = 2000;

/// The patterns of a directory. They apply to the paths below it.
#[derive(Debug)]
pub(super) struct IgnoreRules(Option<Gitignore>);

impl IgnoreRules {
    /// Reads the patterns of a directory. A file that cannot be read, and an invalid pattern, have no effect.
    pub(super) fn of(directory: &Dir, owner: Owner) -> Self {
        let read = open_entry(directory, FILE, owner).and_then(|(file, _)| file.read(MAX_BYTES));
        Self::parse(&read.unwrap_or_default())
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut builder = GitignoreBuilder::new("");
        for line in text.trim_start_matches('\u{feff}').lines().take(MAX_LINES) {
            // Git skips an invalid pattern, too.
            let _ = builder.add_line(None, line);
        }
        Self(builder.build().ok().filter(|patterns| !patterns.is_empty()))
    }

    /// Whether the patterns ignore a path relative to their directory. `None`: no pattern matches.
    pub(super) fn ignores(&self, path: &str, is_directory: bool) -> Option<bool> {
        match self.0.as_ref()?.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_git() {
        let rules = IgnoreRules::parse(
            b"\xef\xbb\xbf*.log\n# a comment\n!keep.log\ntarget/\n/top\na/**/z\n[\n\\#file\n",
        );
        for (path, is_directory, expected) in [
            ("x.log", false, Some(true)),
            ("sub/x.log", false, Some(true)),
            ("keep.log", false, Some(false)),
            ("target", true, Some(true)),
            ("target", false, None),
            ("sub/target", true, Some(true)),
            ("top", false, Some(true)),
            ("sub/top", false, None),
            ("a/b/c/z", false, Some(true)),
            ("#file", false, Some(true)),
            ("a comment", false, None),
            ("other", false, None),
        ] {
            assert_eq!(rules.ignores(path, is_directory), expected, "{path}");
        }
        assert_eq!(IgnoreRules::parse(b"").ignores("x", false), None);
    }

    #[test]
    fn hostile_patterns_take_bounded_time() {
        let start = std::time::Instant::now();
        let name = "ab".repeat(120);
        for pattern in [
            "*a?b*[a-z]*c?d*[!x]*\n",
            "**/a/**/b/**/*c\n",
            "[a-\u{10ffff}]*[a-z][!a-z]*q\n",
            "?????????????\n",
        ] {
            let text = pattern.repeat(usize::try_from(MAX_BYTES).unwrap() / pattern.len());
            let rules = IgnoreRules::parse(text.as_bytes());
            rules.ignores(&format!("{name}/{name}"), false);
        }
        assert!(
            start.elapsed() < std::time::Duration::from_secs(30),
            "{:?}",
            start.elapsed()
        );
    }

    #[test]
    fn lines_after_the_bound_have_no_effect() {
        let text = "x\n".repeat(MAX_LINES) + "late\n";
        let rules = IgnoreRules::parse(text.as_bytes());
        assert_eq!(
            (rules.ignores("x", false), rules.ignores("late", false)),
            (Some(true), None)
        );
    }
}
