//! Events about the life of a session and its turns.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::{AcpRequest, CancelCause, Problem, Session};
use base::types::{AppliedIsolation, ModeSelection, PromptId, SessionId};

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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum LostReason {
    /// The agent reported that it does not have the session.
    NotFound,
    /// The agent can neither load nor resume a session.
    Unsupported,
    /// The agent reported that it had restored the session, and then rejected the session id of the first
    /// prompt.
    RejectedSession,
    /// The agent refused to restore the session, for an unknown reason, in several attempts to attach.
    NotRestored,
    /// A client asked for a new conversation.
    Requested,
    /// The session was imported. The agent of the previous gateway has the conversation.
    Imported,
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
    /// The isolation of the process. Null if the agent is not a child process of the gateway.
    #[schema(required)]
    pub isolation: Option<AppliedIsolation>,
    /// The version of ACP that the gateway and the agent negotiated.
    pub protocol_version: u64,
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<&'a RawValue>,
    #[schema(value_type = Object)]
    pub agent_capabilities: &'a RawValue,
    /// The agent's answer, raw ACP with the gateway's `sessionId`: `modes`, `configOptions`.
    #[schema(required, value_type = Option<Value>)]
    pub result: Option<&'a RawValue>,
    /// The modes and the values of options in `result` that no client can select (`modes.deny` of the agent's entry).
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(required = false)]
    pub denied_modes: &'a [ModeSelection],
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
    /// The user that made the change.
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

/// The agent entered a mode that no client can select (`modes.deny` of its entry). The gateway does not change the mode.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionPrivilegedMode<'a> {
    /// The id of the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode_id: Option<&'a str>,
    /// The id of the option that selects the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config_id: Option<&'a str>,
    /// The value of the option. Absent for an option that is switched on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value: Option<&'a str>,
    /// The agent's id of the child session that entered the mode. Absent for the session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subagent: Option<&'a str>,
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
    /// The user that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
    /// The broadcast that sent the prompt. Absent for another prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub broadcast_id: Option<Uuid>,
}

/// A client changed a queued prompt: its content, its place in the queue, or both.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptChanged<'a> {
    /// The new content blocks. Absent if they stay the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    /// The queued prompt before which this one is now; null at the end of the queue. Absent if the place stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PromptId>)]
    pub before: Option<Option<PromptId>>,
    /// The user that changed the prompt.
    pub by: &'a str,
}

/// A turn started.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptStarted<'a> {
    /// The content blocks as the agent received them. Absent after `prompt.queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>, nullable = false)]
    pub prompt: Option<&'a RawValue>,
    /// The user that sent the prompt.
    pub by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<&'a str>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
    /// The broadcast that sent the prompt. Absent for another prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub broadcast_id: Option<Uuid>,
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
    /// Why the gateway cancelled the turn. Absent for a turn that the agent ended itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
}

/// The turn failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromptFailed<'a> {
    pub problem: &'a Problem,
    /// Why the gateway cancelled the turn before it failed. Absent for a turn that was not cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cancel_cause: Option<CancelCause>,
    /// The request of the ACP client that sent the prompt. Absent for a prompt over another protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub acp_request: Option<&'a AcpRequest>,
}
