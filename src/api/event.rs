//! The events of the log: for each type the members that are its own.
//!
//! An event is one JSON object: the members of [`EventHead`], then those of its type. The log frames the head;
//! whoever appends gives the rest as bytes ([`EventMembers::members`]), so that an agent's words stay as they came.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::types::{EventId, PromptId, RequestId, SessionId, TerminalId, Timestamp};

use super::acp_schema::{AcpUpdate, RequestParams};
pub use super::frame::{
    EndFrame, EndReason, PositionFrame, ProblemFrame, Ready, Reset, ResetReason, ShutdownFrame,
};
use super::problem::Problem;
use super::request::Resolution;
use super::session::Session;

/// What every event of the log begins with.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventHead {
    pub id: EventId,
    /// Counts a session's events from 1 without a hole.
    #[schema(minimum = 1)]
    pub seq: u64,
    #[serde(rename = "type")]
    pub kind: String,
    pub session_id: SessionId,
    pub time: Timestamp,
    /// The turn that it belongs to.
    #[serde(default)]
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
}

/// The members of an event that are its type's own.
pub trait EventMembers: Serialize {
    /// The event's type.
    const TYPE: &'static str;

    /// As they stand in the event: JSON members without braces, perhaps none.
    fn members(&self) -> Vec<u8> {
        let mut object = serde_json::to_vec(self).expect("DTOs have string keys and no failing serializer");
        debug_assert!(object.starts_with(b"{") && object.ends_with(b"}"));
        object.pop();
        object.remove(0);
        object
    }
}

/// Every type of event, in the order of the documentation.
macro_rules! events {
    ($($name:ident $(<$life:lifetime>)? = $text:literal, $log:expr;)*) => {
        $(impl$(<$life>)? EventMembers for $name$(<$life>)? {
            const TYPE: &'static str = $text;
        })*

        /// Name of the Rust type, type of the event, and whether it is in the log (with an id), for the documentation.
        pub const TYPES: &[(&str, &str, bool)] = &[$((stringify!($name), $text, $log)),*];

        /// The schemas of the types' own members, in the order of [`TYPES`].
        pub fn schemas() -> Vec<utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>> {
            vec![$(<$name as utoipa::PartialSchema>::schema()),*]
        }

        /// The schemas that those refer to, by name.
        pub fn referenced_schemas(
            schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>)>,
        ) {
            $(<$name as utoipa::ToSchema>::schemas(schemas);)*
        }
    };
}

events! {
    SessionCreated<'a> = "session.created", true;
    SessionAttached<'a> = "session.attached", true;
    SessionDetached = "session.detached", true;
    SessionChanged<'a> = "session.changed", true;
    SessionClosed<'a> = "session.closed", true;
    SessionDeleted<'a> = "session.deleted", true;
    PromptQueued<'a> = "prompt.queued", true;
    PromptStarted<'a> = "prompt.started", true;
    SessionUpdate<'a> = "session.update", true;
    PromptCompleted<'a> = "prompt.completed", true;
    PromptFailed<'a> = "prompt.failed", true;
    RequestCreated<'a> = "request.created", true;
    RequestResolved<'a> = "request.resolved", true;
    ElicitationCompleted<'a> = "elicitation.completed", true;
    TerminalCreated<'a> = "terminal.created", true;
    TerminalOutput<'a> = "terminal.output", true;
    TerminalExited<'a> = "terminal.exited", true;
    AgentExited<'a> = "agent.exited", true;
    AgentNoise = "agent.noise", true;
    Ext<'a> = "ext", true;
    Reset<'a> = "reset", false;
    Ready<'a> = "ready", false;
    PositionFrame = "position", false;
    ProblemFrame<'a> = "problem", false;
    ShutdownFrame = "shutdown", false;
    EndFrame<'a> = "end", false;
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCreated<'a> {
    pub session: &'a Session,
    /// The session that the agent has made it of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub forked_from: Option<SessionId>,
    /// The agent had it before the gateway did.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub adopted: bool,
}

/// How a process came to hold a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttachedBy {
    New,
    Resume,
    Load,
    /// The agent could neither resume nor load: it has forgotten what was said.
    Fresh,
    /// It was made of another session.
    Fork,
    /// The agent had it already.
    Adopt,
}

/// Whether the agent still knows what was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Context {
    Kept,
    Lost,
}

/// Why the agent lost the context of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// The agent reported that it does not have the session.
    NotFound,
    /// The agent can neither load nor resume a session.
    Unsupported,
    /// The agent reported that it had restored the session, and then rejected the session id of the first prompt.
    RejectedSession,
}

