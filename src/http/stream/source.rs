//! What a stream reads: one session's log, or the whole store's.

use std::sync::Arc;

use crate::eventlog::{
    AllItem, AllReader, Herald, Item, Later, Outlet, ReadError, Reader, ResetReason, Run, TailCursor,
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
        reader: Box<AllReader>,
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
    pub(super) about: Option<SessionId>,
}

impl From<Item> for Next {
    fn from(item: Item) -> Self {
        match item {
            Item::Run(run) => Self::Run(run),
            Item::Ready { last_seq } => Self::Ready { cursor: last_seq },
            Item::Reset { reason, before } => Self::Reset(Reset { reason, before, about: None }),
            Item::End => Self::End,
        }
    }
}

impl From<AllItem> for Next {
    fn from(item: AllItem) -> Self {
        match item {
            AllItem::Run(run) => Self::Run(run),
            AllItem::Ready { last_pos } => Self::Ready { cursor: last_pos },
            AllItem::Reset { reason, before, session } => {
                Self::Reset(Reset { reason, before, about: session })
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
    pub(super) fn try_next(&mut self) -> Result<Next, Later> {
        match self {
            Self::Session { reader, .. } => reader.try_next().map(Next::from),
            Self::All { reader, .. } => reader.try_next().map(Next::from),
        }
    }

    /// Events of many sessions go through the reader, which leaves out what was erased since.
    pub(super) fn heeds(&mut self, herald: &Arc<Herald>, outlet: Option<Arc<dyn Outlet>>) {
        match self {
            Self::Session { reader, .. } => reader.heeds(herald, outlet),
            Self::All { reader, .. } => reader.heeds(herald),
        }
    }

    /// Where a reader waits that an outlet can serve.
    pub(super) fn place(&self) -> Option<TailCursor> {
        match self {
            Self::Session { reader, .. } => Some(reader.place()),
            Self::All { .. } => None,
        }
    }

    pub(super) fn go_on(&mut self, from: &TailCursor) {
        if let Self::Session { reader, .. } = self {
            reader.go_on(from);
        }
    }

    /// Resolves when there is more than there was.
    pub(super) async fn moved(&mut self) {
        match self {
            Self::Session { reader, .. } => reader.moved().await,
            Self::All { reader, .. } => reader.moved().await,
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
    pub(super) const fn stored_ids(&self) -> bool {
        matches!(self, Self::Session { .. })
    }
}
