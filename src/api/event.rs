//! The events of the log: the members of each event type.
//!
//! An event is one JSON object: the members of [`EventHead`], followed by the members of its type. The log
//! writes the head. The caller supplies the other members as bytes ([`EventMembers::members`]), so that the
//! agent's payload remains unchanged.

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

/// The first members of every event in the log.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventHead {
    /// The cursor of the event: `<epoch>-<seq>`.
    pub id: EventId,
    /// The number of the event in its session. It starts at 1 and has no gaps.
    #[schema(minimum = 1)]
    pub seq: u64,
    /// The event type, such as `session.update`.
    #[serde(rename = "type")]
    pub kind: String,
    pub session_id: SessionId,
    /// The time at which the gateway appended the event.
    pub time: Timestamp,
    /// The turn of the event; absent outside a turn.
    #[serde(default)]
    #[schema(nullable = false)]
    pub prompt_id: Option<PromptId>,
}

/// The members that are specific to an event type.
pub trait EventMembers: Serialize {
    /// The event's type.
    const TYPE: &'static str;

    /// Returns the members as JSON without braces. The result may be empty.
    fn members(&self) -> Vec<u8> {
        let mut object = serde_json::to_vec(self).expect("DTOs have string keys and no failing serializer");
        debug_assert!(object.starts_with(b"{") && object.ends_with(b"}"));
        object.pop();
        object.remove(0);
        object
    }
}

/// All event types, in the order of the documentation.
macro_rules! events {
    ($($name:ident $(<$life:lifetime>)? = $text:literal, $log:expr;)*) => {
        $(impl$(<$life>)? EventMembers for $name$(<$life>)? {
            const TYPE: &'static str = $text;
        })*

        /// The name of the Rust type, the event type, and whether the event is in the log (with an id). Used
        /// for the documentation.
        pub const TYPES: &[(&str, &str, bool)] = &[$((stringify!($name), $text, $log)),*];

        /// Returns the schemas of the specific members, in the order of [`TYPES`].
        pub fn schemas() -> Vec<utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>> {
            vec![$(<$name as utoipa::PartialSchema>::schema()),*]
        }

        /// Collects the schemas that these schemas refer to, by name.
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
    AgentInvalidOutput = "agent.invalid_output", true;
    Extension<'a> = "extension", true;
    Reset<'a> = "reset", false;
    Ready<'a> = "ready", false;
    PositionFrame = "position", false;
    ProblemFrame<'a> = "problem", false;
    ShutdownFrame = "shutdown", false;
    EndFrame<'a> = "end", false;
}

/// The first event of a session.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCreated<'a> {
    pub session: &'a Session,
    /// The session that this session was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub forked_from: Option<SessionId>,
    /// True if the agent had the session before the gateway adopted it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub adopted: bool,
}

/// The way in which a process received a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttachedBy {
    /// `session/new` created the session.
    New,
    /// `session/resume` restored the session.
    Resume,
    /// `session/load` restored the session.
    Load,
    /// The agent supports neither resume nor load. It starts without the earlier conversation.
    Fresh,
    /// The session was forked from another session.
    Fork,
    /// The agent already had the session.
    Adopt,
}

/// Whether the agent still has the earlier conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Context {
    Kept,
    Lost,
}

/// The reason why the agent lost the context of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LostReason {
    /// The agent reported that it does not have the session.
    NotFound,
    /// The agent can neither load nor resume a session.
    Unsupported,
    /// The agent reported that it had restored the session, and then rejected the session id of the first
    /// prompt.
    RejectedSession,
}

impl LostReason {
    /// Returns the text form in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Unsupported => "unsupported",
            Self::RejectedSession => "rejected_session",
        }
    }
}

/// A process of the agent holds the session now.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionAttached<'a> {
    pub by: AttachedBy,
    pub context: Context,
    /// The reason for the loss. Only with `context: "lost"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<LostReason>,
    /// The agent's error as one line of limited length, if there was one. Only with `context: "lost"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub detail: Option<&'a str>,
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<&'a RawValue>,
    #[schema(value_type = Object)]
    pub agent_capabilities: &'a RawValue,
    /// The agent's answer, raw ACP with the gateway's `sessionId`: `modes`, `configOptions`.
    #[schema(required, value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
}

/// The reason why a session lost its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DetachedReason {
    /// The session was idle for too long.
    Idle,
    /// The process ended.
    Exited,
    /// A client closed the session.
    Closed,
    /// The gateway is shutting down.
    Drain,
    /// The pool reclaimed the process for another session.
    Reclaimed,
}

/// The session has no process any more.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionDetached {
    pub reason: DetachedReason,
}

