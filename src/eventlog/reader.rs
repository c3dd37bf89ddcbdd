//! A reader is a cursor: it replays to the tail, then follows. When it lags it goes back to the store.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::store::{ReadError, Run};

use super::notify::{DirectSink, Notifier, Subscription};
use super::reader_registry::{ReaderRegistration, ReaderScope};
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
    /// Events after the cursor are not what was written, and are left out.
    Damaged,
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
    subscription: Subscription,
    /// The seq of the last event that was given.
    cursor: u64,
    /// Where the replay ends, until it has.
    target: Option<u64>,
    reset: Option<ResetReason>,
    /// It survives a `next` that was dropped.
    page: Option<PendingPage>,
    /// It has got a page of the store, and may want the next.
    sequential: bool,
    /// How far it has read ahead. What is missing of that did not stay in memory.
    read_ahead_seq: u64,
    _registration: ReaderRegistration,
}

/// A page that is being read.
#[derive(Debug)]
struct PendingPage {
    /// What had been told when that began: what came later may be missing in it.
    requested_at: u64,
    runs: JoinHandle<Result<Vec<Run>, ReadError>>,
}

/// Why a reader gives nothing at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReady {
    /// What comes next is in the store: its `next` reads it.
    ReadStore,
    /// The reader is at the tail: its `moved` waits for more.
    AtTail,
}

enum Step {
    Item(Item),
    ReadStore,
    Wait,
}

/// The place of a reader that waits at the tail. What comes next in memory can be had from here without the reader.
#[derive(Debug)]
pub struct TailCursor {
    state: Arc<State>,
    cursor: u64,
}

impl TailCursor {
    /// What comes next if it is there; the reader has to see to everything but events in memory.
    pub fn try_next(&mut self) -> Result<Run, NotReady> {
        if self.state.erased_at().is_some() {
            return Err(NotReady::ReadStore);
        }
        if self.cursor >= self.state.committed.last() {
            return Err(NotReady::AtTail);
        }
        let run = self.state.tail().after(self.cursor).ok_or(NotReady::ReadStore)?;
        self.cursor = run.last_seq;
        Ok(run)
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }
}

impl Reader {
    pub(super) fn new(state: Arc<State>, start: Start) -> Self {
        let mut ear = state.committed.subscribe();
        let committed = ear.observe();
        let (cursor, reset) = match start {
            Start::Beginning => (0, None),
            Start::After(seq) if seq > committed => (0, Some(ResetReason::UnknownCursor)),
            Start::After(seq) => (seq, None),
            Start::Tail => (committed, None),
            Start::Reset(reason) => (0, Some(reason)),
        };
        let following = ReaderRegistration::register(&state.shared, ReaderScope::One(state.id));
        Self {
            state,
            subscription: ear,
            cursor,
            target: Some(committed),
            reset,
            page: None,
            sequential: false,
            read_ahead_seq: 0,
            _registration: following,
        }
    }

