//! The transcript: the events of a session, folded into turns.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::api::{CancelCause, PromptStatus, Resolution};
use base::types::{EventId, PromptId, RequestId, Timestamp};

use super::problem::Problem;
use super::schema::{ContentBlock, PermissionOption, RequestParams, union};
use super::session::Session;
use super::terminal::TerminalExit;

/// A page of turns, the newest first, and the session at the same cursor.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    pub session: Session,
    pub turns: Vec<Turn>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// The cursor for `after` on the session's events. The stream then continues after this state without a
    /// gap.
    pub last_event_id: EventId,
}

/// A turn: the prompt, the messages and actions of the agent, and the result.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub prompt_id: PromptId,
    pub status: PromptStatus,
    /// The agent's stop reason, a value of ACP such as `end_turn`.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// Why the gateway cancelled the turn. Absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The user that sent the prompt. Null if retention deleted the start of the turn.
    #[schema(required)]
    pub by: Option<String>,
    pub created_at: Timestamp,
    /// Null until the turn ends.
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// The content blocks that the agent received, raw ACP. Null if retention deleted the start of the turn.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub prompt: Option<Box<RawValue>>,
    /// The items of the turn, in the order of their first event.
    pub items: Vec<TurnItem>,
    /// The plan at the end of the turn, raw ACP. Null if the turn did not change it.
    #[schema(required, value_type = Option<Object>)]
    pub plan: Option<Box<RawValue>>,
    /// The token usage of the turn, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The last `usage_update` of the turn, raw ACP. It reports the fill level of the agent's context.
    #[schema(required, value_type = Option<Object>)]
    pub context_usage: Option<Box<RawValue>>,
    /// The problem of a failed turn.
    #[schema(required, value_type = Option<Problem>)]
    pub error: Option<Box<RawValue>>,
    /// True if the turn exceeds the size limit of a transcript and items are omitted. The events contain all
    /// items.
    pub truncated: bool,
}

/// An item of a turn. Clients must ignore unknown types.
#[derive(Debug, Clone, Serialize)]
pub struct TurnItem {
    #[serde(flatten)]
    pub body: TurnItemBody,
    /// The agent's id of the child session of the item. `None` for the session itself, and for a request, which has a
    /// member of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// True if the item first appeared after the end of the turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// Declares the types of items: the enum of all of them, and their OpenAPI schemas. The last text of a type is the part of
/// the child session in the item; a type without it has neither `subagent` nor `late`.
macro_rules! items {
    ($($variant:ident($name:ident) = $kind:literal $(, $child:literal)?;)*) => {
        #[derive(Debug, Clone, Serialize)]
        #[serde(tag = "type")]
        pub enum TurnItemBody {
            $(#[serde(rename = $kind)] $variant($name),)*
        }

        impl PartialSchema for TurnItem {
            fn schema() -> RefOr<Schema> {
                union(
                    "An item of a turn. `type` selects the schema. Clients must ignore unknown types.",
                    &[$(($kind, stringify!($name))),*],
                )
            }
        }

        impl ToSchema for TurnItem {
            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                $(
                    <$name as ToSchema>::schemas(schemas);
                    let child = None::<&str>$(.or(Some($child)))?;
                    let item = item_schema($kind, child, $name::schema());
                    schemas.push((stringify!($name).to_owned(), item));
                )*
            }
        }
    };
}

items! {
    Message(TurnMessage) = "message", "that sent the message";
    ToolCall(TurnToolCall) = "tool_call", "of the call";
    AgentTerminal(TurnTerminal) = "agent_terminal", "of the terminal";
    Request(TurnRequest) = "request";
    Notice(TurnNotice) = "notice", "that sent the notice";
    Compaction(TurnCompaction) = "compaction", "that compacted its context";
    Subagent(TurnSubagent) = "subagent", "that started this child";
    SessionMessage(TurnSessionMessage) = "session_message", "that sent the update";
    ContextLost(ContextLost) = "context_lost";
    Other(TurnOther) = "other", "that sent the update";
}

/// Adds the members that serde writes before and after those of the struct.
fn item_schema(kind: &str, child: Option<&str>, schema: RefOr<Schema>) -> RefOr<Schema> {
    let RefOr::T(Schema::Object(mut item)) = schema else {
        unreachable!("items are derived from structs, which are objects");
    };
    let member = |kind| ObjectBuilder::new().schema_type(kind);
    let types = member(Type::String).enum_values(Some([kind]));
    item.properties.insert("type".to_owned(), types.into());
    item.required.insert(0, "type".to_owned());
    if let Some(child) = child {
        let text =
            format!("The agent's id of the child session {child}. Absent for the session itself.");
        let subagent = member(Type::String).description(Some(text));
        item.properties
            .insert("subagent".to_owned(), subagent.into());
        let appeared = match kind {
            "message" => "the message arrived",
            _ => "the item first appeared",
        };
        let text = format!("True if {appeared} after the end of the turn.");
        let late = member(Type::Boolean).description(Some(text));
        item.properties.insert("late".to_owned(), late.into());
    }
    RefOr::T(Schema::Object(item))
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A message that the agent shows as a message of the user.
    User,
    Agent,
    /// A thought of the agent.
    Thought,
}

/// A message, joined from its chunks.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnMessage {
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub message_id: Option<String>,
    /// Content blocks, raw ACP. Consecutive texts are joined into one block.
    #[schema(value_type = Vec<ContentBlock>)]
    pub content: Vec<Box<RawValue>>,
}

