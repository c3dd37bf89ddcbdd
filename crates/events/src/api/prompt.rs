//! Prompts and their turns.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::{CancelCause, PromptStatus};
use base::types::{EventId, PromptId, SessionId, Timestamp};

use super::present;
use super::problem::Problem;
use super::schema::PromptContent;

/// A turn. The object is the exact state at its `lastEventId`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub prompt_id: PromptId,
    pub session_id: SessionId,
    pub status: PromptStatus,
    /// The agent's stop reason, a value of ACP such as `end_turn`.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// Why the gateway cancelled the turn. Absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The token usage that the agent reported, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The agent's messages in this turn, joined. At most 8 MiB.
    pub text: String,
    /// True if `text` omits a part of the agent's messages. The events contain all messages.
    pub truncated: bool,
    /// The user that sent the prompt.
    pub by: String,
    pub created_at: Timestamp,
    /// Null until the turn ends.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// The cursor for `after` on the session's events. The stream then continues after this state.
    pub last_event_id: EventId,
    /// The problem of a failed turn.
    #[schema(required, value_type = Option<Problem>)]
    pub error: Option<Box<RawValue>>,
}

/// A page of turns, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptList {
    pub prompts: Vec<Prompt>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A prompt: a text, or an array of ACP content blocks.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePrompt {
    #[schema(value_type = PromptContent)]
    pub prompt: Box<RawValue>,
    /// Files of the session to attach. They follow the content blocks of the prompt. At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub attachments: Vec<Attachment>,
    /// If true and a turn is running, the prompt is queued. If false, the request fails with 409.
    #[serde(default)]
    pub queue: bool,
}

/// A change of a queued prompt. An absent member stays unchanged.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PromptPatch {
    /// The new content.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = PromptContent, nullable = false)]
    pub prompt: Option<Box<RawValue>>,
    /// Files of the session to attach to the new content. At most 64. Requires `prompt`.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub attachments: Vec<Attachment>,
    /// Moves the prompt before this queued prompt, or to the end of the queue (null).
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<PromptId>)]
    pub before: Option<Option<PromptId>>,
}

/// A file of the session to attach to a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// The path in the form that the file routes accept: relative to `cwd`, or absolute.
    #[schema(min_length = 1, max_length = 4096)]
    pub path: String,
    /// The type of the content block. By default, an image, an audio file or a short text is embedded if the
    /// agent supports it. Any other file becomes a link.
    #[serde(rename = "as")]
    #[schema(nullable = false)]
    pub kind: Option<AttachAs>,
}

/// Types of content blocks for attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttachAs {
    /// A link with the file's name, size and type. Every agent supports it.
    ResourceLink,
    /// The file with its content as text or base64. Requires the capability `embeddedContext`.
    Resource,
    /// An image. Requires the capability `image`.
    Image,
    /// An audio recording. Requires the capability `audio`.
    Audio,
}

/// The turns that the request cancelled.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    pub prompt_ids: Vec<PromptId>,
}
