//! A turn in the protocol of a chat client: its frames, the end of its response, and the response itself.

use std::fmt;

use axum::response::{AppendHeaders, IntoResponse, Response};
use bytes::BytesMut;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::chat_turn::{CancelOnDisconnect, ChatTurn, SESSION_ID};
use super::message::HISTORY;
use crate::stream::Encoder;
use crate::surface::http::{AppState, Authorized, ascii, turn_feed};
use base::types::RequestId;
use events::api::{Problem, ProblemCode};
use events::event::{self, ControlFrame, EndReason, EventRef};
use sessions::projection::{Step, TurnProjector};
use sessions::transcript::replace_halves;

pub(crate) trait TurnWriter: fmt::Debug + Send + Sync {
    /// Whether the response has frames. Otherwise it is one JSON value.
    fn is_streamed(&self) -> bool {
        true
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>);

    /// Follows a step that the client has from an earlier response of the turn.
    fn skip(&mut self, _: &Step<'_>) {}

    /// Appends the first frames of a response that continues a turn.
    fn resume(&mut self, _: &mut BytesMut) {}

    /// Ends the response if the turn waits for a person. The client has all events up to now.
    fn pause(&mut self, _: &mut BytesMut, _: &TurnProjector) {}

    /// The response has the events up to now, and does not wait for more.
    fn caught_up(&mut self, _: &mut BytesMut) {}

    /// Ends the response before the turn, as an error.
    fn interrupted(&mut self, out: &mut BytesMut, code: &str, message: &str);

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
    pub(crate) fn after(mut self, received_until: Option<RequestId>) -> Self {
        self.received_until = received_until;
        self
    }

    /// Cancels the turn if the client disconnects before the end of its response.
    #[must_use]
    pub(crate) fn cancels_on_disconnect(mut self, connected: Option<CancelOnDisconnect>) -> Self {
        self.connected = connected;
        self
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
        let writer = &mut self.writer;
        let before = out.len();
        self.projector.event(event, &mut |step| {
            let Some(until) = self.received_until else {
                if !writer.is_complete() {
                    writer.step(out, &step);
                }
                return;
            };
            writer.skip(&step);
            if matches!(&step, Step::Requested(request) if request.id == until) {
                self.received_until = None;
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
        match frame.kind() {
            "ready" => {
                let before = out.len();
                self.replays = false;
                self.pause(out);
                replace_halves(&mut out[before..]);
            }
            "position" => out.extend_from_slice(self.keep_alive()),
            _ if is_caught_up(frame) => self.writer.caught_up(out),
            _ => {
                if let Some((code, message)) = interruption(frame) {
                    self.writer.interrupted(out, code.as_str(), &message);
                }
            }
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

/// Streams the turn. `follow`: until its end, and not only its events up to now.
pub(crate) fn respond<S, W: TurnWriter + 'static>(
    app: &AppState,
    by: &Authorized<S>,
    turn: ChatTurn,
    encoder: TurnEncoder<W>,
    follow: bool,
) -> Response {
    let session = [(SESSION_ID, ascii(turn.session.id().to_string()))];
    let notices = turn
        .notices
        .iter()
        .map(|notice| (HISTORY, notice.into_str()));
    let history = AppendHeaders(notices.collect::<Vec<_>>());
    let feed = turn_feed(
        app,
        turn.session,
        turn.prompt,
        turn.first_seq,
        turn.last_seq,
    );
    let encoder = Box::new(encoder);
    let response = app.stream_response(by.admission(), turn.guard, feed, encoder, follow);
    (session, history, response).into_response()
}

#[derive(Debug, Clone, Copy, Serialize, derive_more::From)]
#[serde(untagged)]
pub(crate) enum Member<'a> {
    Text(&'a str),
    Flag(bool),
    Raw(&'a RawValue),
    #[from(skip)]
    Absent,
}

impl<'a, T: Into<Member<'a>>> From<Option<T>> for Member<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

/// The members of a frame in their order. Absent ones are left out, because clients reject null.
#[derive(Debug)]
pub(crate) struct Members<'a>(pub(crate) &'a [(&'a str, Member<'a>)]);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.0.iter().copied();
        serializer.collect_map(members.filter(|(_, value)| !matches!(value, Member::Absent)))
    }
}

/// Writes a frame: its output, its type and its members.
macro_rules! frame {
    ($out:expr, $kind:expr $(, $name:literal: $value:expr)* $(,)?) => {
        events::event::write_json(
            $out,
            &$crate::surface::chat::Members(&[
                ("type", $crate::surface::chat::Member::from($kind)),
                $(($name, $crate::surface::chat::Member::from($value))),*
            ]),
        )
    };
}

/// An object in JSON with these members.
macro_rules! object {
    ($($name:literal: $value:expr),* $(,)?) => {
        wire::acp::to_raw(&$crate::surface::chat::Members(&[
            $(($name, $crate::surface::chat::Member::from($value))),*
        ]))
    };
}

pub(crate) use {frame, object};

pub(crate) fn done(out: &mut BytesMut) {
    event::write_block(out, None, None, b"[DONE]");
}

/// Why a response ends before its turn: a code and a text. A client must not take it for the end of the turn. `None` if the
/// stream continues after this frame.
fn interruption(frame: &ControlFrame) -> Option<(ProblemCode, String)> {
    #[derive(serde::Deserialize)]
    struct Problematic {
        problem: Problem,
    }
    Some(match frame.kind() {
        "problem" => {
            let frame: Option<Problematic> = serde_json::from_slice(&frame.json()).ok();
            let problem = frame.map_or_else(Problem::internal, |frame| frame.problem);
            (problem.code, problem.detail)
        }
        "shutdown" => (
            ProblemCode::Draining,
            "the gateway is shutting down; a turn that has started is cancelled after timeouts.drain_timeout, and \
             a queued one runs after the restart, so send the request again"
                .into(),
        ),
        "reset" => (
            ProblemCode::NotFound,
            "the log no longer has all events of this turn".into(),
        ),
        "end" => (ProblemCode::NotFound, "the session was deleted".into()),
        _ => return None,
    })
}

/// Whether the client does not follow, and has all events up to now.
fn is_caught_up(frame: &ControlFrame) -> bool {
    #[derive(serde::Deserialize)]
    struct Ended {
        reason: EndReason,
    }
    let ended: Option<Ended> = serde_json::from_slice(&frame.json()).ok();
    frame.kind() == "end" && ended.is_some_and(|ended| ended.reason == EndReason::CaughtUp)
}
