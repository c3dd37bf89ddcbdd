//! A response and its items.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::id::ResponseId;
use crate::conversation::Notice;
use crate::projection::Role;
use crate::types::CancelCause;

/// How a response stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    InProgress,
    Completed,
    /// The agent reached a limit or refused.
    Incomplete(&'static str),
    /// Why the gateway cancelled the turn.
    Cancelled(Option<CancelCause>),
    Failed {
        code: String,
        message: String,
    },
}

impl Status {
    const fn as_str(&self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Cancelled(_) => "cancelled",
            Self::Failed { .. } => "failed",
        }
    }

    /// The type of the last frame.
    pub(super) const fn event(&self) -> &'static str {
        match self {
            Self::InProgress => "response.in_progress",
            Self::Completed => "response.completed",
            Self::Incomplete(_) | Self::Cancelled(_) => "response.incomplete",
            Self::Failed { .. } => "response.failed",
        }
    }
}

/// The members of a response that do not change.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: ResponseId,
    /// The agent of the session. It is the model of the response.
    pub(super) agent: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    /// The notices of the request that created the response. Empty for a later read of the response.
    pub(super) notices: Vec<Notice>,
}

/// The response with these items.
pub(super) fn response(
    head: &Head,
    status: &Status,
    output: &[Value],
    usage: Option<&Value>,
) -> Value {
    let error = match status {
        Status::Failed { code, message } => json!({ "code": code, "message": message }),
        _ => Value::Null,
    };
    let incomplete = match status {
        Status::Incomplete(reason) => json!({ "reason": reason }),
        _ => Value::Null,
    };
    // The only member for facts that the protocol does not know. Its values are texts.
    let mut metadata = json!({});
    if let Status::Cancelled(Some(cause)) = status {
        metadata["cancelCause"] = json!(cause);
    }
    if !head.notices.is_empty() {
        let joined = |text: fn(Notice) -> &'static str, separator: &str| {
            let texts: Vec<&str> = head.notices.iter().copied().map(text).collect();
            texts.join(separator)
        };
        metadata["history"] = joined(Notice::as_str, ", ").into();
        metadata["notice"] = joined(Notice::text, " ").into();
    }
    let previous = (head.id.number > 1).then(|| {
        ResponseId {
            number: head.id.number - 1,
            ..head.id
        }
        .to_string()
    });
    json!({
        "id": head.id.to_string(),
        "object": "response",
        "created_at": head.created,
        "status": status.as_str(),
        "model": head.agent,
        "output": output,
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "error": error,
        "incomplete_details": incomplete,
        "metadata": metadata,
        "previous_response_id": previous,
        "conversation": { "id": format!("conv_{}", head.id.session) },
        "usage": usage,
    })
}

pub(super) fn message(id: &str, text: &str, status: &str) -> Value {
    let content = [text_part(text)];
    json!({ "id": id, "type": "message", "role": "assistant", "status": status, "content": content })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

pub(super) fn reasoning(id: &str, text: &str, status: &str) -> Value {
    json!({ "id": id, "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }], "status": status })
}

/// The frame of a text as it arrives: nearly all frames of a response.
#[derive(Debug, Serialize)]
pub(super) struct TextDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<u8>,
    /// A string in JSON.
    delta: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[u8; 0]>,
    item_id: &'a str,
    output_index: usize,
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
}

impl<'a> TextDelta<'a> {
    pub(super) fn new(
        role: Role,
        delta: &'a RawValue,
        (item_id, output_index): (&'a str, usize),
        sequence_number: u64,
    ) -> Self {
        let (kind, content_index, summary_index, logprobs) = match role {
            Role::Message => ("response.output_text.delta", Some(0), None, Some([])),
            Role::Thought => ("response.reasoning_summary_text.delta", None, Some(0), None),
        };
        Self {
            content_index,
            summary_index,
            delta,
            logprobs,
            item_id,
            output_index,
            kind,
            sequence_number,
        }
    }
}
