//! A delivery: one message to one URL, with its attempts.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::types::{SessionId, Timestamp};

/// The delays after failed attempts, in units of `webhook_retry_unit` (5 seconds): up to about two days in total.
const DELAYS: [u32; 12] = [1, 6, 24, 60, 180, 360, 720, 1440, 2880, 5760, 8640, 14_400];
/// The longest `Retry-After` that the gateway follows.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24);

/// A delivery and its record.
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

/// The latest attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub at: Timestamp,
    /// The status of the response.
    pub status: Option<u16>,
    /// Why there is no response.
    pub error: Option<String>,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered {
        status: u16,
        retry_after: Option<Duration>,
    },
    Failed(String),
}

impl Delivery {
    /// A delivery whose first attempt is due.
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

    /// Begins again with the first attempt.
    pub(super) fn repeat(&mut self, now: Timestamp) {
        self.attempts = 0;
        self.state = DeliveryState::Pending {
            next_attempt_at: now,
        };
    }
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
