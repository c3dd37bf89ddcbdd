//! The records of a session: its state and its fold.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::codec::encode;
use super::keys::{agent_session_prefix, index_key, session_key};
use crate::eventlog::Records;
use crate::fleet::ChannelId;
use crate::store::{Delete, Put, Table};
use crate::transcript::SessionFold;
use crate::types::{
    AgentName, AppliedIsolation, GrantedFolders, Principal, PromptId, RequestId, SessionId,
    SessionPolicy, SessionState, Tenant, TerminalId, Timestamp, TurnOutcome,
};

/// The state of a session.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the flags are independent members of a stored record"
)]
pub(in crate::session) struct SessionRecord {
    pub(in crate::session) session_id: SessionId,
    pub(in crate::session) tenant: String,
    /// The id of the principal that created the session. It also leases the session's processes.
    pub(in crate::session) owner: String,
    pub(in crate::session) agent: AgentName,
    pub(in crate::session) title: Option<String>,
    pub(in crate::session) metadata: Map<String, Value>,
    pub(in crate::session) cwd: String,
    /// Whether the folder was created for this session and is deleted with it.
    pub(in crate::session) own_folder: bool,
    /// Whether the folders are on the host of a remote agent.
    #[serde(default)]
    pub(in crate::session) remote_folders: bool,
    /// Whether a fork uses the folder too. The last session that is deleted then deletes the folder.
    pub(in crate::session) shared_folder: bool,
    /// The session whose id names the folder. `None`: this session.
    pub(in crate::session) folder_of: Option<SessionId>,
    pub(in crate::session) additional_directories: Vec<String>,
    /// The granted folders outside of the workspace roots that contain the session's folders.
    #[serde(default, skip_serializing_if = "GrantedFolders::is_empty")]
    pub(in crate::session) granted_folders: GrantedFolders,
    /// Names of configured MCP servers. Their secrets are not stored.
    pub(in crate::session) mcp_servers: Vec<String>,
    /// The `_meta` of the client, checked. It is part of every new, resume and load.
    pub(in crate::session) meta: Option<Box<RawValue>>,
    pub(in crate::session) policy: SessionPolicy,
    pub(in crate::session) state: SessionState,
    pub(in crate::session) attached: bool,
    /// The isolation of the latest process.
    pub(in crate::session) isolation: Option<AppliedIsolation>,
    pub(in crate::session) agent_session_id: Option<String>,
    pub(in crate::session) created_at: Timestamp,
    pub(in crate::session) updated_at: Timestamp,
    /// The time of the last change of a turn or of a request. It is the order of lists.
    pub(in crate::session) last_activity_at: Timestamp,
    /// The outcome of the turn that ended last.
    pub(in crate::session) last_outcome: Option<TurnOutcome>,
    pub(in crate::session) last_prompt: u32,
    pub(in crate::session) last_request: u32,
    /// The open requests. They need not be the newest ones.
    pub(in crate::session) open_requests: Vec<RequestId>,
    pub(in crate::session) last_terminal: u32,
    /// The terminals whose commands run.
    pub(in crate::session) open_terminals: Vec<TerminalId>,
    pub(in crate::session) prompt_id: Option<PromptId>,
    pub(in crate::session) queued: Vec<PromptId>,
    pub(in crate::session) prompt_capabilities: Option<Box<RawValue>>,
    /// Whether the agent reports `models` and therefore accepts `session/set_model`.
    pub(in crate::session) models: bool,
    /// Whether an import of the agent's history is incomplete. A restart erases such a session.
    pub(in crate::session) unfinished: bool,
    /// Whether the agent's session had a history before the first prompt, because it was adopted or forked.
    #[serde(default)]
    pub(in crate::session) inherits_history: bool,
    /// Whether a client has set a mode or an option of the session, or called a method by name.
    #[serde(default)]
    pub(in crate::session) called: bool,
    /// The process of a member that has the session. `None` without a process, or if it ends with the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) channel: Option<StoredChannel>,
    /// The task that runs in the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) task: Option<Uuid>,
    /// The agent must not load its session before this time.
    pub(in crate::session) load_not_before: Option<Timestamp>,
    /// The number of consecutive attaches that failed because the agent refused to restore the session.
    #[serde(default)]
    pub(in crate::session) restore_failures: u32,
    /// Whether a client asked for a new agent session in place of the current one.
    #[serde(default)]
    pub(in crate::session) discards_context: bool,
    /// The sequence number up to which this record is exact.
    pub(in crate::session) seq: u64,
}

/// A process that outlives the gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct StoredChannel {
    pub(in crate::session) id: ChannelId,
    /// The result of `initialize`.
    pub(in crate::session) initialize: Box<RawValue>,
    /// Whether the running prompt was sent twice, so that the key of its call is used up.
    pub(in crate::session) resent: bool,
}

