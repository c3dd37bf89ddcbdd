//! Messages of chat clients as content blocks of ACP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::acp::PromptCapabilities;
use crate::conversation::{Digest, UserMessage};

/// The transcript that a new session receives. A longer one is cut at its beginning.
const MAX_TRANSCRIPT_BYTES: usize = 256 << 10;

/// A message of the history of a client.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) role: String,
    /// The client's id of the message.
    pub(crate) id: Option<String>,
    pub(crate) text: String,
    /// The content blocks, with the text.
    pub(crate) blocks: Vec<Value>,
}

impl Message {
    pub(crate) fn new(role: impl Into<String>, blocks: Vec<Value>) -> Self {
        let texts = blocks.iter().filter_map(|block| block["text"].as_str());
        let text = texts.collect::<Vec<_>>().join("\n");
        Self {
            role: role.into(),
            id: None,
            text,
            blocks,
        }
    }

    pub(crate) fn is_user(&self) -> bool {
        self.role == "user"
    }

    /// Whether it is a message of the conversation, and not an instruction.
    pub(crate) fn is_spoken(&self) -> bool {
        matches!(&*self.role, "user" | "assistant" | "tool")
    }

    pub(crate) fn digest(&self) -> UserMessage {
        let attachments = self.blocks.iter().filter(|block| block["type"] != "text");
        let attachments: Vec<String> = attachments.map(Value::to_string).collect();
        UserMessage {
            content: Digest::of(&self.text, attachments.iter().map(String::as_str)),
            id: Digest::of_id(self.id.as_deref()),
        }
    }
}

pub(crate) fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// The content blocks of a message: of a text, or of parts. A part without a block is not for the agent.
pub(crate) fn content_blocks(
    content: Option<&Value>,
    block: fn(&Value) -> Option<Value>,
) -> Vec<Value> {
    match content {
        Some(Value::String(text)) if !text.is_empty() => vec![text_block(text)],
        Some(Value::Array(parts)) => parts.iter().filter_map(block).collect(),
        _ => Vec::new(),
    }
}

/// A file by its URL: the data of a `data:` URL, or a link.
pub(crate) fn file_block(url: &str, media_type: Option<&str>, name: Option<&str>) -> Option<Value> {
    if url.starts_with("data:") {
        media_block(url, media_type, name)
    } else {
        Some(resource_link(url, name))
    }
}

pub(crate) fn resource_link(url: &str, name: Option<&str>) -> Value {
    let last = url
        .split(['?', '#'])
        .next()
        .and_then(|path| path.rsplit('/').find(|part| !part.is_empty()));
    json!({ "type": "resource_link", "uri": url, "name": name.or(last).unwrap_or(url) })
}

/// A file in a `data:` URL or in base64. Images and audio have their own blocks. A text becomes a resource. `None` if the
/// data is not base64, or if its text is not UTF-8.
pub(crate) fn media_block(
    data: &str,
    media_type: Option<&str>,
    name: Option<&str>,
) -> Option<Value> {
    let (declared, data) = match data.strip_prefix("data:") {
        Some(rest) => {
            let (head, data) = rest.split_once(',')?;
            (head.strip_suffix(";base64")?.split(';').next(), data)
        }
        None => (None, data),
    };
    let media_type = media_type
        .or(declared)
        .filter(|text| !text.is_empty())
        .unwrap_or("application/octet-stream");
    let bytes = STANDARD.decode(data).ok()?;
    if media_type.starts_with("image/") {
        return Some(json!({ "type": "image", "mimeType": media_type, "data": data }));
    }
    if media_type.starts_with("audio/") {
        return Some(json!({ "type": "audio", "mimeType": media_type, "data": data }));
    }
    let uri = format!("attachment:///{}", name.unwrap_or("file"));
    let is_text = media_type.starts_with("text/") || media_type == "application/json";
    Some(if is_text {
        let text = String::from_utf8(bytes).ok()?;
        json!({ "type": "resource", "resource": { "uri": uri, "mimeType": media_type, "text": text } })
    } else {
        json!({ "type": "resource", "resource": { "uri": uri, "mimeType": media_type, "blob": data } })
    })
}