impl LostReason {
    /// As it is spelled on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Unsupported => "unsupported",
            Self::RejectedSession => "rejected_session",
        }
    }
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionAttached<'a> {
    pub by: AttachedBy,
    pub context: Context,
    /// Only with `context: "lost"`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<LostReason>,
    /// Only with `context: "lost"`: the agent's error, if there was one, as one line of bounded length.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub detail: Option<&'a str>,
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<&'a RawValue>,
    #[schema(value_type = Object)]
    pub agent_capabilities: &'a RawValue,
    /// The agent's answer, raw ACP with our `sessionId`: `modes`, `configOptions`.
    #[schema(required, value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
}

/// Why a session lost its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DetachedReason {
    Idle,
    Exited,
    Closed,
    Drain,
    Recycled,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionDetached {
    pub reason: DetachedReason,
}

/// What a client changed, only that.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionChanged<'a> {
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<Option<&'a str>>,
    /// As it is now, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    pub metadata: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub current_mode_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub config_options: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionClosed<'a> {
    pub by: &'a str,
}

/// The last event of its session. `end` follows it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionDeleted<'a> {
    pub by: &'a str,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptQueued<'a> {
    /// The blocks as the agent will get them.
    #[schema(value_type = Vec<Object>)]
    pub prompt: &'a RawValue,
    pub position: usize,
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptStarted<'a> {
    /// The blocks as the agent got them; absent after `prompt.queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionUpdate<'a> {
    /// Raw ACP.
    #[schema(value_type = AcpUpdate)]
    pub update: &'a RawValue,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub meta: Option<&'a RawValue>,
    /// Further members that the agent sent beside `update`, raw: what this version of the gateway does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
    /// The agent's id of the child session that it is of; absent: it is of the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// It came after its turn's end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
    /// It is history that the agent told when the session was adopted or forked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub replayed: bool,
}

impl SessionUpdate<'_> {
    /// The members of an update that has none but these, in pieces: what [`EventMembers::members`] gives, and no copy.
    pub fn encode_parts<'a>(update: &'a [u8], meta: Option<&'a [u8]>, late: bool) -> [&'a [u8]; 5] {
        let late: &[u8] = if late { b",\"late\":true" } else { b"" };
        match meta {
            Some(meta) => [b"\"update\":", update, b",\"_meta\":", meta, late],
            None => [b"\"update\":", update, late, b"", b""],
        }
    }
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptCompleted<'a> {
    /// ACP's word: `end_turn`, `cancelled`, ...
    pub stop_reason: &'a str,
    /// The agent's answer, raw ACP.
    #[schema(value_type = Value)]
    pub result: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub usage: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PromptFailed<'a> {
    pub problem: &'a Problem,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCreated<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// Raw ACP, with our `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: &'a RawValue,
    /// The agent's id of the child session that asks; absent: the session itself does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// When the policy answers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deadline: Option<Timestamp>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestResolved<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    pub resolution: Resolution,
    /// Who answered, if a client did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub error: Option<&'a RawValue>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationCompleted<'a> {
    pub elicitation_id: &'a str,
    /// Further members that the agent sent, raw.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
}

/// The gateway runs a command for the agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalCreated<'a> {
    pub terminal_id: TerminalId,
    pub command: &'a str,
    pub args: &'a [String],
    pub cwd: &'a str,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalOutput<'a> {
    pub terminal_id: TerminalId,
    /// Bytes of output that came before `data`. It is more than what was logged where output was too much for the log.
    pub offset: u64,
    /// Whole characters of what the command wrote to stdout and stderr.
    pub data: &'a str,
}

/// The last event of a terminal.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExited<'a> {
    pub terminal_id: TerminalId,
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// Spelled as in `SIGKILL`. Null with `exitCode` when nobody knows how it ended.
    #[schema(required)]
    pub signal: Option<&'a str>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentExited<'a> {
    #[schema(required)]
    pub exit_code: Option<i32>,
    #[schema(required)]
    pub signal: Option<&'a str>,
    pub stderr_tail: &'a str,
}

/// What the agent wrote to stdout that is not JSON-RPC: counted, not shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AgentNoise {
    pub lines: u64,
    pub bytes: u64,
}

/// A notification that we do not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Ext<'a> {
    pub method: &'a str,
    #[schema(required, value_type = Option<Value>)]
    pub params: Option<&'a RawValue>,
    /// The agent's id of the child session that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
}

/// A page of events.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventPage {
    #[schema(value_type = Vec<SessionEvent>)]
    pub events: Vec<Box<RawValue>>,
    /// For `after`: the next page continues there.
    pub last_event_id: String,
    /// There is more right now.
    pub more: bool,
}

/// The schema of all events: a union by `type`.
#[derive(Debug)]
pub struct SessionEvent;
