//! Starts an agent from its entry until it has answered `initialize` (ACP, Initialization).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::connection::{Batch, Connection, Inbound, ReadEnd};
use super::failure::{AgentExit, AgentFailure};
use super::spec::AgentSpec;
use crate::acp::{self, AcpVersion, ClientCapabilities, InitializeResult, error_code};
use crate::jsonrpc::IncomingId;
use crate::process::{Child, ChildSpec, ProcessTree, Spawner, StopReason, Terminals};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{AgentName, Limits};

/// A running agent. Dropping it stops it.
#[derive(Debug)]
pub struct Process {
    pub spec: Arc<AgentSpec>,
    pub connection: Connection,
    pub batches: mpsc::Receiver<Batch>,
    pub initialized: Arc<InitializeResult>,
    /// The client capabilities that `initialize` offered.
    pub client_capabilities: ClientCapabilities,
    child: Child,
    /// The agent's processes, with those that ran after `initialize` as the baseline.
    tree: ProcessTree,
}

/// A failed start. Its process may still run: dropping this value stops it in the background.
#[derive(Debug)]
pub struct FailedStart {
    pub failure: AgentFailure,
    child: Option<Child>,
}

impl From<AgentFailure> for FailedStart {
    fn from(failure: AgentFailure) -> Self {
        Self { failure, child: None }
    }
}

impl FailedStart {
    /// Begins to stop the process.
    fn of(failure: AgentFailure, child: Child) -> Self {
        child.begin_stop();
        Self { failure, child: Some(child) }
    }

    /// Whether the agent answered `initialize` with an error that indicates an unsupported version.
    fn refuses_version(&self) -> bool {
        let AgentFailure::Rpc(error) = &self.failure else { return false };
        matches!(
            error.code,
            error_code::UNSUPPORTED_VERSION | error_code::INVALID_PARAMS | error_code::INVALID_REQUEST
        )
    }

    /// Returns when the process has ended.
    pub async fn wait_stopped(self) {
        if let Some(child) = self.child {
            child.stop().await;
        }
    }
}

/// Starts agents.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub(super) spawner: Spawner,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    version: &'static str,
    /// Entries that request v2 for an agent that supports only v1. The launcher retries v2 when the entry changes.
    v1_only: Arc<Mutex<HashMap<AgentName, Arc<AgentSpec>>>>,
}

impl Launcher {
    pub fn new(spawner: Spawner, limits: Arc<Limits>, shutdown: Shutdown, version: &'static str) -> Self {
        Self { spawner, limits, shutdown, version, v1_only: Arc::default() }
    }

    /// A launcher whose program does not exist.
    #[cfg(test)]
    pub(crate) fn without_programs(limits: &Arc<Limits>, shutdown: &Shutdown) -> Self {
        let nowhere = std::path::PathBuf::from("/nonexistent");
        let spawner = Spawner::new(nowhere.clone(), nowhere, shutdown.clone(), Arc::clone(limits));
        Self::new(spawner, Arc::clone(limits), shutdown.clone(), "test")
    }

    /// Starts the agent with the newest version that the agent and its entry support. An agent that supports
    /// only v1 is started again: it ignored the v2 fields of `initialize`, so it assumes that the client has
    /// no capabilities.
    pub async fn launch(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
    ) -> Result<Process, FailedStart> {
        if !self.may_speak_v2(spec) {
            return self.start(spec, offer, AcpVersion::V1).await;
        }
        match self.start(spec, offer, AcpVersion::V2).await {
            Ok(process) if process.initialized.acp_version == AcpVersion::V2 => return Ok(process),
            Ok(process) => process.stop().await,
            Err(failed) if failed.refuses_version() => failed.wait_stopped().await,
            Err(failed) => return Err(failed),
        }
        tracing::info!(agent = %spec.name, "the agent supports only version 1 of the protocol");
        lock_or_abort(self.v1_only.lock()).insert(spec.name.clone(), Arc::clone(spec));
        self.start(spec, offer, AcpVersion::V1).await
    }

    fn may_speak_v2(&self, spec: &Arc<AgentSpec>) -> bool {
        let older = || {
            lock_or_abort(self.v1_only.lock()).get(&spec.name).is_some_and(|older| Arc::ptr_eq(older, spec))
        };
        AcpVersion::from_number(spec.settings.protocol) == Some(AcpVersion::V2) && !older()
    }

