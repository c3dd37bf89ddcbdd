//! A broadcast, its text in each form, and its delivery to one destination.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use uuid::Uuid;

use super::selection::Destination;

use crate::session::{IdempotencyKey, PromptRequest, SessionError, SessionRegistry, ToProblem};
use agents::agent::CurrentCatalogue;
use agents::cca::{BroadcastMessage, CcaMembers, SendError};
use agents::pool::{Pool, PoolProcess};
use base::types::{
    AgentDialect, AgentKind, AgentName, Ids, Principal, ProcessState, PromptId, SessionId,
    Timestamp,
};
use events::api::{BroadcastDelivery, BroadcastReason, BroadcastType};
use log::audit::Audit;
use wire::acp::{TraceContext, with_trace};
use wire::fleet::{Fleet, MemberState};

const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Request {
    pub(super) broadcast: Broadcast,
    pub(super) by: Principal,
    pub(super) trace: Option<TraceContext>,
    /// The idempotency key of the request. Each prompt has its own key, which is derived from it.
    pub(super) key: Option<IdempotencyKey>,
}

#[derive(Clone, Copy)]
pub(super) struct Delivered {
    pub(super) how: BroadcastDelivery,
    pub(super) prompt: Option<PromptId>,
}

#[derive(Clone)]
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
        Ok(Delivered {
            how: BroadcastDelivery::Queued,
            prompt: Some(admitted.prompt.prompt_id),
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

#[derive(Clone)]
pub struct Parts {
    pub sessions: SessionRegistry,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub fleet: Fleet,
    pub cca: Arc<CcaMembers>,
    pub audit: Audit,
    pub ids: Ids,
}

/// The method of the notification. Methods of extensions begin with `_` (ACP, Extensibility).
pub(super) const METHOD: &str = "_acp-gateway/broadcast";

#[derive(Clone)]
pub struct Broadcast {
    pub id: Uuid,
    pub kind: BroadcastType,
    pub content: String,
    pub from: Arc<str>,
    pub at: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    broadcast_id: Uuid,
    #[serde(rename = "type")]
    kind: BroadcastType,
    content: &'a str,
    from: &'a str,
    at: Timestamp,
    #[serde(rename = "_meta")]
    meta: serde_json::Value,
}

impl Broadcast {
    /// The mark in `_meta` of a notification and of a content block.
    fn mark(&self) -> serde_json::Value {
        json!({ "acp-gateway": { "broadcast": { "id": self.id, "type": self.kind, "from": &*self.from } } })
    }

    pub(super) fn params(&self, trace: Option<&TraceContext>) -> Box<RawValue> {
        let params = Params {
            broadcast_id: self.id,
            kind: self.kind,
            content: &self.content,
            from: &self.from,
            at: self.at,
            meta: self.mark(),
        };
        with_trace(
            &to_raw_value(&params).expect("params have string keys and serialize"),
            trace,
        )
    }

    /// The message for a member of the dialect `cca`.
    pub(super) fn cca_message(&self) -> String {
        BroadcastMessage {
            broadcast_id: self.id,
            broadcast_type: self.kind.into_str(),
            content: &self.content,
            from: &self.from,
            at: self.at,
        }
        .text()
    }

    /// The content blocks of a prompt. Its first line marks the text as a broadcast.
    pub(super) fn blocks(&self) -> Box<RawValue> {
        let text = format!(
            "[broadcast {} from {}]\n\n{}",
            self.kind.into_str(),
            self.from,
            self.content
        );
        let blocks = json!([{ "type": "text", "text": text, "_meta": self.mark() }]);
        to_raw_value(&blocks).expect("a value serializes")
    }
}

#[cfg(test)]
mod message_tests {
    use super::*;

    #[test]
    fn every_form_is_marked_as_a_broadcast() {
        let broadcast = Broadcast {
            id: Uuid::from_u128(7),
            kind: BroadcastType::HealthCheck,
            content: "are you \"well\"?".to_owned(),
            from: "alice".into(),
            at: Timestamp::from_millis(0),
        };
        let params: serde_json::Value = serde_json::from_str(broadcast.params(None).get()).unwrap();
        let mark = json!({ "acp-gateway": { "broadcast": {
            "id": broadcast.id, "type": "health_check", "from": "alice"
        } } });
        assert_eq!(
            params,
            json!({
                "broadcastId": broadcast.id,
                "type": "health_check",
                "content": "are you \"well\"?",
                "from": "alice",
                "at": "1970-01-01T00:00:00.000Z",
                "_meta": mark,
            })
        );
        let blocks: serde_json::Value = serde_json::from_str(broadcast.blocks().get()).unwrap();
        let text = "[broadcast health_check from alice]\n\nare you \"well\"?";
        assert_eq!(
            blocks,
            json!([{ "type": "text", "text": text, "_meta": mark }])
        );
        let message: serde_json::Value = serde_json::from_str(&broadcast.cca_message()).unwrap();
        assert_eq!(
            (&message["type"], &message["broadcast_type"]),
            (&json!("broadcast"), &json!("health_check"))
        );
    }
}