    /// The seq of the last event that was given, or where the reader began.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// What comes next; waits at the tail, also when the log was closed. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Item, ReadError> {
        loop {
            match self.step() {
                Step::Item(item) => return Ok(item),
                Step::ReadStore => match self.read_store().await {
                    (asked, Ok(page)) => {
                        if let Some(item) = self.accept_page(page, asked) {
                            return Ok(item);
                        }
                    }
                    (asked, Err(ReadError::Corrupt { session, first_seq, last_seq, after })) => {
                        self.state.shared.report_damage(session, first_seq, last_seq);
                        return Ok(self.skip_damage(after.min(asked)));
                    }
                    (_, Err(error)) => return Err(error),
                },
                Step::Wait => self.changed().await,
            }
        }
    }

    /// What comes next if it is there: for who gathers, and holds little while there is nothing.
    pub fn try_next(&mut self) -> Result<Item, NotReady> {
        match self.step() {
            Step::Item(item) => Ok(item),
            Step::ReadStore => Err(NotReady::ReadStore),
            Step::Wait => Err(NotReady::AtTail),
        }
    }

    /// Resolves when something was committed since the reader looked.
    pub async fn changed(&mut self) {
        self.subscription.changed().await;
    }

    /// The reader is on this herald's thread from now on, where it waits behind this outlet.
    pub fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        self.subscription.subscribe_via(&self.state.committed, notifier, sink);
    }

    /// Where it waits, for the outlet: it goes [on from](Self::go_on) there.
    pub fn tail_cursor(&self) -> TailCursor {
        TailCursor { state: Arc::clone(&self.state), cursor: self.cursor }
    }

    pub fn resume_from(&mut self, from: &TailCursor) {
        self.cursor = from.cursor;
    }

    fn step(&mut self) -> Step {
        if let Some(reason) = self.reset.take() {
            self.page = None;
            self.cursor = self.before_first();
            return Step::Item(Item::Reset { reason, before: self.cursor });
        }
        if self.target.is_some_and(|target| self.cursor >= target) {
            self.target = None;
            return Step::Item(Item::Ready { last_seq: self.cursor });
        }
        let committed = self.subscription.observe();
        if self.cursor < committed {
            let tail = self.state.tail().after(self.cursor);
            let found = tail.or_else(|| self.cached_page()?.through(committed));
            return match found {
                Some(run) => Step::Item(self.deliver(run)),
                None => Step::ReadStore,
            };
        }
        if self.state.erased_at().is_some_and(|last| self.cursor >= last) {
            return Step::Item(Item::End);
        }
        Step::Wait
    }

    /// What is damaged ends at `before`, and nothing that was given earlier fits to what follows.
    fn skip_damage(&mut self, before: u64) -> Item {
        self.cursor = before;
        Item::Reset { reason: ResetReason::Damaged, before }
    }

    fn deliver(&mut self, run: Run) -> Item {
        // One that is still being read began before this.
        self.page = None;
        self.cursor = run.last_seq;
        Item::Run(run)
    }

    /// The seq before the earliest event that is left.
    fn before_first(&self) -> u64 {
        let shared = &self.state.shared;
        shared
            .store
            .usage(self.state.id)
            .map_or(self.state.committed.last(), |log| log.first_seq.saturating_sub(1))
    }

    /// What comes next, if somebody else has read it.
    fn cached_page(&mut self) -> Option<Run> {
        let page = self.state.cached_after(self.cursor)?;
        self.sequential = true;
        Some(page)
    }

    /// A page, and what had been told when it was asked for.
    async fn read_store(&mut self) -> (u64, Result<Option<Run>, ReadError>) {
        if self.page.is_none() {
            let turn = self.state.read_permit().await;
            let asked = self.state.committed.last();
            if let Some(run) = self.cached_page() {
                return (asked, Ok(Some(run)));
            }
            let permit = self.state.shared.permit().await;
            let (state, cursor) = (Arc::clone(&self.state), self.cursor);
            let reads_on =
                std::mem::replace(&mut self.sequential, true) && self.cursor >= self.read_ahead_seq;
            let runs = self.state.shared.shutdown.spawn_blocking(move || {
                let limits = &state.shared.limits;
                let ahead = if reads_on { limits.read_ahead_bytes.min(limits.pages_bytes / 4) } else { 0 };
                let bytes = ahead.max(limits.store_page_bytes);
                let runs =
                    coalesce(state.shared.store.read(state.id, cursor, bytes)?, limits.store_page_bytes);
                state.cache_runs(&runs);
                drop((permit, turn));
                Ok(runs)
            });
            self.page = Some(PendingPage { requested_at: asked, runs });
        }
        let page = self.page.as_mut().expect("it was set above");
        let (asked, result) = (page.requested_at, (&mut page.runs).await);
        self.page = None;
        let first = result.unwrap_or_else(|lost| Err(ReadError::Failed(lost.into()))).map(|runs| {
            self.read_ahead_seq =
                runs.last().map_or(self.read_ahead_seq, |last| last.last_seq.max(self.read_ahead_seq));
            runs.into_iter().next()
        });
        (asked, first)
    }

    /// What of a page may be given: nothing before its commit was told, nothing after a gap without a reset.
    fn accept_page(&mut self, page: Option<Run>, requested_at: u64) -> Option<Item> {
        let told = self.state.committed.last();
        let erased = self.state.erased_at();
        let Some(run) = page else {
            // The writer never drops a session's last run: only its owner does, with the session.
            if let Some(last) = erased {
                self.cursor = last;
                return None;
            }
            self.state.shared.report_damage(self.state.id, self.cursor + 1, requested_at);
            return Some(self.skip_damage(requested_at));
        };
        let before = run.first_seq - 1;
        let Some(run) = run.through(told) else {
            // An erase is durable and not told yet. Nothing else leaves out all that was told, so what the tail still
            // has of it does not count either: the erase's own event is next.
            self.cursor = before;
            return None;
        };
        if before > self.cursor && erased.is_none() {
            // What was pruned is missing at the log's beginning, and nowhere else.
            if self.before_first() >= before {
                self.reset = Some(ResetReason::Pruned);
                return None;
            }
            self.state.shared.report_damage(self.state.id, self.cursor + 1, before);
            return Some(self.skip_damage(before));
        }
        Some(self.deliver(run))
    }
}

/// What is consecutive at the start of what was read, in as few runs as may be, so that a replay is large writes. None is
/// larger than a page was to be, unless an event is: a reader may hold it for long.
fn coalesce(runs: Vec<Run>, max_bytes: usize) -> Vec<Run> {
    let mut joined = Vec::new();
    let mut page: Vec<Run> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        if page.last().or(joined.last()).is_some_and(|last| last.last_seq + 1 != run.first_seq) {
            break;
        }
        let whole = run.last_seq;
        let run = run.truncate_to(max_bytes);
        let is_cut = run.last_seq < whole;
        if bytes + run.frames.len() > max_bytes {
            joined.extend(concat(std::mem::take(&mut page)));
            bytes = 0;
        }
        bytes += run.frames.len();
        page.push(run);
        if is_cut {
            break;
        }
    }
    joined.extend(concat(page));
    joined
}

/// Runs that follow each other, as one.
fn concat(mut runs: Vec<Run>) -> Option<Run> {
    let last = runs.pop()?;
    let Some(first) = runs.first() else { return Some(last) };
    let first_seq = first.first_seq;
    let bytes = runs.iter().chain([&last]).map(|run| run.frames.len()).sum();
    let mut frames = Vec::with_capacity(bytes);
    runs.iter().chain([&last]).for_each(|run| frames.extend_from_slice(&run.frames));
    Some(Run { first_seq, frames: frames.into(), ..last })
}
