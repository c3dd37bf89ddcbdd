//! A source seen through a client's choices: which events, and where a turn ends.

use bytes::{Bytes, BytesMut};

use super::frame::{ControlFrame, Encoder, prompt_of};
use super::source::{Next, Reset, Source};
use super::types::EventTypes;
use crate::api::event::{self, EndFrame, EndReason, PositionFrame, Ready, ResetReason as ApiReason};
use crate::eventlog::{Frame, ReadError, ResetReason, Run, TailCursor};
use crate::session::SessionHandle;
use crate::types::{Epoch, Ids, PromptId};

/// One turn of a session.
#[derive(Debug, Clone)]
pub(crate) struct TurnFilter {
    pub(crate) prompt: PromptId,
    /// Its last event, if it had ended when the stream began.
    pub(crate) last_seq: Option<u64>,
}

/// What a client asked for.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) source: Source,
    pub(crate) types: EventTypes,
    pub(crate) turn: Option<TurnFilter>,
    /// The cursor that the client holds: of the last event that it was given, or where it began.
    pub(crate) client_cursor: u64,
    /// `ready` has an id when it may be the first that a client gets to hold.
    pub(crate) from_tail: bool,
    pub(crate) epoch: Epoch,
    pub(crate) ids: Ids,
}

/// A piece of a feed.
#[derive(Debug)]
pub(super) enum Piece {
    /// Events, and whether the feed is complete with them.
    Events {
        run: Run,
        end: Option<End>,
    },
    Control(ControlFrame<'static>),
    /// The replay is over; the feed may be complete with it.
    Ready {
        frame: ControlFrame<'static>,
        end: Option<End>,
    },
    End(End),
}

/// The end of a complete feed.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) reason: EndReason,
    /// The cursor of the last event; `None` for that of the source, which may be ahead of it.
    cursor: Option<u64>,
}

impl End {
    pub(super) const fn new(reason: EndReason) -> Self {
        Self { reason, cursor: None }
    }
}

impl Feed {
    /// What comes next; several resets come one by one.
    pub(super) async fn next(&mut self) -> Result<Vec<Piece>, ReadError> {
        let next = self.source.next().await?;
        Ok(match self.piece(next) {
            Ok(piece) => vec![piece],
            Err(reset) => self.reset_frames(reset).await,
        })
    }

    /// The one piece that something is, unless it is a reset: that takes a while and may be several.
    pub(super) fn piece(&self, next: Next) -> Result<Piece, Reset> {
        Ok(match next {
            Next::Run(run) => {
                let last = self.turn_end(&run);
                let run = last.and_then(|seq| run.through(seq)).unwrap_or(run);
                Piece::Events { run, end: last.map(|_| End { reason: EndReason::TurnEnded, cursor: last }) }
            }
            Next::Ready { cursor } => {
                let ended = self.turn.as_ref().and_then(|turn| turn.last_seq).is_some_and(|seq| seq <= cursor);
                Piece::Ready { frame: self.ready_frame(cursor), end: ended.then_some(End::new(EndReason::TurnEnded)) }
            }
            Next::Reset(reset) => return Err(reset),
            Next::End => Piece::End(End::new(EndReason::SessionDeleted)),
        })
    }

