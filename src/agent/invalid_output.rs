//! The text on an agent's stdout that is not JSON-RPC. An agent that never answers often asks a question there, or prints an
//! error.

use std::sync::{Arc, Mutex};

use super::secrets::Secrets;
use crate::jsonrpc::plain_line;
use crate::shutdown::lock_or_abort;

/// The length of an excerpt in bytes.
const EXCERPT_BYTES: usize = 300;
/// The part of a line in which secrets are masked. An excerpt is much shorter, so no part of a cut secret is in it.
const MASKED_BYTES: usize = 64 << 10;

/// The last such text of one process. A cheap handle.
#[derive(Debug, Clone)]
pub(super) struct InvalidOutput {
    secrets: Secrets,
    last: Arc<Mutex<Box<str>>>,
}

impl InvalidOutput {
    pub(super) fn new(secrets: Secrets) -> Self {
        let last = Arc::default();
        Self { secrets, last }
    }

    /// Forgets the text: the agent has answered.
    pub(super) fn clear(&self) {
        *lock_or_abort(self.last.lock()) = Box::default();
    }

    /// Notes a line, or the beginning of one. Returns its start as text without secrets and control characters.
    pub(super) fn note(&self, line: &[u8]) -> Box<str> {
        let line = String::from_utf8_lossy(&line[..line.len().min(MASKED_BYTES)]);
        let excerpt: Box<str> = plain_line(&self.secrets.mask(&line), EXCERPT_BYTES).into();
        if !excerpt.is_empty() {
            *lock_or_abort(self.last.lock()) = excerpt.clone();
        }
        excerpt
    }

    /// The part of an error that shows the last text. Empty if there is none.
    pub(super) fn as_suffix(&self) -> String {
        let last = lock_or_abort(self.last.lock());
        if last.is_empty() {
            String::new()
        } else {
            format!("; the last text on its stdout, which is not JSON-RPC: {last}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_secret_is_masked() {
        let key = "-----BEGIN KEY-----\nMC4CAQAwBQYDK2Vw\n-----END KEY-----\n";
        let output = InvalidOutput::new(Secrets::new(&[key.to_owned()]));
        for line in key.lines() {
            assert_eq!(&*output.note(line.as_bytes()), "[secret]");
        }
        output.clear();
        assert_eq!(output.as_suffix(), "");
    }

    #[test]
    fn the_last_text_is_short_and_has_no_secret() {
        let output = InvalidOutput::new(Secrets::new(&["hunter2".to_owned()]));
        assert_eq!(output.as_suffix(), "");
        let line = b"\x1b[1mkey\thunter2\xff\r";
        assert_eq!(&*output.note(line), "key [secret]\u{fffd}");
        assert_eq!(&*output.note(b" \t"), "");
        assert!(
            output
                .as_suffix()
                .ends_with("JSON-RPC: key [secret]\u{fffd}")
        );
        let excerpt = output.note("hunter2".repeat(100_000).as_bytes());
        assert!(excerpt.len() > 200 && excerpt.len() < 310, "{excerpt}");
        assert!(!excerpt.contains("hunter"), "{excerpt}");
    }
}
