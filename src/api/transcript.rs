//! The transcript: a session's events folded into turns.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::types::{EventId, PromptId, RequestId, Timestamp};

use super::acp_schema::{ContentBlock, PermissionOption, RequestParams};
use super::problem::Problem;
use super::prompt::PromptStatus;
use super::request::Resolution;
use super::session::Session;
use super::terminal::TerminalExit;

/// A page of turns, the newest first, and the session at the same cursor.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transcript {
    pub session: Session,
    pub turns: Vec<Turn>,
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// `?after=` this on the session's events continues the transcript without a gap.
    pub last_event_id: EventId,
}

/// A turn: what was asked, what the agent said and did, and how it ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    pub prompt_id: PromptId,
    pub status: PromptStatus,
    /// Why the agent stopped, in ACP's words.
    #[schema(required)]
    pub stop_reason: Option<String>,
    /// Whose key sent it; null when the log's retention has taken the turn's beginning.
    #[schema(required)]
    pub by: Option<String>,
    pub created_at: Timestamp,
    #[schema(required)]
    pub ended_at: Option<Timestamp>,
    /// The blocks as the agent got them, raw ACP; null as `by`.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub prompt: Option<Box<RawValue>>,
    /// In the order in which each of them first appeared.
    pub items: Vec<TurnItem>,
    /// The plan as the turn left it, raw ACP; null if the turn did not touch it.
    #[schema(required, value_type = Option<Object>)]
    pub plan: Option<Box<RawValue>>,
    /// The tokens of the turn, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The last `usage_update` of the turn: how full the agent's context is, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub context_usage: Option<Box<RawValue>>,
    /// Why it failed.
    #[schema(required, value_type = Option<Problem>)]
    pub error: Option<Box<RawValue>>,
    /// The turn is larger than a transcript shows, and parts are left out here; the events have them.
    pub truncated: bool,
}

/// Something that was said or done. Clients must expect types that they do not know.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnItem {
    Message(TurnMessage),
    ToolCall(TurnToolCall),
    AgentTerminal(TurnTerminal),
    Request(TurnRequest),
    Notice(TurnNotice),
    Compaction(TurnCompaction),
    Subagent(TurnSubagent),
    SessionMessage(TurnSessionMessage),
    ContextLost(ContextLost),
    Other(TurnOther),
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What the agent shows as said by the user.
    User,
    Agent,
    /// The agent thinks aloud.
    Thought,
}

/// A message, put together from its chunks.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnMessage {
    pub role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub message_id: Option<String>,
    /// Content blocks, raw ACP; consecutive texts are joined into one.
    #[schema(value_type = Vec<ContentBlock>)]
    pub content: Vec<Box<RawValue>>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    /// It came after the turn's end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// A tool call as its updates left it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnToolCall {
    /// Raw ACP: `toolCallId` and what the agent told of `title`, `kind`, `status`, `content`, `locations`,
    /// `rawInput`, `rawOutput`, ...
    #[schema(value_type = Object)]
    pub tool_call: Box<RawValue>,
    /// Present when the turn ended while the agent had not ended this call. `toolCall.status` is then `failed`; the
    /// events show the status that the agent sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub settled: Option<Settled>,
    /// Output of commands that the agent ran by itself and reported in `_meta` of the call's updates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub commands: Vec<CommandOutput>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// Why a tool call counts as ended that its agent left open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// The turn was cancelled.
    Cancelled,
    /// The turn completed or failed, and the agent never reported the end of the call.
    Unfinished,
}

/// Output of one command of a tool call, from the members `terminal_info`, `terminal_output`,
/// `terminal_output_delta` and `terminal_exit` of `_meta`.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutput {
    /// The agent's id of the terminal. A content item of type `terminal` names it too.
    pub terminal_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cwd: Option<String>,
    /// The last MiB of the output.
    pub output: String,
    /// Earlier output is left out here; the events have it.
    pub truncated: bool,
    /// Null: the agent did not report the end of the command.
    #[schema(required)]
    pub exit_status: Option<TerminalExit>,
}

/// One of the agent's own terminals, as its updates left it (ACP v2).
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnTerminal {
    /// Raw ACP: `terminalId` and what the agent told of `command`, `cwd`, `exitStatus`, `size`, ...; `output.data` is
    /// all that it has shown, in base64.
    #[schema(value_type = Object)]
    pub terminal: Box<RawValue>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// A request of the agent and what became of it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnRequest {
    pub request_id: RequestId,
    pub method: String,
    /// The agent's id of the child session that asked; absent: the session itself did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    /// The tool call that a permission was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tool_call_id: Option<String>,
    /// The options of a permission request, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<PermissionOption>>, nullable = false)]
    pub options: Option<Box<RawValue>>,
    /// The params of any other request, raw ACP, and of a permission request of ACP v2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RequestParams>, nullable = false)]
    pub params: Option<Box<RawValue>>,
    pub created_at: Timestamp,
    /// Null while it waits.
    #[schema(required)]
    pub resolution: Option<Resolution>,
    #[schema(required)]
    pub resolved_at: Option<Timestamp>,
    /// Who answered.
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

/// Something that the agent wants people to know.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnNotice {
    /// Raw ACP: `severity`, `title`, `description`.
    #[schema(value_type = Object)]
    pub notice: Box<RawValue>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// The agent made its context shorter.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnCompaction {
    /// Raw ACP: `compactionId`, `status`, `error`.
    #[schema(value_type = Object)]
    pub compaction: Box<RawValue>,
    /// What was kept: content blocks, raw ACP.
    #[schema(value_type = Vec<ContentBlock>)]
    pub summary: Vec<Box<RawValue>>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// A child session of the agent, as its updates left it.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSubagent {
    /// Raw ACP: `sessionId` (the agent's id of the child), `title`, `description`, `state`, ...
    #[schema(value_type = Object)]
    pub child: Box<RawValue>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// A message between sessions of the agent: from or to a child.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnSessionMessage {
    /// Raw ACP: `messageId`, `senderSessionId`, `recipientSessionId`, ...
    #[schema(value_type = Object)]
    pub message: Box<RawValue>,
    /// Content blocks, raw ACP; consecutive texts are joined into one.
    #[schema(value_type = Vec<ContentBlock>)]
    pub content: Vec<Box<RawValue>>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}

/// The agent could not take the session up again: from here it does not know what was said before.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextLost {
    pub at: Timestamp,
}

/// An update of a kind that this version does not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnOther {
    pub session_update: String,
    /// Raw ACP.
    #[schema(value_type = Object)]
    pub update: Box<RawValue>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
}
