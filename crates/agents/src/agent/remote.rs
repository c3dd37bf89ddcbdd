//! Connects to agents that are not child processes of the gateway.

use std::sync::Arc;

use ::http::StatusCode;
use tokio::time::timeout;

use super::connection::Connection;
use super::failure::AgentFailure;
use super::handshake::{Handshake, v2_process};
use super::process::{EarlierChannel, FailedStart, Process, ProcessKey};
use super::spec::{AgentSpec, RemoteEndpoint};
use super::transport::http::{self, Host, StartRejection};
use super::transport::{member, websocket};
use crate::limits::Limits;
use base::shutdown::Shutdown;
use base::telemetry::ErrorChain;
use base::types::text::strip_controls;
use outgoing::{
    AddressRule, Client, ClientOptions, ProxyVariables, WebSocketError, open_websocket,
};
use wire::acp::{AcpVersion, InitializeResult};
use wire::fleet::Fleet;
use wire::jsonrpc::PendingTables;

/// The version of ACP that the gateway requests of members.
const MEMBER_VERSION: AcpVersion = AcpVersion::V1;

/// Connects to agents that are not child processes of the gateway: those that serve the remote transport of ACP, and the processes of members.
#[derive(Debug, Clone)]
pub struct RemoteConnector {
    pub fleet: Fleet,
    pub proxies: ProxyVariables,
    pub limits: Arc<Limits>,
    pub shutdown: Shutdown,
    pub version: &'static str,
}

impl RemoteConnector {
    /// Connects with the newest version that the agent and its entry support.
    pub async fn connect(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        remote: &RemoteEndpoint,
    ) -> Result<Process, FailedStart> {
        if spec.requests_v2() {
            let started = self.open(spec, key, remote, AcpVersion::V2).await;
            if let Some(process) = v2_process(started).await? {
                return Ok(process);
            }
        }
        self.open(spec, key, remote, AcpVersion::V1).await
    }

    async fn open(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        remote: &RemoteEndpoint,
        version: AcpVersion,
    ) -> Result<Process, FailedStart> {
        let client = self.client(remote).await?;
        let handshake = Handshake {
            spec,
            key,
            version,
            gateway_version: self.version,
            telemetry_token: None,
        };
        if remote.uses_http() {
            self.open_http(handshake, remote, client).await
        } else {
            self.open_socket(handshake, remote, client).await
        }
    }

    async fn open_socket(
        &self,
        handshake: Handshake<'_>,
        remote: &RemoteEndpoint,
        client: Client,
    ) -> Result<Process, FailedStart> {
        let settings = &handshake.spec.settings;
        let headers = remote.headers.clone();
        let opened = open_websocket(&client, &remote.url, headers, settings.max_line_bytes);
        let Ok(opened) = timeout(settings.start_timeout, opened).await else {
            let reason = format!("no WebSocket within {:?}", settings.start_timeout);
            return Err(unreachable(remote, &reason).into());
        };
        let (socket, _) = opened.map_err(|error| match error {
            WebSocketError::Failed(reason) => unreachable(remote, &reason),
            WebSocketError::Status { status, .. } => rejected(handshake.spec, remote, status),
        })?;
        let channel = websocket::open(socket, &self.shutdown);
        handshake.run(channel, &self.limits, &self.shutdown).await
    }

    /// The handshake opens the connection, so its failure can be the rejection of the host.
    async fn open_http(
        &self,
        handshake: Handshake<'_>,
        remote: &RemoteEndpoint,
        client: Client,
    ) -> Result<Process, FailedStart> {
        let spec = handshake.spec;
        let headers = remote.headers.clone();
        let max_line_bytes = spec.settings.max_line_bytes;
        let host = Host::new(client, remote.url.clone(), headers, max_line_bytes);
        let (channel, outcome) = http::open(host, &self.shutdown);
        let started = handshake.run(channel, &self.limits, &self.shutdown).await;
        started.map_err(|mut failed| {
            match (outcome.get(), &failed.failure) {
                (Some(StartRejection::Status(status)), _) => {
                    failed.failure = rejected(spec, remote, *status);
                }
                (Some(StartRejection::NotAcp), _) => {
                    failed.failure = AgentFailure::start(format!(
                        "no ACP agent answers at {}; check `url` of [agents.{}]",
                        remote.host(),
                        spec.name
                    ));
                }
                (None, AgentFailure::Disconnected { reason }) => {
                    failed.failure = unreachable(remote, reason);
                }
                (None, _) => {}
            }
            failed
        })
    }

