//! From an entry of the catalogue to a process that has answered `initialize` (ACP, Initialization).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::connection::{Batch, Connection, Inbound, Over};
use super::failure::{AgentFailure, Ended};
use super::spec::AgentSpec;
use crate::acp::{self, ClientCapabilities, Dialect, InitializeResult, error_code};
use crate::jsonrpc::IncomingId;
use crate::process::{Child, ChildSpec, ProcessTree, Spawner, StopReason, Terminals};
use crate::shutdown::{Shutdown, sound};
use crate::types::{AgentName, Limits};

/// An agent that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    pub spec: Arc<AgentSpec>,
    pub connection: Connection,
    pub batches: mpsc::Receiver<Batch>,
    pub initialized: Arc<InitializeResult>,
    /// What it was offered at `initialize`.
    pub offer: ClientCapabilities,
    child: Child,
    /// The agent's processes, with the processes that ran after `initialize`.
    tree: ProcessTree,
}

/// A start that failed. Its process may still be running: dropping this stops it in the background.
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
    /// Begins to stop the started process.
    fn of(failure: AgentFailure, child: Child) -> Self {
        child.begin_stop();
        Self { failure, child: Some(child) }
    }

    /// Whether the agent answered as agents do to an `initialize` of a version that they do not speak, or cannot read.
    fn refuses_version(&self) -> bool {
        let AgentFailure::Rpc(error) = &self.failure else { return false };
        matches!(
            error.code,
            error_code::UNSUPPORTED_VERSION | error_code::INVALID_PARAMS | error_code::INVALID_REQUEST
        )
    }

    /// Returns when the process is gone.
    pub async fn stopped(self) {
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
    /// Entries that want v2 of an agent that speaks only v1. It is not asked again until its entry is another.
    older: Arc<Mutex<HashMap<AgentName, Arc<AgentSpec>>>>,
}

impl Launcher {
    pub fn new(spawner: Spawner, limits: Arc<Limits>, shutdown: Shutdown, version: &'static str) -> Self {
        Self { spawner, limits, shutdown, version, older: Arc::default() }
    }

    /// One that can start nothing.
    #[cfg(test)]
    pub(crate) fn of_nothing(limits: &Arc<Limits>, shutdown: &Shutdown) -> Self {
        let nowhere = std::path::PathBuf::from("/nonexistent");
        let spawner = Spawner::new(nowhere.clone(), nowhere, shutdown.clone(), Arc::clone(limits));
        Self::new(spawner, Arc::clone(limits), shutdown.clone(), "test")
    }

    /// Starts the agent in the newest version that it shares with its entry. One that turns out to speak only v1
    /// is started again: it has read nothing of an `initialize` of v2 but its version, so it believes that the
    /// gateway can do nothing.
    pub async fn launch(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
    ) -> Result<Process, FailedStart> {
        if !self.speaks_v2(spec) {
            return self.start(spec, offer, Dialect::V1).await;
        }
        match self.start(spec, offer, Dialect::V2).await {
            Ok(process) if process.initialized.dialect == Dialect::V2 => return Ok(process),
            Ok(process) => process.stop().await,
            Err(failed) if failed.refuses_version() => failed.stopped().await,
            Err(failed) => return Err(failed),
        }
        tracing::info!(agent = %spec.name, "the agent speaks only version 1 of the protocol");
        sound(self.older.lock()).insert(spec.name.clone(), Arc::clone(spec));
        self.start(spec, offer, Dialect::V1).await
    }

    fn speaks_v2(&self, spec: &Arc<AgentSpec>) -> bool {
        let older = || sound(self.older.lock()).get(&spec.name).is_some_and(|older| Arc::ptr_eq(older, spec));
        Dialect::of(spec.protocol) == Some(Dialect::V2) && !older()
    }

