//! The stored records of a session. Each is written in the commit of the event that changed it.
//!
//! This module owns the stored form of all records and their keys. Their version is the version of the store's
//! file (`crates/log/src/store/sqlite/schema.rs`): a change that cannot read the old bytes needs a new version, and the gateway
//! rejects files of other versions. Requests and terminals are stored as clients see them. A test compares the stored bytes.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::transcript::SessionFold;
use base::types::{
    AgentName, AppliedIsolation, Epoch, EventId, GrantedFolders, Principal, PromptId, RequestId,
    SessionId, Tenant, TerminalId, Timestamp, UserId,
};
use events::api::{
    AcpRequest, CancelCause, PendingRequest, Prompt, PromptStatus, Resolution, Session,
    SessionPolicy, SessionState, SessionSummary, Terminal, TurnOutcome,
};
use log::eventlog::{Records, user_prefix};
use log::store::{RecordState, Table};
use wire::acp::Outcome;
use wire::fleet::ChannelId;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent members of a stored record"
)]
pub(super) struct SessionRecord {
    pub(super) session_id: SessionId,
    /// The user that created the session. The user also leases the processes of the session.
    pub(super) owner: UserId,
    pub(super) agent: AgentName,
    pub(super) title: Option<String>,
    pub(super) metadata: Map<String, Value>,
    pub(super) cwd: String,
    /// Whether the folder was created for this session and is deleted with it.
    pub(super) own_folder: bool,
    /// Whether the folders are on the host of a remote agent.
    #[serde(default)]
    pub(super) remote_folders: bool,
    /// Whether a fork uses the folder too. The last session that is deleted then deletes the folder.
    pub(super) shared_folder: bool,
    /// The session whose id names the folder. `None`: this session.
    pub(super) folder_of: Option<SessionId>,
    pub(super) additional_directories: Vec<String>,
    /// The granted folders outside of the workspace roots that contain the session's folders.
    #[serde(default, skip_serializing_if = "GrantedFolders::is_empty")]
    pub(super) granted_folders: GrantedFolders,
    /// Names of configured MCP servers. Their secrets are not stored.
    pub(super) mcp_servers: Vec<String>,
    /// The `_meta` of the client, checked. It is part of every new, resume and load.
    pub(super) meta: Option<Box<RawValue>>,
    pub(super) policy: SessionPolicy,
    pub(super) state: SessionState,
    pub(super) attached: bool,
    /// The isolation of the latest process.
    pub(super) isolation: Option<AppliedIsolation>,
    pub(super) agent_session_id: Option<String>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    /// The time of the last change of a turn or of a request. It is the order of lists.
    pub(super) last_activity_at: Timestamp,
    pub(super) last_outcome: Option<TurnOutcome>,
    pub(super) last_prompt: u32,
    pub(super) last_request: u32,
    /// The open requests. They need not be the newest ones.
    pub(super) open_requests: Vec<RequestId>,
    pub(super) last_terminal: u32,
    pub(super) open_terminals: Vec<TerminalId>,
    pub(super) prompt_id: Option<PromptId>,
    pub(super) queued: Vec<PromptId>,
    pub(super) prompt_capabilities: Option<Box<RawValue>>,
    /// Whether the agent reports `models` and therefore accepts `session/set_model`.
    pub(super) models: bool,
    /// Whether an import of the agent's history is incomplete. A restart erases such a session.
    pub(super) unfinished: bool,
    /// Whether the agent's session had a history before the first prompt, because it was adopted or forked.
    #[serde(default)]
    pub(super) inherits_history: bool,
    /// Whether a client has set a mode or an option of the session, or called a method by name.
    #[serde(default)]
    pub(super) called: bool,
    /// The process of a member that has the session. `None` without a process, or if it ends with the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<StoredChannel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) task: Option<Uuid>,
    /// The id at the gateway from which the session was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) imported_from: Option<SessionId>,
    /// The agent must not load its session before this time.
    pub(super) load_not_before: Option<Timestamp>,
    /// The number of consecutive attaches that failed because the agent refused to restore the session.
    #[serde(default)]
    pub(super) restore_failures: u32,
    /// Whether a client asked for a new agent session in place of the current one.
    #[serde(default)]
    pub(super) discards_context: bool,
    /// The sequence number up to which this record is exact.
    pub(super) seq: u64,
}

/// A process that outlives the gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredChannel {
    pub(super) id: ChannelId,
    pub(super) initialize: Box<RawValue>,
    /// Whether the running prompt was sent twice, so that the key of its call is used up.
    pub(super) resent: bool,
}