/// The members of a [`SessionRecord`] that filters use. The other members are not decoded.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::session) struct SessionRecordView<'a> {
    #[serde(borrow)]
    pub(in crate::session) tenant: Cow<'a, str>,
    pub(in crate::session) session_id: SessionId,
    pub(in crate::session) agent: AgentName,
    #[serde(borrow)]
    pub(in crate::session) title: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(in crate::session) cwd: Cow<'a, str>,
    #[serde(borrow)]
    pub(in crate::session) metadata: &'a RawValue,
    pub(in crate::session) state: SessionState,
    #[serde(default)]
    pub(in crate::session) unfinished: bool,
    #[serde(default)]
    pub(in crate::session) task: Option<Uuid>,
}

/// The folded state, and the sequence number up to which it is exact.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::session) struct FoldRecord {
    pub(in crate::session) seq: u64,
    pub(in crate::session) fold: SessionFold,
}

impl SessionRecord {
    /// Converts the copy of a parent's record into the record of its fork.
    pub(in crate::session) fn begin_fork(
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
        (self.attached, self.channel, self.task) = (false, None, None);
        (self.created_at, self.updated_at, self.last_activity_at) = (now, now, now);
        self.last_outcome = None;
        (self.restore_failures, self.discards_context) = (0, false);
        (self.last_prompt, self.last_request, self.seq) = (0, 0, 0);
        (self.prompt_id, self.queued, self.open_requests) = (None, Vec::new(), Vec::new());
        (self.last_terminal, self.open_terminals) = (0, Vec::new());
    }

    pub(in crate::session) fn is_closed(&self) -> bool {
        self.state == SessionState::Closed
    }

    /// Whether lists contain the session, unless the client asks for the sessions of tasks.
    pub(in crate::session) fn is_listed(&self) -> bool {
        !self.unfinished && self.task.is_none()
    }

    /// Makes a prompt the running one, and removes it from the queue.
    pub(in crate::session) fn begin_prompt(&mut self, prompt: PromptId) {
        self.queued.retain(|queued| *queued != prompt);
        self.prompt_id = Some(prompt);
    }

    /// Returns the running prompt to the head of the queue.
    pub(in crate::session) fn requeue_prompt(&mut self) {
        if let Some(prompt) = self.prompt_id.take() {
            self.queued.insert(0, prompt);
        }
    }

    /// The session id that names the folder, if the folder was created for a session.
    pub(in crate::session) fn folder_id(&self) -> SessionId {
        self.folder_of.unwrap_or(self.session_id)
    }

    pub(in crate::session) fn tenant(&self) -> Tenant {
        Tenant::new(&self.tenant)
    }

    pub(in crate::session) fn index_key(&self) -> Vec<u8> {
        index_key(&self.tenant(), self.last_activity_at, self.session_id)
    }

    /// The key that finds the session by the agent's session id, if it has one. The key contains the
    /// gateway's id too, because some agents reuse their ids.
    pub(in crate::session) fn agent_session_key(&self) -> Option<Vec<u8>> {
        let id = self.agent_session_id.as_deref()?;
        let prefix = agent_session_prefix(&self.tenant(), &self.agent, id);
        Some([&prefix[..], self.session_id.as_bytes()].concat())
    }

    /// Writes the key of the agent's session id. `stored_key` is the key that is stored now.
    pub(in crate::session) fn put_agent_session(
        &self,
        stored_key: &mut Option<Vec<u8>>,
        records: &mut Records,
    ) {
        let key = self.agent_session_key();
        if *stored_key == key {
            return;
        }
        if let Some(key) = stored_key.take() {
            records.deletes.push(Delete {
                table: Table::AgentSession,
                key,
            });
        }
        if let Some(key) = key.clone() {
            records.puts.push(Put {
                table: Table::AgentSession,
                key,
                value: Bytes::new(),
            });
        }
        *stored_key = key;
    }

    /// Writes the record and its index entry. `stored_key` is the index key that is stored now.
    pub(in crate::session) fn put(&self, stored_key: Option<&[u8]>, records: &mut Records) {
        let (value, key) = (encode(self), self.index_key());
        if let Some(old) = stored_key.filter(|old| *old != key) {
            records.deletes.push(Delete {
                table: Table::SessionIndex,
                key: old.to_vec(),
            });
        }
        records.puts.push(Put {
            table: Table::SessionIndex,
            key,
            value: value.clone(),
        });
        records.puts.push(Put {
            table: Table::Session,
            key: session_key(self.session_id),
            value,
        });
    }
}

impl FoldRecord {
    pub(in crate::session) fn put(&self, id: SessionId, records: &mut Records) {
        records.puts.push(Put {
            table: Table::Fold,
            key: session_key(id),
            value: encode(self),
        });
    }
}

/// Marks or unmarks a session that a restart must load: it has a turn, a queue, an open request or a process.
pub(in crate::session) fn put_open(id: SessionId, open: bool, records: &mut Records) {
    let key = session_key(id);
    if open {
        records.puts.push(Put {
            table: Table::Open,
            key,
            value: Bytes::new(),
        });
    } else {
        records.deletes.push(Delete {
            table: Table::Open,
            key,
        });
    }
}
