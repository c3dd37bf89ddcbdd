//! What a stream reads: one session's log, or the whole store's.

use crate::eventlog::{AllItem, AllReader, Item, ReadError, Reader, ResetReason, Run};
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
        reader: AllReader,
        sessions: Vec<SessionHandle>,
    },
}

/// What comes next, with cursors of the source's own kind.
#[derive(Debug)]
pub(super) enum Next {
    Run(Run),
    Ready {
        cursor: u64,
    },
    /// With a session it is about that one alone.
    Reset {
        reason: ResetReason,
        before: u64,
        about: Option<SessionId>,
    },
    End,
}

impl Source {
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Next, ReadError> {
        Ok(match self {
            Self::Session { reader, .. } => match reader.next().await? {
                Item::Run(run) => Next::Run(run),
                Item::Ready { last_seq } => Next::Ready { cursor: last_seq },
                Item::Reset { reason, before } => Next::Reset { reason, before, about: None },
                Item::End => Next::End,
            },
            Self::All { reader, .. } => match reader.next().await? {
                AllItem::Run(run) => Next::Run(run),
                AllItem::Ready { last_pos } => Next::Ready { cursor: last_pos },
                AllItem::Reset { reason, before, session } => Next::Reset { reason, before, about: session },
            },
        })
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