/// The members of a [`SessionRecord`] that filters use. The other members are not decoded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionRecordView<'a> {
    pub(super) session_id: SessionId,
    pub(super) agent: AgentName,
    #[serde(borrow)]
    pub(super) title: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) cwd: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) metadata: &'a RawValue,
    pub(super) state: SessionState,
    #[serde(default)]
    pub(super) unfinished: bool,
    #[serde(default)]
    pub(super) task: Option<Uuid>,
}

/// The folded state, and the sequence number up to which it is exact.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FoldRecord {
    pub(super) seq: u64,
    pub(super) fold: SessionFold,
}

impl SessionRecord {
    pub(super) fn summary(&self, epoch: Epoch) -> SessionSummary {
        SessionSummary {
            session_id: self.session_id,
            owner: self.owner.name().to_owned(),
            agent: self.agent.clone(),
            title: self.title.clone(),
            metadata: self.metadata.clone(),
            cwd: self.cwd.clone(),
            state: self.state,
            attached: self.attached,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_activity_at: self.last_activity_at,
            last_outcome: self.last_outcome,
            prompt_id: self.prompt_id,
            queued: self.queued.clone(),
            task_id: self.task,
            last_event_id: EventId {
                epoch,
                seq: self.seq,
            },
        }
    }

    /// The session as clients see it, without the denied modes.
    pub(super) fn snapshot(
        &self,
        fold: &SessionFold,
        requests: Vec<PendingRequest>,
        last_event_id: EventId,
    ) -> Session {
        Session {
            session_id: self.session_id,
            owner: None,
            access: None,
            agent: self.agent.clone(),
            title: fold.title().map(str::to_owned),
            title_by: fold.title_by(),
            metadata: self.metadata.clone(),
            cwd: self.cwd.clone(),
            state: self.state,
            attached: self.attached,
            isolation: self.isolation,
            created_at: self.created_at,
            updated_at: self.updated_at,
            last_activity_at: self.last_activity_at,
            last_outcome: self.last_outcome,
            prompt_id: self.prompt_id,
            queued: self.queued.clone(),
            requests,
            prompt_capabilities: self.prompt_capabilities.clone(),
            modes: fold.modes.clone(),
            config_options: fold.config_options.clone(),
            denied_modes: Vec::new(),
            available_commands: fold.available_commands.clone(),
            plan: fold.plan().map(ToOwned::to_owned),
            usage: fold.usage.clone(),
            subagents: fold.subagents.clone(),
            policy: self.policy.clone(),
            revision: fold.revision,
            task_id: self.task,
            imported_from: self.imported_from,
            last_event_id,
        }
    }

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
        self.owner = by.user.clone();
        self.agent_session_id = Some(agent_session_id);
        self.state = SessionState::Idle;
        self.attached = false;
        self.channel = None;
        self.task = None;
        self.imported_from = None;
        self.created_at = now;
        self.updated_at = now;
        self.last_activity_at = now;
        self.last_outcome = None;
        self.restore_failures = 0;
        self.discards_context = false;
        self.last_prompt = 0;
        self.last_request = 0;
        self.last_terminal = 0;
        self.seq = 0;
        self.prompt_id = None;
        self.queued = Vec::new();
        self.open_requests = Vec::new();
        self.open_terminals = Vec::new();
    }

    /// Converts the record of another gateway, with the new id, into the record of the imported session. What was open stays
    /// open: the first load ends it.
    pub(super) fn begin_import(&mut self, from: SessionId, owner: UserId) {
        self.imported_from = Some(from);
        self.owner = owner;
        // The owner of the other data folder granted them.
        self.granted_folders = GrantedFolders::default();
        self.folder_of = None;
        self.shared_folder = false;
        // The other agent has the conversation, and the other gateway may continue it.
        self.agent_session_id = None;
        self.channel = None;
        self.task = None;
        self.load_not_before = None;
        self.restore_failures = 0;
        self.discards_context = false;
    }

    /// Whether a restart has to close anything of this session.
    pub(super) fn is_open(&self) -> bool {
        self.prompt_id.is_some()
            || !self.queued.is_empty()
            || !self.open_requests.is_empty()
            || self.attached
            || self.unfinished
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == SessionState::Closed
    }

    /// Whether the agent's session contains a conversation that a new session would lose: not every prompt is still open.
    pub(super) fn has_history(&self) -> bool {
        let open = self.queued.len() + usize::from(self.prompt_id.is_some());
        self.inherits_history || self.last_prompt as usize > open
    }

    /// Whether lists contain the session, unless the client asks for the sessions of tasks.
    pub(super) fn is_listed(&self) -> bool {
        !self.unfinished && self.task.is_none()
    }

    pub(super) fn begin_prompt(&mut self, prompt: PromptId) {
        self.queued.retain(|queued| *queued != prompt);
        self.prompt_id = Some(prompt);
    }

    pub(super) fn requeue_prompt(&mut self) {
        if let Some(prompt) = self.prompt_id.take() {
            self.queued.insert(0, prompt);
        }
    }

    /// The session id that names the folder, if the folder was created for a session.
    pub(super) fn folder_id(&self) -> SessionId {
        self.folder_of.unwrap_or(self.session_id)
    }

    pub(super) fn index_key(&self) -> Vec<u8> {
        index_key(&self.owner, self.last_activity_at, self.session_id)
    }

    /// The key that finds the session by the agent's session id, if it has one. The key contains the
    /// gateway's id too, because some agents reuse their ids.
    pub(super) fn agent_session_key(&self) -> Option<Vec<u8>> {
        let id = self.agent_session_id.as_deref()?;
        let prefix = agent_session_prefix(&self.owner.tenant(), &self.agent, id);
        Some([&prefix[..], self.session_id.as_bytes()].concat())
    }

    /// Writes the key of the agent's session id. `stored_key` is the key that is stored now.
    pub(super) fn put_agent_session(
        &self,
        stored_key: &mut Option<Vec<u8>>,
        records: &mut Records,
    ) {
        let key = self.agent_session_key();
        if *stored_key == key {
            return;
        }
        if let Some(key) = stored_key.take() {
            delete(Table::AgentSession, key, records);
        }
        if let Some(key) = key.clone() {
            put(Table::AgentSession, key, Bytes::new(), records);
        }
        *stored_key = key;
    }

    pub(super) fn created_key(&self) -> Vec<u8> {
        created_key(&self.owner, self.session_id)
    }

    /// Writes the record and its index entries. `stored_key` is the index key that is stored now.
    pub(super) fn put(&self, stored_key: Option<&[u8]>, records: &mut Records) {
        let value = encode(self);
        let key = self.index_key();
        if let Some(old) = stored_key.filter(|old| *old != key) {
            delete(Table::SessionIndex, old.to_vec(), records);
        }
        put(Table::SessionIndex, key, value.clone(), records);
        if stored_key.is_none() {
            put(
                Table::CreatedSession,
                self.created_key(),
                Bytes::new(),
                records,
            );
        }
        put(Table::Session, session_key(self.session_id), value, records);
    }
}

