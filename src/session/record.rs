//! The stored records of a session. Each is written in the commit of the event that changed it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::{
    PendingRequest, Problem, Prompt, PromptStatus, Resolution, SessionPolicy, SessionState, Terminal,
};
use crate::eventlog::Records;
use crate::store::{Delete, Put, Table};
use crate::transcript::SessionFold;
use crate::types::{
    AgentName, EventId, Principal, PromptId, RequestId, SessionId, Tenant, TerminalId, Timestamp,
};

/// The state of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent members of a stored record")]
pub(super) struct SessionRecord {
    pub(super) session_id: SessionId,
    pub(super) tenant: String,
    /// The id of the principal that created the session. It also leases the session's processes.
    pub(super) owner: String,
    pub(super) agent: AgentName,
    pub(super) title: Option<String>,
    pub(super) metadata: Map<String, Value>,
    pub(super) cwd: String,
    /// Whether the folder was created for this session and is deleted with it.
    pub(super) own_folder: bool,
    /// Whether a fork uses the folder too. The last session that is deleted then deletes the folder.
    #[serde(default)]
    pub(super) shared_folder: bool,
    /// The session whose id names the folder. `None`: this session.
    #[serde(default)]
    pub(super) folder_of: Option<SessionId>,
    pub(super) additional_directories: Vec<String>,
    /// Names of configured MCP servers. Their secrets are not stored.
    pub(super) mcp_servers: Vec<String>,
    /// The `_meta` of the client, checked. It is part of every new, resume and load.
    #[serde(default)]
    pub(super) meta: Option<Box<RawValue>>,
    pub(super) policy: SessionPolicy,
    pub(super) state: SessionState,
    pub(super) attached: bool,
    pub(super) agent_session_id: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) last_prompt: u32,
    pub(super) last_request: u32,
    /// The open requests. They need not be the newest ones.
    #[serde(default)]
    pub(super) open_requests: Vec<RequestId>,
    #[serde(default)]
    pub(super) last_terminal: u32,
    /// The terminals whose commands run.
    #[serde(default)]
    pub(super) open_terminals: Vec<TerminalId>,
    pub(super) prompt_id: Option<PromptId>,
    pub(super) queued: Vec<PromptId>,
    pub(super) prompt_capabilities: Option<Box<RawValue>>,
    /// Whether the agent reports `models` and therefore accepts `session/set_model`.
    #[serde(default)]
    pub(super) models: bool,
    /// Whether an import of the agent's history is incomplete. A restart erases such a session.
    #[serde(default)]
    pub(super) unfinished: bool,
    /// Whether the agent's session had a history before the first prompt, because it was adopted or forked.
    #[serde(default)]
    pub(super) inherits_history: bool,
    /// Whether a client has set a mode or an option of the session, or called a method by name.
    #[serde(default)]
    pub(super) called: bool,
    /// The agent must not load its session before this time.
    #[serde(default)]
    pub(super) load_not_before: Option<Timestamp>,
    /// The sequence number up to which this record is exact.
    pub(super) seq: u64,
}

/// The state of a turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptRecord {
    pub(super) prompt_id: PromptId,
    pub(super) status: PromptStatus,
    pub(super) by: String,
    pub(super) created_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) first_seq: u64,
    pub(super) last_seq: Option<u64>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Option<Box<RawValue>>,
    pub(super) error: Option<Problem>,
    /// Whether a drain returned the started prompt to the queue before it was sent to the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsent: bool,
}

/// A request of the agent and its resolution.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestRecord {
    /// `None` after the request is resolved.
    pub(super) pending: Option<PendingRequest>,
    pub(super) resolution: Option<Resolution>,
    pub(super) by: Option<String>,
}

/// A terminal of the gateway. Its output is in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TerminalRecord {
    /// The terminal as clients see it. It has no exit status while the command runs.
    pub(super) shown: Terminal,
    pub(super) first_seq: u64,
    /// The sequence number of the end of the terminal, if it has ended.
    pub(super) last_seq: Option<u64>,
}

/// The folded state, and the sequence number up to which it is exact.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FoldRecord {
    pub(super) seq: u64,
    pub(super) fold: SessionFold,
}

fn encode(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record).expect("records have string keys and serialize").into()
}

pub(super) fn session_key(id: SessionId) -> Vec<u8> {
    id.as_bytes().to_vec()
}

pub(super) fn prompt_key(id: SessionId, prompt: PromptId) -> Vec<u8> {
    [id.as_bytes().as_slice(), &prompt.number().to_be_bytes()].concat()
}

pub(super) fn request_key(id: SessionId, request: RequestId) -> Vec<u8> {
    [id.as_bytes().as_slice(), &request.number().to_be_bytes()].concat()
}

/// The key prefix of the gateway sessions that use this session of an agent.
pub(super) fn agent_session_prefix(tenant: &Tenant, agent: &AgentName, agent_session_id: &str) -> Vec<u8> {
    [tenant.as_str(), "\0", agent.as_str(), "\0", agent_session_id, "\0"].concat().into_bytes()
}

pub(super) fn terminal_key(id: SessionId, terminal: TerminalId) -> Vec<u8> {
    [id.as_bytes().as_slice(), &terminal.number().to_be_bytes()].concat()
}

/// The key prefix of a tenant's sessions in the index.
pub(super) fn index_prefix(tenant: &Tenant) -> Vec<u8> {
    [tenant.as_str().as_bytes(), b"\0"].concat()
}

