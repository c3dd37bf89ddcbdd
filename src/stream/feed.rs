//! The events of a source that a client selected, and the end of a turn.

use bytes::{Bytes, BytesMut};

use super::encoder::Encoder;
use super::event_types::EventTypes;
use super::source::Source;
use crate::event::{
    self, ControlFrame, EndFrame, EndReason, EventRef, PositionFrame, Ready, ResetReason,
};
use crate::eventlog::{Item, ReadError, Run, TailCursor};
use crate::session::SessionHandle;
use crate::types::{Epoch, Ids, PromptId, SessionId};

/// The filter for one turn of a session.
#[derive(Debug, Clone)]
pub(crate) struct TurnFilter {
    pub(crate) prompt: PromptId,
    /// The last event of the turn, if the turn had ended when the stream began.
    pub(crate) last_seq: Option<u64>,
}

/// The selection of a client and its position.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) source: Source,
    pub(crate) types: EventTypes,
    pub(crate) turn: Option<TurnFilter>,
    /// The cursor that the client has: of the last event that it received, or of its start position.
    pub(crate) client_cursor: u64,
    /// The stream began at the tail. Then `ready` has an id, because it may be the first id that the client
    /// receives.
    pub(crate) from_tail: bool,
    pub(crate) epoch: Epoch,
    pub(crate) ids: Ids,
}

/// A part of a feed. With `end`, it completes the feed.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) content: Content,
    pub(super) end: Option<End>,
}

#[derive(Debug)]
pub(super) enum Content {
    Events(Run),
    Control(ControlFrame),
    /// The end of the replay.
    Ready(ControlFrame),
    Nothing,
}

/// Events before a reset are void for the client.
#[derive(Debug)]
pub(super) struct Reset {
    reason: ResetReason,
    before: u64,
    /// The affected session. `None` affects all sessions.
    session: Option<SessionId>,
}

/// The end of a feed that has delivered all its events.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) reason: EndReason,
    /// The cursor of the last delivered event. If `None`, the end frame has the source's cursor, which may be later.
    cursor: Option<u64>,
}

impl End {
    pub(super) const fn new(reason: EndReason) -> Self {
        Self {
            reason,
            cursor: None,
        }
    }
}

impl Feed {
    /// The next pieces. A reset of several sessions yields one piece for each.
    pub(super) async fn next(&mut self) -> Result<Vec<Piece>, ReadError> {
        let item = self.source.reader.next().await?;
        Ok(match self.piece(item) {
            Ok(piece) => vec![piece],
            Err(reset) => Box::pin(self.reset_frames(reset)).await,
        })
    }

    /// Converts an item to a piece. A reset is returned as the error, because it has to be awaited and may
    /// become several pieces.
    pub(super) fn piece(&self, item: Item) -> Result<Piece, Reset> {
        let (content, end) = match item {
            Item::Run(run) => {
                let last = self.turn_end(&run);
                let run = last.and_then(|seq| run.through(seq)).unwrap_or(run);
                (
                    Content::Events(run),
                    last.map(|_| End {
                        reason: EndReason::TurnEnded,
                        cursor: last,
                    }),
                )
            }
            Item::Ready { cursor } => {
                let last = self.turn.as_ref().and_then(|turn| turn.last_seq);
                let ended = last
                    .filter(|seq| *seq <= cursor)
                    .map(|_| End::new(EndReason::TurnEnded));
                (Content::Ready(self.ready_frame(cursor)), ended)
            }
            Item::Reset {
                reason,
                before,
                session,
            } => {
                return Err(Reset {
                    reason,
                    before,
                    session,
                });
            }
            Item::End => (Content::Nothing, Some(End::new(EndReason::SessionDeleted))),
        };
        Ok(Piece { content, end })
    }

