//! The keys, and the state of the gateway in one document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::api::{AgentStatus, PoolFigures, ProblemCode, ProcessState};
use base::types::{AgentName, KeyLimits, Scope, SessionId, Timestamp};

/// The origin of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum KeyKind {
    /// Created for a printed link, by a start or by the command `link`. It expires after a period without use.
    Link,
    /// Created for a program on this machine, such as `attach`. It expires after a period without use.
    Local,
    /// Created by the command `key create`.
    Named,
    /// Set by the operator in the configuration. It is never stored.
    Admin,
}

/// A key without its text and its hash.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyInfo {
    /// The public id of the key.
    pub key_id: String,
    pub name: String,
    pub kind: KeyKind,
    /// The user to whom the key gives access. Sessions and limits belong to the user.
    pub user: String,
    pub tenant: String,
    pub scopes: Vec<Scope>,
    /// The only names that members of the fleet may use with the key. Empty: all names except those of known agents.
    pub member_names: Vec<AgentName>,
    /// The folders outside of the workspace roots that the key may use.
    pub folders: Vec<String>,
    /// The limits of the user that differ from `[limits.per_key]`, by their configuration keys.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub limits: KeyLimits,
    /// Null for the key of the configuration.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
    /// The time at which the key ends. The use of a link key or a local key delays it. Null if the key does not end.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// Null for a key without a use, and for the key of the configuration.
    #[schema(required, value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
    /// Whether the request has this key. Only in lists over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub is_current: Option<bool>,
}

/// A key to make.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    /// 1 to 64 letters, digits, `.`, `_`, `-` or `@`.
    pub name: String,
    /// Without it, the scopes of the key of the request.
    #[schema(nullable = false)]
    pub scopes: Option<Vec<Scope>>,
    /// The time at which the key ends. Without it, the end of the key of the request, if it has one.
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub expires_at: Option<Timestamp>,
}

/// A new key with its text.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    #[serde(flatten)]
    pub info: KeyInfo,
    /// The text of the key. The gateway does not store it.
    pub key: String,
}

/// Keys.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyList {
    pub keys: Vec<KeyInfo>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The state of the gateway. It contains no text of prompts and answers, unless an agent writes it to its stderr. Secrets from
/// `from_env`, `from_file` and variables are masked.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostics {
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    pub version: String,
    /// The operating system and the processor, such as `linux/x86_64`.
    pub platform: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    pub uptime_seconds: u64,
    /// Whether `/readyz` responds with 200.
    pub ready: bool,
    /// Whether the gateway is stopping.
    pub draining: bool,
    pub process: GatewayProcess,
    pub store: StoreFigures,
    /// All agents, sorted by name.
    pub agents: Vec<AgentDiagnostics>,
    /// At most 200 processes of agents, the oldest first.
    pub processes: Vec<ProcessFigures>,
    /// The open streams and held requests, by kind.
    pub streams: BTreeMap<String, u64>,
    pub tasks: TaskFigures,
    /// The deliveries of webhooks that wait.
    pub webhooks_pending: u64,
    /// All values of the configuration, as `acp-gateway check --all` prints them. Environment variables and headers have no
    /// values.
    pub configuration: Vec<ConfigurationValue>,
    /// The latest records of the log with the level `warn` or `error`, the newest first.
    pub logs: Vec<LogRecord>,
    /// The lists of this document from which entries are missing because of the limit of their size.
    pub truncated: Vec<String>,
}

/// The process of the gateway, without agents. A number is null if Linux does not report it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayProcess {
    /// The resident memory.
    #[schema(required)]
    pub memory_bytes: Option<u64>,
    /// The open file descriptors.
    #[schema(required)]
    pub open_files: Option<u64>,
    /// The limit of open file descriptors. Null without a limit.
    #[schema(required)]
    pub max_open_files: Option<u64>,
    /// The processor time.
    pub cpu_seconds: f64,
}

/// The log and its disk.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreFigures {
    /// The version of the file format.
    pub format: i32,
    /// The random number of the store, which the ids of its new sessions carry.
    pub shard: u16,
    /// The data folder.
    pub folder: String,
    /// The size of all stored events.
    pub log_bytes: u64,
    pub disk_free_bytes: u64,
    pub disk_total_bytes: u64,
    /// The number of stored sessions.
    pub sessions: u64,
    pub retention: RetentionLimits,
    /// At most 20 sessions, the largest first.
    pub largest_sessions: Vec<StoredSession>,
}

/// The keys of `[retention]` in the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetentionLimits {
    pub max_session_bytes: u64,
    pub max_total_bytes: u64,
    pub max_age_seconds: u64,
    pub audit_max_age_seconds: u64,
    pub min_free_disk_bytes: u64,
    pub min_free_disk_percent: u64,
}

/// The size of a session in the log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredSession {
    pub session_id: SessionId,
    pub agent: AgentName,
    /// The size of its stored events.
    pub bytes: u64,
    /// The number of its stored events.
    pub events: u64,
    #[schema(value_type = String, format = DateTime)]
    pub last_activity_at: Timestamp,
}

/// An agent with its latest failure.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDiagnostics {
    pub name: AgentName,
    pub status: AgentStatus,
    pub pool: PoolFigures,
    /// The latest failed start, or the latest end of a process that the gateway did not order. Null if there was none since the
    /// start of the gateway or the last change of the agent's entry.
    #[schema(required)]
    pub last_failure: Option<LastAgentFailure>,
}

/// A failed start, or the end of a process.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastAgentFailure {
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    pub code: ProblemCode,
    pub detail: String,
    /// Null if the process did not exit with a code.
    #[schema(required)]
    pub exit_code: Option<i32>,
    /// At most the last 4 KiB that the process wrote to stderr. Its secrets are masked.
    pub stderr_tail: String,
}

/// A process of an agent, or a connection to a remote agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessFigures {
    pub agent: AgentName,
    /// Null while the process starts, and if it is not a child process of the gateway.
    #[schema(required)]
    pub pid: Option<u32>,
    pub state: ProcessState,
    /// The session that holds the process. Null if there is none.
    #[schema(required)]
    pub session_id: Option<SessionId>,
    /// When the gateway started the process, or continued with it.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// The resident memory of the process and its descendants. Null if `pid` is null.
    #[schema(required)]
    pub memory_bytes: Option<u64>,
}

/// The numbers of open tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskFigures {
    pub queued: u64,
    pub running: u64,
}

/// A value of the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationValue {
    /// The section and the name, such as `server.listen`.
    pub key: String,
    /// The value in the syntax of the file.
    pub value: String,
    /// `default`, a file with a line, a variable of the environment, or a flag.
    pub source: String,
}

/// A record of the log.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogRecord {
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// `WARN` or `ERROR`.
    pub level: String,
    /// The part of the gateway.
    pub target: String,
    pub message: String,
    /// The other fields of the record.
    #[schema(value_type = Object)]
    pub fields: Map<String, Value>,
}
