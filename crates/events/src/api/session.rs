//! Sessions, their modes and their options, and the inputs for them: creation, and the merge patch of title and
//! metadata. The values of modes and options are raw ACP.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

use super::present;
use super::problem::Problem;
use super::prompt::Attachment;
use super::request::PendingRequest;
use super::schema::{OptionValue, PromptContent};
use crate::api::{SessionPolicy, SessionState, TurnOutcome};
use base::schemas_from_json;
use base::types::{
    Access, AgentName, AppliedIsolation, EventId, Grant, ModeSelection, Position, PromptId,
    SessionId, Timestamp,
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
    /// The name of the user that owns the session. Absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub owner: Option<String>,
    /// The access of the user of this request to the session. Absent in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub access: Option<Access>,
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
    /// agent is not a child process of the gateway.
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
    /// The id that the session had at another gateway before an operator imported it. Absent for other sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub imported_from: Option<SessionId>,
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
    /// The access is not in the log.
    pub fn etag(&self) -> String {
        match self.access {
            None | Some(Access::Own) => format!("\"{}\"", self.last_event_id),
            Some(access) => format!("\"{}-{}\"", self.last_event_id, access.name()),
        }
    }
}

/// The users that have access to a session.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionGrants {
    /// The name of the user that owns the session. The owner needs no grant.
    pub owner: String,
    /// The access of others, the latest grant last. The highest access of the grants for a user counts.
    pub grants: Vec<Grant>,
}

/// The access that a grant gives.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    pub access: Access,
}

/// A session in a list. It omits the members that are folded from updates of the agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    pub session_id: SessionId,
    /// The name of the user that owns the session.
    pub owner: String,
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

/// The attach of a session.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttachSession {
    /// The conversation that the agent continues. Default: `kept`.
    #[serde(default)]
    #[schema(required = false)]
    pub context: RequestedContext,
}

/// The conversation that the agent continues after an attach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestedContext {
    /// The agent continues its conversation, if it can.
    #[default]
    Kept,
    /// The agent begins a new conversation and does not remember the earlier turns. The log keeps them.
    New,
}

/// A new session.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateSession {
    pub agent: AgentName,
    /// The working directory below the workspace root. A relative path is resolved against the workspace
    /// root. Default: a new directory.
    #[schema(max_length = 4096)]
    pub cwd: Option<String>,
    /// Names of MCP servers in the configuration (`[mcp.<name>]`). At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub mcp_servers: Vec<McpServer>,
    /// Further directories for the agent, below a workspace root. At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub additional_directories: Vec<String>,
    /// The title of the session.
    #[schema(max_length = 512)]
    pub title: Option<String>,
    /// Arbitrary data of the client.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Map<String, Value>>,
    /// Restrictions of the session.
    pub policy: Option<SessionPolicy>,
    /// The id of an existing session of the agent. The gateway adopts it instead of creating a session.
    /// Requires the scope `admin`, and `cwd` if the agent cannot list its sessions.
    #[schema(min_length = 1, max_length = 1024)]
    pub agent_session_id: Option<String>,
    /// Additional `_meta` for the agent, sent at each set-up of the session. Only the keys in the agent's
    /// entry are allowed.
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
    /// The mode to set before the first prompt. Requires the scope `approve`.
    #[schema(max_length = 1024)]
    pub mode_id: Option<String>,
    /// Options of the agent to set before the first prompt: values by the ids of the options. At most 64. Requires
    /// the scope `approve`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub config: Map<String, Value>,
    /// The first prompt: a text, or an array of ACP content blocks. Its turn begins with the session.
    #[schema(value_type = Option<PromptContent>)]
    pub prompt: Option<Box<RawValue>>,
    /// Files of the session to attach to the first prompt. At most 64.
    #[serde(default)]
    #[schema(max_items = 64)]
    pub attachments: Vec<Attachment>,
}

impl CreateSession {
    /// A session of this agent in a new directory.
    pub fn of(agent: AgentName) -> Self {
        Self {
            agent,
            cwd: None,
            mcp_servers: Vec::new(),
            additional_directories: Vec::new(),
            title: None,
            metadata: None,
            policy: None,
            agent_session_id: None,
            meta: None,
            mode_id: None,
            config: Map::new(),
            prompt: None,
            attachments: Vec::new(),
        }
    }
}

/// An MCP server that a client selects, or defines itself.
#[derive(Debug, Clone)]
pub enum McpServer {
    /// The name of a server in the configuration.
    Name(String),
    /// An ACP `McpServer`. It requires the scope `mcp`, because it defines a command or a URL.
    Inline(Box<RawValue>),
}

impl<'de> Deserialize<'de> for McpServer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(raw.get())
                .map(Self::Name)
                .map_err(D::Error::custom),
            Some(b'{') => Ok(Self::Inline(raw)),
            _ => Err(D::Error::custom(
                "invalid type: expected the name of a server or an object",
            )),
        }
    }
}

schemas_from_json!(McpServer);

/// A merge patch (RFC 7396). An absent member is unchanged, null clears it, and a value replaces it.
/// `metadata` is merged member by member.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionPatch {
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 512)]
    pub title: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<Option<Map<String, Value>>>,
}

impl SessionPatch {
    pub fn is_empty(&self) -> bool {
        self.title.is_none() && self.metadata.is_none()
    }

    /// Applies the patch to the metadata.
    pub fn merged_metadata(&self, mut now: Map<String, Value>) -> Map<String, Value> {
        match &self.metadata {
            None => now,
            Some(None) => Map::new(),
            Some(Some(patch)) => {
                merge(&mut now, patch);
                now
            }
        }
    }
}

/// Merges objects (RFC 7396). The depth limit of request bodies bounds the recursion.
fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(inner) => {
                let slot = target.entry(name.as_str()).or_insert(Value::Null);
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(slot) = slot {
                    merge(slot, inner);
                }
            }
            other => {
                target.insert(name.clone(), other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_merge_patch_is_rfc_7396() {
        for (target, patch, merged) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b","b":1}"#, r#"{"a":null}"#, r#"{"b":1}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (
                r#"{"a":[1,2]}"#,
                r#"{"a":{"bb":{"ccc":null}}}"#,
                r#"{"a":{"bb":{}}}"#,
            ),
        ] {
            let patch = SessionPatch {
                metadata: Some(Some(object(patch))),
                ..SessionPatch::default()
            };
            assert_eq!(
                patch.merged_metadata(object(target)),
                object(merged),
                "{target} {patch:?}"
            );
        }
    }

    #[test]
    fn absent_null_and_a_value_are_distinct() {
        let patch = |json| serde_json::from_str::<SessionPatch>(json).unwrap();
        assert!(patch("{}").is_empty());
        assert_eq!(patch(r#"{"title":null}"#).title, Some(None));
        assert_eq!(patch(r#"{"title":"x"}"#).title, Some(Some("x".to_owned())));
        assert!(
            patch(r#"{"metadata":null}"#)
                .merged_metadata(object(r#"{"a":1}"#))
                .is_empty()
        );
        assert!(serde_json::from_str::<SessionPatch>(r#"{"state":"idle"}"#).is_err());
    }

    #[test]
    fn a_server_is_a_name_or_an_object() {
        let of = |json| serde_json::from_str::<McpServer>(json);
        assert!(matches!(of(r#""docs""#), Ok(McpServer::Name(name)) if name == "docs"));
        assert!(matches!(
            of(r#"{"command":"sh"}"#),
            Ok(McpServer::Inline(_))
        ));
        assert!(of("1").is_err());
    }
}
