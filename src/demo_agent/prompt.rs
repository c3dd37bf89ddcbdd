//! The content of a prompt, as far as the demo reads it.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource};

use super::text::quoted;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prompt {
    /// All text blocks, joined.
    pub(super) text: String,
    /// The attachments, one phrase each.
    pub(super) attachments: Vec<String>,
}

/// The maximum number of attachments that an answer names. The rest is counted.
const MAX_NAMED_ATTACHMENTS: usize = 8;

impl Prompt {
    pub(super) fn new(blocks: &[ContentBlock]) -> Self {
        let texts: Vec<&str> = blocks
            .iter()
            .filter_map(|block| match block {
                ContentBlock::Text(text) => Some(text.text.as_str()),
                _ => None,
            })
            .collect();
        Self { text: texts.join("\n"), attachments: blocks.iter().filter_map(attachment).collect() }
    }

    /// The name and the input of `/name input`.
    pub(super) fn command(&self) -> Option<(&str, &str)> {
        let line = self.text.trim().strip_prefix('/')?;
        let (name, input) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let plain =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        plain.then_some((name, input.trim()))
    }

    /// A sentence about the attachments. Empty if there are none.
    pub(super) fn acknowledgement(&self) -> String {
        let named: Vec<&str> =
            self.attachments.iter().take(MAX_NAMED_ATTACHMENTS).map(String::as_str).collect();
        let more = match self.attachments.len().saturating_sub(MAX_NAMED_ATTACHMENTS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if named.is_empty() {
            String::new()
        } else {
            format!("With your message came {}{more}; a real agent would look inside.\n\n", named.join(", "))
        }
    }
}

fn attachment(block: &ContentBlock) -> Option<String> {
    Some(match block {
        ContentBlock::Image(image) => {
            format!("an image ({}, {})", quoted(&image.mime_type, 40), size(decoded_bytes(&image.data)))
        }
        ContentBlock::Audio(audio) => {
            format!("a recording ({}, {})", quoted(&audio.mime_type, 40), size(decoded_bytes(&audio.data)))
        }
        ContentBlock::ResourceLink(link) => format!("a link to {}", quoted(&link.name, 60)),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            EmbeddedResourceResource::TextResourceContents(text) => {
                format!("the text of {} ({})", quoted(&text.uri, 60), size(text.text.len()))
            }
            EmbeddedResourceResource::BlobResourceContents(blob) => {
                format!("the file {} ({})", quoted(&blob.uri, 60), size(decoded_bytes(&blob.blob)))
            }
            _ => "a resource".to_owned(),
        },
        _ => return None,
    })
}

/// The number of bytes that a base64 text encodes.
fn decoded_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

fn size(bytes: usize) -> String {
    if bytes < 1024 { format!("{bytes} bytes") } else { format!("{} KiB", bytes.div_ceil(1024)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> Prompt {
        Prompt::new(&[text.into()])
    }

    #[test]
    fn command_is_a_slash_and_a_word() {
        assert_eq!(prompt(" /long 12 ").command(), Some(("long", "12")));
        assert_eq!(prompt("/help").command(), Some(("help", "")));
        for text in ["help", "", "/", "/usr/bin/env", "say /help"] {
            assert_eq!(prompt(text).command(), None, "{text:?}");
        }
    }

    #[test]
    fn attachments_are_named_with_their_size() {
        let blocks: Vec<ContentBlock> = serde_json::from_str(
            r#"[{"type":"text","text":"see"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},
                {"type":"resource","resource":{"uri":"file:///a","text":"abc"}}]"#,
        )
        .unwrap();
        assert_eq!(
            Prompt::new(&blocks).attachments,
            ["an image (“image/png”, 5 bytes)", "the text of “file:///a” (3 bytes)"]
        );
    }
}
