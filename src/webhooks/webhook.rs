//! A webhook: a URL, and the events that it receives.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::types::Timestamp;

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

/// A webhook and its record.
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
