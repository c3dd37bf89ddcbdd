//! The log that a stream reads: of one session, or of all sessions.

use std::sync::Arc;

use super::summaries::SummaryFeed;
use crate::eventlog::{DirectSink, Item, Notifier, ReadError, Reader, Run, SummaryReader};
use crate::session::SessionHandle;
use crate::types::{Epoch, EventId, Position, SessionId};

/// A reader, and the sessions whose snapshots a reset contains. A cursor is a sequence number of one session
/// or a position in the whole log.
#[derive(Debug)]
pub(crate) struct Source {
    pub(super) reader: Reader,
    sessions: Sessions,
    /// Boxed: most streams have none, and an idle stream must be small.
    pub(super) summaries: Option<Box<SummaryFeed>>,
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
        Self {
            reader,
            sessions: Sessions::One(session),
            summaries: None,
        }
    }

    /// A log of no session: the audit log.
    pub(crate) const fn log(reader: Reader) -> Self {
        Self {
            reader,
            sessions: Sessions::None,
            summaries: None,
        }
    }

    pub(crate) const fn merged(reader: Reader, sessions: Vec<SessionHandle>) -> Self {
        Self {
            reader,
            sessions: Sessions::Merged(sessions),
            summaries: None,
        }
    }

    /// Adds the summaries of changed sessions.
    #[must_use]
    pub(crate) fn with_summaries(self, reader: Option<SummaryReader>) -> Self {
        Self {
            summaries: reader.map(|reader| Box::new(SummaryFeed::new(reader))),
            ..self
        }
    }

    /// Registers with the notifier of a thread. `sink` receives events while the reader waits.
    pub(super) fn subscribe_via(
        &mut self,
        notifier: &Arc<Notifier>,
        sink: Option<Arc<dyn DirectSink>>,
    ) {
        self.reader.subscribe_via(notifier, sink);
        if let Some(summaries) = &mut self.summaries {
            summaries.subscribe_via(notifier);
        }
    }

    /// Waits for an event of the log, or until summaries are due. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        let Some(summaries) = &mut self.summaries else {
            return self.reader.changed().await;
        };
        tokio::select! {
            () = self.reader.changed() => {}
            () = summaries.due() => {}
        }
    }

    /// The next item of the log, or `None` if summaries are due before. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<Item, ReadError>> {
        let Some(summaries) = &mut self.summaries else {
            return Some(self.reader.next().await);
        };
        tokio::select! {
            next = self.reader.next() => Some(next),
            () = summaries.due() => None,
        }
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.reader.cursor()
    }

    /// The cursor as clients see it, in a store with this epoch.
    pub(super) fn id(&self, epoch: &Epoch, cursor: u64) -> String {
        match &self.sessions {
            Sessions::One(session) => session.log().id(cursor).to_string(),
            Sessions::None => {
                let epoch = epoch.of_session(SessionId::AUDIT);
                EventId { epoch, seq: cursor }.to_string()
            }
            Sessions::Merged(_) => {
                let epoch = epoch.clone();
                Position { epoch, pos: cursor }.to_string()
            }
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
        if self.has_stored_ids() {
            seq
        } else {
            run.pos(seq)
        }
    }

    /// Whether the ids of frames equal the stored ids.
    pub(super) const fn has_stored_ids(&self) -> bool {
        matches!(self.sessions, Sessions::One(_) | Sessions::None)
    }
}
