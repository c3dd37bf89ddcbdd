//! Replaces configured secrets in a stream of bytes, independent of its division into chunks.

use std::sync::Arc;

const MASK: &[u8] = b"[secret]";

/// The minimum length of a truncated secret at the end of a stream to be masked. A shorter prefix reveals
/// nothing, and masking it would hide the ends of ordinary words.
const MIN_MASKED_PREFIX: usize = 4;

/// The text with every secret replaced. Of two overlapping secrets, the longer one is replaced.
pub fn masked(text: &str, secrets: &[String]) -> String {
    let secrets = secrets_of(secrets.to_vec());
    let is_in = |secret: &Vec<u8>| memchr::memmem::find(text.as_bytes(), secret).is_some();
    if !secrets.iter().any(is_in) {
        return text.to_owned();
    }
    let mut mask = Mask::new(secrets);
    let mut shown = mask.push(text.as_bytes());
    shown.extend(mask.finish());
    String::from_utf8_lossy(&shown).into_owned()
}

/// The secrets as bytes, without empty ones. The longest one is first: it may contain another one.
pub(super) fn secrets_of(secrets: Vec<String>) -> Arc<[Vec<u8>]> {
    let secrets = secrets.into_iter().map(String::into_bytes);
    let mut secrets: Vec<Vec<u8>> = secrets.filter(|secret| !secret.is_empty()).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into()
}
/// Releases bytes as soon as they cannot be part of a secret.
#[derive(Debug)]
pub(super) struct Mask {
    /// Longest first, none empty.
    secrets: Arc<[Vec<u8>]>,
    first: Box<[bool; 256]>,
    /// Bytes that may be the start of a secret.
    pending: Vec<u8>,
}

impl Mask {
    pub(super) fn new(secrets: Arc<[Vec<u8>]>) -> Self {
        let mut first = Box::new([false; 256]);
        for secret in &*secrets {
            first[usize::from(secret[0])] = true;
        }
        Self {
            secrets,
            first,
            pending: Vec::new(),
        }
    }

    /// The bytes that are safe to show after `bytes`.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let mut shown = Vec::with_capacity(self.pending.len());
        let mut at = 0;
        while at < self.pending.len() {
            let rest = &self.pending[at..];
            let plain = rest.iter().position(|byte| self.first[usize::from(*byte)]);
            let plain = plain.unwrap_or(rest.len());
            shown.extend_from_slice(&rest[..plain]);
            at += plain;
            let rest = &rest[plain..];
            if rest.is_empty() {
                break;
            }
            let begins = |secret: &Vec<u8>| secret.len() > rest.len() && secret.starts_with(rest);
            // A complete secret can be the start of a longer one. Wait for more bytes.
            if self.secrets.iter().any(begins) {
                break;
            }
            if let Some(secret) = self.secrets.iter().find(|secret| rest.starts_with(secret)) {
                shown.extend_from_slice(MASK);
                at += secret.len();
            } else {
                shown.push(rest[0]);
                at += 1;
            }
        }
        self.pending.drain(..at);
        shown
    }

    /// The remaining bytes at the end of the stream.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        masked_end(&std::mem::take(&mut self.pending), &self.secrets, 0)
    }
}

/// The end of a stream with every secret replaced. A long prefix of a secret at the end is a truncated secret. The bytes
/// before `from` are not shown: they can be the rest of a secret whose start is missing.
pub(super) fn masked_end(bytes: &[u8], secrets: &[Vec<u8>], from: usize) -> Vec<u8> {
    let mut shown = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(secret) = secrets.iter().find(|secret| rest.starts_with(secret)) {
            at += secret.len();
            if at > from {
                shown.extend_from_slice(MASK);
            }
        } else if rest.len() >= MIN_MASKED_PREFIX
            && secrets.iter().any(|secret| secret.starts_with(rest))
        {
            shown.extend_from_slice(MASK);
            break;
        } else {
            if at >= from {
                shown.push(rest[0]);
            }
            at += 1;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(secrets: &[&str]) -> Mask {
        let mut secrets: Vec<Vec<u8>> = secrets
            .iter()
            .map(|secret| secret.as_bytes().to_vec())
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Mask::new(secrets.into())
    }

    fn all(mask: &mut Mask, pieces: &[&[u8]]) -> String {
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| mask.push(piece)).collect();
        shown.extend(mask.finish());
        String::from_utf8(shown).expect("text")
    }

    #[test]
    fn secret_is_masked_across_chunks() {
        assert_eq!(
            all(&mut mask(&["hunter2"]), &[b"a hun", b"te", b"r2 b"]),
            "a [secret] b"
        );
        assert_eq!(
            all(&mut mask(&["hunter2"]), &[b"a hunt"]),
            "a [secret]",
            "a truncated secret"
        );
        assert_eq!(
            all(&mut mask(&["hunter2"]), &[b"a hun"]),
            "a hun",
            "too short to be masked"
        );
        assert_eq!(
            all(&mut mask(&["abc", "abcdef"]), &[b"abcd", b"ef abc", b"x"]),
            "[secret] [secret]x"
        );
        assert_eq!(all(&mut mask(&[]), &[b"anything"]), "anything");
    }

    #[test]
    fn a_whole_text_is_masked_at_once() {
        let secrets = [String::new(), "abc".to_owned(), "abcdef".to_owned()];
        assert_eq!(masked("x abcdef abc é", &secrets), "x [secret] [secret] é");
        assert_eq!(masked("abd", &secrets), "abd");
    }

    #[test]
    fn bytes_outside_of_secrets_are_not_delayed() {
        let mut mask = mask(&["hunter2"]);
        assert_eq!(mask.push(b"hello h"), b"hello ");
        assert_eq!(mask.push(b"a"), b"ha");
    }

    proptest! {
        #[test]
        fn any_chunking_shows_the_same(text in "[a-c]{0,200}", chunk in 1_usize..9) {
            let secrets = ["abcabc", "ccccc", "ab"];
            let whole = all(&mut mask(&secrets), &[text.as_bytes()]);
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(chunk).collect();
            prop_assert_eq!(&all(&mut mask(&secrets), &pieces), &whole);
            prop_assert!(secrets.iter().all(|secret| !whole.contains(secret)), "{}", whole);
        }
    }
}
