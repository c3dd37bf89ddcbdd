//! Sessions as clients see them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::types::{AgentName, EventId, Position, PromptId, ServedBy, SessionId, Timestamp};

use super::problem::Problem;
use super::request::PendingRequest;

/// What a session does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// Nothing runs.
    Idle,
    /// A turn runs.
    Running,
    /// A turn runs and a request of the agent waits for an answer.
    Waiting,
    /// Closed: the log can be read, prompts are refused until `attach`.
    Closed,
}

/// A session, exact at its `lastEventId`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    pub agent: AgentName,
    #[schema(required)]
    pub title: Option<String>,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The working folder that the agent was given.
    pub cwd: String,
    pub state: SessionState,
    /// A process of the agent holds this session now.
    pub attached: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The turn that runs.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    /// The turns that wait, first comes first.
    pub queued: Vec<PromptId>,
    /// The agent's requests that wait for an answer.
    pub requests: Vec<PendingRequest>,
    /// What the agent takes in prompts, as it said at `initialize`.
    #[schema(required, value_type = Option<Object>)]
    pub prompt_capabilities: Option<Box<RawValue>>,
    /// The agent's modes, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub modes: Option<Box<RawValue>>,
    /// The agent's options, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub config_options: Option<Box<RawValue>>,
    /// The agent's slash commands, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub available_commands: Option<Box<RawValue>>,
    /// The agent's plan, raw ACP.
    #[schema(required, value_type = Option<Value>)]
    pub plan: Option<Box<RawValue>>,
    /// The agent's last words on tokens and cost, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The agent's child sessions as it last told of them, raw ACP: the members of its `subagent_update`s. Absent when it
    /// runs none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub subagents: Vec<Box<RawValue>>,
    pub policy: SessionPolicy,
    /// `?after=` this on the session's events continues the snapshot without a gap.
    pub last_event_id: EventId,
}

impl Session {
    /// A snapshot is what the log said up to its last event, so that event names its version.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.last_event_id)
    }
}

/// A session in a list: without what is folded from the agent's words.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    pub session_id: SessionId,
    pub agent: AgentName,
    #[schema(required)]
    pub title: Option<String>,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    pub cwd: String,
    pub state: SessionState,
    pub attached: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    pub queued: Vec<PromptId>,
    pub last_event_id: EventId,
}

impl From<Session> for SessionSummary {
    fn from(session: Session) -> Self {
        Self {
            session_id: session.session_id,
            agent: session.agent,
            title: session.title,
            metadata: session.metadata,
            cwd: session.cwd,
            state: session.state,
            attached: session.attached,
            created_at: session.created_at,
            updated_at: session.updated_at,
            prompt_id: session.prompt_id,
            queued: session.queued,
            last_event_id: session.last_event_id,
        }
    }
}

/// A page of sessions, the newest `updatedAt` first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    pub sessions: Vec<SessionSummary>,
    /// For the next page; null on the last.
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// A cursor of `/v1/events`: what it gives after this is newer than the list.
    pub last_event_id: Position,
}

/// The result of a bulk call for one session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResult {
    pub session_id: SessionId,
    /// The status with which the call for this session alone answers: 200 when the session is closed, 204 when it is
    /// deleted, 202 when its deletion is accepted while the disk is full, otherwise the status of `problem`.
    #[schema(minimum = 200, maximum = 599)]
    pub status: u16,
    /// Why the session was left as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// The result of a bulk call for a batch of sessions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResults {
    pub results: Vec<BulkResult>,
    /// The `cursor` of the next batch; null when no other session fits.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// What happens to a permission request that nobody answers in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unanswered {
    Reject,
    Wait,
}

/// Who answers permission requests.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PermissionPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// How long a request waits for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 86_400)]
    pub after_seconds: Option<u64>,
    /// Kinds of tool calls that are allowed without asking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

/// What a session's agent may do. A client may only narrow what the agent's entry has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<ServedBy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminals: Option<ServedBy>,
}
