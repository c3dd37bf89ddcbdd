//! Requests of `useChat`.

use serde::Deserialize;
use serde_json::Value;

use crate::surface::chat::{Approval, Converted, Message, QuestionId, file_block, text_part};
use crate::surface::http::ApiError;
use base::types::{PromptId, SessionId};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatBody {
    pub(super) id: Option<String>,
    pub(super) messages: Vec<UiMessage>,
    pub(super) trigger: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct UiMessage {
    pub(super) id: Option<String>,
    pub(super) role: String,
    #[serde(default)]
    parts: Value,
    content: Option<Value>,
}

/// The id of the assistant's message: its session and its turn.
pub(super) fn message_id(session: SessionId, prompt: PromptId) -> String {
    format!("{session}_{prompt}")
}

impl UiMessage {
    /// `at`: the index of the message.
    fn message(&self, at: usize) -> Message {
        let parsed = |content, name| {
            let pointer = format!("/messages/{at}/{name}");
            Message::parsed(&self.role, content, pointer, block)
        };
        let has_parts = self.parts.as_array().is_some_and(|parts| !parts.is_empty());
        let mut message = if has_parts {
            parsed(Some(&self.parts), "parts")
        } else {
            parsed(self.content.as_ref(), "content")
        };
        message.id.clone_from(&self.id);
        message
    }
}

/// The content block of a part. Data of the application, and parts of the display, are not for the agent.
fn block(part: &Value) -> Converted {
    let text = |key: &str| part[key].as_str();
    match text("type").unwrap_or_default() {
        "text" => text_part(part),
        "file" => file_block(&part["url"], text("mediaType"), text("filename")),
        "reasoning" | "step-start" | "source-url" | "source-document" | "dynamic-tool" => Ok(None),
        kind if kind.starts_with("data-") || kind.starts_with("tool-") => Ok(None),
        _ => Err("this type of part is not known; send `text` or `file`"),
    }
}

impl ChatBody {
    pub(super) fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        messages.map(|(at, message)| message.message(at)).collect()
    }

    pub(super) fn answers(&self) -> Result<Vec<Approval>, ApiError> {
        let last = self.messages.last();
        let Some(last) = last.filter(|message| message.role == "assistant") else {
            return Ok(Vec::new());
        };
        let parts = last.parts.as_array().into_iter().flatten();
        parts
            .enumerate()
            .filter(|(_, part)| part["state"] == "approval-responded")
            .map(|(at, part)| {
                let approval = &part["approval"];
                let question: Option<QuestionId> =
                    approval["id"].as_str().and_then(|id| id.parse().ok());
                let approved = approval["approved"].as_bool();
                let (Some(question), Some(approved)) = (question, approved) else {
                    let pointer =
                        format!("/messages/{}/parts/{at}/approval", self.messages.len() - 1);
                    let detail = "expected the `id` of an approval of this gateway, as it is in the stream, and `approved`";
                    return Err(ApiError::invalid(pointer, detail));
                };
                Ok(Approval {
                    question,
                    approved,
                    reason: approval["reason"].as_str().map(ToOwned::to_owned),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::RequestId;

    #[test]
    fn answers_are_in_the_last_message() {
        let session = "01990000-0000-7000-8000-000000000000";
        let part = |id: &str, state: &str| {
            format!(
                r#"{{"type":"dynamic-tool","state":"{state}","approval":{{"id":"{id}","approved":true,"reason":"x"}}}}"#
            )
        };
        let body = |parts: &[String]| {
            let parts = parts.join(",");
            let body = format!(
                r#"{{"id":"c","messages":[{{"id":"u","role":"user","parts":[{{"type":"text","text":"a"}}]}},
                {{"id":"of the client","role":"assistant","parts":[{parts}]}}],"extra":1}}"#
            );
            serde_json::from_str::<ChatBody>(&body).expect("a body")
        };
        let answered = body(&[
            part(&format!("{session}_p3_r1"), "output-available"),
            part(&format!("{session}_p3_r2"), "approval-responded"),
        ]);
        let answers = answered.answers().expect("answers");
        let [approval] = &answers[..] else {
            panic!("{answers:?}")
        };
        let QuestionId {
            session: of,
            prompt,
            request,
        } = approval.question;
        assert_eq!(
            (of.to_string().as_str(), prompt, request, approval.approved),
            (session, PromptId::new(3), RequestId::new(2), true)
        );
        assert!(body(&[part("r2", "approval-responded")]).answers().is_err());
        assert!(body(&[]).answers().expect("none").is_empty());
    }
}
