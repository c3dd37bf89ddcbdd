//! A broadcast, its text in each form, and its delivery to one destination.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use uuid::Uuid;

use super::selection::{Destination, Reachable};

use crate::session::{IdempotencyKey, PromptRequest, SessionDirectory, SessionError, ToProblem};
use agents::agent::CurrentCatalogue;
use agents::cca::{BroadcastMessage, CcaMembers, SendError};
use agents::pool::{Pool, PoolProcess};
use base::types::{AgentDialect, AgentName, Ids, Principal, PromptId, SessionId, Timestamp};
use events::api::{AgentKind, BroadcastDelivery, BroadcastReason, BroadcastType, ProcessState};
use log::audit::Audit;
use wire::acp::{TraceContext, with_trace};
use wire::fleet::{Fleet, MemberState};

const TIMEOUT: Duration = Duration::from_secs(5);
/// The method of the notification. Methods of extensions begin with `_` (ACP, Extensibility).
const METHOD: &str = "_acp-gateway/broadcast";

#[derive(Clone)]
pub struct Parts {
    pub sessions: SessionDirectory,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub fleet: Fleet,
    pub cca: Arc<CcaMembers>,
    pub audit: Audit,
    pub ids: Ids,
}

pub(super) struct Broadcast {
    pub(super) id: Uuid,
    pub(super) kind: BroadcastType,
    pub(super) content: String,
    pub(super) by: Principal,
    pub(super) at: Timestamp,
    pub(super) trace: Option<TraceContext>,
    /// The idempotency key of the request. Each prompt has its own key, which is derived from it.
    pub(super) key: Option<IdempotencyKey>,
}

#[derive(Clone)]
pub(super) struct Delivered {
    pub(super) how: BroadcastDelivery,
    pub(super) prompt: Option<PromptId>,
}

impl From<BroadcastDelivery> for Delivered {
    fn from(how: BroadcastDelivery) -> Self {
        Self { how, prompt: None }
    }
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
            detail: reason.to_string(),
        }
    }
}

impl Parts {
    pub(super) async fn deliver(
        &self,
        broadcast: &Broadcast,
        destination: &Destination,
        reachable: &Reachable,
    ) -> Result<Delivered, Undelivered> {
        let delivered = async {
            match destination {
                Destination::Process(id) => {
                    let mut processes = reachable.processes.iter();
                    let process = processes.find(|process| process.id == *id);
                    let process = process.ok_or(BroadcastReason::NoProcess)?;
                    Ok(self.notify(broadcast, process).await?.into())
                }
                Destination::Member(name) => Ok(self.send(broadcast, name).await?.into()),
                Destination::Session(session) => self.prompt(broadcast, *session).await,
            }
        };
        timeout(TIMEOUT, delivered)
            .await
            .unwrap_or_else(|_| Err(BroadcastReason::Timeout.into()))
    }

    async fn notify(
        &self,
        broadcast: &Broadcast,
        process: &PoolProcess,
    ) -> Result<BroadcastDelivery, BroadcastReason> {
        let kind = process.spec.endpoint.kind();
        let name = &process.spec.name;
        let connection = process
            .connection
            .as_ref()
            .ok_or(BroadcastReason::Starting)?;
        if process.state == ProcessState::Stopping {
            return Err(BroadcastReason::Ended);
        }
        if kind == AgentKind::Fleet {
            let member = self.fleet.member(name);
            if member.is_none_or(|member| member.state() != MemberState::Connected) {
                return Err(BroadcastReason::Disconnected);
            }
            // The member belongs to another tenant, or has connected since the selection.
            if self.cca.contains(name) {
                return Err(BroadcastReason::Unsupported);
            }
        }
        // A translation has no such notification.
        if process.spec.settings.dialect != AgentDialect::Acp {
            return Err(BroadcastReason::Unsupported);
        }
        let receipt = connection
            .notify_reported(METHOD, &broadcast.params())
            .map_err(|_| {
                if connection.has_ended() {
                    BroadcastReason::Ended
                } else {
                    BroadcastReason::QueueFull
                }
            })?;
        receipt.await.map_err(|_| BroadcastReason::Ended)?;
        Ok(match kind {
            AgentKind::Local => BroadcastDelivery::Written,
            AgentKind::Remote => BroadcastDelivery::Sent,
            AgentKind::Fleet => BroadcastDelivery::Received,
        })
    }

