//! The catalogue of agents: their state, their processes and their own sessions.

use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::api::{AgentKind, ProcessState};
use base::schemas_from_json;
use base::types::{AgentDialect, AgentName, AppliedIsolation, PromptId, SessionId, Timestamp};

/// An agent of the catalogue. Members that only a process of the agent can report are null until a process
/// has started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The name of the agent in requests.
    pub name: AgentName,
    /// How the gateway reaches the agent.
    pub kind: AgentKind,
    /// The protocol of the agent. Clients use the same requests and events for all of them.
    pub dialect: AgentDialect,
    pub status: AgentStatus,
    /// The display name.
    #[schema(required)]
    pub title: Option<String>,
    /// The version that the agent reports.
    #[schema(required)]
    pub version: Option<String>,
    /// The negotiated version of ACP.
    #[schema(required)]
    pub protocol_version: Option<u64>,
    /// The agent's `agentInfo` from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub agent_info: Option<Box<RawValue>>,
    /// The agent's capabilities from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Object>)]
    pub capabilities: Option<Box<RawValue>>,
    /// The agent's sign-in methods from `initialize`, raw ACP.
    #[schema(required, value_type = Option<Vec<Object>>)]
    pub auth_methods: Option<Box<RawValue>>,
    /// The isolation of the agent's processes. Null if they are not child processes of the gateway. A session can have a lower mechanism, see
    /// its `isolation`.
    #[schema(required)]
    pub isolation: Option<AppliedIsolation>,
    pub pool: PoolFigures,
}

/// Statistics of the agent's processes, summed over all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolFigures {
    /// The maximum number of processes.
    pub max_size: usize,
    /// The number of processes that run or start.
    pub processes: usize,
    /// The number of processes that start.
    pub starting: usize,
    /// The number of processes that hold a session.
    pub leased: usize,
    /// The target number of idle processes. It is 0 while the agent requires a sign-in, and after a long time
    /// without use.
    pub min_idle: usize,
    /// The number of idle processes: ready for any session, or reserved for the user whose sessions used them last.
    pub idle: usize,
    /// The number of turns and sessions that wait for a process.
    pub waiting: usize,
    /// True if the agent keeps a session locked after `session/close`. The gateway detects this at run time.
    /// It then stops a process of this agent instead of reusing it for another session.
    pub keeps_sessions_locked: bool,
    /// The time in seconds that a process stays with an idle session.
    pub idle_timeout_seconds: u64,
    /// The same time for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout_seconds: u64,
    /// The time in seconds that a process of such an agent must be idle before a full pool reclaims it.
    pub no_load_reclaim_timeout_seconds: u64,
}

/// The catalogue of agents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentList {
    pub agents: Vec<Agent>,
    /// Always null: the catalogue is one page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// An agent of the registry.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallableAgent {
    /// The id for an installation.
    pub id: String,
    pub name: String,
    pub version: String,
    pub description: String,
    /// The distributions for this machine: `binary`, `npx` or `uvx`. Empty if there is none.
    pub kinds: Vec<String>,
    /// The variables of which one can contain the key of the agent. Empty if the gateway does not know the agent.
    pub key_variables: Vec<String>,
}

/// The agents of the registry.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallableAgentList {
    /// Whether `registry.source` names a registry.
    pub configured: bool,
    pub agents: Vec<InstallableAgent>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// The agents that this gateway can add without a download, its registry, and the latest installation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallationState {
    /// Null if the configuration names no registry and does not permit the default one.
    #[schema(required)]
    pub registry: Option<RegistryInfo>,
    /// The known agents whose command is on PATH and that have no entry. Empty if the gateway has more users than its operator.
    pub on_path: Vec<AgentOnPath>,
    /// The installation that runs, or the last one since the start of the gateway.
    #[schema(required)]
    pub installation: Option<Installation>,
}

/// The registry of installations.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryInfo {
    /// The host of the registry, or its file.
    pub source: String,
    /// Whether `registry.source` names it. Otherwise it is the registry of the ACP project.
    pub configured: bool,
    /// Whether an agent receives those of its `keyVariables` that the gateway's environment has.
    pub inherits: bool,
}

/// A known agent whose command is on PATH.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOnPath {
    /// The name of the known agent, which becomes that of its entry.
    pub name: AgentName,
    /// The program.
    pub command: String,
    /// The variables of which one can contain the key of the agent.
    pub key_variables: Vec<String>,
}