    /// Spawns and initialises, within the agent's `limits.start`.
    async fn start(
        &self,
        spec: &Arc<AgentSpec>,
        offer: ClientCapabilities,
        dialect: Dialect,
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
            (spec.limits.line, &spec.secrets),
            &self.limits,
            &self.shutdown,
        );
        let mut starting = Starting { connection, batches, child };
        // The entry decides it for all of its processes, so it is no part of what a session may want.
        let said = ClientCapabilities { terminal_auth: spec.terminal_auth, ..offer };
        let handshake = self.initialize((dialect, said), &starting.connection, &mut starting.batches);
        let outcome = tokio::time::timeout(spec.limits.start, handshake).await;
        let failure = match outcome {
            Ok(Ok(initialized)) => {
                let tree = starting.child.tree();
                let noted = tree.clone();
                let noted = self.shutdown.spawn_blocking(move || noted.noted()).await.unwrap_or(tree);
                return Ok(starting.into_process(spec, offer, (initialized, noted)));
            }
            Ok(Err(Some(failure))) => failure,
            Ok(Err(None)) => AgentFailure::Exited(starting.ended().await),
            Err(_) => AgentFailure::StartTimeout { agent: spec.name.clone(), timeout: spec.limits.start },
        };
        Err(FailedStart::of(failure, starting.child))
    }

    /// `Err(None)`: the process ended before it answered.
    async fn initialize(
        &self,
        (dialect, offer): (Dialect, ClientCapabilities),
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
                    Inbound::Request { id, method, .. } => refuse(connection, id, &method),
                    // Nothing that comes before the handshake belongs to a session.
                    Inbound::Update(_)
                    | Inbound::Notification { .. }
                    | Inbound::Response { .. }
                    | Inbound::Noise { .. } => {}
                }
            }
        }
        Err(None)
    }
}

/// The command as the operator configured it, with its HOME.
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

/// An error with what is behind it: the operator has to see that a file is not executable.
pub(super) fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Answers a request that nobody serves. A closed stdin needs no answer.
fn refuse(connection: &Connection, id: IncomingId, method: &str) {
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
        Process { spec: Arc::clone(spec), connection, batches, initialized, offer, child, tree }
    }

    async fn ended(&self) -> Ended {
        ended(&self.connection, &self.child).await
    }
}

/// How long a process that closed its stdout may take to end before we speak of it without its exit code.
const EXIT_GRACE: Duration = Duration::from_millis(400);

async fn ended(connection: &Connection, child: &Child) -> Ended {
    let exit = tokio::time::timeout(EXIT_GRACE, child.exited()).await.ok();
    let stalled = child.stop_reason() == Some(StopReason::StdinStalled);
    let reason = match connection.over().borrow().as_ref().and_then(Over::reason) {
        None if stalled => Some(StopReason::StdinStalled.to_string()),
        reason => reason,
    };
    let (exit_code, signal) = exit.map_or((None, None), |exit| (exit.code, exit.signal));
    Ended { exit_code, signal, stderr_tail: connection.masked(&child.stderr().tail()), reason }
}

impl Process {
    /// How it ended; to be asked when `batches` is over.
    pub async fn ended(&self) -> Ended {
        ended(&self.connection, &self.child).await
    }

    /// Answers a request of the agent, once. One that does not take its answers waits for them for ever, so it ends.
    pub fn answer(&self, id: IncomingId, outcome: Result<&RawValue, &RawValue>) {
        self.answer_held(id, outcome, ());
    }

    /// The same, and `held` is dropped when the agent has taken the whole answer, or will never.
    pub fn answer_held(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) {
        if self.connection.answer(id, outcome, held).is_err() {
            self.begin_stop();
        }
    }

    /// Starts terminals beside it, which end with it.
    pub fn terminals(&self) -> &Terminals {
        self.child.terminals()
    }

    /// The last of what it wrote to stderr.
    pub fn stderr(&self) -> String {
        self.connection.masked(&self.child.stderr().tail())
    }

    /// The process has ended, has closed its stdout or was cut off, or nobody reads it any more.
    pub fn is_over(&self) -> bool {
        let over = self.connection.over();
        over.has_changed().is_err() || over.borrow().is_some() || self.child.exit().is_some()
    }

    /// Ends a process that turned out to be of no use at its start.
    pub fn failed(self, failure: AgentFailure) -> FailedStart {
        FailedStart::of(failure, self.child)
    }

    /// There is output of the agent that nobody has read yet.
    pub fn has_unread(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Its processes, with those noted that it had after `initialize`.
    pub fn tree(&self) -> ProcessTree {
        self.tree.clone()
    }

    /// Begins the stop ladder; what the agent still says is read.
    pub fn begin_stop(&self) {
        self.child.begin_stop();
    }

    /// Goes down the stop ladder and returns when the process is gone.
    pub async fn stop(self) {
        let Self { batches, child, .. } = self;
        // Nobody reads what it says any more, so it must not block on saying it.
        drop(batches);
        child.stop().await;
    }
}
