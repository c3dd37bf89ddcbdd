//! A running agent after its handshake.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::batch::Batch;
use super::connection::Connection;
use super::failure::{AgentExit, AgentFailure};
use super::idle_folder::IdleFolder;
use super::process_key::ProcessKey;
use super::reader::ReadEnd;
use super::spec::AgentSpec;
use super::transport::Transport;
use crate::acp::auth::AuthMethod;
use crate::acp::{AcpVersion, InitializeResult, error_code};
use crate::fleet::ChannelId;
use crate::jsonrpc::IncomingId;
use crate::process::{FolderGrants, ProcessTree, Terminals};
use crate::types::AppliedIsolation;

/// A running agent. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    /// The public id of the process. The pool replaces it by the id of the start.
    pub id: Uuid,
    pub spec: Arc<AgentSpec>,
    pub connection: Connection,
    pub batches: mpsc::Receiver<Batch>,
    pub initialized: Arc<InitializeResult>,
    pub key: ProcessKey,
    /// The folder of a process that has no session yet. `None` if the process can get folders later, or needs none.
    pub idle_folder: Option<IdleFolder>,
    pub(super) transport: Box<dyn Transport>,
    /// `None` if the agent runs on another host.
    pub(super) host: Option<HostAccess>,
}

/// Access to the processes of an agent on this host.
#[derive(Debug)]
pub(super) struct HostAccess {
    pub(super) terminals: Terminals,
    /// The agent's processes, with those that ran after `initialize` as the baseline.
    pub(super) tree: ProcessTree,
    pub(super) isolation: AppliedIsolation,
    /// `None` if a running process can get no folders.
    pub(super) folders: Option<FolderGrants>,
}

/// A failed start. Its process may still run: dropping this value stops it in the background.
#[derive(Debug)]
pub struct FailedStart {
    pub failure: AgentFailure,
    transport: Option<Box<dyn Transport>>,
}

impl From<AgentFailure> for FailedStart {
    fn from(failure: AgentFailure) -> Self {
        Self {
            failure,
            transport: None,
        }
    }
}

impl FailedStart {
    /// Begins to stop the process.
    pub(super) fn of(failure: AgentFailure, transport: Box<dyn Transport>) -> Self {
        transport.begin_close();
        Self {
            failure,
            transport: Some(transport),
        }
    }

    /// Whether the agent answered `initialize` with an error that indicates an unsupported version.
    pub(super) fn refuses_version(&self) -> bool {
        let AgentFailure::Rpc(error) = &self.failure else {
            return false;
        };
        matches!(
            error.code,
            error_code::UNSUPPORTED_VERSION
                | error_code::INVALID_PARAMS
                | error_code::INVALID_REQUEST
        )
    }

    /// Returns when the process has ended.
    pub async fn wait_stopped(self) {
        if let Some(transport) = self.transport {
            transport.closed().await;
        }
    }
}

/// How the agent ended, with its secrets masked.
pub(super) async fn agent_exit(connection: &Connection, transport: &dyn Transport) -> AgentExit {
    let exit = transport.exit().await;
    let refused = connection
        .read_end()
        .borrow()
        .as_ref()
        .and_then(|ReadEnd(reason)| reason.clone());
    AgentExit {
        stderr_tail: connection.masked(&exit.stderr_tail),
        reason: refused.or(exit.reason),
        ..exit
    }
}

