//! The log that a stream reads: of one session, or of all sessions.

use std::sync::Arc;

use crate::event::ResetReason;
use crate::eventlog::{DirectSink, Item, NotReady, Notifier, ReadError, Reader, Run, TailCursor};
use crate::session::SessionHandle;
use crate::types::{Epoch, EventId, Position, SessionId};

/// A reader with its cursor, and the sessions whose snapshots a reset contains.
#[derive(Debug)]
pub(crate) enum Source {
    Session {
        reader: Reader,
        session: SessionHandle,
    },
    /// An empty `sessions` selects all sessions that the key may read.
    All {
        reader: Reader,
        sessions: Vec<SessionHandle>,
    },
}

/// The next item of a source. A cursor is a sequence number of one session or a position in the whole log.
#[derive(Debug)]
pub(super) enum Next {
    Run(Run),
    Ready { cursor: u64 },
    Reset(Reset),
    End,
}

/// Events before this item are void for the client.
#[derive(Debug)]
pub(super) struct Reset {
    pub(super) reason: ResetReason,
    pub(super) before: u64,
    /// The affected session. `None` affects all sessions.
    pub(super) session: Option<SessionId>,
}

impl From<Item> for Next {
    fn from(item: Item) -> Self {
        match item {
            Item::Run(run) => Self::Run(run),
            Item::Ready { cursor } => Self::Ready { cursor },
            Item::Reset { reason, before, session } => Self::Reset(Reset { reason, before, session }),
            Item::End => Self::End,
        }
    }
}

impl Source {
    const fn reader(&self) -> &Reader {
        match self {
            Self::Session { reader, .. } | Self::All { reader, .. } => reader,
        }
    }

    const fn reader_mut(&mut self) -> &mut Reader {
        match self {
            Self::Session { reader, .. } | Self::All { reader, .. } => reader,
        }
    }

    /// The next item. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Next, ReadError> {
        self.reader_mut().next().await.map(Next::from)
    }

    /// The next item, without waiting.
    pub(super) fn try_next(&mut self) -> Result<Next, NotReady> {
        self.reader_mut().try_next().map(Next::from)
    }

    /// Subscribes to commits through the notifier.
    pub(super) fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        self.reader_mut().subscribe_via(notifier, sink);
    }

    /// The cursor for direct delivery. `None` for the global reader.
    pub(super) fn tail_cursor(&self) -> Option<TailCursor> {
        self.reader().tail_cursor()
    }

    pub(super) fn resume(&mut self, from: &TailCursor) {
        self.reader_mut().resume_from(from);
    }

    /// Completes when the log has new events.
    pub(super) async fn changed(&mut self) {
        self.reader_mut().changed().await;
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.reader().cursor()
    }

    /// The cursor as clients see it.
    pub(super) fn id(&self, epoch: &Epoch, cursor: u64) -> String {
        let epoch = epoch.clone();
        match self {
            Self::Session { .. } => EventId { epoch, seq: cursor }.to_string(),
            Self::All { .. } => Position { epoch, pos: cursor }.to_string(),
        }
    }

    pub(super) fn sessions(&self) -> &[SessionHandle] {
        match self {
            Self::Session { session, .. } => std::slice::from_ref(session),
            Self::All { sessions, .. } => sessions,
        }
    }

    /// The cursor of one event of a run.
    pub(super) fn cursor_of(&self, run: &Run, seq: u64) -> u64 {
        match self {
            Self::Session { .. } => seq,
            Self::All { .. } => run.pos(seq),
        }
    }

    /// Whether the ids of frames equal the stored ids.
    pub(super) const fn has_stored_ids(&self) -> bool {
        matches!(self, Self::Session { .. })
    }
}
