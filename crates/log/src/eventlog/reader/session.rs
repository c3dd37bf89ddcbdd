//! The log of one session as a source of a reader: the tail and the read cache, otherwise the store.

use std::sync::Arc;

use super::super::scope::{ReaderRegistration, ReaderScope};
use super::super::state::State;
use super::super::store_reader::Store;
use super::super::tails::Found;
use super::page::{Accepted, Item, NotReady, PendingPage, coalesce};
use crate::store::{Page, ReadError, Run};
use events::event::ResetReason;

/// A position of this source is a seq of the session.
#[derive(Debug)]
pub(super) struct SessionSource {
    pub(super) state: Arc<State>,
    /// The reader has read a page and will probably read the next: enables read-ahead.
    sequential: bool,
    /// The last seq that was read ahead. Below it, a missing page was evicted from the cache, and read-ahead
    /// is off.
    read_ahead_seq: u64,
    _registration: ReaderRegistration,
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
        let run = self.state.tail().after(self.cursor);
        let run = run.ok_or(NotReady::ReadStore)?;
        self.cursor = run.last_seq;
        Ok(run)
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }
}

impl SessionSource {
    pub(super) fn new(state: Arc<State>) -> Self {
        let scope = ReaderScope::Session(state.id);
        Self {
            _registration: state.shared.readers.register(scope),
            state,
            sequential: false,
            read_ahead_seq: 0,
        }
    }

    pub(super) fn tail_cursor(&self, cursor: u64) -> TailCursor {
        TailCursor {
            state: Arc::clone(&self.state),
            cursor,
        }
    }

    /// The seq before the earliest stored event.
    pub(super) fn before_first(&self) -> u64 {
        let usage = self.state.shared.store.usage(self.state.id);
        usage.map_or(self.state.committed.last(), |log| {
            log.first_seq.saturating_sub(1)
        })
    }

    /// Whether the session was erased, and `cursor` is its last event.
    pub(super) fn ends_at(&self, cursor: u64) -> bool {
        self.state.erased_at().is_some_and(|last| cursor >= last)
    }

    /// Advances the cursor to the next run in memory, up to the seq `committed`.
    pub(super) fn find(&mut self, cursor: &mut u64, committed: u64) -> Found {
        let tail = self.state.tail().after(*cursor);
        match tail.or_else(|| self.cached_page(*cursor)?.through(committed)) {
            Some(run) => {
                *cursor = run.last_seq;
                Found::Run(run)
            }
            None => Found::Gap,
        }
    }

    /// The next run, if another reader has read it from the store.
    fn cached_page(&mut self, cursor: u64) -> Option<Run> {
        let mut cache = self.state.shared.published.read_cache();
        let page = cache.after(self.state.id, cursor)?;
        drop(cache);
        self.sequential = true;
        Some(page)
    }

    /// Starts a read of the store. `None`: another reader has read the page meanwhile.
    pub(super) async fn start_read(&mut self, cursor: u64) -> Option<PendingPage> {
        let turn = Arc::clone(&self.state.reads).acquire_owned().await;
        let turn = turn.expect("the semaphore is never closed");
        let committed = self.state.committed.last();
        if self.cached_page(cursor).is_some() {
            return None;
        }
        let sequential = std::mem::replace(&mut self.sequential, true);
        let limits = &self.state.shared.limits;
        let mut bytes = limits.store_page_bytes;
        if sequential && cursor >= self.read_ahead_seq {
            bytes = bytes.max(limits.read_ahead_bytes.min(limits.max_read_cache_bytes / 4));
        }
        let state = Arc::clone(&self.state);
        let read = move |store: &dyn Store| {
            let mut runs = store.read(state.id, cursor, bytes);
            if let Err(ReadError::Corrupt { after, .. }) = &mut runs {
                *after = committed.min(*after);
            }
            let runs = coalesce(runs?, state.shared.limits.store_page_bytes);
            state.cache_runs(&runs);
            drop(turn);
            // Events that were committed after the request may be missing from the page.
            let through = committed;
            Ok(Page { runs, through })
        };
        Some(self.state.shared.reads.start(read).await)
    }

    /// Checks a page and returns the part that may be delivered: no events beyond the committed seq, and no
    /// gap without a reset.
    pub(super) fn accept(
        &mut self,
        cursor: &mut u64,
        page: Result<Page, ReadError>,
    ) -> Result<Accepted, ReadError> {
        let reads = &self.state.shared.reads;
        let Page { runs, through } = match reads.skip_damage(page)? {
            Ok(page) => page,
            Err(damage) => return Ok(skip_damage(cursor, damage.after)),
        };
        if let Some(last) = runs.last() {
            self.read_ahead_seq = self.read_ahead_seq.max(last.last_seq);
        }
        let committed = self.state.committed.last();
        let erased = self.state.erased_at();
        let Some(run) = runs.into_iter().next() else {
            // Retention never deletes the last run of a session, so only an erase leaves no runs.
            if let Some(last) = erased {
                *cursor = last;
                return Ok(Accepted::Continue);
            }
            reads.report_damage(self.state.id, *cursor + 1, through);
            return Ok(skip_damage(cursor, through));
        };
        let before = run.first_seq - 1;
        let Some(run) = run.through(committed) else {
            // An erase is durable but not published yet. Only an erase removes all published events, so
            // discard the rest of the tail: the next event is the last event of the session.
            *cursor = before;
            return Ok(Accepted::Continue);
        };
        if before > *cursor && erased.is_none() {
            // Pruning removes events only at the beginning of the log. Any other gap is damage.
            if self.before_first() >= before {
                return Ok(Accepted::Reset(ResetReason::Pruned));
            }
            reads.report_damage(self.state.id, *cursor + 1, before);
            return Ok(skip_damage(cursor, before));
        }
        *cursor = run.last_seq;
        Ok(Accepted::Item(Item::Run(run)))
    }
}

/// Skips a damaged range that ends at seq `before`. Clients must discard the events before it.
fn skip_damage(cursor: &mut u64, before: u64) -> Accepted {
    *cursor = before;
    Accepted::Item(Item::Reset {
        reason: ResetReason::Damaged,
        before,
        session: None,
    })
}
