//! Requests of `useChat`.

use serde::Deserialize;
use serde_json::Value;

use crate::surface::chat::{Approval, Message, QuestionId, content_blocks, file_block, text_block};
use crate::surface::rest::ApiError;
use crate::types::{PromptId, SessionId};

/// The body of a `POST`. Unknown members are those of the application.
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
    parts: Vec<Value>,
    #[serde(default)]
    content: Option<Value>,
}

/// The id of the assistant's message: its session and its turn.
pub(super) fn message_id(session: SessionId, prompt: PromptId) -> String {
    format!("{session}_{prompt}")
}

impl UiMessage {
    pub(super) fn message(&self) -> Message {
        let mut blocks: Vec<Value> = self.parts.iter().filter_map(block).collect();
        if blocks.is_empty() {
            blocks = content_blocks(self.content.as_ref(), block);
        }
        Message {
            id: self.id.clone(),
            ..Message::new(self.role.clone(), blocks)
        }
    }
}

/// The content block of a part. Other parts than texts and files are not for the agent.
fn block(part: &Value) -> Option<Value> {
    let text = |key: &str| part[key].as_str();
    match text("type")? {
        "text" => text("text").filter(|text| !text.is_empty()).map(text_block),
        "file" => file_block(text("url")?, text("mediaType"), text("filename")),
        _ => None,
    }
}

impl ChatBody {
    /// The answers in the last message, if it is that of the assistant.
    pub(super) fn answers(&self) -> Result<Vec<Approval>, ApiError> {
        let last = self.messages.last();
        let Some(last) = last.filter(|message| message.role == "assistant") else {
            return Ok(Vec::new());
        };
        let parts = last.parts.iter().enumerate();
        parts
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
    use crate::types::RequestId;

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
