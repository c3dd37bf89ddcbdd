//! Frames of a stream that are about the stream itself and not in the log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::Problem;
use super::session::Session;

/// Why a stream cannot give every event after the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetReason {
    /// The log's limits dropped events after the cursor.
    Pruned,
    /// The log never gave the cursor.
    UnknownCursor,
    /// The log lost history since the cursor was given.
    NewEpoch,
    /// Events after the cursor are damaged on disk. The stream continues with the first event behind the damage.
    Damaged,
}

/// Discard the events that you hold. The log follows from its earliest event, or from the end of the damage. On
/// `/v1/events` without a choice of sessions there is no `session`; with a `sessionId` the reset is about that session alone.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Reset<'a> {
    pub reason: ResetReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<&'a Session>,
}

/// The replay is complete; later events are live.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ready<'a> {
    pub last_event_id: &'a str,
}

/// Advances the client's cursor past events that its filters exclude. Its `id` is the new cursor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PositionFrame {}

/// The gateway stops the stream because of a problem. The client may reconnect.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ProblemFrame<'a> {
    pub problem: &'a Problem,
}

/// The gateway drains: reconnect after that.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownFrame {
    pub retry_ms: u64,
}

/// Why a stream is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The stream of a turn delivered the turn's last event.
    TurnEnded,
    /// A stream with `follow=false` reached the end of the log.
    CaughtUp,
    /// The session was deleted.
    SessionDeleted,
}

/// The last frame of a complete stream. A stream that ends without `end` or `shutdown` was cut off.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndFrame<'a> {
    pub reason: EndReason,
    /// The cursor that the client holds now; the frame's `id` is the same.
    pub last_event_id: &'a str,
}