/// A record with a table of its own.
pub(super) trait Stored: Serialize + DeserializeOwned {
    const TABLE: Table;

    fn put_at(&self, key: Vec<u8>, records: &mut Records) {
        put(Self::TABLE, key, encode(self), records);
    }
}

macro_rules! stored {
    ($($record:ident: $table:ident)*) => {
        $(impl Stored for $record {
            const TABLE: Table = Table::$table;
        })*
    };
}

stored! {
    SessionRecord: Session
    FoldRecord: Fold
    PromptRecord: Prompt
    RequestRecord: Request
    TerminalRecord: Terminal
    OutputPosition: OutputPosition
    IdempotencyRecord: Idempotency
}

/// Marks or unmarks a session that a restart must load: it has a turn, a queue, an open request or a process.
pub(super) fn put_open(id: SessionId, open: bool, records: &mut Records) {
    let key = session_key(id);
    if open {
        put(Table::Open, key, Bytes::new(), records);
    } else {
        delete(Table::Open, key, records);
    }
}

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cancel_cause: Option<CancelCause>,
    /// The problem of a failed turn, as the event of its end contains it.
    pub(super) error: Option<Box<RawValue>>,
    /// Whether the prompt has started and was not sent: its process ended before, or a drain returned it to the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsent: bool,
    /// Whether the prompt was imported. It never runs here, because the previous gateway may run it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) imported: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) acp_request: Option<AcpRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) broadcast: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) edit: Option<PromptEdit>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PromptEdit {
    /// The sequence number of the event with the new content.
    pub(super) seq: u64,
    pub(super) by: String,
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
            cancel_cause: self.cancel_cause,
            text: String::new(),
            truncated: false,
            by: self.by.clone(),
            created_at: self.created_at,
            ended_at: self.ended_at,
            last_event_id,
            error: self.error.clone(),
        }
    }

    /// The outcome of the turn; `None` before its end.
    pub(super) fn outcome(&self) -> Option<TurnOutcome> {
        match (self.status, self.stop_reason.as_deref()) {
            (PromptStatus::Failed, _) => Some(TurnOutcome::Failed),
            (PromptStatus::Completed, Some("cancelled")) => Some(TurnOutcome::Cancelled),
            (PromptStatus::Completed, _) => Some(TurnOutcome::Completed),
            (PromptStatus::Queued | PromptStatus::Running, _) => None,
        }
    }

    /// The sequence number of the event with the content that the agent gets.
    pub(super) fn content_seq(&self) -> u64 {
        self.edit.as_ref().map_or(self.first_seq, |edit| edit.seq)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestRecord {
    /// `None` after the request is resolved.
    pub(super) pending: Option<PendingRequest>,
    pub(super) resolution: Option<Resolution>,
    pub(super) by: Option<String>,
    /// The request as its agent knows it, if the agent's process outlives the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<PeerRequest>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PeerRequest {
    pub(super) channel: ChannelId,
    /// The position of the request in the output of the agent.
    pub(super) number: u64,
    pub(super) id: Box<RawValue>,
    /// The answer, as a result or an error. `None` while the request is open.
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
}

impl PeerRequest {
    pub(super) fn answered(self, outcome: Outcome) -> Self {
        let (result, error) = match outcome {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            result,
            error,
            ..self
        }
    }
}

impl RequestRecord {
    pub(super) fn open(request: &PendingRequest, peer: Option<PeerRequest>) -> Self {
        Self {
            pending: Some(request.clone()),
            resolution: None,
            by: None,
            peer,
        }
    }

    pub(super) fn resolved(
        resolution: Resolution,
        by: Option<String>,
        peer: Option<PeerRequest>,
    ) -> Self {
        Self {
            pending: None,
            resolution: Some(resolution),
            by,
            peer,
        }
    }
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

/// The output of the channel before `offset` is in the log. The record is written in the commit of its events.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct OutputPosition {
    pub(super) channel: ChannelId,
    pub(super) offset: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// The SHA-256 of the request's body.
    pub(super) body_hash: [u8; 32],
    pub(super) expires_at: Timestamp,
    pub(super) session: Option<SessionId>,
    pub(super) prompt: Option<PromptId>,
    /// The response of a request without a session of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<Box<RawValue>>,
}

impl IdempotencyRecord {
    pub fn response<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        let raw = self.response.as_ref();
        raw.map(|raw| serde_json::from_str(raw.get())).transpose()
    }
}

