//! The tail of a child's stderr: always drained, bounded, with secrets masked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::mask::{masked_end, secrets_of};
use base::shutdown::lock_or_abort;

const READ_BYTES: usize = 8 << 10;

/// A cheap handle of the tail. It can be read at any time, also after the child's end.
#[derive(Clone, derive_more::Debug)]
#[debug("StderrTail")]
pub struct StderrTail {
    buffer: Arc<Mutex<TailBuffer>>,
    /// Longest first, so that a secret that contains another one is replaced as a whole.
    secrets: Arc<[Vec<u8>]>,
    limit: usize,
}
#[derive(Default)]
struct TailBuffer {
    bytes: VecDeque<u8>,
    /// Whether older bytes were discarded.
    truncated: bool,
}

impl StderrTail {
    pub(super) fn new(limit: usize, secrets: Vec<String>) -> Self {
        Self {
            buffer: Arc::default(),
            secrets: secrets_of(secrets),
            limit,
        }
    }

    /// Longest first, none empty.
    pub(super) fn secrets(&self) -> Arc<[Vec<u8>]> {
        Arc::clone(&self.secrets)
    }

    /// Reads until the end of the pipe.
    pub(super) async fn drain(self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    /// The tail as text: at most the configured number of bytes, from the start of a character.
    pub fn tail(&self) -> String {
        let (raw, cut) = {
            let kept = self.lock();
            let raw: Vec<u8> = kept.bytes.iter().copied().collect();
            (raw, kept.truncated)
        };
        // The rest of a secret whose start was discarded ends before this position.
        let from = if cut {
            self.longest_secret().saturating_sub(1).min(raw.len())
        } else {
            0
        };
        let shown = masked_end(&raw, &self.secrets, from);
        let mut start = shown.len().saturating_sub(self.limit);
        while start > 0 && shown.get(start).is_some_and(|byte| byte & 0xC0 == 0x80) {
            start += 1;
        }
        let mut text = String::from_utf8_lossy(&shown[start..]).into_owned();
        // A replacement character is longer than the byte that it replaces.
        let over = text.ceil_char_boundary(text.len().saturating_sub(self.limit));
        text.drain(..over);
        text
    }

    /// Keeps more than the limit, so that a secret at the start of the tail is still recognized.
    fn push(&self, bytes: &[u8]) {
        let most = self.limit + self.longest_secret();
        let mut kept = self.lock();
        kept.bytes.extend(bytes);
        if kept.bytes.len() > most {
            let surplus = kept.bytes.len() - most;
            kept.bytes.drain(..surplus);
            kept.truncated = true;
        }
    }

    fn longest_secret(&self) -> usize {
        self.secrets.first().map_or(0, Vec::len)
    }

    fn lock(&self) -> MutexGuard<'_, TailBuffer> {
        lock_or_abort(self.buffer.lock())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(limit: usize, secrets: &[&str]) -> StderrTail {
        StderrTail::new(
            limit,
            secrets.iter().map(|secret| (*secret).to_owned()).collect(),
        )
    }

    #[test]
    fn a_secret_split_over_two_reads_is_replaced() {
        let tail = tail(100, &["hunter2-hunter2"]);
        tail.push(b"key hunter2-");
        assert_eq!(tail.tail(), "key [secret]");
        tail.push(b"hunter2 end\n");
        assert_eq!(tail.tail(), "key [secret] end\n");
    }

    #[test]
    fn the_longer_of_two_secrets_wins() {
        let tail = tail(100, &["abc", "abcdef", ""]);
        tail.push(b"abcdef abc ab");
        assert_eq!(tail.tail(), "[secret] [secret] ab");
    }

    #[test]
    fn truncated_secret_shows_no_remainder() {
        let tail = tail(16, &["0123456789"]);
        tail.push(b"before 0123456789 aa 0123456789 bb");
        assert_eq!(tail.tail(), " aa [secret] bb");
    }

    #[test]
    fn tail_starts_at_a_character_boundary() {
        let tail = tail(4, &[]);
        tail.push("aééé".as_bytes());
        assert_eq!(tail.tail(), "éé");
        tail.push(b"x");
        assert_eq!(tail.tail(), "éx");
    }

    proptest! {
        #[test]
        fn any_chunking_shows_the_same_and_never_a_secret(
            text in "[a-c]{0,200}", limit in 1_usize..64, chunk in 1_usize..9,
        ) {
            let secrets = ["abcabc", "ccccc"];
            let whole = tail(limit, &secrets);
            whole.push(text.as_bytes());
            let pieces = tail(limit, &secrets);
            for piece in text.as_bytes().chunks(chunk) {
                pieces.push(piece);
            }
            let shown = pieces.tail();
            prop_assert_eq!(&shown, &whole.tail());
            prop_assert!(shown.len() <= limit);
            prop_assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{}", shown);
        }

        #[test]
        fn any_bytes_make_text_within_the_limit(bytes: Vec<u8>, limit in 1_usize..32) {
            let tail = tail(limit, &[]);
            tail.push(&bytes);
            prop_assert!(tail.tail().len() <= limit);
        }
    }
}