/// The blocks of an earlier message for an agent that accepts this content, and whether all of them are as the client sent them.
/// Of others, the agent gets a link or the type: one message that the agent cannot read must not end a conversation.
pub(super) fn carried(blocks: &[Value], takes: PromptCapabilities) -> (Vec<Value>, bool) {
    let mut is_whole = true;
    let carried = blocks.iter().map(|block| {
        let accepted = match block["type"].as_str() {
            Some("image") => takes.image,
            Some("audio") => takes.audio,
            Some("resource") => takes.embedded_context,
            _ => true,
        };
        is_whole &= accepted;
        if accepted {
            block.clone()
        } else {
            text_block(&named(block))
        }
    });
    (carried.collect(), is_whole)
}

/// A content block that is not text, as text.
fn named(block: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match block["type"].as_str() {
        Some("resource_link") => format!("[{}]({})", text(&block["name"]), text(&block["uri"])),
        Some("resource") => format!("[file: {}]", text(&block["resource"]["uri"])),
        Some(kind) => format!("[{kind}: {}]", text(&block["mimeType"])),
        None => String::new(),
    }
}

/// The content blocks of a prompt: a system message, the earlier conversation as text, and the new blocks.
pub(super) fn prompt_blocks(
    system: Option<&str>,
    earlier: &[Message],
    new: Vec<Value>,
) -> Result<Box<RawValue>, serde_json::Error> {
    let system = system
        .filter(|text| !text.trim().is_empty())
        .map(text_block);
    let earlier = transcript(earlier).map(|text| text_block(&text));
    to_raw_value(
        &system
            .into_iter()
            .chain(earlier)
            .chain(new)
            .collect::<Vec<Value>>(),
    )
}

/// The messages as text for an agent. `None` without messages.
fn transcript(messages: &[Message]) -> Option<String> {
    let spoken = messages
        .iter()
        .filter(|message| matches!(&*message.role, "user" | "assistant"));
    let parts: Vec<String> = spoken
        .filter(|message| !message.blocks.is_empty())
        .map(|message| {
            let name = if message.is_user() {
                "User"
            } else {
                "Assistant"
            };
            let blocks = message.blocks.iter().map(|block| match &block["text"] {
                Value::String(text) => text.clone(),
                _ => named(block),
            });
            let text = blocks.collect::<Vec<_>>().join("\n");
            format!("{name}: {}", text.trim())
        })
        .collect();
    if parts.is_empty() {
        return None;
    }
    let text = parts.join("\n\n");
    let start = text.ceil_char_boundary(text.len().saturating_sub(MAX_TRANSCRIPT_BYTES));
    Some(format!(
        "The conversation so far:\n\n{}\n\nThe next message:",
        &text[start..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_has_the_block_of_its_type() {
        let kind = |data: &str, media_type| media_block(data, media_type, Some("a.x"));
        assert_eq!(
            kind("data:image/png;base64,AAAA", None),
            Some(json!({ "type": "image", "mimeType": "image/png", "data": "AAAA" }))
        );
        assert_eq!(
            kind("AAAA", Some("audio/wav")).expect("audio")["type"],
            "audio"
        );
        let text = kind("data:text/plain;charset=utf-8;base64,aGk=", None).expect("a text");
        assert_eq!(
            text["resource"],
            json!({ "uri": "attachment:///a.x", "mimeType": "text/plain", "text": "hi" })
        );
        assert_eq!(
            kind("aGk=", Some("application/pdf")).expect("a blob")["resource"]["blob"],
            "aGk="
        );
        for wrong in [
            "data:text/plain,hi",
            "data:image/png;base64,!",
            "http://x",
            "data:text/plain;base64,/w==",
        ] {
            assert_eq!(kind(wrong, None), None, "{wrong}");
        }
        assert_eq!(resource_link("https://x/a/b.txt?c", None)["name"], "b.txt");
    }

    #[test]
    fn earlier_messages_are_text_before_the_new_one() {
        let message = |role: &str, text: &str| Message::new(role, vec![text_block(text)]);
        let earlier = [
            message("user", "a"),
            message("assistant", "b"),
            message("tool", "c"),
        ];
        let new = message("user", "d");
        let blocks = prompt_blocks(Some("be brief"), &earlier, new.blocks.clone()).expect("JSON");
        let expected = json!([
            text_block("be brief"),
            text_block("The conversation so far:\n\nUser: a\n\nAssistant: b\n\nThe next message:"),
            text_block("d")
        ]);
        assert_eq!(
            serde_json::from_str::<Value>(blocks.get()).expect("JSON"),
            expected
        );
        assert_eq!(
            prompt_blocks(Some(" "), &[], new.blocks)
                .expect("JSON")
                .get(),
            json!([text_block("d")]).to_string()
        );
    }
}
