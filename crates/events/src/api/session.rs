//! Sessions, their modes and their options. The values of modes and options are raw ACP.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::problem::Problem;
use super::request::PendingRequest;
use super::schema::OptionValue;
use base::types::{
    AgentName, AppliedIsolation, EventId, ModeSelection, Position, PromptId, SessionId,
    SessionPolicy, SessionState, Timestamp, TurnOutcome,
};

/// The source of a session's title.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TitleBy {
    /// A client set it. Titles of the agent do not change it.
    Client,
    /// The agent set it, or a fork took it from its parent.
    Agent,
    /// The beginning of the first prompt.
    Prompt,
}

/// A session. The object is the exact state at its `lastEventId`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub session_id: SessionId,
    pub agent: AgentName,
    /// The title from a client, else from the agent, else the beginning of the first prompt; null before the first
    /// prompt.
    #[schema(required)]
    pub title: Option<String>,
    /// The source of the title; null without a title.
    #[schema(required)]
    pub title_by: Option<TitleBy>,
    /// Arbitrary data of clients.
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    /// The working directory of the agent, an absolute path.
    pub cwd: String,
    pub state: SessionState,
    /// True if a process of the agent holds this session.
    pub attached: bool,
    /// The isolation of the latest process of this session. Null if no process has held the session, or if the
    /// agent runs on another host.
    #[schema(required)]
    pub isolation: Option<AppliedIsolation>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The time of the last change of a turn or of a request: a prompt was accepted, started or ended, or a request
    /// was opened or resolved. The time of creation before the first one.
    pub last_activity_at: Timestamp,
    /// The outcome of the turn that ended last; null before the end of the first turn.
    #[schema(required)]
    pub last_outcome: Option<TurnOutcome>,
    /// The running turn.
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    /// The queued turns, oldest first.
    pub queued: Vec<PromptId>,
    /// The requests of the agent that wait for an answer.
    pub requests: Vec<PendingRequest>,
    /// The agent's `promptCapabilities` from `initialize`: the content types that it supports in prompts.
    #[schema(required, value_type = Option<Object>)]
    pub prompt_capabilities: Option<Box<RawValue>>,
    /// The agent's modes, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub modes: Option<Box<RawValue>>,
    /// The agent's options, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub config_options: Option<Box<RawValue>>,
    /// The modes and the values of options that the agent offers and that no client can select (`modes.deny` of the
    /// agent's entry). Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub denied_modes: Vec<ModeSelection>,
    /// The agent's slash commands, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub available_commands: Option<Box<RawValue>>,
    /// The agent's plan, raw ACP.
    #[schema(required, value_type = Option<Value>)]
    pub plan: Option<Box<RawValue>>,
    /// The last usage report of the agent (tokens and cost), raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub usage: Option<Box<RawValue>>,
    /// The child sessions of the agent, raw ACP: the merged members of the `subagent_update`s of each child.
    /// Absent without child sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<Object>)]
    pub subagents: Vec<Box<RawValue>>,
    /// The restrictions that a client set for the session.
    pub policy: SessionPolicy,
    /// The number of changes of title, metadata, mode and options. `If-Match: "r<revision>"` makes a change or a delete
    /// conditional on it.
    pub revision: u64,
    /// The task that runs in the session. Absent for other sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub task_id: Option<Uuid>,
    /// The cursor for `after` on the session's events. The stream then continues after this state without a
    /// gap.
    pub last_event_id: EventId,
}

impl Session {
    /// Returns the tag that `If-Match` of a change compares, for a session with this revision. An event id is never
    /// equal to it.
    pub fn revision_tag(revision: u64) -> String {
        format!("\"r{revision}\"")
    }

    /// Returns the entity tag of the representation. The last event identifies the version, because the snapshot
    /// is a fold of all events up to it.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.last_event_id)
    }
}

/// A session in a list. It omits the members that are folded from updates of the agent.
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
    /// The time of the last change of a turn or of a request: a prompt was accepted, started or ended, or a request
    /// was opened or resolved. The time of creation before the first one.
    pub last_activity_at: Timestamp,
    /// The outcome of the turn that ended last; null before the end of the first turn.
    #[schema(required)]
    pub last_outcome: Option<TurnOutcome>,
    #[schema(required)]
    pub prompt_id: Option<PromptId>,
    pub queued: Vec<PromptId>,
    /// The task that runs in the session. Absent for other sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub task_id: Option<Uuid>,
    pub last_event_id: EventId,
}

/// A page of sessions, ordered by `lastActivityAt`, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    pub sessions: Vec<SessionSummary>,
    /// The cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// A cursor of `/v1/events`. The stream after it contains all changes that are newer than the list.
    pub last_event_id: Position,
}

/// The result of a bulk operation for one session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResult {
    pub session_id: SessionId,
    /// The status of the operation for this session: 200 (closed), 204 (deleted), 202 (deletion accepted while the disk
    /// is full), or the status of `problem`.
    #[schema(minimum = 200, maximum = 599)]
    pub status: u16,
    /// The reason why the operation did not change the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// The result of a bulk operation for a batch of sessions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkResults {
    /// One result for each session of the batch.
    pub results: Vec<BulkResult>,
    /// The `cursor` of the next batch; null if no other session matches.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A change of the mode of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetMode {
    /// The id of one of the agent's modes.
    #[schema(min_length = 1, max_length = 1024)]
    pub mode_id: String,
}

/// A change of a configuration option of a session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetConfigOption {
    /// The id of a value, or a boolean for a switch.
    #[schema(value_type = OptionValue)]
    pub value: Box<RawValue>,
}

/// The modes of a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionModes)]
pub struct Modes {
    /// Raw ACP: `currentModeId` and `availableModes`. Null if the agent has no modes.
    #[schema(required, value_type = Option<Object>)]
    pub modes: Option<Box<RawValue>>,
}

/// The configuration options of a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SessionConfigOptions)]
pub struct ConfigOptions {
    /// Raw ACP. Null if the agent has no options.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub config_options: Option<Box<RawValue>>,
}
