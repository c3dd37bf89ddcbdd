//! A message of a client, as its hash.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The hash of a message of the user, of an id, or of another text of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The hash of a text and of the content blocks that are not text. White space at both ends of the text is ignored.
    pub fn of<'a>(text: &str, attachments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        hash.update(text.trim().as_bytes());
        for content in attachments {
            hash.update([0]);
            hash.update((content.len() as u64).to_be_bytes());
            hash.update(content);
        }
        Self(
            hash.finalize()[..16]
                .try_into()
                .expect("a hash has 32 bytes"),
        )
    }

    /// The hash of an id. An empty id names nothing.
    pub fn of_id(id: Option<&str>) -> Option<Self> {
        id.filter(|id| !id.is_empty()).map(|id| Self::of(id, []))
    }

    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A message of the user in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserMessage {
    pub content: Digest,
    /// The client's id of the message.
    pub id: Option<Digest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_attachments_distinguishes_messages() {
        let of = |text, attachments: &[&'static str]| Digest::of(text, attachments.iter().copied());
        assert_eq!(of(" a\n", &[]), of("a", &[]));
        let all = [
            of("a", &[]),
            of("a", &["x"]),
            of("a", &["y"]),
            of("a", &["x", "y"]),
            of("a", &["y", "x"]),
            of("a", &["xy"]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }
}