    /// The event that ends the turn, if it is in this run.
    fn turn_end(&self, run: &Run) -> Option<u64> {
        let turn = self.turn.as_ref()?;
        let ends = |frame: &Frame<'_>| {
            matches!(frame.kind, "prompt.completed" | "prompt.failed") && belongs_to(turn.prompt, frame)
        };
        run.events().find(ends).map(|frame| frame.seq)
    }

    fn ready_frame(&self, cursor: u64) -> ControlFrame<'static> {
        let id = self.source.id(&self.epoch, cursor);
        let own = ControlFrame::new(&Ready { last_event_id: &id }, self.ids.now());
        ControlFrame { id: self.from_tail.then_some(id), ..own }
    }

    /// One for each session that it is about and that the client named, with its snapshot; one without a snapshot when
    /// it named none.
    pub(super) async fn reset_frames(&self, Reset { reason, before, session: session_id }: Reset) -> Vec<Piece> {
        let mut resets = Vec::new();
        let sessions = self.source.sessions().iter();
        for session in sessions.filter(|session| session_id.is_none_or(|id| session.id() == id)) {
            resets.extend(self.reset_frame(session, reason).await);
        }
        if resets.is_empty() {
            let own = ControlFrame::new(&event::Reset { reason: api_reason(reason), session: None }, self.ids.now());
            resets.push(ControlFrame { session: session_id, ..own });
        }
        // Who holds the id has seen all of them; who breaks off before gets them again.
        if let Some(last) = resets.last_mut() {
            last.id = Some(self.source.id(&self.epoch, before));
        }
        resets.into_iter().map(Piece::Control).collect()
    }

    /// `None` when the session is gone meanwhile; its end follows.
    async fn reset_frame(&self, session: &SessionHandle, reason: ResetReason) -> Option<ControlFrame<'static>> {
        let snapshot = session.snapshot().await.ok()?;
        let own = ControlFrame::new(&event::Reset { reason: api_reason(reason), session: Some(&snapshot) }, self.ids.now());
        Some(ControlFrame { session: Some(session.id()), ..own })
    }

    /// Whether every event passes, so that there is nothing to filter.
    fn passes_all(&self) -> bool {
        self.types == EventTypes::All && self.turn.is_none()
    }

    pub(super) fn is_selected(&self, frame: &Frame<'_>) -> bool {
        self.types.contains(frame.kind) && self.turn.as_ref().is_none_or(|turn| belongs_to(turn.prompt, frame))
    }

    /// Whether frames are given as they were stored, unless they are left out.
    fn uses_stored_frames(&self, shape: Encoder) -> bool {
        self.source.has_stored_ids() && shape == (Encoder::Sse { named: true })
    }

    /// Where it waits, if what comes next will be given as it was stored.
    pub(super) fn tail_cursor(&self, shape: Encoder) -> Option<TailCursor> {
        if self.uses_stored_frames(shape) && self.passes_all() { self.source.tail_cursor() } else { None }
    }

    /// What comes up to there was given.
    pub(super) fn resume(&mut self, from: &TailCursor) {
        if from.cursor() > self.source.cursor() {
            self.source.resume(from);
            self.client_cursor = from.cursor();
        }
    }

    /// A run as the client gets it. In the common case these are the bytes that were stored, and not a copy.
    pub(super) fn write(&mut self, run: &Run, shape: Encoder) -> Bytes {
        let stored = self.uses_stored_frames(shape);
        if stored && self.passes_all() {
            self.client_cursor = run.last_seq;
            return run.frames.clone();
        }
        let mut out = BytesMut::with_capacity(if self.passes_all() { run.frames.len() } else { 0 });
        let mut held = self.client_cursor;
        for frame in run.events().filter(|frame| self.is_selected(frame)) {
            held = self.source.cursor_of(run, frame.seq);
            if stored {
                out.extend_from_slice(frame.bytes);
            } else {
                shape.encode_into(&mut out, Some(&self.source.id(&self.epoch, held)), frame.kind, frame.data);
            }
        }
        self.client_cursor = held;
        out.freeze()
    }

    /// The frame that advances the client's cursor to that of the source; `None` if the client already holds it.
    pub(super) fn position_frame(&mut self) -> Option<ControlFrame<'static>> {
        let cursor = self.source.cursor();
        let moved = std::mem::replace(&mut self.client_cursor, cursor) != cursor;
        let own = |id| ControlFrame { id: Some(id), ..ControlFrame::new(&PositionFrame {}, self.ids.now()) };
        moved.then(|| own(self.source.id(&self.epoch, cursor)))
    }

    /// The last frame of a complete stream. A client that reconnects with its id gets 204.
    pub(super) fn end_frame(&self, End { reason, cursor }: End) -> ControlFrame<'static> {
        let id = self.source.id(&self.epoch, cursor.unwrap_or_else(|| self.source.cursor()));
        let own = ControlFrame::new(&EndFrame { reason, last_event_id: &id }, self.ids.now());
        ControlFrame { id: Some(id), ..own }
    }
}

const fn api_reason(reason: ResetReason) -> ApiReason {
    match reason {
        ResetReason::Pruned => ApiReason::Pruned,
        ResetReason::UnknownCursor => ApiReason::UnknownCursor,
        ResetReason::NewEpoch => ApiReason::NewEpoch,
        ResetReason::Damaged => ApiReason::Damaged,
    }
}

fn belongs_to(prompt: PromptId, frame: &Frame<'_>) -> bool {
    prompt_of(frame).is_some_and(|of| of == prompt.to_string().as_bytes())
}