    /// Spawns and initializes the agent within `start_timeout`.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
        dialect: AcpVersion,
    ) -> Result<Process, FailedStart> {
        let mut child = self
            .spawner
            .spawn(child_spec(spec))
            .await
            .map_err(|error| AgentFailure::Start { detail: with_cause(&error) })?;
        let stdout = child.take_stdout().expect("a new child has its stdout");
        let (connection, batches) = Connection::start(
            stdout,
            child.stdin(),
            (spec.settings.max_line_bytes, &spec.secrets),
            &self.limits,
            &self.shutdown,
        );
        let mut starting = Starting { connection, batches, child };
        // The entry decides this for all its processes, so it is not part of the session's capabilities.
        let said = ClientCapabilities { terminal_auth: spec.settings.terminal_auth, ..offer };
        let handshake = self.initialize((dialect, said), &starting.connection, &mut starting.batches);
        let outcome = tokio::time::timeout(spec.settings.start_timeout, handshake).await;
        let failure = match outcome {
            Ok(Ok(initialized)) => {
                let tree = starting.child.tree();
                let noted = tree.clone();
                let noted = self.shutdown.spawn_blocking(move || noted.with_baseline()).await.unwrap_or(tree);
                return Ok(starting.into_process(spec, offer, (initialized, noted)));
            }
            Ok(Err(Some(failure))) => failure,
            Ok(Err(None)) => AgentFailure::Exited(starting.exit().await),
            Err(_) => {
                AgentFailure::StartTimeout { agent: spec.name.clone(), timeout: spec.settings.start_timeout }
            }
        };
        Err(FailedStart::of(failure, starting.child))
    }

    /// Sends `initialize`. Returns `Err(None)` if the process ended before it answered.
    async fn initialize(
        &self,
        (dialect, offer): (AcpVersion, ClientCapabilities),
        connection: &Connection,
        batches: &mut mpsc::Receiver<Batch>,
    ) -> Result<InitializeResult, Option<AgentFailure>> {
        let params = acp::initialize(dialect, self.version, offer);
        let call = connection.call(acp::method::INITIALIZE, &params).map_err(|_| None)?;
        while let Some(batch) = batches.recv().await {
            for message in batch.messages {
                match message {
                    Inbound::Response { call: answered, outcome } if answered == call => {
                        let result = outcome.map_err(|error| Some(AgentFailure::Rpc(error)))?;
                        return InitializeResult::parse(&result, dialect)
                            .map_err(|error| Some(AgentFailure::Start { detail: error.to_string() }));
                    }
                    Inbound::Request { id, method, .. } => reject_request(connection, id, &method),
                    // A message before the handshake belongs to no session.
                    Inbound::Update(_)
                    | Inbound::Notification { .. }
                    | Inbound::Response { .. }
                    | Inbound::InvalidLine { .. } => {}
                }
            }
        }
        Err(None)
    }
}

/// The configured command with its HOME.
pub(super) fn child_spec(spec: &AgentSpec) -> ChildSpec {
    let home = spec.home.path();
    let mut env = spec.env.clone();
    env.push(("HOME".into(), home.into()));
    ChildSpec {
        program: spec.program.clone(),
        args: spec.args.clone(),
        env,
        cwd: home.to_owned(),
        secrets: spec.secrets.clone(),
    }
}

/// An error with its cause: the operator must see that a file is not executable, for example.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Rejects an unsupported request. A closed stdin needs no answer.
fn reject_request(connection: &Connection, id: IncomingId, method: &str) {
    drop(connection.answer(id, Err(&acp::method_not_found(method)), ()));
}

/// A process before its handshake.
struct Starting {
    connection: Connection,
    batches: mpsc::Receiver<Batch>,
    child: Child,
}

impl Starting {
    fn into_process(
        self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
        (initialized, tree): (InitializeResult, ProcessTree),
    ) -> Process {
        let Self { connection, batches, child } = self;
        let initialized = Arc::new(initialized);
        Process {
            spec: Arc::clone(spec),
            connection,
            batches,
            initialized,
            client_capabilities: offer,
            child,
            tree,
        }
    }

    async fn exit(&self) -> AgentExit {
        agent_exit(&self.connection, &self.child).await
    }
}

/// The time that a process may use to end after it closed its stdout. After that, the report has no exit code.
const EXIT_GRACE: Duration = Duration::from_millis(400);

async fn agent_exit(connection: &Connection, child: &Child) -> AgentExit {
    let exit = tokio::time::timeout(EXIT_GRACE, child.exited()).await.ok();
    let stalled = child.stop_reason() == Some(StopReason::StdinStalled);
    let reason = match connection.read_end().borrow().as_ref().and_then(ReadEnd::reason) {
        None if stalled => Some(StopReason::StdinStalled.to_string()),
        reason => reason,
    };
    let (exit_code, signal) = exit.map_or((None, None), |exit| (exit.code, exit.signal));
    AgentExit { exit_code, signal, stderr_tail: connection.masked(&child.stderr().tail()), reason }
}

impl Process {
    /// How the process ended. Call it after the end of `batches`.
    pub async fn exit(&self) -> AgentExit {
        agent_exit(&self.connection, &self.child).await
    }

    /// Answers a request of the agent, once. An agent that does not read its answers would wait for ever, so
    /// it is stopped.
    pub fn answer(&self, id: IncomingId, outcome: Result<&RawValue, &RawValue>) {
        self.answer_with_guard(id, outcome, ());
    }

    /// The same. `held` is dropped after the agent has read the whole answer, or when it never will.
    pub fn answer_with_guard(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) {
        if self.connection.answer(id, outcome, held).is_err() {
            self.begin_stop();
        }
    }

    /// Starts terminals beside the agent. They end with it.
    pub fn terminals(&self) -> &Terminals {
        self.child.terminals()
    }

    /// The tail of stderr.
    pub fn stderr(&self) -> String {
        self.connection.masked(&self.child.stderr().tail())
    }

    /// Whether the process ended, closed its stdout, was disconnected, or has lost its reader.
    pub fn has_ended(&self) -> bool {
        let over = self.connection.read_end();
        over.has_changed().is_err() || over.borrow().is_some() || self.child.exit().is_some()
    }

    /// Stops a process that failed during its start.
    pub fn failed(self, failure: AgentFailure) -> FailedStart {
        FailedStart::of(failure, self.child)
    }

    /// Whether there are unread messages of the agent.
    pub fn has_unread(&self) -> bool {
        !self.batches.is_empty()
    }

    /// The processes of the agent, with the baseline after `initialize`.
    pub fn tree(&self) -> ProcessTree {
        self.tree.clone()
    }

    /// Begins a graceful stop. The messages of the agent are still read.
    pub fn begin_stop(&self) {
        self.child.begin_stop();
    }

    /// Stops the process gracefully and returns when it has ended.
    pub async fn stop(self) {
        let Self { batches, child, .. } = self;
        // Without a reader, a full channel would block the agent.
        drop(batches);
        child.stop().await;
    }
}
