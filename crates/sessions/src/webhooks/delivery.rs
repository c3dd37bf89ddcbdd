//! Webhooks, their deliveries (one message to one URL, with its attempts), and the records of both. All keys of records begin
//! with the tenant.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use base::types::{Epoch, SessionId, Tenant, Timestamp};
use events::event::EventRef;
use log::eventlog::{
    EventLog, ReadError, RecordPages, Records, Selected, from_json, tenant_key, tenant_prefix,
    to_json,
};
use log::store::Table;

/// The delays after failed attempts, in units of `webhook_retry_unit` (5 seconds): up to about two days in total.
const DELAYS: [u32; 12] = [1, 6, 24, 60, 180, 360, 720, 1440, 2880, 5760, 8640, 14_400];
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Also the `webhook-id`, by which a receiver recognizes a repetition.
    pub id: Uuid,
    /// `None`: a client named the URL for one task.
    pub webhook: Option<Uuid>,
    pub url: String,
    pub kind: String,
    /// `None` for a task that ended before its session was created.
    pub session: Option<SessionId>,
    pub created_at: Timestamp,
    pub(super) body: String,
    pub state: DeliveryState,
    /// The number of attempts since the creation, or since a client repeated the delivery.
    pub attempts: u32,
    pub last: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "is")]
pub enum DeliveryState {
    #[serde(rename_all = "camelCase")]
    Pending {
        next_attempt_at: Timestamp,
    },
    Delivered,
    /// All attempts have failed, or the receiver has answered 410.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub at: Timestamp,
    pub status: Option<u16>,
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered {
        status: u16,
        retry_after: Option<Duration>,
    },
    Failed(String),
}

impl Delivery {
    pub(super) fn new(
        id: Uuid,
        (webhook, url): (Option<Uuid>, &str),
        (kind, session, body): (&str, Option<SessionId>, String),
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            webhook,
            url: url.to_owned(),
            kind: kind.to_owned(),
            session,
            created_at: now,
            body,
            state: DeliveryState::Pending {
                next_attempt_at: now,
            },
            attempts: 0,
            last: None,
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        !matches!(self.state, DeliveryState::Pending { .. })
    }

    /// Records an attempt. `unit` is that of the delays. Returns true if the receiver ends the webhook.
    pub(super) fn attempted(&mut self, outcome: Outcome, now: Timestamp, unit: Duration) -> bool {
        let (status, retry_after, error) = match outcome {
            Outcome::Answered {
                status,
                retry_after,
            } => (Some(status), retry_after, None),
            Outcome::Failed(error) => (None, None, Some(error)),
        };
        let failed_before = usize::try_from(self.attempts).unwrap_or(usize::MAX);
        self.attempts += 1;
        self.last = Some(Attempt {
            at: now,
            status,
            error,
        });
        let gone = status == Some(410);
        self.state = match DELAYS.get(failed_before) {
            _ if status.is_some_and(|status| (200..300).contains(&status)) => {
                DeliveryState::Delivered
            }
            Some(units) if !gone => {
                let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
                DeliveryState::Pending {
                    next_attempt_at: now.after((unit * *units).max(asked)),
                }
            }
            _ => DeliveryState::Failed,
        };
        gone
    }

    pub(super) fn repeat(&mut self, now: Timestamp) {
        self.attempts = 0;
        self.state = DeliveryState::Pending {
            next_attempt_at: now,
        };
    }
}

/// The event types that a webhook can select. `session.update` and `terminal.output` are not among them, because a turn has
/// thousands of them.
pub const EVENT_TYPES: [&str; 18] = [
    "session.created",
    "session.attached",
    "session.detached",
    "session.changed",
    "session.privileged_mode",
    "session.closed",
    "session.deleted",
    "prompt.queued",
    "prompt.changed",
    "prompt.started",
    "prompt.completed",
    "prompt.failed",
    "request.created",
    "request.resolved",
    "elicitation.completed",
    "agent.exited",
    "extension",
    TASK_ENDED,
];

/// The end of a task. It is no event of a session.
pub(super) const TASK_ENDED: &str = "task.ended";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    pub id: Uuid,
    pub url: String,
    pub events: Vec<String>,
    pub created_at: Timestamp,
    /// Events up to this position of the log existed before the webhook.
    pub after_pos: u64,
    /// Whether a receiver has answered 410, which ends the deliveries of the webhook.
    #[serde(default)]
    pub gone: bool,
}

impl Webhook {
    pub(super) fn selects(&self, kind: &str, pos: u64) -> bool {
        !self.gone && pos > self.after_pos && self.events.iter().any(|selected| selected == kind)
    }

    pub(super) fn selects_tasks(&self) -> bool {
        !self.gone && self.events.iter().any(|selected| selected == TASK_ENDED)
    }
}

/// The largest body. `data` of a larger event has only the ids of the event and `truncated`.
const MAX_BODY_BYTES: usize = 64 << 10;

pub(super) fn event_body(event: &EventRef<'_>, session: SessionId, now: Timestamp) -> String {
    let kind = event.kind();
    let time = event.head().and_then(|head| head.time()).unwrap_or(now);
    let json = std::str::from_utf8(event.raw_json()).unwrap_or("null");
    let whole = format!("{{\"type\":\"{kind}\",\"timestamp\":\"{time}\",\"data\":{json}}}");
    if whole.len() <= MAX_BODY_BYTES {
        return whole;
    }
    let data = json!({ "sessionId": session, "seq": event.seq(), "type": kind, "truncated": true });
    json!({ "type": kind, "timestamp": time, "data": data }).to_string()
}

