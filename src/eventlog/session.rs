//! One session's log: append, commits, and where its readers begin.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::shutdown::lock_or_abort;
use crate::store::{ReadError, Run, Table};
use crate::types::{EventId, SessionId, Tenant};

use super::notify::Watermark;
use super::pending::Pending;
use super::reader::{Reader, Start};
use super::records::Records;
use super::tails::SessionTail;
use super::{DiskSpace, Event, Shared};

/// The log stopped: what was asked for will not be committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log is closed")]
pub struct Closed;

/// What all handles of a session's log share. It leaves memory with the last of them.
#[derive(Debug)]
pub(super) struct State {
    pub(super) shared: Arc<Shared>,
    pub(super) tenant: Tenant,
    pub(super) id: SessionId,
    pub(super) committed: Watermark,
    pending: Mutex<Pending>,
    tail: Mutex<SessionTail>,
    /// One reader at a time reads the store; others may find what they want in its pages then.
    reads: Arc<Semaphore>,
    /// The seq of the last event of an erased session, once it is committed; else 0.
    erased_at: AtomicU64,
}

impl State {
    pub(super) fn new(
        shared: Arc<Shared>,
        tenant: Tenant,
        id: SessionId,
        last_seq: u64,
        erased: bool,
    ) -> Self {
        Self {
            pending: Mutex::new(Pending::new(&shared.epoch, id, last_seq, erased)),
            shared,
            tenant,
            id,
            committed: Watermark::new(last_seq),
            tail: Mutex::default(),
            reads: Arc::new(Semaphore::new(1)),
            erased_at: AtomicU64::new(if erased { last_seq } else { 0 }),
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

    /// What the writer does once a run is committed: tails move. Readers wake by [`Told::tell`].
    pub(super) fn publish(self: &Arc<Self>, run: Run, erase: bool) {
        let last_seq = run.last_seq;
        let limits = &self.shared.limits;
        let dropped = self.tail().push(run.clone(), limits.tail_bytes);
        let evicted = {
            let mut tails = self.shared.tails();
            for pos in dropped {
                tails.remove(pos);
            }
            tails.push(Arc::downgrade(self), run, limits.tails_bytes)
        };
        for (state, pos) in evicted {
            if let Some(state) = state.upgrade() {
                state.tail().evict(pos);
            }
        }
        if erase {
            self.erased_at.store(last_seq, Ordering::Release);
            self.shared.read_cache().invalidate(self.id);
        }
    }

    pub(super) async fn read_permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.reads).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// What others read of the store already.
    pub(super) fn cached_after(&self, seq: u64) -> Option<Run> {
        self.shared.read_cache().after(self.id, seq)
    }

    /// Keeps what was read for others.
    pub(super) fn cache_runs(&self, runs: &[Run]) {
        let mut pages = self.shared.read_cache();
        // Under the lock, for what went since it was read: the store knows of that before it is forgotten here.
        let first = self.shared.store.usage(self.id).map_or(u64::MAX, |log| log.first_seq);
        for run in runs.iter().filter(|run| run.first_seq >= first) {
            pages.add(run.clone(), self.shared.limits.pages_bytes);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let places: Vec<u64> = self.tail().positions().collect();
        let mut tails = self.shared.tails();
        for pos in places {
            tails.remove(pos);
        }
        drop(tails);
        self.shared.remove_state(self.id);
    }
}

/// A handle on one session's log. Cheap to clone; the session's state stays in memory while one is held.
#[derive(Debug, Clone)]
pub struct SessionLog {
    pub(super) state: Arc<State>,
}

impl SessionLog {
    pub fn session(&self) -> SessionId {
        self.state.id
    }

    pub fn tenant(&self) -> &Tenant {
        &self.state.tenant
    }

    /// Gives the event its seq and frames it into the session's pending run. It never waits. The records are
    /// committed together with the event. After [`erase`](Self::erase) nothing is appended.
    pub fn append(&self, event: &Event<'_>, records: Records) -> u64 {
        debug_assert!(records.expect.is_empty(), "only EventLog::write compares");
        let shared = &self.state.shared;
        let now = shared.ids.now();
        let mut pending = self.state.pending();
        let seq = pending.append(event, records, now, shared.limits.run_bytes);
        self.enter_queue(pending);
        seq
    }

    /// Several events without records: one look at the clock, one lock, one place in the writer's line.
    pub fn append_all<'a>(&self, events: impl Iterator<Item = Event<'a>> + Clone) {
        let shared = &self.state.shared;
        let now = shared.ids.now();
        let mut pending = self.state.pending();
        pending.append_all(events, now, shared.limits.run_bytes);
        self.enter_queue(pending);
    }

    /// Records in the session's next commit, without an event. After [`erase`](Self::erase) they are dropped: what is
    /// gone stays gone.
    pub fn put(&self, records: Records) {
        debug_assert!(records.expect.is_empty(), "only EventLog::write compares");
        if records.is_empty() {
            return;
        }
        let mut pending = self.state.pending();
        pending.put(records);
        self.enter_queue(pending);
    }

    /// Appends the last event and erases all earlier ones in the same commit; `records` go with it. What was appended
    /// before is still committed first, and given to who reads from the tail. Readers end after the last event; one that lags goes straight to it.
    pub fn erase(&self, last: &Event<'_>, records: Records) -> u64 {
        let now = self.state.shared.ids.now();
        let since = self.state.shared.expiry.latest_now().as_millis();
        let records = records.put(Table::Tombstone, *self.state.id.as_bytes(), since.to_be_bytes().to_vec());
        let mut pending = self.state.pending();
        let seq = pending.erase(last, records, now);
        self.enter_queue(pending);
        seq
    }

    fn enter_queue(&self, mut pending: MutexGuard<'_, Pending>) {
        let enters = pending.enter_queue();
        drop(pending);
        if enters {
            self.state.shared.queue.push_session(Arc::clone(&self.state));
        }
    }

    /// The seq of the last event that was appended.
    pub fn appended(&self) -> u64 {
        self.state.pending().appended()
    }

    /// The seq of the last event that is durable.
    pub fn committed(&self) -> u64 {
        self.state.committed.last()
    }

    /// Bytes that wait for their commit. The owner stops taking input above `limits.pending_bytes`.
    pub fn pending_bytes(&self) -> usize {
        self.state.pending().bytes()
    }

    /// The committed seq, as it moves.
    pub fn commits(&self) -> watch::Receiver<u64> {
        self.state.committed.watch()
    }

    /// Returns when the event `seq` is durable.
    pub async fn wait(&self, seq: u64) -> Result<(), Closed> {
        let mut commits = self.commits();
        tokio::select! {
            biased;
            reached = commits.wait_for(|committed| *committed >= seq) => reached.map(drop).map_err(|_| Closed),
            () = self.state.shared.closed.cancelled() => {
                if self.committed() >= seq { Ok(()) } else { Err(Closed) }
            }
        }
    }

    /// Returns true when the event `seq` is durable, and false when the disk takes no commits.
    pub async fn wait_or_full(&self, seq: u64) -> Result<bool, Closed> {
        let mut room = self.state.shared.alarms.disk_space();
        let full = async move { room.wait_for(|room| *room == DiskSpace::Exhausted).await.map(drop) };
        tokio::select! {
            biased;
            outcome = self.wait(seq) => outcome.map(|()| true),
            _ = full => Ok(self.committed() >= seq),
        }
    }

    pub fn id(&self, seq: u64) -> EventId {
        EventId { epoch: self.state.shared.epoch.clone(), seq }
    }

    /// Whether anybody reads this session's log at this moment.
    pub fn has_reader(&self) -> bool {
        self.state.shared.reader_registry.has_reader(&self.state.tenant, self.state.id)
    }

    /// Replay from `start` to the tail, then follow.
    pub fn reader(&self, start: Start) -> Reader {
        Reader::new(Arc::clone(&self.state), start)
    }

    /// Committed events after `after`, about `max_bytes`; empty at the tail. It begins later when older events were
    /// dropped or are damaged.
    pub async fn read(&self, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError> {
        let committed = self.committed();
        let mut runs = self.read_tail(after, max_bytes);
        let mut cursor = after;
        while runs.is_empty() && cursor < committed {
            let (store, session) = (Arc::clone(&self.state.shared.store), self.state.id);
            match self.state.shared.blocking(move || store.read(session, cursor, max_bytes)).await {
                Err(ReadError::Corrupt { session, first_seq, last_seq, after }) => {
                    self.state.shared.report_damage(session, first_seq, last_seq);
                    cursor = after;
                }
                read => {
                    runs = read?;
                    break;
                }
            }
        }
        Ok(runs.into_iter().filter_map(|run| run.through(committed)).collect())
    }

    fn read_tail(&self, after: u64, max_bytes: usize) -> Vec<Run> {
        let (mut cursor, mut bytes) = (after, 0);
        let mut runs = Vec::new();
        let tail = self.state.tail();
        while bytes < max_bytes || runs.is_empty() {
            let Some(run) = tail.after(cursor) else { break };
            cursor = run.last_seq;
            bytes += run.frames.len();
            runs.push(run);
        }
        runs
    }
}
