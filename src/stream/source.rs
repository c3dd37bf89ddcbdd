//! The log that a stream reads: of one session, or of all sessions.

use std::sync::Arc;

use crate::eventlog::{
    DirectSink, GlobalItem, GlobalReader, Item, NotReady, Notifier, ReadError, Reader, ResetReason, Run,
    TailCursor,
};
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
        /// Boxed, because it is rare and larger than the rest of a stream.
        reader: Box<GlobalReader>,
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
            Item::Ready { last_seq } => Self::Ready { cursor: last_seq },
            Item::Reset { reason, before } => Self::Reset(Reset { reason, before, session: None }),
            Item::End => Self::End,
        }
    }
}

impl From<GlobalItem> for Next {
    fn from(item: GlobalItem) -> Self {
        match item {
            GlobalItem::Run(run) => Self::Run(run),
            GlobalItem::Ready { last_pos } => Self::Ready { cursor: last_pos },
            GlobalItem::Reset { reason, before, session } => Self::Reset(Reset { reason, before, session }),
        }
    }
}

impl Source {
    /// The next item. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Next, ReadError> {
        match self {
            Self::Session { reader, .. } => reader.next().await.map(Next::from),
            Self::All { reader, .. } => reader.next().await.map(Next::from),
        }
    }

    /// The next item, without waiting.
    pub(super) fn try_next(&mut self) -> Result<Next, NotReady> {
        match self {
            Self::Session { reader, .. } => reader.try_next().map(Next::from),
            Self::All { reader, .. } => reader.try_next().map(Next::from),
        }
    }

    /// Subscribes to commits through the notifier. Only a session reader supports direct delivery: the global
    /// reader must filter erased sessions.
    pub(super) fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        match self {
            Self::Session { reader, .. } => reader.subscribe_via(notifier, sink),
            Self::All { reader, .. } => reader.subscribe_via(notifier),
        }
    }

    /// The cursor for direct delivery. `None` for the global reader.
    pub(super) fn tail_cursor(&self) -> Option<TailCursor> {
        match self {
            Self::Session { reader, .. } => Some(reader.tail_cursor()),
            Self::All { .. } => None,
        }
    }

    pub(super) fn resume(&mut self, from: &TailCursor) {
        if let Self::Session { reader, .. } = self {
            reader.resume_from(from);
        }
    }

    /// Completes when the log has new events.
    pub(super) async fn changed(&mut self) {
        match self {
            Self::Session { reader, .. } => reader.changed().await,
            Self::All { reader, .. } => reader.changed().await,
        }
    }

    pub(crate) fn cursor(&self) -> u64 {
        match self {
            Self::Session { reader, .. } => reader.cursor(),
            Self::All { reader, .. } => reader.cursor(),
        }
    }

    /// The cursor as clients see it.
    pub(crate) fn id(&self, epoch: &Epoch, cursor: u64) -> String {
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
    pub(crate) fn cursor_of(&self, run: &Run, seq: u64) -> u64 {
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
