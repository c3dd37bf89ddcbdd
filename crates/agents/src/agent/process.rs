//! A running agent after its handshake.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::connection::{Batch, Connection, Inbound, ReadEnd};
use super::failure::{AgentExit, AgentFailure};
use super::idle_folder::IdleFolder;
use super::spec::AgentSpec;
use super::telemetry::TelemetryAdmission;
use super::transport::Transport;
use base::types::{AppliedIsolation, Isolation, SessionId, Tenant, random_uuid};
use children::{FolderGrants, ProcessTree, Terminals};
use wire::acp::auth::AuthMethod;
use wire::acp::{
    self, AcpVersion, ClientCapabilities, InitializeResult, Outcome, RequestKind, error_code,
    method, sign_in,
};
use wire::fleet::ChannelId;
use wire::jsonrpc::{CallId, IncomingId, RpcError};

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
    /// `None` if the agent is not a child process of the gateway.
    pub(super) host: Option<HostAccess>,
}

#[derive(Debug)]
pub(super) struct HostAccess {
    pub(super) pid: u32,
    pub(super) terminals: Terminals,
    /// The agent's processes, with those that ran after `initialize` as the baseline.
    pub(super) tree: ProcessTree,
    pub(super) isolation: AppliedIsolation,
    /// `None` if a running process can get no folders.
    pub(super) folders: Option<FolderGrants>,
    /// `None` if the entry does not enable telemetry.
    pub(super) telemetry: Option<TelemetryAdmission>,
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

    pub async fn wait_stopped(self) {
        if let Some(transport) = self.transport {
            transport.closed().await;
        }
    }
}

/// How the agent ended, with its secrets masked.
pub(super) async fn agent_exit(connection: &Connection, transport: &dyn Transport) -> AgentExit {
    let exit = transport.exit().await;
    let read_end = connection.read_end.borrow().clone();
    let refused = read_end.and_then(|ReadEnd(reason)| reason);
    AgentExit {
        stderr_tail: connection.masked(&exit.stderr_tail),
        reason: refused.or(exit.reason),
        ..exit
    }
}

impl Process {
    pub(super) fn new(
        spec: &Arc<AgentSpec>,
        key: ProcessKey,
        connection: Connection,
        batches: mpsc::Receiver<Batch>,
        initialized: InitializeResult,
        transport: Box<dyn Transport>,
    ) -> Self {
        Self {
            id: random_uuid(),
            spec: Arc::clone(spec),
            connection,
            batches,
            initialized: Arc::new(initialized),
            key,
            idle_folder: None,
            transport,
            host: None,
        }
    }
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

    pub fn version(&self) -> AcpVersion {
        self.connection.version()
    }

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

    /// Starts terminals beside the agent. They end with it. `None` if the agent is not a child process of the gateway.
    pub fn terminals(&self) -> Option<&Terminals> {
        self.host.as_ref().map(|host| &host.terminals)
    }

    /// Records that the process serves this session.
    pub(crate) fn record_session(&self, session: SessionId) {
        let telemetry = self.host.as_ref().and_then(|host| host.telemetry.as_ref());
        if let Some(telemetry) = telemetry {
            telemetry.record_session(session);
        }
    }

    pub fn isolation(&self) -> Option<AppliedIsolation> {
        self.host.as_ref().map(|host| host.isolation)
    }

    /// Whether the process can get the folders of a session after its start.
    pub fn accepts_folders(&self) -> bool {
        let folders = self.host.as_ref().and_then(|host| host.folders.as_ref());
        self.key.folders.is_empty() && folders.is_some()
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

    pub fn failed(self, failure: AgentFailure) -> FailedStart {
        FailedStart::of(failure, self.transport)
    }

    pub fn has_unread(&self) -> bool {
        !self.batches.is_empty()
    }

    /// The id of the agent's process. `None` if it is not a child process of the gateway.
    pub fn pid(&self) -> Option<u32> {
        self.host.as_ref().map(|host| host.pid)
    }

    /// The processes of the agent, with the baseline after `initialize`. `None` if it is not a child process of the gateway.
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
        // Without a reader, a full channel would block the agent.
        drop(self.batches);
        self.transport.closed().await;
    }
}

/// The session for which a process starts, if a process of the agent serves one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStart {
    /// The working directory of the session and of the process.
    pub cwd: PathBuf,
    /// The agent's id of the session to restore. `None` for a new session.
    pub restore: Option<Arc<str>>,
}

/// A process serves only requests with an equal key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessKey {
    pub tenant: Tenant,
    /// The client capabilities that `initialize` offers.
    pub client_capabilities: ClientCapabilities,
    pub isolation: Isolation,
    /// The folders that the process may access. Empty if the isolation does not restrict folders.
    pub folders: Vec<PathBuf>,
    /// `None` if a process of the agent serves any number of sessions, or if the request is for no session.
    pub session: Option<SessionStart>,
    /// The process of an earlier gateway process to continue with. `None` for a new process.
    pub channel: Option<Arc<EarlierChannel>>,
}