/// The body for the end of a task. `data`: the task as JSON.
pub(super) fn task_body(task: Uuid, data: &str, now: Timestamp) -> String {
    let whole = format!("{{\"type\":\"{TASK_ENDED}\",\"timestamp\":\"{now}\",\"data\":{data}}}");
    if whole.len() <= MAX_BODY_BYTES {
        return whole;
    }
    let data = json!({ "taskId": task, "truncated": true });
    json!({ "type": TASK_ENDED, "timestamp": now, "data": data }).to_string()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FollowerPosition {
    pub(super) epoch: Epoch,
    pub(super) pos: u64,
}

pub(super) fn put_webhook(records: Records, tenant: &Tenant, webhook: &Webhook) -> Records {
    records.put(
        Table::Webhook,
        tenant_key(tenant, webhook.id.as_u128()),
        to_json(webhook),
    )
}

pub(super) fn delete_webhook(records: Records, tenant: &Tenant, webhook: Uuid) -> Records {
    records.delete(Table::Webhook, tenant_key(tenant, webhook.as_u128()))
}

/// The newest delivery has the first key.
fn delivery_key(tenant: &Tenant, delivery: Uuid) -> Vec<u8> {
    tenant_key(tenant, !delivery.as_u128())
}

pub(super) fn put_delivery(records: Records, tenant: &Tenant, delivery: &Delivery) -> Records {
    records.put(
        Table::WebhookDelivery,
        delivery_key(tenant, delivery.id),
        to_json(delivery),
    )
}

pub(super) fn delete_delivery(records: Records, tenant: &Tenant, delivery: Uuid) -> Records {
    records.delete(Table::WebhookDelivery, delivery_key(tenant, delivery))
}

pub(super) fn put_position(tenant: &Tenant, position: &FollowerPosition) -> Records {
    Records::default().put(
        Table::WebhookPosition,
        tenant_prefix(tenant),
        to_json(position),
    )
}

pub(super) async fn get_position(
    log: &EventLog,
    tenant: &Tenant,
) -> Result<Option<FollowerPosition>, ReadError> {
    Ok(log
        .get(Table::WebhookPosition, tenant_prefix(tenant))
        .await?
        .and_then(|value| from_json(&value)))
}

pub(super) async fn get_delivery(
    log: &EventLog,
    tenant: &Tenant,
    delivery: Uuid,
) -> Result<Option<Delivery>, ReadError> {
    let value = log
        .get(Table::WebhookDelivery, delivery_key(tenant, delivery))
        .await?;
    Ok(value.and_then(|value| from_json(&value)))
}

pub(super) async fn deliveries(
    log: &EventLog,
    tenant: &Tenant,
    before: Option<Uuid>,
    limit: usize,
) -> Result<Selected<Delivery>, ReadError> {
    RecordPages::below(log, Table::WebhookDelivery, tenant_prefix(tenant))
        .after(before.map(|before| delivery_key(tenant, before)))
        .select(limit, |value| Ok(from_json(value)))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        Delivery {
            id: Uuid::nil(),
            webhook: Some(Uuid::nil()),
            url: "https://hooks.example/".to_owned(),
            kind: "prompt.completed".to_owned(),
            session: None,
            created_at: Timestamp::from_millis(0),
            body: "{}".to_owned(),
            state: DeliveryState::Pending {
                next_attempt_at: Timestamp::from_millis(0),
            },
            attempts: 0,
            last: None,
        }
    }

    const UNIT: Duration = Duration::from_secs(5);

    fn answered(status: u16) -> Outcome {
        Outcome::Answered {
            status,
            retry_after: None,
        }
    }

    #[test]
    fn delays_grow_until_the_last_attempt_fails() {
        let mut delivery = delivery();
        let mut now = Timestamp::from_millis(0);
        for units in DELAYS {
            assert!(!delivery.attempted(Outcome::Failed("no connection".to_owned()), now, UNIT));
            let next = now.after(UNIT * units);
            assert_eq!(
                delivery.state,
                DeliveryState::Pending {
                    next_attempt_at: next
                }
            );
            now = next;
        }
        delivery.attempted(answered(500), now, UNIT);
        assert_eq!(
            (delivery.state, delivery.attempts),
            (DeliveryState::Failed, 13)
        );
        delivery.repeat(now);
        delivery.attempted(answered(204), now, UNIT);
        assert_eq!(
            (delivery.state, delivery.attempts),
            (DeliveryState::Delivered, 1)
        );
    }

    #[test]
    fn statuses_decide() {
        let now = Timestamp::from_millis(1000);
        let later = DeliveryState::Pending {
            next_attempt_at: now.after(UNIT),
        };
        for (status, state, gone) in [
            (200, DeliveryState::Delivered, false),
            (299, DeliveryState::Delivered, false),
            (302, later, false),
            (404, later, false),
            (410, DeliveryState::Failed, true),
            (503, later, false),
        ] {
            let mut delivery = delivery();
            assert_eq!(
                delivery.attempted(answered(status), now, UNIT),
                gone,
                "{status}"
            );
            assert_eq!(delivery.state, state, "{status}");
        }
    }

    #[test]
    fn retry_after_delays_an_attempt_up_to_a_day() {
        let now = Timestamp::from_millis(0);
        for (asked, expected) in [(1, 5), (60, 60), (1 << 40, 24 * 3600)] {
            let mut delivery = delivery();
            let retry_after = Some(Duration::from_secs(asked));
            delivery.attempted(
                Outcome::Answered {
                    status: 429,
                    retry_after,
                },
                now,
                UNIT,
            );
            let next_attempt_at = now.after(Duration::from_secs(expected));
            assert_eq!(delivery.state, DeliveryState::Pending { next_attempt_at });
        }
    }
}
