//! A turn in the protocol of a chat client, the end of its response, and the response itself.

use std::fmt;

use axum::response::Response;
use bytes::BytesMut;
use http::{HeaderName, HeaderValue};

use super::abandon::CancelOnDisconnect;
use super::chat_turn::{ChatTurn, SESSION_ID, session_header};
use super::frames::{Interrupted, Interruption};
use crate::stream::Encoder;
use crate::surface::http::Authorized;
use crate::surface::http::Gateway;
use base::types::RequestId;
use events::event::{ControlFrame, EventRef};
use sessions::projection::{Step, TurnProjector, replace_halves};

pub(crate) trait TurnWriter: fmt::Debug + Send + Sync {
    /// Whether the response has frames. Otherwise it is one JSON value.
    fn is_streamed(&self) -> bool {
        true
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>);

    /// Follows a step that the client has from a former response of the turn.
    fn skip(&mut self, _: &Step<'_>) {}

    /// Appends the first frames of a response that continues a turn.
    fn resume(&mut self, _: &mut BytesMut) {}

    /// Ends the response if the turn waits for a person. The client has all events up to now.
    fn pause(&mut self, _: &mut BytesMut, _: &TurnProjector) {}

    /// The response has the events up to now, and does not wait for more.
    fn caught_up(&mut self, _: &mut BytesMut) {}

    /// Ends the response before the turn, as an error.
    fn interrupted(&mut self, out: &mut BytesMut, interrupted: &Interrupted);

    fn is_complete(&self) -> bool;
}

#[derive(Debug)]
pub(crate) struct TurnEncoder<W> {
    projector: TurnProjector,
    writer: W,
    /// The events are older than the request.
    replays: bool,
    /// The client has the events up to this request of the agent.
    received_until: Option<RequestId>,
    connected: Option<CancelOnDisconnect>,
}

impl<W: TurnWriter> TurnEncoder<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self {
            projector: TurnProjector::default(),
            writer,
            replays: true,
            received_until: None,
            connected: None,
        }
    }

    /// Begins after this request of the agent, which the client has answered.
    #[must_use]
    pub(crate) fn after(self, received_until: Option<RequestId>) -> Self {
        Self {
            received_until,
            ..self
        }
    }

    /// Cancels the turn if the client disconnects before the end of its response.
    #[must_use]
    pub(crate) fn cancels_on_disconnect(self, connected: Option<CancelOnDisconnect>) -> Self {
        Self { connected, ..self }
    }

    fn pause(&mut self, out: &mut BytesMut) {
        if !self.replays && self.received_until.is_none() && !self.writer.is_complete() {
            self.writer.pause(out, &self.projector);
        }
    }

    fn acknowledge(&self) {
        if let Some(connected) = &self.connected
            && self.writer.is_complete()
        {
            connected.completed();
        }
    }
}

impl<W: TurnWriter> Encoder for TurnEncoder<W> {
    fn media_type(&self) -> &'static str {
        if self.writer.is_streamed() {
            "text/event-stream"
        } else {
            "application/json"
        }
    }

    fn uses_stored_frames(&self) -> bool {
        false
    }

    fn event(&mut self, out: &mut BytesMut, _: &dyn Fn() -> String, event: &EventRef<'_>) {
        let Self {
            projector,
            received_until,
            writer,
            ..
        } = self;
        let before = out.len();
        projector.event(event, &mut |step| {
            let Some(until) = *received_until else {
                if !writer.is_complete() {
                    writer.step(out, &step);
                }
                return;
            };
            writer.skip(&step);
            if matches!(&step, Step::Requested(request) if request.id == until) {
                *received_until = None;
                writer.resume(out);
            }
        });
        self.pause(out);
        replace_halves(&mut out[before..]);
        self.acknowledge();
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        if self.writer.is_complete() {
            return;
        }
        match Interruption::of(frame) {
            Some(Interruption::CaughtUp) => self.writer.caught_up(out),
            Some(Interruption::Error(interrupted)) => self.writer.interrupted(out, &interrupted),
            None if frame.kind() == "ready" => {
                let before = out.len();
                self.replays = false;
                self.pause(out);
                replace_halves(&mut out[before..]);
            }
            None if frame.kind() == "position" => out.extend_from_slice(self.keep_alive()),
            None => {}
        }
        self.acknowledge();
    }

    fn retry(&mut self, _: &mut BytesMut, _: u64) {}

    fn keep_alive(&self) -> &'static [u8] {
        // A comment, or white space before the JSON. It keeps clients from a time-out, after which they repeat the request.
        if self.writer.is_streamed() {
            b":\n"
        } else {
            b" "
        }
    }

    fn is_complete(&self) -> bool {
        self.writer.is_complete()
    }
}

/// In a request: the policy for a changed history. In a response: what the gateway did.
pub(crate) const HISTORY: HeaderName = HeaderName::from_static("x-acp-history");

/// Streams the turn. `follow`: until its end, and not only its events up to now.
pub(crate) fn respond<S, W: TurnWriter + 'static>(
    gateway: &Gateway,
    by: &Authorized<S>,
    turn: ChatTurn,
    encoder: TurnEncoder<W>,
    follow: bool,
) -> Response {
    let feed = turn.feed(gateway);
    let ChatTurn {
        session,
        notices,
        guard,
        ..
    } = turn;
    let mut response =
        gateway.stream_response(by.admission(), guard, feed, Box::new(encoder), follow);
    let headers = response.headers_mut();
    headers.insert(SESSION_ID, session_header(session.id()));
    for notice in notices {
        headers.append(HISTORY, HeaderValue::from_static(notice.into_str()));
    }
    response
}
