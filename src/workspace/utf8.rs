//! Decodes chunks of bytes into text. An incomplete character waits for its remaining bytes.

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
        let end = self
            .pending
            .utf8_chunks()
            .last()
            .map_or(&[][..], |chunk| chunk.invalid());
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