/// A tool call after its last update.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnToolCall {
    /// Raw ACP: `toolCallId`, and the members that the agent reported, such as `title`, `kind`, `status`,
    /// `content`, `locations`, `rawInput` and `rawOutput`.
    #[schema(value_type = Object)]
    pub tool_call: Box<RawValue>,
    /// Present if the turn ended before the agent reported the end of this call. `toolCall.status` is then
    /// `failed`. The events contain the status that the agent sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub settled: Option<Settled>,
    /// Output of commands that the agent ran itself and reported in `_meta` of the call's updates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub commands: Vec<CommandOutput>,
}

/// The reason why an unfinished tool call counts as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The turn was cancelled.
    Cancelled,
    /// The turn completed or failed, but the agent did not report the end of the call.
    Unfinished,
}

/// The output of one command of a tool call, from the members `terminal_info`, `terminal_output`,
/// `terminal_output_delta` and `terminal_exit` of `_meta`.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutput {
    /// The agent's id of the terminal. A content item of type `terminal` contains the same id.
    pub terminal_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cwd: Option<String>,
    /// The last MiB of the output.
    pub output: String,
    /// True if earlier output is omitted. The events contain it.
    pub truncated: bool,
    /// The exit status. Null if the agent did not report the end of the command.
    #[schema(required)]
    pub exit_status: Option<TerminalExit>,
}

/// A terminal of the agent after its last update (ACP v2).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnTerminal {
    /// Raw ACP: `terminalId`, and the members that the agent reported, such as `command`, `cwd`, `exitStatus`
    /// and `size`. `output.data` is the complete output in base64.
    #[schema(value_type = Object)]
    pub terminal: Box<RawValue>,
}

/// A request of the agent and its resolution.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnRequest {
    pub request_id: RequestId,
    pub method: String,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    /// The tool call of a permission request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_call_id: Option<String>,
    /// The options of a permission request, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<PermissionOption>>, nullable = false)]
    pub options: Option<Box<RawValue>>,
    /// The params of any other request, and of a permission request of ACP v2, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RequestParams>, nullable = false)]
    pub params: Option<Box<RawValue>>,
    pub created_at: Timestamp,
    /// Null while the request waits for an answer.
    #[schema(required)]
    pub resolution: Option<Resolution>,
    /// Null while the request waits for an answer.
    #[schema(required)]
    pub resolved_at: Option<Timestamp>,
    /// The user that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<String>,
    /// The answer, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub error: Option<Box<RawValue>>,
}

/// A notice of the agent to the user.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnNotice {
    /// Raw ACP: `severity`, `title`, `description`.
    #[schema(value_type = Object)]
    pub notice: Box<RawValue>,
}

/// The agent compacted its context.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnCompaction {
    /// Raw ACP: `compactionId`, `status`, `error`.
    #[schema(value_type = Object)]
    pub compaction: Box<RawValue>,
    /// The summary that remains in the context: content blocks, raw ACP.
    #[schema(value_type = Vec<ContentBlock>)]
    pub summary: Vec<Box<RawValue>>,
}

/// A child session of the agent after its last update.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSubagent {
    /// Raw ACP: `sessionId` (the agent's id of the child), `title`, `description`, `state`, ...
    #[schema(value_type = Object)]
    pub child: Box<RawValue>,
}

/// A message between two sessions of the agent, from or to a child session.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSessionMessage {
    /// Raw ACP: `messageId`, `senderSessionId`, `recipientSessionId`, ...
    #[schema(value_type = Object)]
    pub message: Box<RawValue>,
    /// Content blocks, raw ACP. Consecutive texts are joined into one block.
    #[schema(value_type = Vec<ContentBlock>)]
    pub content: Vec<Box<RawValue>>,
}

/// The agent could not restore the session. After this item, the agent does not have the earlier
/// conversation.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextLost {
    /// The time of the loss.
    pub at: Timestamp,
}

/// An update of a kind that this version of the gateway does not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnOther {
    /// The kind of the update.
    pub session_update: String,
    /// Raw ACP.
    #[schema(value_type = Object)]
    pub update: Box<RawValue>,
}
