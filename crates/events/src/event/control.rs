//! Control frames: events about a stream itself. They are not in the log.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::frame::{EncodedEvent, EventMembers, blank_line_breaks};
use crate::api::{Problem, Session, SessionSummary};
use base::types::{Access, SessionId, Timestamp};

/// An encoded control frame.
#[derive(Debug)]
pub struct ControlFrame {
    id: Option<String>,
    session: Option<SessionId>,
    time: Timestamp,
    event: EncodedEvent,
}

impl ControlFrame {
    pub fn new<E: EventMembers>(event: &E, time: Timestamp) -> Self {
        Self {
            id: None,
            session: None,
            time,
            event: event.into(),
        }
    }

    /// Sets the cursor of the client after this frame.
    #[must_use]
    pub fn with_id(self, id: impl Into<Option<String>>) -> Self {
        Self {
            id: id.into(),
            ..self
        }
    }

    #[must_use]
    pub fn with_session(self, session: impl Into<Option<SessionId>>) -> Self {
        Self {
            session: session.into(),
            ..self
        }
    }

    /// The cursor of the client after this frame. `None` if the frame does not move the cursor.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The event type.
    pub const fn kind(&self) -> &'static str {
        self.event.kind()
    }

    /// The frame as one line of JSON. Its members have the order of logged events.
    pub fn json(&self) -> Vec<u8> {
        let members = self.event.members();
        let mut json = Vec::with_capacity(members.len() + 160);
        json.push(b'{');
        if let Some(id) = &self.id {
            json.extend_from_slice(format!("\"id\":\"{id}\",").as_bytes());
        }
        json.extend_from_slice(format!("\"type\":\"{}\"", self.kind()).as_bytes());
        if let Some(session) = self.session {
            json.extend_from_slice(format!(",\"sessionId\":\"{session}\"").as_bytes());
        }
        json.extend_from_slice(format!(",\"time\":\"{}\"", self.time).as_bytes());
        if !members.is_empty() {
            json.push(b',');
            let start = json.len();
            json.extend_from_slice(members);
            // The snapshot of a session contains raw values of the agent.
            blank_line_breaks(&mut json[start..]);
        }
        json.push(b'}');
        json
    }
}

/// The reason why a stream cannot deliver every event after the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResetReason {
    /// Retention deleted events after the cursor.
    Pruned,
    /// The log never issued the cursor.
    UnknownCursor,
    /// The log lost history after it issued the cursor.
    NewEpoch,
    /// Events after the cursor are damaged on disk. The stream continues with the first event after the
    /// damage.
    Damaged,
}

/// Discard the events that you hold. The stream continues with the earliest event of the log, or with the
/// first event after the damage.
///
/// On `/v1/events` without a selection of sessions, `session` is absent. With a `sessionId`, the reset
/// applies to that session only.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Reset<'a> {
    pub reason: ResetReason,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<&'a Session>,
}

/// The replay is complete. The following events are live.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Ready<'a> {
    /// The cursor at the end of the replay.
    pub last_event_id: &'a str,
}

/// Advances the client's cursor past events that its filters exclude. The `id` of the frame is the new
/// cursor.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PositionFrame {}

/// The summary of a session changed. `sessionId` names the session.
///
/// Streams of `/v1/events` with `summaries=true` have it after `ready`, at most once for each session in 250 ms.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SessionSummaryFrame<'a> {
    /// The session as in `GET /v1/sessions`; null if it was deleted.
    #[schema(value_type = Option<SessionSummary>, required)]
    pub session: Option<&'a RawValue>,
}

/// More sessions changed than the gateway keeps for a slow client. Read the list of sessions again.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SummariesReset {}

/// A session of another user was shared with the user of the stream, or the access to it changed. `sessionId` names the
/// session.
///
/// Streams of `/v1/events` without `session` have it. The events of the session follow from here on; `GET
/// /v1/sessions/{session}` has its state.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSharedFrame<'a> {
    pub access: Access,
    /// The cursor of the stream at this place.
    pub last_event_id: &'a str,
}

/// The access to a session of another user was taken back, or the session was deleted. `sessionId` names the session.
///
/// Streams of `/v1/events` without `session` have it. No event of the session follows.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionUnsharedFrame<'a> {
    /// The cursor of the stream at this place.
    pub last_event_id: &'a str,
}

/// The gateway ends the stream because of a problem. The client may reconnect.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ProblemFrame<'a> {
    pub problem: &'a Problem,
}

/// The gateway is shutting down. Reconnect after `retryMs` milliseconds.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownFrame {
    /// The time in milliseconds to wait before a reconnect.
    pub retry_ms: u64,
}

/// The reason why a stream is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The stream of a turn delivered the last event of the turn.
    TurnEnded,
    /// A stream with `follow=false` reached the end of the log.
    CaughtUp,
    /// The session was deleted.
    SessionDeleted,
}

/// The last frame of a complete stream. A stream that ends without `end` or `shutdown` was interrupted.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndFrame<'a> {
    pub reason: EndReason,
    /// The client's cursor after this stream. It equals the `id` of the frame.
    pub last_event_id: &'a str,
}