impl Process {
    /// The method of `authenticate` that reads a key from the environment of the process, for known agents
    /// that refuse sessions without this call.
    pub fn sign_in_by_variable(&self) -> Option<&'static str> {
        self.usable(&self.spec.known?.row.env_key_methods)
    }

    /// The method of `authenticate` for known agents that refuse only `session/load` without this call.
    pub fn sign_in_by_variable_at_load(&self) -> Option<&'static str> {
        self.usable(self.spec.known?.row.load_key_method.as_slice())
    }

    fn usable(&self, methods: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let usable = |(method, variable): &&(&'static str, &'static str)| {
            self.spec.has_variable(variable)
                && self.initialized.auth_method(method) == Ok(AuthMethod::Agent)
        };
        methods.iter().find(usable).map(|(method, _)| *method)
    }

    /// The version of ACP on the connection.
    pub fn version(&self) -> AcpVersion {
        self.connection.version()
    }

    /// The channel of the process, if the process outlives the gateway.
    pub fn channel(&self) -> Option<ChannelId> {
        self.transport.channel()
    }

    /// Acknowledges the output before `offset`: its events are durable.
    pub fn acknowledge(&self, offset: u64) {
        self.transport.acknowledge(offset);
    }

    /// How the process ended. Call it after the end of `batches`.
    pub async fn exit(&self) -> AgentExit {
        agent_exit(&self.connection, &*self.transport).await
    }

    /// Answers a request of the agent, once. Stops an agent that does not read its answers, because it would wait
    /// without end.
    ///
    /// Drops `held` after the agent has read the whole answer, or when it cannot read it any more.
    pub fn answer(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) {
        if self.connection.answer(id, outcome, held).is_err() {
            self.begin_stop();
        }
    }

    /// Starts terminals beside the agent. They end with it. `None` if the agent runs on another host.
    pub fn terminals(&self) -> Option<&Terminals> {
        self.host.as_ref().map(|host| &host.terminals)
    }

    /// The isolation of the process. `None` if it runs on another host.
    pub fn isolation(&self) -> Option<AppliedIsolation> {
        self.host.as_ref().map(|host| host.isolation)
    }

    /// Whether the process can get the folders of a session after its start.
    pub fn accepts_folders(&self) -> bool {
        self.key.folders.is_empty()
            && self
                .host
                .as_ref()
                .is_some_and(|host| host.folders.is_some())
    }

    /// The key of the process without the folder that no session owns.
    pub fn key_without_idle_folder(&self) -> ProcessKey {
        let mut key = self.key.clone();
        if self.idle_folder.is_some() {
            key.folders.clear();
        }
        key
    }

    /// Assigns the process with its folder to a session, which renames the folder to `name`.
    pub fn assign_folder(&mut self, name: &str) -> Option<IdleFolder> {
        let folder = self.idle_folder.take()?;
        let renamed = folder.renamed_path(name);
        if let Some(host) = &mut self.host {
            host.terminals.rename_folder(folder.path(), &renamed);
        }
        self.key.folders = vec![renamed];
        Some(folder)
    }

    /// Grants the folders of a session to a process that was started without a session.
    pub async fn grant_folders(&self, folders: Vec<PathBuf>) -> Result<(), AgentFailure> {
        let Some(grants) = self.host.as_ref().and_then(|host| host.folders.as_ref()) else {
            return Ok(());
        };
        Ok(grants.grant(folders).await?)
    }

    /// The tail of stderr.
    pub fn stderr(&self) -> String {
        self.connection.masked(&self.transport.diagnostics())
    }

    /// The part of an error that shows the agent's last text on stdout that is not JSON-RPC. Empty if there is none.
    pub fn invalid_output(&self) -> String {
        self.connection.invalid_output()
    }

    /// Whether the process ended, closed its stdout, was disconnected, or has lost its reader.
    pub fn has_ended(&self) -> bool {
        self.connection.has_ended() || self.transport.is_closed()
    }

    /// Stops a process that failed during its start.
    pub fn failed(self, failure: AgentFailure) -> FailedStart {
        FailedStart::of(failure, self.transport)
    }

    /// Whether there are unread messages of the agent.
    pub fn has_unread(&self) -> bool {
        !self.batches.is_empty()
    }

    /// The processes of the agent, with the baseline after `initialize`. `None` if it runs on another host.
    pub fn tree(&self) -> Option<ProcessTree> {
        self.host.as_ref().map(|host| host.tree.clone())
    }

    /// Begins a graceful stop. The messages of the agent are still read.
    pub fn begin_stop(&self) {
        self.transport.begin_close();
    }

    /// Stops the process gracefully and returns when it has ended.
    pub async fn stop(self) {
        self.begin_stop();
        let Self {
            batches, transport, ..
        } = self;
        // Without a reader, a full channel would block the agent.
        drop(batches);
        transport.closed().await;
    }
}