/// A request to add an agent to the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewInstallation {
    /// The id in the registry, or the name of an agent on PATH.
    pub agent: AgentName,
    pub from: InstallationSource,
    /// The version that the registry must have. Required for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstallationSource {
    /// The gateway downloads the agent, and starts it once.
    Registry,
    /// The gateway writes an entry for a command on PATH.
    Path,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstallationStatus {
    Running,
    /// The agent is in the catalogue.
    Succeeded,
    /// `detail` has the reason.
    Failed,
}

/// An agent that is being added to the configuration.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    pub agent: AgentName,
    pub from: InstallationSource,
    pub status: InstallationStatus,
    /// The current or the last step, such as `downloading agent.tar.gz`. Null before the first one.
    #[schema(required)]
    pub step: Option<String>,
    /// The bytes of the download so far. Null in other steps.
    #[schema(required)]
    pub bytes: Option<u64>,
    /// The size of the download, if the server reports it.
    #[schema(required)]
    pub total_bytes: Option<u64>,
    /// The reason of a failure, with the next step.
    #[schema(required)]
    pub detail: Option<String>,
    /// The names of the sign-in methods that the agent offers.
    pub sign_in: Vec<String>,
    /// The variables of which one can contain the key of the agent.
    pub key_variables: Vec<String>,
    /// The variables of the gateway's environment that the agent receives.
    pub received_variables: Vec<String>,
    /// Whether the agent receives a key variable that the gateway's environment gets later. Otherwise its entry must have it.
    pub inherits: bool,
    /// The file with the new entry. Null if the gateway offers the agent without one.
    #[schema(required)]
    pub config_file: Option<String>,
}

/// A process of an agent, or a connection to a remote agent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProcess {
    /// The id of the process from its start to its end. It is not a process id of the operating system.
    pub agent_id: Uuid,
    pub state: ProcessState,
    /// The running turn. Null if the process has none.
    #[schema(required)]
    pub current_task: Option<CurrentTask>,
    /// The time in seconds since the gateway started the process. After a restart of the gateway, the time of a process that
    /// outlived it begins again.
    pub uptime_seconds: u64,
}

/// The running turn of a process.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentTask {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    /// When the process got the turn.
    pub started_at: Timestamp,
}

/// The processes of an agent, the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentProcessList {
    pub processes: Vec<AgentProcess>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// A session in the list of the agent. It has the agent's own members, raw, but `agentSessionId` instead of
/// its `sessionId`.
#[derive(Debug, Clone)]
pub struct AgentSession {
    pub agent_session_id: String,
    /// The session id in the gateway, if the session was created or adopted there.
    pub session_id: Option<SessionId>,
    /// The other members of the agent, in their order.
    pub members: Vec<(String, Box<RawValue>)>,
}

impl AgentSession {
    /// Member names of the gateway. Members of the agent with these names are omitted.
    pub const RESERVED_MEMBERS: [&str; 2] = ["agentSessionId", "sessionId"];
}

impl Serialize for AgentSession {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(Self::RESERVED_MEMBERS[0], &self.agent_session_id)?;
        map.serialize_entry(Self::RESERVED_MEMBERS[1], &self.session_id)?;
        for (name, value) in &self.members {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

schemas_from_json!(AgentSession);

/// A page of the sessions that an agent lists.
#[derive(Debug, Clone, serde::Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSessionList {
    /// Sessions whose directory is below a workspace root.
    pub sessions: Vec<AgentSession>,
    /// The agent's own cursor for the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

/// Whether an agent can start sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    pub state: AgentAvailability,
    /// The reason of the state `unavailable`: the error of the last start. Null in the other states.
    #[schema(required)]
    pub detail: Option<String>,
}

/// The state of an agent for new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentAvailability {
    /// No problem is known. An agent without a process is available too.
    Available,
    /// The last start of a process, or the last connection to the other host, failed. A new session tries again.
    Unavailable,
    /// The member of the fleet lost its connection. New sessions wait for its return.
    Reconnecting,
    /// The member of the fleet is not connected. New sessions are rejected.
    Disconnected,
    /// An operator drains the member of the fleet. New sessions are rejected.
    Draining,
}