    /// Starts a process at the member, or continues with the one that the key names. Waits for the return of the member.
    pub async fn connect_member(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        if let Some(earlier) = &key.channel {
            return self.continue_with(spec, key, earlier).await;
        }
        let opened = self.fleet.open(&spec.name).await;
        let (channel, incoming) = opened.map_err(AgentFailure::from)?;
        let channel = member::open(channel, incoming, 0, None);
        let handshake = Handshake {
            spec,
            key,
            version: MEMBER_VERSION,
            gateway_version: self.version,
            telemetry_token: None,
        };
        handshake.run(channel, &self.limits, &self.shutdown).await
    }

    async fn continue_with(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        earlier: &EarlierChannel,
    ) -> Result<Process, FailedStart> {
        let claimed = self
            .fleet
            .claim(&spec.name, earlier.channel, earlier.offset)
            .await;
        let (channel, incoming) = claimed.map_err(AgentFailure::from)?;
        let initialized = InitializeResult::parse(&earlier.initialize, MEMBER_VERSION);
        let initialized = initialized.map_err(|error| AgentFailure::start(error.to_string()))?;
        // Each call was a command, so this is at least the number of calls.
        let earlier_calls = channel.earlier_commands();
        let pending =
            PendingTables::restored(earlier_calls, earlier.call, earlier.requests.clone());
        let channel = member::open(channel, incoming, earlier.offset, Some(pending));
        let (connection, batches, transport) =
            Connection::start(channel, spec, MEMBER_VERSION, &self.limits, &self.shutdown);
        tracing::info!(channel = ?transport.channel(), "continuing with a process of a member");
        let key = key.clone();
        Ok(Process::new(
            spec,
            key,
            connection,
            batches,
            initialized,
            transport,
        ))
    }

    /// The client for an entry. Its certificates are read again for each connection, so that new ones apply.
    async fn client(&self, remote: &RemoteEndpoint) -> Result<Client, AgentFailure> {
        let proxies = self.proxies.clone();
        let uses_tls = remote.uses_tls();
        let ca_certificates = remote.ca_certificates.clone();
        let create = move || {
            Client::new(ClientOptions {
                proxies: &proxies,
                uses_tls,
                ca_certificates: ca_certificates.as_deref(),
                addresses: AddressRule::Any,
            })
        };
        let client = self.shutdown.spawn_blocking(create).await;
        let client = client.map_err(|error| AgentFailure::start(error.to_string()))?;
        client.map_err(|error| AgentFailure::start(ErrorChain(&error).to_string()))
    }
}

fn unreachable(remote: &RemoteEndpoint, reason: &str) -> AgentFailure {
    let reason = strip_controls(reason);
    AgentFailure::Disconnected {
        reason: format!("could not connect to {}: {reason}", remote.host()),
    }
}

/// The failure for a status of the host. The text names the host and no credentials.
fn rejected(spec: &AgentSpec, remote: &RemoteEndpoint, status: StatusCode) -> AgentFailure {
    let host = remote.host();
    let name = &spec.name;
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            format!("check `token` or `headers` of [agents.{name}]")
        }
        status if status.is_redirection() => {
            format!("the gateway follows no redirects: check `url` of [agents.{name}]")
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            return unreachable(remote, &format!("it answered {status}"));
        }
        _ => format!("check `url` of [agents.{name}]"),
    };
    AgentFailure::start(format!("{host} answered {status}; {advice}"))
}
