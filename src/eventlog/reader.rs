//! A reader of one session's log: it replays to the tail, then follows it. A slow reader falls back to the
//! store.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::event::ResetReason;
use crate::store::{ReadError, Run};

use super::notify::{DirectSink, Notifier, Subscription};
use super::reader_registry::{ReaderRegistration, ReaderScope};
use super::session::State;

/// The position at which a reader starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    Beginning,
    /// After the event of this seq.
    After(u64),
    Tail,
    /// At the earliest event, after a reset: the cursor has another epoch, or is invalid.
    Reset(ResetReason),
}

/// An item that a reader returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// Committed events that directly follow the cursor or the preceding reset.
    Run(Run),
    /// Returned once: the reader has returned all events that existed when it started.
    Ready { last_seq: u64 },
    /// The client must discard all earlier events. The next event is the first event after seq `before`.
    Reset { reason: ResetReason, before: u64 },
    /// The session was erased, and the reader has returned its last event.
    End,
}

/// A cursor in one session's log. Readers share the bytes of runs and have no queue of their own.
#[derive(Debug)]
pub struct Reader {
    state: Arc<State>,
    subscription: Subscription,
    /// The seq of the last returned event.
    cursor: u64,
    /// The seq at which the replay ends; `None` after the replay.
    target: Option<u64>,
    reset: Option<ResetReason>,
    /// A read in progress. It survives a dropped `next` future.
    page: Option<PendingPage>,
    /// The reader has read a page and will probably read the next: enables read-ahead.
    sequential: bool,
    /// The last seq that was read ahead. Below it, a missing page was evicted from the cache, and read-ahead
    /// is off.
    read_ahead_seq: u64,
    _registration: ReaderRegistration,
}

/// A read of the store in progress.
#[derive(Debug)]
struct PendingPage {
    /// The committed seq when the read started. Later events may be missing from the page.
    requested_at: u64,
    runs: JoinHandle<Result<Vec<Run>, ReadError>>,
}

/// Why a reader has no item available without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotReady {
    /// The next events are in the store. Call `next` to read them.
    ReadStore,
    /// The reader is at the tail. Call `changed` to wait.
    AtTail,
}

enum Step {
    Item(Item),
    ReadStore,
    Wait,
}

/// The position of a reader that waits at the tail. A sink uses it to read new events from memory without the
/// reader.
#[derive(Debug)]
pub struct TailCursor {
    state: Arc<State>,
    cursor: u64,
}

impl TailCursor {
    /// Returns the next run if it is in memory. The reader must handle all other cases, such as an erased
    /// session.
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
        let mut subscription = state.committed.subscribe();
        let committed = subscription.observe();
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
            subscription,
            cursor,
            target: Some(committed),
            reset,
            page: None,
            sequential: false,
            read_ahead_seq: 0,
            _registration: following,
        }
    }

    /// The seq of the last returned event, or the start position.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next item. At the tail it waits, even if the log is closed. Cancel-safe.
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

    /// Returns the next item if no wait is necessary.
    pub fn try_next(&mut self) -> Result<Item, NotReady> {
        match self.step() {
            Step::Item(item) => Ok(item),
            Step::ReadStore => Err(NotReady::ReadStore),
            Step::Wait => Err(NotReady::AtTail),
        }
    }

    /// Waits until the log commits an event after the last observed position. Cancel-safe.
    pub async fn changed(&mut self) {
        self.subscription.changed().await;
    }

    /// Registers the reader with the notifier of its thread. `sink` receives events while the reader waits.
    pub fn subscribe_via(&mut self, notifier: &Arc<Notifier>, sink: Option<Arc<dyn DirectSink>>) {
        self.subscription.subscribe_via(&self.state.committed, notifier, sink);
    }

    /// The reader's position, for a sink. [`resume_from`](Self::resume_from) adopts the position that the
    /// sink reached.
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

    /// Skips a damaged range that ends at seq `before`. Clients must discard the events before it.
    fn skip_damage(&mut self, before: u64) -> Item {
        self.cursor = before;
        Item::Reset { reason: ResetReason::Damaged, before }
    }

    fn deliver(&mut self, run: Run) -> Item {
        // The page was requested for an older cursor.
        self.page = None;
        self.cursor = run.last_seq;
        Item::Run(run)
    }

    /// The seq before the earliest stored event.
    fn before_first(&self) -> u64 {
        let shared = &self.state.shared;
        shared
            .store
            .usage(self.state.id)
            .map_or(self.state.committed.last(), |log| log.first_seq.saturating_sub(1))
    }

    /// The next run, if another reader has read it from the store.
    fn cached_page(&mut self) -> Option<Run> {
        let page = self.state.cached_after(self.cursor)?;
        self.sequential = true;
        Some(page)
    }

    /// Reads a page from the store. Returns the page and the committed seq when the read was requested.
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
                let ahead =
                    if reads_on { limits.read_ahead_bytes.min(limits.max_read_cache_bytes / 4) } else { 0 };
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

    /// Checks a page and returns the part that may be delivered: no events beyond the committed seq, and no
    /// gap without a reset.
    fn accept_page(&mut self, page: Option<Run>, requested_at: u64) -> Option<Item> {
        let watermark = self.state.committed.last();
        let erased = self.state.erased_at();
        let Some(run) = page else {
            // Retention never deletes the last run of a session, so only an erase leaves no runs.
            if let Some(last) = erased {
                self.cursor = last;
                return None;
            }
            self.state.shared.report_damage(self.state.id, self.cursor + 1, requested_at);
            return Some(self.skip_damage(requested_at));
        };
        let before = run.first_seq - 1;
        let Some(run) = run.through(watermark) else {
            // An erase is durable but not published yet. Only an erase removes all published events, so
            // discard the rest of the tail: the next event is the last event of the session.
            self.cursor = before;
            return None;
        };
        if before > self.cursor && erased.is_none() {
            // Pruning removes events only at the beginning of the log. Any other gap is damage.
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

/// Concatenates consecutive runs, so that a replay uses large writes. A result has at most `max_bytes`,
/// unless a single event is larger. The limit bounds the memory that a slow reader holds.
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

/// Concatenates consecutive runs into one.
fn concat(mut runs: Vec<Run>) -> Option<Run> {
    let last = runs.pop()?;
    let Some(first) = runs.first() else { return Some(last) };
    let first_seq = first.first_seq;
    let bytes = runs.iter().chain([&last]).map(|run| run.frames.len()).sum();
    let mut frames = Vec::with_capacity(bytes);
    runs.iter().chain([&last]).for_each(|run| frames.extend_from_slice(&run.frames));
    Some(Run { first_seq, frames: frames.into(), ..last })
}
