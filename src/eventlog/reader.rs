//! A reader is a cursor: it replays to the tail, then follows. When it lags it goes back to the store.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::store::{ReadError, Run};

use super::followers::{Following, Follows};
use super::session::State;

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Beginning,
    /// After the event of this seq.
    After(u64),
    Tail,
    /// At the earliest event, after telling why: the cursor was one of another epoch, or none at all.
    Reset(ResetReason),
}

/// Why a reader cannot give every event after its cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetReason {
    /// Events after the cursor were dropped by the log's limits.
    Pruned,
    /// The log never gave this cursor.
    UnknownCursor,
    /// The cursor is one of another epoch.
    NewEpoch,
}

/// What a reader gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Committed events that begin right after the cursor, or after the reset before.
    Run(Run),
    /// Once: everything that was there when the reader began has been given.
    Ready { last_seq: u64 },
    /// What was given so far does not count; the next event is the one after `before`.
    Reset { reason: ResetReason, before: u64 },
    /// The session was erased, and its last event has been given.
    End,
}

/// A cursor in one session's log. Readers share the bytes that they give and have no queue of their own.
#[derive(Debug)]
pub struct Reader {
    state: Arc<State>,
    commits: watch::Receiver<u64>,
    /// The seq of the last event that was given.
    cursor: u64,
    /// Where the replay ends, until it has.
    target: Option<u64>,
    reset: Option<ResetReason>,
    /// A page that is being read. It survives a `next` that was dropped.
    page: Option<JoinHandle<Result<Option<Run>, ReadError>>>,
    _following: Following,
}

enum Step {
    Give(Item),
    ReadStore { committed: u64 },
    Wait,
}

impl Reader {
    pub(super) fn new(state: Arc<State>, start: Start) -> Self {
        let mut commits = state.committed.subscribe();
        let committed = *commits.borrow_and_update();
        let (cursor, reset) = match start {
            Start::Beginning => (0, None),
            Start::After(seq) if seq > committed => (0, Some(ResetReason::UnknownCursor)),
            Start::After(seq) => (seq, None),
            Start::Tail => (committed, None),
            Start::Reset(reason) => (0, Some(reason)),
        };
        let following = Following::enter(&state.shared, Follows::One(state.id));
        Self { state, commits, cursor, target: Some(committed), reset, page: None, _following: following }
    }

    /// The seq of the last event that was given, or where the reader began.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// What comes next; waits at the tail, also when the log was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Item, ReadError> {
        loop {
            match self.step() {
                Step::Give(item) => return Ok(item),
                Step::ReadStore { committed } => {
                    let page = self.read_store().await?;
                    if let Some(item) = self.take_page(page, committed)? {
                        return Ok(item);
                    }
                }
                Step::Wait => {
                    // The state that the reader holds keeps the sender: it cannot be gone.
                    self.commits.changed().await.expect("the reader holds its session's state");
                }
            }
        }
    }

    fn step(&mut self) -> Step {
        if let Some(reason) = self.reset.take() {
            self.page = None;
            self.cursor = self.before_first();
            return Step::Give(Item::Reset { reason, before: self.cursor });
        }
        if self.target.is_some_and(|target| self.cursor >= target) {
            self.target = None;
            return Step::Give(Item::Ready { last_seq: self.cursor });
        }
        let committed = *self.commits.borrow_and_update();
        if self.cursor < committed {
            let found = self.state.tail().after(self.cursor);
            return match found {
                Some(run) => Step::Give(self.give(run)),
                None => Step::ReadStore { committed },
            };
        }
        if self.state.erased_at().is_some_and(|last| self.cursor >= last) {
            return Step::Give(Item::End);
        }
        Step::Wait
    }

    fn give(&mut self, run: Run) -> Item {
        self.cursor = run.last_seq;
        Item::Run(run)
    }

    /// The seq before the earliest event that is left.
    fn before_first(&self) -> u64 {
        let shared = &self.state.shared;
        shared.store.usage(self.state.id).map_or(*self.state.committed.borrow(), |log| log.first_seq - 1)
    }

    async fn read_store(&mut self) -> Result<Option<Run>, ReadError> {
        if self.page.is_none() {
            let shared = &self.state.shared;
            let permit = shared.permit().await;
            let (store, session) = (Arc::clone(&shared.store), self.state.id);
            let (cursor, max_bytes) = (self.cursor, shared.limits.store_page_bytes);
            self.page = Some(shared.shutdown.spawn_blocking(move || {
                let runs = store.read(session, cursor, max_bytes);
                drop(permit);
                Ok(join(runs?))
            }));
        }
        let page = self.page.as_mut().expect("it was set above");
        let result = page.await;
        self.page = None;
        result.map_err(|lost| ReadError::Failed(lost.into()))?
    }

    /// What of a page may be given: nothing before its commit was told, nothing after a gap without a reset.
    fn take_page(&mut self, page: Option<Run>, committed: u64) -> Result<Option<Item>, ReadError> {
        let erased = self.state.erased_at();
        let Some(run) = page else {
            // The writer never drops a session's last run: only its owner does, with the session.
            return match erased {
                Some(last) => {
                    self.cursor = last;
                    Ok(None)
                }
                None => Err(ReadError::Failed("the log ends before its tail".into())),
            };
        };
        let Some(run) = run.through(committed) else {
            // An erase is durable and not told yet: it comes with the next commit.
            self.cursor = committed;
            return Ok(None);
        };
        if run.first_seq > self.cursor + 1 && erased.is_none() {
            self.reset = Some(ResetReason::Pruned);
            return Ok(None);
        }
        Ok(Some(self.give(run)))
    }
}

/// One run of what is consecutive at the start of a page, so that a replay is a few large writes.
fn join(runs: Vec<Run>) -> Option<Run> {
    let mut runs = runs.into_iter();
    let first = runs.next()?;
    let next: Vec<Run> = {
        let mut last_seq = first.last_seq;
        runs.take_while(|run| run.first_seq == std::mem::replace(&mut last_seq, run.last_seq) + 1).collect()
    };
    let Some(last) = next.last() else { return Some(first) };
    let (last_seq, last_pos) = (last.last_seq, last.last_pos);
    let mut frames =
        Vec::with_capacity(first.frames.len() + next.iter().map(|run| run.frames.len()).sum::<usize>());
    frames.extend_from_slice(&first.frames);
    for run in &next {
        frames.extend_from_slice(&run.frames);
    }
    Some(Run { last_seq, last_pos, frames: frames.into(), ..first })
}
