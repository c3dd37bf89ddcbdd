//! What a stream reads: one session's log, or the whole store's.

use std::sync::Arc;

use crate::eventlog::{
    GlobalItem, GlobalReader, Notifier, Item, NotReady, DirectSink, ReadError, Reader, ResetReason, Run, TailCursor,
};
use crate::session::SessionHandle;
use crate::types::{Epoch, EventId, Position, SessionId};

/// A cursor in a log, and the sessions whose snapshots a reset carries.
#[derive(Debug)]
pub(crate) enum Source {
    Session {
        reader: Reader,
        session: SessionHandle,
    },
    /// `sessions` is empty for all that the key may read.
    All {
        /// Boxed: it is rare, and larger than everything else that a stream holds.
        reader: Box<GlobalReader>,
        sessions: Vec<SessionHandle>,
    },
}

/// What comes next, with cursors of the source's own kind.
#[derive(Debug)]
pub(super) enum Next {
    Run(Run),
    Ready { cursor: u64 },
    Reset(Reset),
    End,
}

/// What was given so far does not count.
#[derive(Debug)]
pub(super) struct Reset {
    pub(super) reason: ResetReason,
    pub(super) before: u64,
    /// With a session it is about that one alone.
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
            GlobalItem::Reset { reason, before, session } => {
                Self::Reset(Reset { reason, before, session })
            }
        }
    }
}

impl Source {
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Next, ReadError> {
        match self {
            Self::Session { reader, .. } => reader.next().await.map(Next::from),
            Self::All { reader, .. } => reader.next().await.map(Next::from),
        }
    }

    /// What comes next if it is there.
    pub(super) fn try_next(&mut self) -> Result<Next, NotReady> {
        match self {
            Self::Session { reader, .. } => reader.try_next().map(Next::from),
            Self::All { reader, .. } => reader.try_next().map(Next::from),
        }
    }

    /// Events of many sessions go through the reader, which leaves out what was erased since.
    pub(super) fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        match self {
            Self::Session { reader, .. } => reader.subscribe_via(notifier, sink),
            Self::All { reader, .. } => reader.subscribe_via(notifier),
        }
    }

    /// Where a reader waits that an outlet can serve.
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

    /// Resolves when there is more than there was.
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

    /// A cursor as clients see it.
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

    /// Whether ids of frames are those that were stored with them.
    pub(super) const fn has_stored_ids(&self) -> bool {
        matches!(self, Self::Session { .. })
    }
}