pub(super) fn session_key(id: SessionId) -> Vec<u8> {
    id.as_bytes().to_vec()
}

/// The key of a prompt, a request or a terminal by its number in the session.
pub(super) fn numbered_key(id: SessionId, number: u32) -> Vec<u8> {
    [id.as_bytes().as_slice(), &number.to_be_bytes()].concat()
}

/// The key prefix of the gateway sessions that use this session of an agent.
pub(super) fn agent_session_prefix(
    tenant: &Tenant,
    agent: &AgentName,
    agent_session_id: &str,
) -> Vec<u8> {
    [
        tenant.as_str(),
        "\0",
        agent.as_str(),
        "\0",
        agent_session_id,
        "\0",
    ]
    .concat()
    .into_bytes()
}

pub(super) fn created_key(user: &UserId, id: SessionId) -> Vec<u8> {
    [&user_prefix(user)[..], id.as_bytes()].concat()
}

/// The index key of a session. The newest `lastActivityAt` sorts first.
pub(super) fn index_key(user: &UserId, last_activity_at: Timestamp, id: SessionId) -> Vec<u8> {
    let newest_first = !u64::try_from(last_activity_at.as_millis()).unwrap_or_default();
    [
        &user_prefix(user)[..],
        &newest_first.to_be_bytes(),
        id.as_bytes(),
    ]
    .concat()
}

fn encode(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record)
        .expect("records have string keys and serialize")
        .into()
}

pub(super) fn put(table: Table, key: Vec<u8>, value: Bytes, records: &mut Records) {
    records
        .changed
        .push(RecordState::present(table, key, value));
}

pub(super) fn delete(table: Table, key: Vec<u8>, records: &mut Records) {
    records.changed.push(RecordState::absent(table, key));
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}
