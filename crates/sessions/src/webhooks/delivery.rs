//! Webhooks, their deliveries (one message to one URL, with its attempts), and the records of both. All keys of records begin
//! with the user.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use base::types::{Ids, SessionId, Timestamp, UserId};
use events::api::{Task, Webhook, WebhookDelivery, WebhookDeliveryState};
use events::event::{EventRef, TASK_ENDED};
use log::eventlog::{EventLog, ReadError, Records, from_json, to_json, user_key};
use log::store::Table;

/// The delays after failed attempts, in units of `webhook_retry_unit` (5 seconds): up to about two days in total.
const DELAYS: [u32; 12] = [1, 6, 24, 60, 180, 360, 720, 1440, 2880, 5760, 8640, 14_400];
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct DeliveryRecord {
    pub(super) delivery: WebhookDelivery,
    pub(super) body: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered {
        status: u16,
        retry_after: Option<Duration>,
    },
    Failed(String),
}

impl DeliveryRecord {
    /// A delivery whose first attempt is due now. `webhook` is `None` for the callback URL of a task.
    pub(super) fn new(
        ids: &Ids,
        webhook: Option<Uuid>,
        url: String,
        kind: &str,
        session: Option<SessionId>,
        body: String,
    ) -> Self {
        let now = ids.now();
        let delivery = WebhookDelivery {
            delivery_id: ids.uuid(),
            webhook_id: webhook,
            url,
            kind: kind.to_owned(),
            session_id: session,
            state: WebhookDeliveryState::Pending,
            created_at: now,
            attempts: 0,
            last_attempt_at: None,
            last_status: None,
            last_error: None,
            next_attempt_at: Some(now),
        };
        Self { delivery, body }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.delivery.state != WebhookDeliveryState::Pending
    }

    /// Records an attempt. `unit` is the unit of the retry delays. Returns true if the receiver asks to end the
    /// webhook.
    pub(super) fn attempted(&mut self, outcome: Outcome, now: Timestamp, unit: Duration) -> bool {
        let (status, retry_after, error) = match outcome {
            Outcome::Answered {
                status,
                retry_after,
            } => (Some(status), retry_after, None),
            Outcome::Failed(error) => (None, None, Some(error)),
        };
        let delivery = &mut self.delivery;
        let failed_before = usize::try_from(delivery.attempts).unwrap_or(usize::MAX);
        delivery.attempts += 1;
        delivery.last_attempt_at = Some(now);
        delivery.last_status = status;
        delivery.last_error = error;
        delivery.next_attempt_at = None;
        let gone = status == Some(410);
        delivery.state = match DELAYS.get(failed_before) {
            _ if status.is_some_and(|status| (200..300).contains(&status)) => {
                WebhookDeliveryState::Delivered
            }
            Some(units) if !gone => {
                let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
                delivery.next_attempt_at = Some(now.after((unit * *units).max(asked)));
                WebhookDeliveryState::Pending
            }
            _ => WebhookDeliveryState::Failed,
        };
        gone
    }

    /// Begins again with the first attempt, which is due now.
    pub(super) fn repeat(&mut self, now: Timestamp) {
        self.delivery.attempts = 0;
        self.delivery.state = WebhookDeliveryState::Pending;
        self.delivery.next_attempt_at = Some(now);
    }

    pub(super) fn put(&self, user: &UserId, records: Records) -> Records {
        let key = delivery_key(user, self.delivery.delivery_id);
        records.put(Table::WebhookDelivery, key, to_json(self))
    }
}

/// The newest delivery has the first key.
pub(super) fn delivery_key(user: &UserId, delivery: Uuid) -> Vec<u8> {
    user_key(user, !delivery.as_u128())
}

