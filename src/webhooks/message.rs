//! The body of a delivery: `type`, `timestamp` and `data` (Standard Webhooks, section "Payload structure").

use serde_json::json;
use uuid::Uuid;

use super::webhook::TASK_ENDED;
use crate::event::EventRef;
use crate::types::{SessionId, Timestamp};

/// The largest body. `data` of a larger event has only the ids of the event and `truncated`.
const MAX_BODY_BYTES: usize = 64 << 10;

/// The body for an event of a session.
pub(super) fn of_event(event: &EventRef<'_>, session: SessionId, now: Timestamp) -> String {
    let (kind, time) = (
        event.kind(),
        event.head().and_then(|head| head.time()).unwrap_or(now),
    );
    let json = std::str::from_utf8(event.raw_json()).unwrap_or("null");
    let whole = format!("{{\"type\":\"{kind}\",\"timestamp\":\"{time}\",\"data\":{json}}}");
    if whole.len() <= MAX_BODY_BYTES {
        return whole;
    }
    let data = json!({ "sessionId": session, "seq": event.seq(), "type": kind, "truncated": true });
    json!({ "type": kind, "timestamp": time, "data": data }).to_string()
}

/// The body for the end of a task. `data`: the task as JSON.
pub(super) fn of_task(task: Uuid, data: &str, now: Timestamp) -> String {
    let whole = format!("{{\"type\":\"{TASK_ENDED}\",\"timestamp\":\"{now}\",\"data\":{data}}}");
    if whole.len() <= MAX_BODY_BYTES {
        return whole;
    }
    let data = json!({ "taskId": task, "truncated": true });
    json!({ "type": TASK_ENDED, "timestamp": now, "data": data }).to_string()
}
