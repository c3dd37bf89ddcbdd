//! The first exchange with an agent: `initialize` (ACP, Initialization).

use std::sync::Arc;

use tokio::io::AsyncRead;
use tokio::sync::mpsc;

use super::connection::{Batch, Connection};
use super::failure::AgentFailure;
use super::process::{FailedStart, Process, ProcessKey, agent_exit, await_answer};
use super::spec::AgentSpec;
use super::transport::{Channel, Transport};
use crate::limits::Limits;
use base::shutdown::Shutdown;
use wire::acp::{self, AcpVersion, ClientCapabilities, InitializeResult};

/// `None` if the agent supports only version 1. It ignored the v2 fields of `initialize`, so it assumes that the client
/// has no capabilities, and must be started again.
pub(super) async fn v2_process(
    started: Result<Process, FailedStart>,
) -> Result<Option<Process>, FailedStart> {
    match started {
        Ok(process) if process.initialized.acp_version == AcpVersion::V2 => {
            return Ok(Some(process));
        }
        Ok(process) => process.stop().await,
        Err(failed) if failed.refuses_version() => failed.wait_stopped().await,
        Err(failed) => return Err(failed),
    }
    Ok(None)
}

/// The gateway's side of the exchange.
pub(super) struct Handshake<'a> {
    pub(super) spec: &'a Arc<AgentSpec>,
    pub(super) key: &'a ProcessKey,
    pub(super) version: AcpVersion,
    pub(super) gateway_version: &'a str,
    /// The token of the process for its telemetry, which is masked like the secrets of the entry.
    pub(super) telemetry_token: Option<&'a str>,
}

impl Handshake<'_> {
    /// Initializes the agent behind an open transport within `start_timeout`.
    pub(super) async fn run(
        self,
        channel: Channel<impl AsyncRead + Send + Unpin + 'static>,
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> Result<Process, FailedStart> {
        let spec = self.spec;
        let (connection, mut batches, transport) =
            Connection::start(channel, spec, self.version, limits, shutdown);
        let token = self.telemetry_token.map(str::to_owned);
        connection.secrets.add(token.into_iter().collect());
        let timeout = spec.settings.start_timeout;
        let initialized = self.initialize(&connection, &mut batches, &*transport);
        let failure = match tokio::time::timeout(timeout, initialized).await {
            Ok(Ok(initialized)) => {
                let key = self.key.clone();
                let process = Process::new(spec, key, connection, batches, initialized, transport);
                return Ok(process);
            }
            Ok(Err(Some(failure))) => failure,
            Ok(Err(None)) => agent_exit(&connection, &*transport).await.into(),
            Err(_) => AgentFailure::StartTimeout {
                agent: spec.name.clone(),
                timeout,
                output: connection.invalid_output(),
                stderr_tail: connection.masked(&transport.diagnostics()),
            },
        };
        Err(FailedStart::of(failure, transport))
    }

    /// Sends `initialize`. Returns `Err(None)` if the agent ended before it answered.
    async fn initialize(
        &self,
        connection: &Connection,
        batches: &mut mpsc::Receiver<Batch>,
        transport: &dyn Transport,
    ) -> Result<InitializeResult, Option<AgentFailure>> {
        // The entry decides this for all its processes, so it is not part of the session's capabilities.
        let offer = ClientCapabilities {
            terminal_auth: self.spec.settings.terminal_auth,
            ..self.key.client_capabilities
        };
        let params = acp::initialize(self.version, self.gateway_version, offer);
        let call = connection.call(acp::method::INITIALIZE, &params);
        let call = call.map_err(|_| None)?;
        // A message before the handshake belongs to no session.
        let answer = await_answer(connection, batches, transport, call).await;
        let result = answer
            .ok_or(None)?
            .map_err(|error| Some(AgentFailure::Rpc(error)))?;
        InitializeResult::parse(&result, self.version)
            .map_err(|error| Some(AgentFailure::start(error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::connection::Inbound;
    use crate::agent::spec::AgentSpec;
    use crate::agent::transport::memory::{self, MemoryAgent};
    use base::types::Tenant;

    /// Runs the handshake while `play` plays the agent.
    async fn start(
        play: impl AsyncFnOnce(&mut MemoryAgent),
    ) -> (Result<Process, FailedStart>, MemoryAgent) {
        let (channel, mut agent) = memory::open();
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        spec.secrets = vec!["hunter2-key".to_owned()];
        let spec = Arc::new(spec);
        let key = ProcessKey::new(
            &spec,
            Tenant::default(),
            ClientCapabilities::default(),
            Vec::new(),
            None,
        );
        let handshake = Handshake {
            spec: &spec,
            key: &key,
            version: AcpVersion::V1,
            gateway_version: "test",
            telemetry_token: None,
        };
        let limits = Arc::new(Limits::default());
        let shutdown = Shutdown::new();
        let (started, ()) =
            tokio::join!(handshake.run(channel, &limits, &shutdown), play(&mut agent));
        (started, agent)
    }

    #[tokio::test]
    async fn connection_works_without_a_child_process() {
        let (started, mut agent) = start(async |agent| agent.initialize().await).await;
        let mut process = started.unwrap();
        assert!(process.terminals().is_none() && process.tree().is_none() && !process.has_ended());
        agent
            .send("{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"params\":{}}\nnoise\n")
            .await;
        let batch = process.batches.recv().await.unwrap();
        assert!(matches!(
            batch.messages[..],
            [
                Inbound::Notification { .. },
                Inbound::InvalidLine { bytes: 5, .. }
            ]
        ));
        drop(agent);
        assert!(process.batches.recv().await.is_none());
        let exit = process.exit().await;
        assert_eq!(
            (exit.exit_code, &*exit.stderr_tail),
            (None, "the key is [secret]")
        );
        assert!(process.has_ended());
        process.stop().await;
    }

    #[tokio::test]
    async fn failed_handshake_closes_the_transport() {
        let rejected =
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no\"}}\n";
        let (started, agent) = start(async |agent| {
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
        let (started, agent) = start(async |agent| drop(agent.next_line().await)).await;
        assert!(matches!(
            started.unwrap_err().failure,
            AgentFailure::StartTimeout { .. }
        ));
        assert!(agent.is_closing());
    }

    #[tokio::test]
    async fn agent_that_ends_before_its_answer_is_reported() {
        let (started, _agent) = start(async |agent| agent.end()).await;
        assert!(matches!(
            started.unwrap_err().failure,
            AgentFailure::Exited(_)
        ));
    }
}
