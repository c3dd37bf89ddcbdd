//! Ranges of lines of a text file, by the rules of ACP: lines count from 1.

/// The lines that an agent requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineRange {
    /// The first line, by default the first of the file. 0 is treated as 1, as in other clients.
    pub line: Option<u32>,
    /// The number of lines, by default all that follow.
    pub limit: Option<u32>,
}

impl LineRange {
    /// The lines with their line ends, so that adjacent ranges form the file. Empty beyond the end.
    pub(super) fn slice(self, text: &str) -> &str {
        let skip = self.line.unwrap_or(1).saturating_sub(1);
        let rest = &text[offset_after_lines(text, skip)..];
        match self.limit {
            None => rest,
            Some(limit) => &rest[..offset_after_lines(rest, limit)],
        }
    }
}

/// The offset after `count` lines.
fn offset_after_lines(text: &str, count: u32) -> usize {
    match count.checked_sub(1) {
        None => 0,
        Some(before) => memchr::memchr_iter(b'\n', text.as_bytes())
            .nth(usize::try_from(before).unwrap_or(usize::MAX))
            .map_or(text.len(), |end| end + 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(text: &str, line: Option<u32>, limit: Option<u32>) -> &str {
        LineRange { line, limit }.slice(text)
    }

    #[test]
    fn lines_count_from_one_and_keep_their_ends() {
        let text = "one\r\ntwo\n\nfour";
        for (line, limit, expected) in [
            (None, None, text),
            (Some(1), None, text),
            (Some(0), Some(1), "one\r\n"),
            (Some(2), Some(1), "two\n"),
            (Some(3), Some(1), "\n"),
            (Some(3), Some(9), "\nfour"),
            (Some(4), None, "four"),
            (Some(5), None, ""),
            (Some(u32::MAX), Some(u32::MAX), ""),
            (None, Some(0), ""),
        ] {
            assert_eq!(window(text, line, limit), expected, "{line:?} {limit:?}");
        }
        assert_eq!(window("", Some(1), Some(1)), "");
    }

    proptest! {
        #[test]
        fn adjacent_ranges_form_the_file(text in "[aé\r\n]{0,40}", size in 1u32..5) {
            let mut whole = String::new();
            let mut line = 1;
            while line <= 50 {
                let part = window(&text, Some(line), Some(size));
                prop_assert!(part.matches('\n').count() <= size as usize);
                whole.push_str(part);
                line += size;
            }
            prop_assert_eq!(whole, text);
        }
    }
}
