//! The state that all parts of the log share, and the state of one session's log. Each refers to the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use super::alarm::Alarms;
use super::notify::Watermark;
use super::pending::Pending;
use super::queue::{CommitQueue, Job};
use super::scope::Readers;
use super::shares::Shares;
use super::store_reader::{Store, StoreReader};
use super::summaries::Summaries;
use super::tails::{ReadCache, SessionTail, Tails};
use crate::limits::Limits;
use crate::store::{LogUsage, ReadError, Run, Table};
use base::shutdown::lock_or_abort;
use base::types::{Epoch, Expiry, Ids, SessionId, Timestamp, UserId};

/// The state that all parts of the log share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) epoch: Epoch,
    pub(super) ids: Ids,
    pub(super) expiry: Expiry,
    pub(super) limits: Arc<Limits>,
    pub(super) store: Arc<dyn Store>,
    pub(super) reads: StoreReader,
    pub(super) queue: CommitQueue<State>,
    pub(super) alarms: Arc<Alarms>,
    pub(super) published: Published,
    pub(super) growth: Growth,
    pub(super) readers: Readers,
    pub(super) shares: Arc<Shares>,
    pub(super) sessions: LoadedSessions,
}

/// Committed events and summaries in memory, of all sessions.
#[derive(Debug)]
pub(super) struct Published {
    /// The position of the last event that is durable and published to readers.
    pub(super) last_pos: Watermark,
    tails: Mutex<Tails>,
    read_cache: Mutex<ReadCache>,
    pub(super) summaries: Summaries,
}

impl Published {
    pub(super) fn new(last_pos: u64) -> Self {
        Self {
            last_pos: Watermark::new(last_pos),
            tails: Mutex::default(),
            read_cache: Mutex::default(),
            summaries: Summaries::default(),
        }
    }

    pub(super) fn tails(&self) -> MutexGuard<'_, Tails> {
        lock_or_abort(self.tails.lock())
    }

    pub(super) fn read_cache(&self) -> MutexGuard<'_, ReadCache> {
        lock_or_abort(self.read_cache.lock())
    }
}

/// The states that exist. A session never has two.
#[derive(Debug, Default)]
pub(super) struct LoadedSessions {
    states: Mutex<HashMap<SessionId, Weak<State>>>,
    /// Serializes the loading of states.
    loading: tokio::sync::Mutex<()>,
}

impl LoadedSessions {
    pub(super) fn get(&self, id: SessionId) -> Option<Arc<State>> {
        self.states().get(&id).and_then(Weak::upgrade)
    }

    fn states(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<State>>> {
        lock_or_abort(self.states.lock())
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.states().is_empty()
    }
}

/// Stored bytes that were written since the last pass of retention.
#[derive(Debug, Default)]
pub(super) struct Growth {
    bytes: AtomicU64,
    threshold_reached: Notify,
}

impl Growth {
    /// Adds committed bytes. Triggers an early pass when they exceed an eighth of a limit.
    pub(super) fn add(&self, bytes: u64, limits: &Limits) {
        const PART: u64 = 8;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes >= limits.max_session_log_bytes.min(limits.max_total_log_bytes) / PART {
            self.bytes.store(0, Ordering::Relaxed);
            self.threshold_reached.notify_one();
        }
    }

    pub(super) async fn wait_for_threshold(&self) {
        self.threshold_reached.notified().await;
    }
}

impl Shared {
    /// Returns the state of a session's log. Loads it if necessary.
    pub(super) async fn state(
        self: &Arc<Self>,
        owner: &UserId,
        id: SessionId,
    ) -> Result<Arc<State>, ReadError> {
        if let Some(state) = self.sessions.get(id) {
            return Ok(state);
        }
        let _alone = self.sessions.loading.lock().await;
        if let Some(state) = self.sessions.get(id) {
            return Ok(state);
        }
        // A freed state has no pending events: the writer's queue holds a reference while it does.
        let log = self.reads.blocking(move |store| store.bounds(id)).await?;
        let last_seq = log.map_or(0, |log| log.last_seq);
        let tombstone = move |store: &dyn Store| store.get(Table::Tombstone, id.as_bytes());
        let erased = last_seq > 0 && self.reads.blocking(tombstone).await?.is_some();
        let state = State::new(Arc::clone(self), owner.clone(), id, last_seq, erased);
        let state = Arc::new(state);
        self.sessions.states().insert(id, Arc::downgrade(&state));
        Ok(state)
    }