    /// The sequence number of the event in this run that ends the turn.
    fn turn_end(&self, run: &Run) -> Option<u64> {
        let turn = self.turn.as_ref()?;
        let ends = |event: &EventRef<'_>| {
            matches!(event.kind(), "prompt.completed" | "prompt.failed") && event.is_of(turn.prompt)
        };
        run.events().find(ends).map(|event| event.seq())
    }

    fn ready_frame(&self, cursor: u64) -> ControlFrame {
        let id = self.source.id(&self.epoch, cursor);
        let frame = ControlFrame::new(&Ready { last_event_id: &id }, self.ids.now());
        frame.with_id(self.from_tail.then_some(id))
    }

    /// The `reset` frames with a snapshot, one for each affected session that the client named. If the client
    /// named none, there is a single frame without a snapshot.
    pub(super) async fn reset_frames(
        &self,
        Reset {
            reason,
            before,
            session: session_id,
        }: Reset,
    ) -> Vec<Piece> {
        let mut resets = Vec::new();
        let sessions = self.source.sessions().iter();
        for session in sessions.filter(|session| session_id.is_none_or(|id| session.id() == id)) {
            resets.extend(self.reset_frame(session, reason).await);
        }
        if resets.is_empty() {
            let frame = ControlFrame::new(
                &event::Reset {
                    reason,
                    session: None,
                },
                self.ids.now(),
            );
            resets.push(frame.with_session(session_id));
        }
        // Only the last frame has an id. A client that disconnects earlier receives all frames again.
        let last = resets
            .pop()
            .map(|frame| frame.with_id(self.source.id(&self.epoch, before)));
        let piece = |frame| Piece {
            content: Content::Control(frame),
            end: None,
        };
        resets.into_iter().chain(last).map(piece).collect()
    }

    /// Returns `None` if the session no longer exists. The end of the session follows.
    async fn reset_frame(
        &self,
        session: &SessionHandle,
        reason: ResetReason,
    ) -> Option<ControlFrame> {
        let snapshot = session.snapshot().await.ok()?;
        let frame = ControlFrame::new(
            &event::Reset {
                reason,
                session: Some(&snapshot),
            },
            self.ids.now(),
        );
        Some(frame.with_session(session.id()))
    }

    /// Whether the feed selects every event.
    fn passes_all(&self) -> bool {
        self.types == EventTypes::All && self.turn.is_none()
    }

    pub(super) fn is_selected(&self, event: &EventRef<'_>) -> bool {
        self.types.contains(event.kind())
            && self
                .turn
                .as_ref()
                .is_none_or(|turn| event.is_of(turn.prompt))
    }

    /// Whether the encoder uses the stored bytes of the selected events.
    fn uses_stored_frames(&self, encoder: &dyn Encoder) -> bool {
        self.source.has_stored_ids() && encoder.uses_stored_frames()
    }

    /// The cursor for direct delivery, if the client receives the stored bytes of all events.
    pub(super) fn tail_cursor(&self, encoder: &dyn Encoder) -> Option<TailCursor> {
        let passes_through = self.uses_stored_frames(encoder) && self.passes_all();
        if passes_through {
            self.source.reader.tail_cursor()
        } else {
            None
        }
    }

    /// Continues after the events that direct delivery has written.
    pub(super) fn resume(&mut self, from: &TailCursor) {
        if from.cursor() > self.source.cursor() {
            self.source.reader.resume_from(from);
            self.client_cursor = from.cursor();
        }
    }

    /// Encodes a run for the client. In the common case, this shares the stored bytes without a copy.
    pub(super) fn write(&mut self, run: &Run, encoder: &mut dyn Encoder) -> Bytes {
        let stored = self.uses_stored_frames(encoder);
        if stored && self.passes_all() {
            self.client_cursor = run.last_seq;
            return run.frames.clone();
        }
        let selects_most = self.types == EventTypes::All;
        let mut out = BytesMut::with_capacity(if selects_most { run.frames.len() } else { 0 });
        let mut client_cursor = self.client_cursor;
        for event in run.events().filter(|event| self.is_selected(event)) {
            client_cursor = self.source.cursor_of(run, event.seq());
            if stored {
                out.extend_from_slice(event.raw_frame());
            } else {
                encoder.event(
                    &mut out,
                    &|| self.source.id(&self.epoch, client_cursor),
                    &event,
                );
                if encoder.is_complete() {
                    break;
                }
            }
        }
        self.client_cursor = client_cursor;
        out.freeze()
    }

    /// The frame that advances the cursor of the client to that of the source. `None` if the client already
    /// has it.
    pub(super) fn position_frame(&mut self) -> Option<ControlFrame> {
        let cursor = self.source.cursor();
        let moved = std::mem::replace(&mut self.client_cursor, cursor) != cursor;
        let frame = |id: String| ControlFrame::new(&PositionFrame {}, self.ids.now()).with_id(id);
        moved.then(|| frame(self.source.id(&self.epoch, cursor)))
    }

    /// The last frame of a complete stream. A client that reconnects with its id receives 204.
    pub(super) fn end_frame(&self, End { reason, cursor }: End) -> ControlFrame {
        let id = self
            .source
            .id(&self.epoch, cursor.unwrap_or_else(|| self.source.cursor()));
        let frame = ControlFrame::new(
            &EndFrame {
                reason,
                last_event_id: &id,
            },
            self.ids.now(),
        );
        frame.with_id(id)
    }
}