pub(super) async fn get_delivery(
    log: &EventLog,
    user: &UserId,
    delivery: Uuid,
) -> Result<Option<DeliveryRecord>, ReadError> {
    let key = delivery_key(user, delivery);
    let value = log.get(Table::WebhookDelivery, key).await?;
    Ok(value.and_then(|value| from_json(&value)))
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WebhookRecord {
    pub webhook: Webhook,
    /// Events up to this position of the log existed before the webhook.
    pub after_pos: u64,
}

impl WebhookRecord {
    pub(super) fn selects(&self, kind: &str) -> bool {
        !self.webhook.gone && self.webhook.events.iter().any(|selected| selected == kind)
    }

    pub(super) fn put(&self, user: &UserId) -> Records {
        let key = user_key(user, self.webhook.webhook_id.as_u128());
        Records::default().put(Table::Webhook, key, to_json(self))
    }
}

/// The largest body. `data` of a larger event has only the ids of the event and `truncated`.
const MAX_BODY_BYTES: usize = 64 << 10;

pub(super) fn event_body(event: &EventRef<'_>, session: SessionId, now: Timestamp) -> String {
    let kind = event.kind();
    let time = event.head().and_then(|head| head.time()).unwrap_or(now);
    let json = std::str::from_utf8(event.raw_json()).unwrap_or("null");
    body(
        kind,
        time,
        json,
        || json!({ "sessionId": session, "seq": event.seq(), "type": kind, "truncated": true }),
    )
}

pub(super) fn task_body(task: &Task, now: Timestamp) -> String {
    let data = serde_json::to_string(task).expect("a task has string keys and serializes");
    let ids = || json!({ "taskId": task.task_id, "truncated": true });
    body(TASK_ENDED, now, &data, ids)
}

/// `ids` replaces data that is too large.
fn body(kind: &str, time: Timestamp, data: &str, ids: impl FnOnce() -> Value) -> String {
    let whole = format!("{{\"type\":\"{kind}\",\"timestamp\":\"{time}\",\"data\":{data}}}");
    if whole.len() <= MAX_BODY_BYTES {
        return whole;
    }
    json!({ "type": kind, "timestamp": time, "data": ids() }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> DeliveryRecord {
        let url = "https://hooks.example/".to_owned();
        DeliveryRecord::new(
            &Ids::system(),
            None,
            url,
            "prompt.completed",
            None,
            String::new(),
        )
    }

    /// The state of a delivery, and the time of its next attempt.
    fn state(record: &DeliveryRecord) -> (WebhookDeliveryState, Option<Timestamp>) {
        (record.delivery.state, record.delivery.next_attempt_at)
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
        let mut record = record();
        let mut now = Timestamp::from_millis(0);
        for units in DELAYS {
            assert!(!record.attempted(Outcome::Failed("no connection".to_owned()), now, UNIT));
            let next = now.after(UNIT * units);
            assert_eq!(state(&record), (WebhookDeliveryState::Pending, Some(next)));
            now = next;
        }
        record.attempted(answered(500), now, UNIT);
        assert_eq!(state(&record), (WebhookDeliveryState::Failed, None));
        assert_eq!(record.delivery.attempts, 13);
        record.repeat(now);
        record.attempted(answered(204), now, UNIT);
        assert_eq!(state(&record), (WebhookDeliveryState::Delivered, None));
        assert_eq!(record.delivery.attempts, 1);
    }

    #[test]
    fn statuses_decide() {
        let now = Timestamp::from_millis(1000);
        let later = (WebhookDeliveryState::Pending, Some(now.after(UNIT)));
        let delivered = (WebhookDeliveryState::Delivered, None);
        for (status, expected, gone) in [
            (200, delivered, false),
            (299, delivered, false),
            (302, later, false),
            (404, later, false),
            (410, (WebhookDeliveryState::Failed, None), true),
            (503, later, false),
        ] {
            let mut record = record();
            let ends = record.attempted(answered(status), now, UNIT);
            assert_eq!((state(&record), ends), (expected, gone), "{status}");
        }
    }

    #[test]
    fn retry_after_delays_an_attempt_up_to_a_day() {
        let now = Timestamp::from_millis(0);
        for (asked, expected) in [(1, 5), (60, 60), (1 << 40, 24 * 3600)] {
            let mut record = record();
            let outcome = Outcome::Answered {
                status: 429,
                retry_after: Some(Duration::from_secs(asked)),
            };
            record.attempted(outcome, now, UNIT);
            let next = now.after(Duration::from_secs(expected));
            assert_eq!(record.delivery.next_attempt_at, Some(next));
        }
    }
}
