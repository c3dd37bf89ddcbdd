//! The first exchange with an agent: `initialize` (ACP, Initialization).

use std::sync::Arc;

use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::batch::{Batch, Inbound};
use super::connection::Connection;
use super::dialect::Dialect;
use super::failure::AgentFailure;
use super::process::{FailedStart, Process, agent_exit};
use super::spec::AgentSpec;
use super::transport::Channel;
use crate::acp::{self, ClientCapabilities, InitializeResult};
use crate::jsonrpc::IncomingId;
use crate::shutdown::Shutdown;
use crate::types::Limits;

/// The gateway's side of the exchange.
pub(super) struct Handshake<'a> {
    pub(super) spec: &'a Arc<AgentSpec>,
    pub(super) offer: ClientCapabilities,
    pub(super) dialect: Arc<dyn Dialect>,
    pub(super) gateway_version: &'a str,
}

impl Handshake<'_> {
    /// Initializes the agent behind an open transport within `start_timeout`.
    pub(super) async fn run(
        self,
        Channel { incoming, outgoing, transport }: Channel<impl AsyncRead + Send + Unpin + 'static>,
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> Result<Process, FailedStart> {
        let spec = self.spec;
        let masked = (spec.settings.max_line_bytes, &*spec.secrets);
        let dialect = Arc::clone(&self.dialect);
        let (connection, mut batches) =
            Connection::start(incoming, outgoing, dialect, masked, limits, shutdown);
        let timeout = spec.settings.start_timeout;
        let failure = match tokio::time::timeout(timeout, self.initialize(&connection, &mut batches)).await {
            Ok(Ok(initialized)) => {
                return Ok(Process {
                    spec: Arc::clone(spec),
                    connection,
                    batches,
                    initialized: Arc::new(initialized),
                    client_capabilities: self.offer,
                    transport,
                    host: None,
                });
            }
            Ok(Err(Some(failure))) => failure,
            Ok(Err(None)) => AgentFailure::Exited(agent_exit(&connection, &*transport).await),
            Err(_) => AgentFailure::StartTimeout { agent: spec.name.clone(), timeout },
        };
        Err(FailedStart::of(failure, transport))
    }

    /// Sends `initialize`. Returns `Err(None)` if the agent ended before it answered.
    async fn initialize(
        &self,
        connection: &Connection,
        batches: &mut mpsc::Receiver<Batch>,
    ) -> Result<InitializeResult, Option<AgentFailure>> {
        // The entry decides this for all its processes, so it is not part of the session's capabilities.
        let offer = ClientCapabilities { terminal_auth: self.spec.settings.terminal_auth, ..self.offer };
        let version = self.dialect.version();
        let params = acp::initialize(version, self.gateway_version, offer);
        let call = connection.call(acp::method::INITIALIZE, &params).map_err(|_| None)?;
        while let Some(batch) = batches.recv().await {
            for message in batch.messages {
                match message {
                    Inbound::Response { call: answered, outcome } if answered == call => {
                        let result = outcome.map_err(|error| Some(AgentFailure::Rpc(error)))?;
                        return InitializeResult::parse(&result, version)
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

/// Rejects an unsupported request. A closed transport needs no answer.
fn reject_request(connection: &Connection, id: IncomingId, method: &str) {
    drop(connection.answer(id, Err(&acp::method_not_found(method)), ()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::dialect::AcpV1;
    use crate::agent::spec::AgentSpec;
    use crate::agent::transport::memory::{self, MemoryAgent};

    async fn connect(
        play: impl AsyncFnOnce(&mut MemoryAgent),
    ) -> (Result<Process, FailedStart>, MemoryAgent) {
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        spec.settings.max_line_bytes = 1 << 20;
        spec.secrets = vec!["hunter2-key".to_owned()];
        let spec = Arc::new(spec);
        let (channel, mut agent) = memory::open();
        let offer = ClientCapabilities::default();
        let handshake = Handshake { spec: &spec, offer, dialect: Arc::new(AcpV1), gateway_version: "test" };
        let (limits, shutdown) = (Arc::new(Limits::default()), Shutdown::new());
        let (started, ()) = tokio::join!(handshake.run(channel, &limits, &shutdown), play(&mut agent));
        (started, agent)
    }

    #[tokio::test]
    async fn connection_works_without_a_child_process() {
        let (started, mut agent) = connect(async |agent| agent.initialize().await).await;
        let mut process = started.unwrap();
        assert!(process.terminals().is_none() && process.tree().is_none() && !process.has_ended());
        agent.send("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{}}\nnoise\n").await;
        let batch = process.batches.recv().await.unwrap();
        assert!(matches!(
            batch.messages[..],
            [Inbound::Notification { .. }, Inbound::InvalidLine { bytes: 5 }]
        ));
        drop(agent);
        assert!(process.batches.recv().await.is_none());
        let exit = process.exit().await;
        assert_eq!((exit.exit_code, &*exit.stderr_tail), (None, "the key is [secret]"));
        assert!(process.has_ended());
        process.stop().await;
    }

    #[tokio::test]
    async fn failed_handshake_closes_the_transport() {
        let rejected = "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no\"}}\n";
        let (started, agent) = connect(async |agent| {
            agent.next_line().await;
            agent.send(rejected).await;
        })
        .await;
        let failed = started.unwrap_err();
        assert!(failed.refuses_version() && agent.is_closing());
        drop(agent);
        failed.wait_stopped().await;
    }

    #[tokio::test(start_paused = true)]
    async fn silent_agent_times_out() {
        let (started, agent) = connect(async |agent| drop(agent.next_line().await)).await;
        assert!(matches!(started.unwrap_err().failure, AgentFailure::StartTimeout { .. }));
        assert!(agent.is_closing());
    }

    #[tokio::test]
    async fn agent_that_ends_before_its_answer_is_reported() {
        let (channel, agent) = memory::open();
        drop(agent);
        let spec = Arc::new(AgentSpec::removed("a".parse().unwrap()));
        let offer = ClientCapabilities::default();
        let handshake = Handshake { spec: &spec, offer, dialect: Arc::new(AcpV1), gateway_version: "test" };
        let started = handshake.run(channel, &Arc::new(Limits::default()), &Shutdown::new()).await;
        assert!(matches!(started.unwrap_err().failure, AgentFailure::Exited(_)));
    }
}
