//! The input of a run.

use serde::Deserialize;
use serde_json::Value;

use crate::surface::chat::{Converted, Message, media_block, resource_link, text_part};

/// `RunAgentInput`. Tools, context and state of the client do not reach an agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunInput {
    pub(super) thread_id: String,
    pub(super) run_id: String,
    /// Clients before version 1.0 send none.
    #[serde(default)]
    pub(super) protocol_version: Option<String>,
    #[serde(default)]
    messages: Vec<InputMessage>,
    #[serde(default)]
    pub(super) resume: Option<Vec<Resume>>,
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    #[serde(default)]
    id: Option<String>,
    role: String,
    #[serde(default)]
    content: Option<Value>,
}

/// The answer to an interrupt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resume {
    pub(super) interrupt_id: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) payload: Option<Value>,
}

impl RunInput {
    pub(super) fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(at, message)| message.message(at)).collect()
    }

    /// Whether the client understands the outcome `cancelled`.
    pub(super) fn knows_cancelled(&self) -> bool {
        self.protocol_version.is_some()
    }
}

impl InputMessage {
    /// `at`: the index of the message.
    fn message(&self, at: usize) -> Message {
        let pointer = format!("/messages/{at}/content");
        let mut message = Message::parsed(&self.role, self.content.as_ref(), pointer, block);
        message.id.clone_from(&self.id);
        message
    }
}

fn block(part: &Value) -> Converted {
    match part["type"].as_str().unwrap_or_default() {
        "text" => text_part(part),
        "image" | "audio" | "video" | "document" => {
            let source = &part["source"];
            let value = source["value"].as_str().ok_or("expected `source.value`")?;
            match source["type"].as_str() {
                Some("data") => media_block(
                    value,
                    source["mimeType"].as_str(),
                    part["filename"].as_str(),
                ),
                Some("url") => Ok(Some(resource_link(value, None))),
                _ => Err("the type of a source must be `data` or `url`"),
            }
        }
        "binary" => match (part["data"].as_str(), part["url"].as_str()) {
            (Some(data), _) => {
                media_block(data, part["mimeType"].as_str(), part["filename"].as_str())
            }
            (None, Some(url)) => Ok(Some(resource_link(url, part["filename"].as_str()))),
            (None, None) => Err("the gateway stores no files; send `data` or `url`"),
        },
        _ => Err("this type of part is not known"),
    }
}
