//! A turn in the protocol of a chat client, and the end of its response.

use std::fmt;

use bytes::BytesMut;

use super::abandon::CancelOnDisconnect;
use super::frames::{Interrupted, Interruption};
use crate::event::{ControlFrame, EventRef};
use crate::projection::{Step, TurnProjector, replace_halves};
use crate::stream::Encoder;
use crate::types::RequestId;

/// Writes the frames of one protocol.
pub(crate) trait TurnWriter: fmt::Debug + Send + Sync {
    fn media_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// Bytes between frames that keep an idle connection open.
    fn keep_alive(&self) -> &'static [u8] {
        b":\n"
    }

    /// Appends the frames of a step.
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

    /// Whether the last frame is written.
    fn is_complete(&self) -> bool;
}

/// The encoder of one turn.
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
        let (projector, received_until, connected) = (TurnProjector::default(), None, None);
        Self {
            projector,
            writer,
            replays: true,
            received_until,
            connected,
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
        if let Some(connected) = self
            .connected
            .as_ref()
            .filter(|_| self.writer.is_complete())
        {
            connected.completed();
        }
    }
}

impl<W: TurnWriter> Encoder for TurnEncoder<W> {
    fn media_type(&self) -> &'static str {
        self.writer.media_type()
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
        self.writer.keep_alive()
    }

    fn is_complete(&self) -> bool {
        self.writer.is_complete()
    }
}