/// A process of a member that an earlier gateway process has used, and the position of its session.
#[derive(Debug, Clone)]
pub struct EarlierChannel {
    pub channel: ChannelId,
    /// The output before this offset is in the log.
    pub offset: u64,
    pub initialize: Box<RawValue>,
    /// The open call of the prompt.
    pub call: Option<CallId>,
    /// The requests of the agent that are not answered, or whose answer may not have arrived, with the agent's ids.
    pub requests: Vec<(IncomingId, Box<RawValue>)>,
}

impl PartialEq for EarlierChannel {
    /// Only one session continues with a channel.
    fn eq(&self, other: &Self) -> bool {
        self.channel == other.channel
    }
}

impl Eq for EarlierChannel {}

impl ProcessKey {
    /// The key for a request with these folders. The first one is the working directory of the session. `restore`: the
    /// agent's id of a session with a conversation.
    pub fn new(
        spec: &AgentSpec,
        tenant: Tenant,
        client_capabilities: ClientCapabilities,
        folders: Vec<PathBuf>,
        restore: Option<Arc<str>>,
    ) -> Self {
        let isolation = spec.settings.isolation;
        let has_one_session = spec.settings.dialect.has_one_session();
        let cwd = if has_one_session {
            folders.first().cloned()
        } else {
            None
        };
        let session = cwd.map(|cwd| SessionStart { cwd, restore });
        let folders = if isolation.restricts_folders() {
            folders
        } else {
            Vec::new()
        };
        Self {
            tenant,
            client_capabilities,
            isolation,
            folders,
            session,
            channel: None,
        }
    }
}

impl Connection {
    /// Sends `$/cancel_request` for a call whose answer is not needed. The agent can stop its work on it.
    pub fn cancel(&self, call: CallId) {
        let params =
            to_raw_value(&json!({ "requestId": call.number() })).expect("a number is JSON");
        // A failed send means that the agent is ending, and its work with it.
        let _ = self.notify(method::CANCEL_REQUEST, &params);
    }
}

/// A call that is abandoned if it is dropped before its answer.
struct OpenCall<'a> {
    connection: &'a Connection,
    call: Option<CallId>,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.connection.forget(call);
            self.connection.cancel(call);
        }
    }
}

impl Process {
    /// Calls a method and waits for its answer. Until the answer arrives, rejects the agent's requests and ignores its
    /// notifications. Dropping the future cancels the call at the agent.
    pub async fn call(
        &mut self,
        method: &str,
        params: &RawValue,
        limit: Duration,
    ) -> Result<Box<RawValue>, AgentFailure> {
        let deadline = Instant::now() + limit;
        let connection = self.connection.clone();
        if method == self.version().login_method() {
            connection.secrets.add(sign_in::secrets_of(params));
        }
        let Ok(call) = connection.call(method, params) else {
            return Err(AgentFailure::from(self.exit().await));
        };
        let mut open = OpenCall {
            connection: &connection,
            call: Some(call),
        };
        let answer = await_answer(&connection, &mut self.batches, &*self.transport, call);
        let Ok(answer) = timeout_at(deadline, answer).await else {
            return Err(AgentFailure::Timeout {
                method: method.to_owned(),
                output: connection.invalid_output(),
            });
        };
        open.call = None;
        match answer {
            Some(outcome) => outcome.map_err(|error| {
                AgentFailure::from_rpc_error(error, &self.spec, &self.initialized)
            }),
            None => Err(AgentFailure::from(self.exit().await)),
        }
    }
}

/// Reads the messages of an agent without a client until the answer to `call`. Rejects the agent's requests and
/// ignores its notifications. `None`: the agent ended without an answer.
pub(super) async fn await_answer(
    connection: &Connection,
    batches: &mut mpsc::Receiver<Batch>,
    transport: &dyn Transport,
    call: CallId,
) -> Option<Result<Box<RawValue>, RpcError>> {
    while let Some(batch) = batches.recv().await {
        let offset = batch.offset;
        let mut answer = None;
        for message in batch.messages {
            match message {
                Inbound::Response {
                    call: answered,
                    outcome,
                } if answered == call => answer = Some(outcome),
                Inbound::Request { id, method, .. } => {
                    let reply = reply_without_client(&method);
                    let reply = reply.as_deref().map_err(|error| &**error);
                    // An agent that does not read its answers would wait for ever.
                    if connection.answer(id, reply, ()).is_err() {
                        transport.begin_close();
                    }
                }
                Inbound::Update(_)
                | Inbound::Notification { .. }
                | Inbound::Response { .. }
                | Inbound::InvalidLine { .. } => {}
            }
        }
        // The messages have no effect on a log.
        if let Some(offset) = offset {
            transport.acknowledge(offset);
        }
        if answer.is_some() {
            return answer;
        }
    }
    None
}

