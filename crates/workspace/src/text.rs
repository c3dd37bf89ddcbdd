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

fn offset_after_lines(text: &str, count: u32) -> usize {
    let Some(before) = count.checked_sub(1) else {
        return 0;
    };
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes());
    let end = ends.nth(usize::try_from(before).unwrap_or(usize::MAX));
    end.map_or(text.len(), |end| end + 1)
}

pub fn media_type(name: &str) -> Option<&'static str> {
    mime_guess::from_path(name).first_raw()
}

/// The bytes as text, if they are UTF-8 without NUL.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok();
    text.filter(|text| !text.contains('\0'))
}

/// Invalid UTF-8 becomes U+FFFD. Bytes that may become a character are kept.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The start of a character: at most three bytes.
    pending: Vec<u8>,
}

impl Decoder {
    /// The complete characters after `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let last = self.pending.utf8_chunks().last();
        let end = last.map_or(&[][..], |chunk| chunk.invalid());
        let incomplete = std::str::from_utf8(end).is_err_and(|error| error.error_len().is_none());
        let kept = if incomplete { end.len() } else { 0 };
        let rest = self.pending.split_off(self.pending.len() - kept);
        String::from_utf8_lossy(&std::mem::replace(&mut self.pending, rest)).into_owned()
    }

    /// Ends the input: pending bytes are not a character.
    pub(super) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&held).into_owned()
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

#[cfg(test)]
mod utf8_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn incomplete_character_waits_for_its_bytes() {
        let mut decoder = Decoder::default();
        let [first, second, third, fourth] = "😀".as_bytes().try_into().unwrap();
        assert_eq!(decoder.push(&[b'a', first, second]), "a");
        assert_eq!(decoder.push(&[third]), "");
        assert_eq!(decoder.push(&[fourth, b'b', 0xff]), "😀b\u{fffd}");
        assert_eq!(decoder.push(&[first]), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!(decoder.finish(), "");
    }

    proptest! {
        #[test]
        fn decoding_is_independent_of_chunking(bytes: Vec<u8>, piece in 1_usize..5) {
            let mut decoder = Decoder::default();
            let mut text: String = bytes.chunks(piece).map(|piece| decoder.push(piece)).collect();
            text.push_str(&decoder.finish());
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
