//! A request for a chat completion.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::client_request::{reject_forced_tool, reject_format};
use crate::surface::chat::{Converted, Message, SESSION_ID, file_block, media_block, text_part};
use crate::surface::rest::ApiError;
use crate::types::SessionId;

/// The headers in which clients send their id of a conversation.
const CONVERSATION_HEADERS: [&str; 3] = ["x-conversation-id", "x-openwebui-chat-id", "x-chat-id"];

/// The body. Parameters of a model, such as `temperature`, have no meaning for an agent and are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct CompletionBody {
    pub(super) model: String,
    messages: Vec<InputMessage>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    metadata: Option<Value>,
    #[serde(default)]
    tool_choice: Option<Value>,
    /// The older name of `tool_choice`.
    #[serde(default)]
    function_call: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
    #[serde(default)]
    n: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    role: String,
    #[serde(default)]
    content: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl CompletionBody {
    /// Rejects what an agent cannot do and a client would wait for.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        reject_forced_tool(self.tool_choice.as_ref(), "/tool_choice")?;
        reject_forced_tool(self.function_call.as_ref(), "/function_call")?;
        reject_format(self.response_format.as_ref(), "/response_format")?;
        if self.n.is_some_and(|n| n > 1) {
            return Err(ApiError::invalid("/n", "an agent gives one answer"));
        }
        Ok(())
    }

    pub(super) fn includes_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .and_then(|options| options.include_usage)
            .unwrap_or(false)
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(at, message)| message.message(at)).collect()
    }

    /// The session that the client names.
    pub(super) fn session(&self, headers: &HeaderMap) -> Result<Option<SessionId>, ApiError> {
        let header = headers
            .get(SESSION_ID)
            .and_then(|value| value.to_str().ok());
        let metadata = self
            .metadata
            .as_ref()
            .and_then(|metadata| metadata["session_id"].as_str());
        let named = header.or(metadata).filter(|id| !id.is_empty());
        named
            .map(|id| id.parse().map_err(|_| ApiError::not_found()))
            .transpose()
    }

    /// The client's id of the conversation.
    pub(super) fn conversation(headers: &HeaderMap) -> Option<String> {
        let header = |name: &&str| {
            headers
                .get(*name)
                .and_then(|value| value.to_str().ok())
                .map(ToOwned::to_owned)
        };
        CONVERSATION_HEADERS.iter().find_map(header)
    }

    /// The person for whom a program asks. It has several conversations, so it is no id of one.
    pub(super) fn user(&self) -> Option<String> {
        self.user.clone()
    }

    /// Whether a chat program asks for a title, for tags or the like, and not a person for an answer.
    pub(super) fn is_side_job(&self, headers: &HeaderMap) -> bool {
        let named = headers.get("x-task").and_then(|value| value.to_str().ok());
        if named.is_some_and(|task| !task.trim().is_empty() && !task.contains("{{")) {
            return true;
        }
        let [message] = &self.messages[..] else {
            return false;
        };
        message.role == "user"
            && self.stream != Some(true)
            && message.message(0).text.starts_with("### Task:")
    }
}

impl InputMessage {
    /// `at`: the index of the message.
    fn message(&self, at: usize) -> Message {
        let pointer = format!("/messages/{at}/content");
        Message::parsed(&self.role, self.content.as_ref(), pointer, block)
    }
}

fn block(part: &Value) -> Converted {
    match part["type"].as_str().unwrap_or_default() {
        "text" | "input_text" => text_part(part),
        "image_url" => {
            let image = &part["image_url"];
            let url = if image.is_string() {
                image
            } else {
                &image["url"]
            };
            file_block(url, None, None)
        }
        "input_audio" => {
            let audio = &part["input_audio"];
            let format = audio["format"].as_str().unwrap_or("wav");
            let data = audio["data"]
                .as_str()
                .ok_or("expected `input_audio.data`")?;
            media_block(data, Some(&format!("audio/{format}")), None)
        }
        "file" => {
            let file = &part["file"];
            let data = file["file_data"]
                .as_str()
                .ok_or("the gateway stores no files; send `file.file_data`")?;
            media_block(data, None, file["filename"].as_str())
        }
        _ => Err("this type of part is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(json: &str) -> CompletionBody {
        serde_json::from_str(json).expect("a body")
    }

    #[test]
    fn content_is_text_or_parts() {
        let body = body(
            r#"{"model":"a","unknown":1,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[
            {"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
            {"type":"image_url","image_url":{"url":"https://x/y.png"}},{"type":"odd"}]},{"role":"assistant","content":null}]}"#,
        );
        let messages = body.messages();
        assert_eq!(messages[0].text, "be brief");
        let kinds: Vec<_> = messages[1]
            .blocks
            .iter()
            .map(|block| block["type"].as_str().unwrap_or(""))
            .collect();
        assert_eq!(
            (kinds, messages[1].text.as_str()),
            (
                vec!["text", "image", "resource_link", "text"],
                "look\n[odd: this type of part is not known]"
            )
        );
    }

    #[test]
    fn conversation_has_the_first_id_that_the_client_sends() {
        let mut headers = HeaderMap::new();
        let user = body(r#"{"model":"a","messages":[],"user":"u"}"#);
        assert_eq!(user.user().as_deref(), Some("u"));
        assert_eq!(CompletionBody::conversation(&headers), None);
        headers.insert("x-openwebui-chat-id", "c1".parse().expect("a value"));
        assert_eq!(
            CompletionBody::conversation(&headers).as_deref(),
            Some("c1")
        );
    }

    #[test]
    fn side_jobs_are_recognised() {
        let none = HeaderMap::new();
        let task = body(
            r####"{"model":"a","messages":[{"role":"user","content":"### Task:\nGenerate a title"}]}"####,
        );
        assert!(task.is_side_job(&none));
        let streamed = body(
            r####"{"model":"a","stream":true,"messages":[{"role":"user","content":"### Task: fix it"}]}"####,
        );
        assert!(!streamed.is_side_job(&none), "a person may write this too");
        let named = HeaderMap::from_iter([(
            "x-task".parse().expect("a name"),
            "tags_generation".parse().expect("a value"),
        )]);
        assert!(streamed.is_side_job(&named));
    }
}
