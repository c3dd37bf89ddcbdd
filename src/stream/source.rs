//! The log that a stream reads: of one session, or of all sessions.

use crate::eventlog::{Reader, Run};
use crate::session::SessionHandle;
use crate::types::{Epoch, EventId, Position};

/// A reader, and the sessions whose snapshots a reset contains. A cursor is a sequence number of one session
/// or a position in the whole log.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) reader: Reader,
    sessions: Sessions,
}

#[derive(Debug)]
enum Sessions {
    One(SessionHandle),
    /// The reader reads a log of no session.
    None,
    /// The reader merges sessions. An empty list selects all sessions that the key may read.
    Merged(Vec<SessionHandle>),
}

impl Source {
    pub(crate) const fn session(reader: Reader, session: SessionHandle) -> Self {
        Self { reader, sessions: Sessions::One(session) }
    }

    /// A log of no session: the audit log.
    pub(crate) const fn log(reader: Reader) -> Self {
        Self { reader, sessions: Sessions::None }
    }

    pub(crate) const fn merged(reader: Reader, sessions: Vec<SessionHandle>) -> Self {
        Self { reader, sessions: Sessions::Merged(sessions) }
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.reader.cursor()
    }

    /// The cursor as clients see it.
    pub(super) fn id(&self, epoch: &Epoch, cursor: u64) -> String {
        let epoch = epoch.clone();
        match self.sessions {
            Sessions::One(_) | Sessions::None => EventId { epoch, seq: cursor }.to_string(),
            Sessions::Merged(_) => Position { epoch, pos: cursor }.to_string(),
        }
    }

    pub(super) fn sessions(&self) -> &[SessionHandle] {
        match &self.sessions {
            Sessions::One(session) => std::slice::from_ref(session),
            Sessions::None => &[],
            Sessions::Merged(sessions) => sessions,
        }
    }

    /// The cursor of one event of a run.
    pub(super) fn cursor_of(&self, run: &Run, seq: u64) -> u64 {
        if self.has_stored_ids() { seq } else { run.pos(seq) }
    }

    /// Whether the ids of frames equal the stored ids.
    pub(super) const fn has_stored_ids(&self) -> bool {
        matches!(self.sessions, Sessions::One(_) | Sessions::None)
    }
}
