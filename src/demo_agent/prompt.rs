//! The content of a prompt, as far as the demo reads it.

use serde_json::Value;

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
    pub(super) fn new(blocks: &[Value]) -> Self {
        let texts: Vec<&str> = blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect();
        Self {
            text: texts.join("\n"),
            attachments: blocks.iter().filter_map(attachment).collect(),
        }
    }

    /// The name and the input of `/name input`.
    pub(super) fn command(&self) -> Option<(&str, &str)> {
        let line = self.text.trim().strip_prefix('/')?;
        let (name, input) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        plain.then_some((name, input.trim()))
    }

    /// A sentence about the attachments. Empty if there are none.
    pub(super) fn acknowledgement(&self) -> String {
        let named = self
            .attachments
            .iter()
            .take(MAX_NAMED_ATTACHMENTS)
            .map(String::as_str);
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match self.attachments.len().saturating_sub(MAX_NAMED_ATTACHMENTS) {
            _ if named.is_empty() => return String::new(),
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("With your message came {named}{more}; a real agent would look inside.\n\n")
    }
}

fn attachment(block: &Value) -> Option<String> {
    let member = |pointer| {
        block
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let shown = |pointer, max| quoted(member(pointer), max);
    let decoded_size = |base64| size(member(base64).trim_end_matches('=').len() * 3 / 4);
    Some(match block["type"].as_str()? {
        "image" => format!(
            "an image ({}, {})",
            shown("/mimeType", 40),
            decoded_size("/data")
        ),
        "audio" => format!(
            "a recording ({}, {})",
            shown("/mimeType", 40),
            decoded_size("/data")
        ),
        "resource_link" => format!("a link to {}", shown("/name", 60)),
        "resource" if block["resource"]["text"].is_string() => {
            format!(
                "the text of {} ({})",
                shown("/resource/uri", 60),
                size(member("/resource/text").len())
            )
        }
        "resource" => format!(
            "the file {} ({})",
            shown("/resource/uri", 60),
            decoded_size("/resource/blob")
        ),
        _ => return None,
    })
}

fn size(bytes: usize) -> String {
    if bytes < 1024 {
        format!("{bytes} bytes")
    } else {
        format!("{} KiB", bytes.div_ceil(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str) -> Prompt {
        Prompt::new(&[serde_json::json!({ "type": "text", "text": text })])
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
        let blocks: Vec<Value> = serde_json::from_str(
            r#"[{"type":"text","text":"see"},{"type":"image","data":"aGVsbG8=","mimeType":"image/png"},
                {"type":"resource","resource":{"uri":"file:///a","text":"abc"}}]"#,
        )
        .unwrap();
        assert_eq!(
            Prompt::new(&blocks).attachments,
            [
                "an image (“image/png”, 5 bytes)",
                "the text of “file:///a” (3 bytes)"
            ]
        );
    }
}
