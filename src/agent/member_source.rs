//! Starts agents as processes of members of the fleet, and continues with those of an earlier gateway process.

use std::sync::Arc;

use super::connection::Connection;
use super::failure::AgentFailure;
use super::handshake::Handshake;
use super::process::{FailedStart, Process};
use super::process_key::{FormerChannel, ProcessKey};
use super::spec::AgentSpec;
use super::transport::{Channel, member};
use crate::acp::{AcpVersion, InitializeResult};
use crate::fleet::Fleet;
use crate::jsonrpc::PendingTables;
use crate::shutdown::Shutdown;
use crate::types::{Limits, random_uuid};

/// The version of ACP that the gateway requests of members.
const VERSION: AcpVersion = AcpVersion::V1;

/// Connects to the processes of members.
#[derive(Debug, Clone)]
pub struct MemberSource {
    fleet: Fleet,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    version: &'static str,
}

impl MemberSource {
    pub fn new(
        fleet: Fleet,
        limits: Arc<Limits>,
        shutdown: Shutdown,
        version: &'static str,
    ) -> Self {
        Self {
            fleet,
            limits,
            shutdown,
            version,
        }
    }

    /// Starts a process at the member, or continues with the one that the key names. Waits for the return of the member.
    pub async fn connect(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
    ) -> Result<Process, FailedStart> {
        if let Some(former) = &key.channel {
            return self.continue_with(spec, key, former).await;
        }
        let opened = self
            .fleet
            .open(&spec.name)
            .await
            .map_err(AgentFailure::from)?;
        let handshake = Handshake {
            spec,
            key,
            version: VERSION,
            gateway_version: self.version,
        };
        handshake
            .run(member::open(opened, 0, None), &self.limits, &self.shutdown)
            .await
    }

    async fn continue_with(
        &self,
        spec: &Arc<AgentSpec>,
        key: &ProcessKey,
        former: &FormerChannel,
    ) -> Result<Process, FailedStart> {
        let claimed = self
            .fleet
            .claim(&spec.name, former.channel, former.offset)
            .await;
        let claimed = claimed.map_err(AgentFailure::from)?;
        let initialized =
            InitializeResult::parse(&former.initialize, VERSION).map_err(|error| {
                AgentFailure::Start {
                    detail: error.to_string(),
                }
            })?;
        // Each call was a command, so this is at least the number of calls.
        let former_calls = claimed.0.former_commands();
        let pending = PendingTables::restored(former_calls, former.call, former.requests.clone());
        let Channel {
            incoming,
            outgoing,
            transport,
            origin,
        } = member::open(claimed, former.offset, Some(pending));
        let masked = (spec.max_connection_line_bytes(), &*spec.secrets);
        let (connection, batches) = Connection::start(
            (incoming, origin),
            outgoing,
            VERSION,
            masked,
            &self.limits,
            &self.shutdown,
        );
        tracing::info!(agent = %spec.name, channel = ?transport.channel(), "continuing with a process of a member");
        Ok(Process {
            id: random_uuid(),
            spec: Arc::clone(spec),
            connection,
            batches,
            initialized: Arc::new(initialized),
            key: key.clone(),
            transport,
            host: None,
            idle_folder: None,
        })
    }
}
