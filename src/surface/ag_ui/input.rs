//! The input of a run.

use serde::Deserialize;
use serde_json::Value;

use crate::surface::chat::{Message, content_blocks, media_block, resource_link, text_block};

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
        self.messages.iter().map(InputMessage::message).collect()
    }

    /// Whether the client understands the outcome `cancelled`.
    pub(super) fn knows_cancelled(&self) -> bool {
        self.protocol_version.is_some()
    }
}

impl InputMessage {
    fn message(&self) -> Message {
        let blocks = content_blocks(self.content.as_ref(), block);
        Message {
            id: self.id.clone(),
            ..Message::new(self.role.clone(), blocks)
        }
    }
}

fn block(part: &Value) -> Option<Value> {
    match part["type"].as_str()? {
        "text" => part["text"]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(text_block),
        "image" | "audio" | "video" | "document" => {
            let source = &part["source"];
            let value = source["value"].as_str()?;
            match source["type"].as_str()? {
                "data" => media_block(
                    value,
                    source["mimeType"].as_str(),
                    part["filename"].as_str(),
                ),
                "url" => Some(resource_link(value, None)),
                _ => None,
            }
        }
        "binary" => match (part["data"].as_str(), part["url"].as_str()) {
            (Some(data), _) => {
                media_block(data, part["mimeType"].as_str(), part["filename"].as_str())
            }
            (None, Some(url)) => Some(resource_link(url, part["filename"].as_str())),
            (None, None) => None,
        },
        _ => None,
    }
}