/// The answer to a request of the agent that no client can answer.
fn reply_without_client(method: &str) -> Outcome {
    let kind = RequestKind::from_method(method);
    if kind.is_question() {
        kind.cancelled_reply()
    } else {
        Err(acp::method_not_found(method))
    }
}

#[cfg(test)]
mod process_key_tests {
    use super::*;
    use base::types::AgentDialect;

    #[test]
    fn tenant_isolation_and_folders_are_part_of_the_key() {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        let folders = || vec![PathBuf::from("/work")];
        let key = |spec: &AgentSpec| {
            ProcessKey::new(
                spec,
                Tenant::default(),
                spec.client_capabilities(),
                folders(),
                None,
            )
        };
        assert_eq!(key(&spec).folders, folders());
        spec.settings.isolation = Isolation::Off;
        let key = key(&spec);
        assert!(
            key.folders.is_empty(),
            "without isolation a process serves every folder"
        );
        assert_ne!(
            key,
            ProcessKey {
                folders: folders(),
                ..key.clone()
            }
        );
        assert_ne!(
            key,
            ProcessKey {
                tenant: Tenant::new("other"),
                ..key.clone()
            }
        );
    }

    #[test]
    fn process_with_one_session_starts_for_its_folder_and_restore() {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        spec.settings.isolation = Isolation::Off;
        let key = |spec: &AgentSpec, folders: &[&str], restore: Option<&str>| {
            let folders = folders.iter().map(PathBuf::from).collect();
            let capabilities = spec.client_capabilities();
            ProcessKey::new(
                spec,
                Tenant::default(),
                capabilities,
                folders,
                restore.map(Into::into),
            )
        };
        assert_eq!(key(&spec, &["/a"], Some("id")), key(&spec, &["/b"], None));
        spec.settings.dialect = AgentDialect::StreamJson;
        assert_eq!(key(&spec, &["/a", "/x"], None), key(&spec, &["/a"], None));
        assert_ne!(key(&spec, &["/a"], None), key(&spec, &["/b"], None));
        assert_ne!(key(&spec, &["/a"], Some("id")), key(&spec, &["/a"], None));
        assert_eq!(
            key(&spec, &[], None).session,
            None,
            "a call without a session"
        );
    }
}

#[cfg(test)]
mod call_tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::transport::memory::{self, MemoryAgent};
    use crate::agent::{AgentSpec, ProcessKey};
    use base::types::Tenant;

    async fn connect() -> (Process, MemoryAgent) {
        let spec = AgentSpec::removed("a".parse().unwrap());
        let key = ProcessKey::new(
            &spec,
            Tenant::default(),
            spec.client_capabilities(),
            Vec::new(),
            None,
        );
        memory::connect(&Arc::new(spec), &key).await
    }

    #[tokio::test]
    async fn requests_of_the_agent_are_rejected_during_a_call() {
        let (mut process, mut agent) = connect().await;
        let params = RawValue::from_string("{}".to_owned()).unwrap();
        let answer = async {
            assert_eq!(
                agent.next_line().await,
                r#"{"jsonrpc":"2.0","id":2,"method":"m","params":{}}"#
            );
            for method in ["session/request_permission", "elicitation/create", "x"] {
                agent
                    .send(&format!("{{\"id\":0,\"method\":\"{method}\"}}\n"))
                    .await;
            }
            agent
                .send("no json\n{\"id\":9,\"result\":{}}\n{\"id\":2,\"result\":7}\n")
                .await;
            let mut lines = Vec::new();
            for _ in 0..3 {
                lines.push(agent.next_line().await);
            }
            lines
        };
        let (result, lines) =
            tokio::join!(process.call("m", &params, Duration::from_secs(10)), answer);
        assert_eq!(result.unwrap().get(), "7");
        assert!(
            lines[0].contains(r#""result":{"outcome":{"outcome":"cancelled"}}"#),
            "{lines:?}"
        );
        assert!(
            lines[1].contains(r#""result":{"action":"cancel"}"#) && lines[2].contains("-32601"),
            "{lines:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn late_call_is_cancelled_at_the_agent() {
        let (mut process, mut agent) = connect().await;
        let params = RawValue::from_string("{}".to_owned()).unwrap();
        let failure = process
            .call("m", &params, Duration::from_secs(1))
            .await
            .unwrap_err();
        assert!(matches!(failure, AgentFailure::Timeout { .. }), "{failure}");
        agent.next_line().await;
        assert!(
            agent
                .next_line()
                .await
                .contains(r#""method":"$/cancel_request","params":{"requestId":2}"#)
        );
        drop(agent);
        let failure = process
            .call("m", &params, Duration::from_secs(1))
            .await
            .unwrap_err();
        assert!(matches!(failure, AgentFailure::Exited(_)), "{failure}");
    }
}
