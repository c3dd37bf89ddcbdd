//! A page that a reader reads from the store.

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::store::{Page, ReadError, Run};
use base::types::SessionId;
use events::event::ResetReason;

/// A read of the store in progress.
pub(super) type PendingPage = JoinHandle<Result<Page, ReadError>>;

#[derive(Debug)]
pub(super) enum Accepted {
    Item(Item),
    Continue,
    Reset(ResetReason),
}

/// Concatenates consecutive runs, so that a replay uses large writes. A result has at most `max_bytes`,
/// unless a single event is larger. The limit bounds the memory that a slow reader holds.
pub(super) fn coalesce(runs: Vec<Run>, max_bytes: usize) -> Vec<Run> {
    let mut joined = Vec::new();
    let mut page: Vec<Run> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        let last = page.last().or(joined.last());
        if last.is_some_and(|last| last.last_seq + 1 != run.first_seq) {
            break;
        }
        let run = run.truncate_to(max_bytes);
        if bytes + run.frames.len() > max_bytes {
            joined.extend(concat(std::mem::take(&mut page)));
            bytes = 0;
        }
        bytes += run.frames.len();
        page.push(run);
    }
    joined.extend(concat(page));
    joined
}

fn concat(mut runs: Vec<Run>) -> Option<Run> {
    let first_seq = runs.first()?.first_seq;
    if runs.len() == 1 {
        return runs.pop();
    }
    let frames: Vec<Bytes> = runs.iter().map(|run| run.frames.clone()).collect();
    let frames = frames.concat().into();
    let last = runs.pop()?;
    Some(Run {
        first_seq,
        frames,
        ..last
    })
}

/// The position at which a reader starts. A position is a seq of the session, or a position of the log of all
/// sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the beginning. In the log of all sessions, a session with its own start begins there.
    Beginning,
    /// After this position. In the log of all sessions, a session's own start can only exclude more events.
    After(u64),
    /// At the tail. In the log of all sessions, a session with its own start begins there.
    Tail,
    /// At the earliest event, after a reset: the cursor has another epoch, or is invalid. The sessions' own
    /// starts are ignored.
    Reset(ResetReason),
}

impl Start {
    /// The cursor in a log whose last committed position is `last`, and the reset that must precede the events.
    pub(super) fn resolve(self, last: u64) -> (u64, Option<ResetReason>) {
        match self {
            Self::Beginning => (0, None),
            Self::After(position) if position > last => (0, Some(ResetReason::UnknownCursor)),
            Self::After(position) => (position, None),
            Self::Tail => (last, None),
            Self::Reset(reason) => (0, Some(reason)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Committed events of one session that directly follow the cursor or the preceding reset. In the log of
    /// all sessions, [`Run::pos`] is the position of each event.
    Run(Run),
    /// Returned once: the reader has returned all events that existed when it started.
    Ready { cursor: u64 },
    /// The client must discard all earlier events. The next event is the first event after `before`. With a
    /// session, only events of that session are affected: some are damaged, and later ones follow.
    Reset {
        reason: ResetReason,
        before: u64,
        session: Option<SessionId>,
    },
    /// The session was erased, and the reader has returned its last event.
    End,
}

/// Why a reader has no item available without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReady {
    /// The next events are in the store. Call `next` to read them.
    ReadStore,
    /// The reader is at the tail. Call `changed` to wait.
    AtTail,
}