/// The members that a client changed.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionChanged<'a> {
    /// The principal that made the change.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub title: Option<Option<&'a str>>,
    /// The complete metadata after the change.
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

/// A client closed the session.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionClosed<'a> {
    pub by: &'a str,
}

/// The last event of a session. An `end` frame follows.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionDeleted<'a> {
    pub by: &'a str,
}

/// A prompt waits for the end of the running turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptQueued<'a> {
    /// The content blocks as the agent will receive them.
    #[schema(value_type = Vec<Object>)]
    pub prompt: &'a RawValue,
    /// The position in the queue; 1 is the next prompt.
    pub position: usize,
    /// The principal that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
}

/// A turn started.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptStarted<'a> {
    /// The content blocks as the agent received them. Absent after `prompt.queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    /// The principal that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
}

/// An update of the agent.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionUpdate<'a> {
    /// Raw ACP.
    #[schema(value_type = AcpUpdate)]
    pub update: &'a RawValue,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub meta: Option<&'a RawValue>,
    /// Other members that the agent sent beside `update`, raw. This version of the gateway does not know
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub more: Option<&'a RawValue>,
    /// The agent's id of the child session that sent the update. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// True if the update arrived after the end of its turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub late: bool,
    /// True for history that the agent replayed when the session was adopted or forked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub replayed: bool,
}

impl SessionUpdate<'_> {
    /// Encodes the members of an update without further members as slices. The bytes equal those of
    /// [`EventMembers::members`], without a copy.
    pub fn encode_parts<'a>(update: &'a [u8], meta: Option<&'a [u8]>, late: bool) -> [&'a [u8]; 5] {
        let late: &[u8] = if late { b",\"late\":true" } else { b"" };
        match meta {
            Some(meta) => [b"\"update\":", update, b",\"_meta\":", meta, late],
            None => [b"\"update\":", update, late, b"", b""],
        }
    }
}

/// The agent ended the turn.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptCompleted<'a> {
    /// The stop reason of ACP: `end_turn`, `cancelled`, ...
    pub stop_reason: &'a str,
    /// The agent's answer, raw ACP.
    #[schema(value_type = Value)]
    pub result: &'a RawValue,
    /// The token usage of the turn, raw ACP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub usage: Option<&'a RawValue>,
}

/// The turn failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PromptFailed<'a> {
    pub problem: &'a Problem,
}

/// The agent sent a request that clients can answer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestCreated<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    /// Raw ACP, with the gateway's `sessionId`.
    #[schema(value_type = RequestParams)]
    pub params: &'a RawValue,
    /// The agent's id of the child session that sent the request. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
    /// The time at which the permission policy answers the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deadline: Option<Timestamp>,
}

/// A request of the agent was answered or ended in another way.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestResolved<'a> {
    pub request_id: RequestId,
    pub method: &'a str,
    pub resolution: Resolution,
    /// The principal that answered. Absent unless a client answered.
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

/// The agent reported that an elicitation with mode `url` is complete.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationCompleted<'a> {
    pub elicitation_id: &'a str,
    /// Other members that the agent sent, raw.
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

/// A terminal printed output.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalOutput<'a> {
    pub terminal_id: TerminalId,
    /// The number of output bytes before `data`. It counts output that the log omitted, so it may exceed the
    /// logged bytes.
    pub offset: u64,
    /// Output of the command to stdout and stderr, as complete characters.
    pub data: &'a str,
}

/// The last event of a terminal.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminalExited<'a> {
    pub terminal_id: TerminalId,
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// A signal name such as `SIGKILL`. If `exitCode` is null too, the cause of the exit is unknown.
    #[schema(required)]
    pub signal: Option<&'a str>,
}

/// The process that held the session ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentExited<'a> {
    #[schema(required)]
    pub exit_code: Option<i32>,
    #[schema(required)]
    pub signal: Option<&'a str>,
    /// The last output of the process to stderr.
    pub stderr_tail: &'a str,
}

/// The agent wrote invalid JSON-RPC to stdout. The event counts the lines and does not contain them.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AgentInvalidOutput {
    pub lines: u64,
    pub bytes: u64,
}

/// A notification that the gateway does not know.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Extension<'a> {
    pub method: &'a str,
    #[schema(required, value_type = Option<Value>)]
    pub params: Option<&'a RawValue>,
    /// The agent's id of the child session that sent the notification.
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
    /// The cursor for `after` on the next page.
    pub last_event_id: String,
    /// True if more events exist.
    pub more: bool,
}

/// The schema of all events: a union by `type`.
#[derive(Debug)]
pub struct SessionEvent;