    async fn send(
        &self,
        broadcast: &Broadcast,
        name: &AgentName,
    ) -> Result<BroadcastDelivery, BroadcastReason> {
        let receipt = self
            .cca
            .send(name, &broadcast.by.user.tenant(), broadcast.cca_message());
        let receipt = receipt.map_err(|error| match error {
            SendError::Disconnected => BroadcastReason::Disconnected,
            SendError::QueueFull => BroadcastReason::QueueFull,
        })?;
        if let Some(member) = self.fleet.member(name) {
            member.wake();
        }
        receipt.await.map_err(|_| BroadcastReason::Disconnected)?;
        Ok(BroadcastDelivery::Sent)
    }

    async fn prompt(
        &self,
        broadcast: &Broadcast,
        session: SessionId,
    ) -> Result<Delivered, Undelivered> {
        let opened = self.sessions.open(&broadcast.by, session).await;
        let opened = opened.map_err(|error| match error {
            SessionError::NoSuchSession => BroadcastReason::Unknown.into(),
            error => rejected(&error),
        })?;
        let key = broadcast.key.clone().map(|key| {
            let route = format!("{} {session}", key.route);
            IdempotencyKey { route, ..key }
        });
        let prompt = PromptRequest {
            queue: true,
            key,
            trace: broadcast.trace.clone(),
            broadcast: Some(broadcast.id),
            ..PromptRequest::new(broadcast.blocks())
        };
        let admitted = opened.prompt(&broadcast.by, prompt, || Ok(())).await;
        let admitted = admitted.map_err(|error| rejected(&error))?;
        Ok(Delivered {
            how: BroadcastDelivery::Queued,
            prompt: Some(admitted.prompt.prompt_id),
        })
    }
}

fn rejected(error: &impl ToProblem) -> Undelivered {
    let problem = error.problem();
    Undelivered {
        reason: BroadcastReason::Rejected,
        detail: format!("{}: {}", problem.code.as_str(), problem.detail),
    }
}

impl Broadcast {
    /// The mark in `_meta` of a notification and of a content block.
    fn mark(&self) -> serde_json::Value {
        json!({ "acp-gateway": { "broadcast": { "id": self.id, "type": self.kind, "from": self.by.user.name() } } })
    }

    fn params(&self) -> Box<RawValue> {
        let params = json!({
            "broadcastId": self.id,
            "type": self.kind,
            "content": self.content,
            "from": self.by.user.name(),
            "at": self.at,
            "_meta": self.mark(),
        });
        let params = to_raw_value(&params).expect("a value serializes");
        with_trace(&params, self.trace.as_ref())
    }

    /// The message for a member of the dialect `cca`.
    fn cca_message(&self) -> String {
        BroadcastMessage {
            broadcast_id: self.id,
            broadcast_type: self.kind.into_str(),
            content: &self.content,
            from: self.by.user.name(),
            at: self.at,
        }
        .text()
    }

    /// The content blocks of a prompt. Its first line marks the text as a broadcast.
    fn blocks(&self) -> Box<RawValue> {
        let kind = self.kind.into_str();
        let text = format!(
            "[broadcast {kind} from {}]\n\n{}",
            self.by.user.name(),
            self.content
        );
        let blocks = json!([{ "type": "text", "text": text, "_meta": self.mark() }]);
        to_raw_value(&blocks).expect("a value serializes")
    }
}

#[cfg(test)]
mod message_tests {
    use super::*;
    use base::types::{GrantedFolders, Scopes, UserId};

    #[test]
    fn every_form_is_marked_as_a_broadcast() {
        let broadcast = Broadcast {
            id: Uuid::from_u128(7),
            kind: BroadcastType::HealthCheck,
            content: "are you \"well\"?".to_owned(),
            by: Principal {
                is_local: false,
                user: UserId::from_text("default/alice"),
                scopes: Scopes::default(),
                folders: GrantedFolders::default(),
            },
            at: Timestamp::from_millis(0),
            trace: None,
            key: None,
        };
        let params: serde_json::Value = serde_json::from_str(broadcast.params().get()).unwrap();
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