    /// The bounds of a session's log for a reader that starts inside it. If no state of the session is
    /// loaded, the bounds in memory are first compared with the stored runs.
    pub(super) async fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        let _alone = self.sessions.loading.lock().await;
        if self.sessions.get(session).is_some() {
            return Ok(self.store.usage(session));
        }
        let bounds = move |store: &dyn Store| store.bounds(session);
        self.reads.blocking(bounds).await
    }

    /// Events from before this time are older than `age`.
    pub(super) fn expired_before(&self, age: Duration) -> Timestamp {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.expiry.earliest_now().as_millis().saturating_sub(age))
    }
}

/// State that all handles of a session's log share. It is freed with the last handle.
#[derive(Debug)]
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) owner: UserId,
    pub(super) id: SessionId,
    pub(super) committed: Watermark,
    pub(super) epoch: Epoch,
    pending: Mutex<Pending>,
    tail: Mutex<SessionTail>,
    /// Only one reader of the session reads the store at a time. The others then find the page in the cache.
    pub(super) reads: Arc<Semaphore>,
    /// The seq of the last event of an erased session after its commit, otherwise 0.
    erased_at: AtomicU64,
}

impl State {
    fn new(shared: Arc<Shared>, owner: UserId, id: SessionId, last_seq: u64, erased: bool) -> Self {
        let epoch = shared.epoch.of_session(id);
        Self {
            pending: Mutex::new(Pending::new(&epoch, id, last_seq, erased)),
            epoch,
            shared,
            owner,
            id,
            committed: Watermark::new(last_seq),
            tail: Mutex::default(),
            reads: Arc::new(Semaphore::new(1)),
            erased_at: AtomicU64::new(if erased { last_seq } else { 0 }),
        }
    }

    /// Adds this log to the queue of the writer.
    pub(super) fn enqueue(self: &Arc<Self>) {
        let queue = &self.shared.queue;
        match self.id {
            SessionId::AUDIT => queue.push_audit(Arc::clone(self)),
            _ => queue.push(Job::Session(Arc::clone(self))),
        }
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        lock_or_abort(self.pending.lock())
    }

    pub(super) fn tail(&self) -> MutexGuard<'_, SessionTail> {
        lock_or_abort(self.tail.lock())
    }

    pub(super) fn erased_at(&self) -> Option<u64> {
        Some(self.erased_at.load(Ordering::Acquire)).filter(|seq| *seq > 0)
    }

    /// Adds a committed run to the tails. [`Watermark::advance`](super::notify::Watermark::advance) then
    /// notifies readers.
    pub(super) fn publish(&self, run: Run, erase: bool) {
        let last_seq = run.last_seq;
        let limits = &self.shared.limits;
        let dropped = self.tail().push(run.clone(), limits.max_session_tail_bytes);
        let evicted = {
            let mut tails = self.shared.published.tails();
            for pos in dropped {
                tails.remove(pos);
            }
            tails.push(run, limits.max_tail_bytes)
        };
        for (session, pos) in evicted {
            if let Some(state) = self.shared.sessions.get(session) {
                state.tail().evict(pos);
            }
        }
        if erase {
            self.erased_at.store(last_seq, Ordering::Release);
            self.shared.published.read_cache().invalidate(self.id);
        }
    }

    /// Caches runs for other readers of this log.
    pub(super) fn cache_runs(&self, runs: &[Run]) {
        let mut pages = self.shared.published.read_cache();
        // Check under the lock of the cache: a prune updates the store first and then invalidates the cache.
        let log = self.shared.store.usage(self.id);
        let first = log.map_or(u64::MAX, |log| log.first_seq);
        for run in runs.iter().filter(|run| run.first_seq >= first) {
            pages.add(run.clone(), self.shared.limits.max_read_cache_bytes);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let places: Vec<u64> = self.tail().positions().collect();
        let mut tails = self.shared.published.tails();
        for pos in places {
            tails.remove(pos);
        }
        drop(tails);
        let mut states = self.shared.sessions.states();
        // A new state of the same session may already have replaced the entry.
        let state = states.get(&self.id);
        if state.is_some_and(|state| state.strong_count() == 0) {
            states.remove(&self.id);
        }
    }
}
