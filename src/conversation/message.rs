//! A message of a client, as its hash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// The hash of a message of the user, of an id, or of another text of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 16]);

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(de::Error::custom)?;
        let bytes = bytes.try_into();
        let bytes = bytes.map_err(|_| de::Error::custom("a digest has 16 bytes"))?;
        Ok(Self(bytes))
    }
}

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
            let stored = serde_json::to_string(one).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Digest>(&stored).expect("a digest"),
                *one
            );
        }
    }
}
