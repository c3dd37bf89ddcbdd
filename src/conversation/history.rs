//! The comparison of a client's messages with the turns of a conversation.
//!
//! Only the messages of the user are compared, because clients change the text of the assistant: they cut reasoning and add
//! sources.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The hash of a message of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The hash of a text and of the sizes of its attachments. White space at both ends is ignored.
    pub fn of(text: &str, attachments: impl IntoIterator<Item = usize>) -> Self {
        let mut hash = Sha256::new();
        hash.update(text.trim().as_bytes());
        for size in attachments {
            hash.update([0]);
            hash.update((size as u64).to_be_bytes());
        }
        Self(
            hash.finalize()[..16]
                .try_into()
                .expect("a hash has 32 bytes"),
        )
    }

    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// The result of the comparison of a client's messages with the known turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The messages from this one on are new. Usually it is the last one.
    Next { first_new: usize },
    /// All messages are known, and the last one is that of the newest turn.
    Repeated,
    /// The conversation began elsewhere: the session has no turn, and the client has a history.
    StartedElsewhere,
    /// The messages differ from the turns after the first `kept` turns.
    Changed { kept: usize },
}

/// Compares the messages of the user, which are not empty, with the known turns.
///
/// Clients with a limited context leave out the oldest messages. Therefore, the messages may begin at any known turn.
pub fn compare(known: &[Digest], messages: &[Digest]) -> Finding {
    if known.is_empty() {
        return if messages.len() > 1 {
            Finding::StartedElsewhere
        } else {
            Finding::Next { first_new: 0 }
        };
    }
    let continued = (0..known.len())
        .map(|from| &known[from..])
        .find(|rest| messages.starts_with(rest));
    match continued {
        Some(rest) if rest.len() == messages.len() => Finding::Repeated,
        Some(rest) => Finding::Next {
            first_new: rest.len(),
        },
        None => Finding::Changed {
            kept: known
                .iter()
                .zip(messages)
                .take_while(|(a, b)| a == b)
                .count(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_compared_with_turns() {
        let digests = |text: &str| {
            text.chars()
                .map(|c| Digest::of(&c.to_string(), []))
                .collect::<Vec<_>>()
        };
        let next = |first_new| Finding::Next { first_new };
        for (known, messages, expected) in [
            ("", "a", next(0)),
            ("", "ab", Finding::StartedElsewhere),
            ("a", "ab", next(1)),
            ("ab", "abc", next(2)),
            ("ab", "abcd", next(2)),
            ("ab", "ab", Finding::Repeated),
            ("abc", "bcd", next(2)),
            ("abc", "c", Finding::Repeated),
            ("aba", "aba", Finding::Repeated),
            ("ab", "a", Finding::Changed { kept: 1 }),
            ("ab", "ax", Finding::Changed { kept: 1 }),
            ("ab", "xb", Finding::Changed { kept: 0 }),
            ("ab", "x", Finding::Changed { kept: 0 }),
            ("aa", "aa", Finding::Repeated),
            ("aa", "aaa", next(2)),
        ] {
            assert_eq!(
                compare(&digests(known), &digests(messages)),
                expected,
                "{known} {messages}"
            );
        }
    }

    #[test]
    fn attachments_distinguish_messages() {
        assert_eq!(Digest::of(" a\n", []), Digest::of("a", []));
        assert_ne!(Digest::of("a", [1]), Digest::of("a", []));
        assert_ne!(Digest::of("a", [1]), Digest::of("a", [2]));
    }
}
