//! Turns: a prompt and what became of it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::types::{EventId, PromptId, SessionId, Timestamp};

use super::acp_schema::ContentBlock;
use super::problem::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PromptStatus {
    Queued,
    Running,
    /// Ended by the agent; a cancelled turn too, with `stopReason: "cancelled"`.
    Completed,
    Failed,
}

impl PromptStatus {
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// A turn, exact at its `lastEventId`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prompt {
    pub prompt_id: PromptId,
    pub session_id: SessionId,
    pub status: PromptStatus,
    /// Why the agent stopped, in ACP's words.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// The agent's words on tokens, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The agent's messages of this turn, joined: 8 MiB at most.
    pub text: String,
    /// `text` lacks a part of the agent's messages; the events have all of them.
    pub truncated: bool,
    /// Whose key sent it.
    pub by: String,
    pub created_at: Timestamp,
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// `?after=` this on the session's events gives what follows.
    pub last_event_id: EventId,
    /// Why it failed.
    #[schema(required)]
    pub error: Option<Problem>,
}

/// A page of turns, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptList {
    pub prompts: Vec<Prompt>,
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A prompt: a text, or ACP's content blocks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePrompt {
    #[schema(value_type = PromptContent)]
    pub prompt: Box<RawValue>,
    /// Files of the session that go with it, behind its blocks.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub attachments: Vec<Attachment>,
    /// Wait behind the turn that runs, instead of 409.
    #[serde(default)]
    pub queue: bool,
}

/// A file of the session that goes with a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// As the routes of files take it: relative to `cwd`, or absolute.
    #[schema(min_length = 1, max_length = 4096)]
    pub path: String,
    /// The kind of its content block. Without it the file goes in by its content if the agent takes that (an image, a
    /// sound, a text that is not long), else as a link.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub kind: Option<AttachAs>,
}

/// Kinds of ACP's content blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttachAs {
    /// Only where it is and what; every agent takes it.
    ResourceLink,
    /// With its content, as text or base64: needs `embeddedContext`.
    Resource,
    /// Needs `image`.
    Image,
    /// Needs `audio`.
    Audio,
}

/// The schema of `prompt`.
#[derive(Debug)]
pub struct PromptContent;

impl PartialSchema for PromptContent {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("A text, or ACP's content blocks."))
            .item(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)))
            .item(ArrayBuilder::new().items(Ref::from_schema_name("ContentBlock")).min_items(Some(1)))
            .into()
    }
}

impl ToSchema for PromptContent {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        ContentBlock::schemas(schemas);
        schemas.push(("ContentBlock".to_owned(), ContentBlock::schema()));
    }
}

/// The turns that were cancelled.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    pub prompt_ids: Vec<PromptId>,
}
