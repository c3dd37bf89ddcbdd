//! Requests of `useChat`.

use serde::Deserialize;
use serde_json::Value;

use crate::surface::chat::{Approval, Message, content_blocks, file_block, text_block};
use crate::types::{PromptId, RequestId, SessionId};

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

/// The answers in the last message, and the turn that waits for them.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    pub(super) approvals: Vec<Approval>,
}

/// The id of the assistant's message: its session and its turn.
pub(super) fn message_id(session: SessionId, prompt: PromptId) -> String {
    format!("{session}_{prompt}")
}

fn parse_message_id(id: &str) -> Option<(SessionId, PromptId)> {
    let (session, prompt) = id.split_once('_')?;
    Some((session.parse().ok()?, prompt.parse().ok()?))
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
    /// The answers, if the last message is that of the assistant.
    pub(super) fn answers(&self) -> Option<Answers> {
        let last = self
            .messages
            .last()
            .filter(|message| message.role == "assistant")?;
        let (session, prompt) = parse_message_id(last.id.as_deref()?)?;
        let responded = last
            .parts
            .iter()
            .filter(|part| part["state"] == "approval-responded");
        let approvals = responded
            .filter_map(|part| {
                let approval = &part["approval"];
                let request: RequestId = approval["id"].as_str()?.parse().ok()?;
                let reason = approval["reason"].as_str().map(ToOwned::to_owned);
                Some(Approval {
                    request,
                    approved: approval["approved"].as_bool()?,
                    reason,
                })
            })
            .collect();
        Some(Answers {
            session,
            prompt,
            approvals,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_in_the_last_message() {
        let session = "01990000-0000-7000-8000-000000000000";
        let part = |id: &str, state: &str| {
            format!(
                r#"{{"type":"dynamic-tool","state":"{state}","approval":{{"id":"{id}","approved":true,"reason":"x"}}}}"#
            )
        };
        let body = format!(
            r#"{{"id":"c","messages":[{{"id":"u","role":"user","parts":[{{"type":"text","text":"a"}}]}},
            {{"id":"{session}_p3","role":"assistant","parts":[{},{}]}}],"extra":1}}"#,
            part("r1", "output-available"),
            part("r2", "approval-responded"),
        );
        let body: ChatBody = serde_json::from_str(&body).expect("a body");
        let answers = body.answers().expect("answers");
        assert_eq!(
            (answers.session.to_string().as_str(), answers.prompt),
            (session, PromptId::new(3))
        );
        let [approval] = &answers.approvals[..] else {
            panic!("{answers:?}")
        };
        assert_eq!(
            (approval.request, approval.approved),
            (RequestId::new(2), true)
        );
    }
}