/// The index key of a session. The newest `updatedAt` sorts first.
pub(super) fn index_key(tenant: &Tenant, updated_at: Timestamp, id: SessionId) -> Vec<u8> {
    let newest_first = !u64::try_from(updated_at.as_millis()).unwrap_or_default();
    [&index_prefix(tenant)[..], &newest_first.to_be_bytes(), id.as_bytes()].concat()
}

impl SessionRecord {
    /// Converts the copy of a parent's record into the record of its fork.
    pub(super) fn begin_fork(
        &mut self,
        id: SessionId,
        by: &Principal,
        agent_session_id: String,
        now: Timestamp,
    ) {
        // The copy may be older than the folder's state, so the fork always shares its parent's folder.
        self.folder_of = Some(self.folder_id());
        self.shared_folder = self.own_folder;
        self.session_id = id;
        self.owner = by.id.to_string();
        self.agent_session_id = Some(agent_session_id);
        self.state = SessionState::Idle;
        self.attached = false;
        (self.created_at, self.updated_at) = (now, now);
        (self.last_prompt, self.last_request, self.seq) = (0, 0, 0);
        (self.prompt_id, self.queued, self.open_requests) = (None, Vec::new(), Vec::new());
        (self.last_terminal, self.open_terminals) = (0, Vec::new());
    }

    /// Makes a prompt the running one. It leaves the queue.
    pub(super) fn begin_prompt(&mut self, prompt: PromptId) {
        self.queued.retain(|queued| *queued != prompt);
        self.prompt_id = Some(prompt);
    }

    /// Returns the running prompt to the head of the queue.
    pub(super) fn requeue_prompt(&mut self) {
        if let Some(prompt) = self.prompt_id.take() {
            self.queued.insert(0, prompt);
        }
    }

    /// The session id that names the folder, if the folder was created for a session.
    pub(super) fn folder_id(&self) -> SessionId {
        self.folder_of.unwrap_or(self.session_id)
    }

    pub(super) fn tenant(&self) -> Tenant {
        Tenant::new(&self.tenant)
    }

    pub(super) fn index_key(&self) -> Vec<u8> {
        index_key(&self.tenant(), self.updated_at, self.session_id)
    }

    /// The key that finds the session by the agent's session id, if it has one. The key contains the
    /// gateway's id too, because some agents reuse their ids.
    pub(super) fn agent_session_key(&self) -> Option<Vec<u8>> {
        let id = self.agent_session_id.as_deref()?;
        let prefix = agent_session_prefix(&self.tenant(), &self.agent, id);
        Some([&prefix[..], self.session_id.as_bytes()].concat())
    }

    /// Writes the key of the agent's session id. `stored_key` is the key that is stored now.
    pub(super) fn put_agent_session(&self, stored_key: &mut Option<Vec<u8>>, records: &mut Records) {
        let key = self.agent_session_key();
        if *stored_key == key {
            return;
        }
        if let Some(key) = stored_key.take() {
            records.deletes.push(Delete { table: Table::AgentSession, key });
        }
        if let Some(key) = key.clone() {
            records.puts.push(Put { table: Table::AgentSession, key, value: Bytes::new() });
        }
        *stored_key = key;
    }

    /// Writes the record and its index entry. `stored_key` is the index key that is stored now.
    pub(super) fn put(&self, stored_key: Option<&[u8]>, records: &mut Records) {
        let (value, key) = (encode(self), self.index_key());
        if let Some(old) = stored_key.filter(|old| *old != key) {
            records.deletes.push(Delete { table: Table::SessionIndex, key: old.to_vec() });
        }
        records.puts.push(Put { table: Table::SessionIndex, key, value: value.clone() });
        records.puts.push(Put { table: Table::Session, key: session_key(self.session_id), value });
    }
}

impl PromptRecord {
    /// The prompt as clients see it, without its text.
    pub(super) fn to_prompt(&self, session_id: SessionId, last_event_id: EventId) -> Prompt {
        Prompt {
            prompt_id: self.prompt_id,
            session_id,
            status: self.status,
            stop_reason: self.stop_reason.clone(),
            usage: self.usage.clone(),
            text: String::new(),
            truncated: false,
            by: self.by.clone(),
            created_at: self.created_at,
            ended_at: self.ended_at,
            last_event_id,
            error: self.error.clone(),
        }
    }

    pub(super) fn put(&self, id: SessionId, records: &mut Records) {
        let key = prompt_key(id, self.prompt_id);
        records.puts.push(Put { table: Table::Prompt, key, value: encode(self) });
    }
}

impl RequestRecord {
    pub(super) fn put(&self, id: SessionId, request: RequestId, records: &mut Records) {
        let key = request_key(id, request);
        records.puts.push(Put { table: Table::Request, key, value: encode(self) });
    }
}

impl TerminalRecord {
    pub(super) fn put(&self, id: SessionId, records: &mut Records) {
        let key = terminal_key(id, self.shown.terminal_id);
        records.puts.push(Put { table: Table::Terminal, key, value: encode(self) });
    }
}

impl FoldRecord {
    pub(super) fn put(&self, id: SessionId, records: &mut Records) {
        records.puts.push(Put { table: Table::Fold, key: session_key(id), value: encode(self) });
    }
}

/// Marks or unmarks a session that a restart must load: it has a turn, a queue, an open request or a process.
pub(super) fn put_open(id: SessionId, open: bool, records: &mut Records) {
    let key = session_key(id);
    if open {
        records.puts.push(Put { table: Table::Open, key, value: Bytes::new() });
    } else {
        records.deletes.push(Delete { table: Table::Open, key });
    }
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}
