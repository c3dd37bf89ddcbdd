//! The delivery of a broadcast to one destination.

use std::time::Duration;

use tokio::time::timeout;

use super::message::{Broadcast, METHOD};
use super::parts::Parts;
use super::selection::Destination;
use crate::acp::TraceContext;
use crate::api::{BroadcastDelivery, BroadcastReason};
use crate::cca::SendError;
use crate::fleet::MemberState;
use crate::pool::PoolProcess;
use crate::session::{IdempotencyKey, PromptRequest, SessionError, ToProblem};
use crate::types::{
    AgentDialect, AgentKind, AgentName, Principal, ProcessState, PromptId, SessionId,
};

/// How long a destination may take to get the message.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A broadcast on its way, with the circumstances of its request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) broadcast: Broadcast,
    pub(super) by: Principal,
    pub(super) trace: Option<TraceContext>,
    /// The idempotency key of the request. Each prompt has its own key, which is derived from it.
    pub(super) key: Option<IdempotencyKey>,
}

/// A destination that has the message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delivered {
    pub(super) how: BroadcastDelivery,
    pub(super) prompt: Option<PromptId>,
}

/// Why a destination does not have the message.
#[derive(Debug, Clone)]
pub(super) struct Undelivered {
    pub(super) reason: BroadcastReason,
    pub(super) detail: String,
}

impl From<BroadcastReason> for Undelivered {
    fn from(reason: BroadcastReason) -> Self {
        Self {
            reason,
            detail: reason.text().to_owned(),
        }
    }
}

impl Parts {
    /// Delivers the message within the deadline.
    pub(super) async fn deliver(
        &self,
        request: &Request,
        destination: Destination,
    ) -> Result<Delivered, Undelivered> {
        let delivered = async {
            match destination {
                Destination::Process(process) => self.notify(request, &process).await,
                Destination::Member(name) => self.send(request, &name).await,
                Destination::Session(session) => self.prompt(request, session).await,
            }
        };
        timeout(TIMEOUT, delivered)
            .await
            .unwrap_or_else(|_| Err(BroadcastReason::Timeout.into()))
    }

    /// Sends the notification to a process, and waits until its pipe or its host has it.
    async fn notify(
        &self,
        request: &Request,
        process: &PoolProcess,
    ) -> Result<Delivered, Undelivered> {
        let kind = process.spec.endpoint.kind();
        let connection = process
            .connection
            .as_ref()
            .ok_or(BroadcastReason::Starting)?;
        if process.state == ProcessState::Stopping {
            return Err(BroadcastReason::Ended.into());
        }
        if kind == AgentKind::Fleet && !self.is_connected(&process.spec.name) {
            return Err(BroadcastReason::Disconnected.into());
        }
        // The member belongs to another tenant, or has connected since the selection.
        if kind == AgentKind::Fleet && self.cca.contains(&process.spec.name) {
            return Err(BroadcastReason::Unsupported.into());
        }
        // A translation has no such notification.
        if process.spec.settings.dialect != AgentDialect::Acp {
            return Err(BroadcastReason::Unsupported.into());
        }
        let params = request.broadcast.params(request.trace.as_ref());
        let receipt = connection.notify_reported(METHOD, &params).map_err(|_| {
            if connection.has_ended() {
                BroadcastReason::Ended
            } else {
                BroadcastReason::QueueFull
            }
        })?;
        receipt.await.map_err(|_| BroadcastReason::Ended)?;
        let how = match kind {
            AgentKind::Local => BroadcastDelivery::Written,
            AgentKind::Remote => BroadcastDelivery::Sent,
            AgentKind::Fleet => BroadcastDelivery::Received,
        };
        Ok(Delivered { how, prompt: None })
    }

    fn is_connected(&self, member: &AgentName) -> bool {
        self.fleet
            .member(member)
            .is_some_and(|member| member.state() == MemberState::Connected)
    }

    /// Sends the message to a member of the dialect `cca` on its own connection.
    async fn send(&self, request: &Request, name: &AgentName) -> Result<Delivered, Undelivered> {
        let receipt = self
            .cca
            .send(name, &request.by.tenant, request.broadcast.cca_message());
        let receipt = receipt.map_err(|error| match error {
            SendError::Disconnected => BroadcastReason::Disconnected,
            SendError::QueueFull => BroadcastReason::QueueFull,
        })?;
        if let Some(member) = self.fleet.member(name) {
            member.wake();
        }
        receipt.await.map_err(|_| BroadcastReason::Disconnected)?;
        Ok(Delivered {
            how: BroadcastDelivery::Sent,
            prompt: None,
        })
    }

    /// Queues the prompt in the session.
    async fn prompt(
        &self,
        request: &Request,
        session: SessionId,
    ) -> Result<Delivered, Undelivered> {
        let opened = self.sessions.open(&request.by, session).await;
        let opened = opened.map_err(|error| match error {
            SessionError::NoSuchSession => BroadcastReason::Unknown.into(),
            error => rejected(&error),
        })?;
        let key = request.key.clone().map(|key| {
            let route = format!("{} {session}", key.route);
            IdempotencyKey { route, ..key }
        });
        let prompt = PromptRequest {
            blocks: request.broadcast.blocks(),
            attachments: Vec::new(),
            queue: true,
            key,
            trace: request.trace.clone(),
            acp_request: None,
            broadcast: Some(request.broadcast.id),
            serving: None,
        };
        let admitted = opened.prompt(&request.by, prompt, || Ok(())).await;
        let admitted = admitted.map_err(|error| rejected(&error))?;
        let prompt = Some(admitted.prompt.prompt_id);
        Ok(Delivered {
            how: BroadcastDelivery::Queued,
            prompt,
        })
    }
}

fn rejected(error: &impl ToProblem) -> Undelivered {
    let problem = error.problem();
    let detail = format!("{}: {}", problem.code.as_str(), problem.detail);
    Undelivered {
        reason: BroadcastReason::Rejected,
        detail,
    }
}
