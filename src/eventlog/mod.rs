//! The event log: append, commit, read from the tail, retention.
//!
//! This module owns appended events that are not committed yet, the writer thread, the in-memory tails, the
//! read cache, the notification of readers and retention. A reader sees an event only after its commit. The
//! module must not know ACP or HTTP: event types and JSON members pass through unchanged.
//!
//! Reading order: `pending` and `writer` (append to commit), `session` and `tails` (published runs),
//! `notify` (waking readers), `reader` and `global_reader` (replay and tail), `retention` and `alarm`.

mod alarm;
mod global_reader;
mod reader_registry;
mod read_cache;
mod pending;
mod reader;
mod records;
mod retention;
mod session;
mod tails;
mod notify;
mod writer;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::shutdown::{Shutdown, lock_or_abort};
use crate::store::{Batch, CommitError, EventStore, LogUsage, Record, Table};
use crate::types::{Epoch, Expiry, Ids, Limits, Position, SessionId, Tenant, Timestamp};

use alarm::Alarms;
use notify::Watermark;
use read_cache::ReadCache;
use reader_registry::ReaderRegistry;
use retention::Growth;
use session::State;
use tails::Tails;
use writer::{CommitQueue, MaintenanceJob, Write};

/// Types that readers return, so that a caller that only reads does not import the store.
pub use crate::store::{ReadError, Run};
pub use alarm::{Alarm, DiskSpace};
pub use global_reader::{GlobalItem, GlobalReader, GlobalScope, GlobalStart};
pub use notify::{Delivery, DirectSink, Notifier};
pub use reader::{Item, NotReady, Reader, Start, TailCursor};
pub use records::Records;
pub use session::{Closed, SessionLog};
pub use writer::Fatal;

#[derive(Debug, thiserror::Error)]
#[error("could not start the log writer thread")]
pub struct StartError(#[source] std::io::Error);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A record differs from its expected value. Nothing was written.
    #[error("record {index} of the write does not have its expected value; nothing was written")]
    Conflict { index: usize },
    #[error("the log is closed: nothing more is committed")]
    Closed,
}

/// The log of all sessions. Cheap to clone. The writer stops when the last clone is dropped or on
/// [`close`](Self::close). A [`SessionLog`] alone does not keep the writer running.
#[derive(Debug, Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
    _writer: Arc<WriterGuard>,
}

/// State that all parts of the log share.
#[derive(Debug)]
struct Shared {
    store: Arc<dyn EventStore>,
    epoch: Epoch,
    ids: Ids,
    expiry: Expiry,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    queue: CommitQueue,
    alarms: Alarms,
    /// The position of the last event that is durable and published to readers.
    last_pos: Watermark,
    tails: Mutex<Tails>,
    read_cache: Mutex<ReadCache>,
    growth: Growth,
    reader_registry: ReaderRegistry,
    /// Last seqs of the damaged ranges that were logged, so that each range is logged once.
    reported_damage: Mutex<HashSet<(SessionId, u64)>>,
    sessions: Mutex<HashMap<SessionId, Weak<State>>>,
    /// Serializes the loading of session states, so that a session never has two.
    opening: tokio::sync::Mutex<()>,
    reads: Arc<Semaphore>,
    writes: Semaphore,
    /// Cancelled when the writer has stopped. Nothing is committed afterwards.
    closed: CancellationToken,
}

/// Stops the writer when the last [`EventLog`] is dropped.
#[derive(Debug)]
struct WriterGuard(Arc<Shared>);

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl EventLog {
    /// Starts the writer thread, retention and the disk monitor. Must be called in a tokio runtime.
    ///
    /// The writer calls `fatal` once if the store fails. The process must then exit.
    pub fn start(
        store: Arc<dyn EventStore>,
        ids: Ids,
        limits: Arc<Limits>,
        shutdown: Shutdown,
        fatal: Fatal,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(Shared {
            epoch: store.epoch(),
            last_pos: Watermark::new(store.tail().last_pos),
            expiry: Expiry::starting_from(ids.clone(), &limits, last_time(&*store)),
            store,
            ids,
            shutdown,
            queue: CommitQueue::default(),
            alarms: Alarms::default(),
            tails: Mutex::default(),
            read_cache: Mutex::default(),
            growth: Growth::default(),
            reader_registry: ReaderRegistry::default(),
            reported_damage: Mutex::default(),
            sessions: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            reads: Arc::new(Semaphore::new(limits.max_store_readers.max(1))),
            writes: Semaphore::new(limits.max_queued_writes.max(1)),
            closed: CancellationToken::new(),
            limits,
        });
        if shared.alarms.check_disk(&*shared.store, &shared.limits) {
            shared.shutdown.spawn(alarm::watch(Arc::clone(&shared)));
        }
        shared.shutdown.spawn(retention::run(Arc::clone(&shared)));
        let writer = Arc::clone(&shared);
        Shutdown::spawn_thread("log-writer", move || writer::run(writer, fatal)).map_err(StartError)?;
        Ok(Self { _writer: Arc::new(WriterGuard(Arc::clone(&shared))), shared })
    }

    pub fn epoch(&self) -> Epoch {
        self.shared.epoch.clone()
    }

    /// The position of the last event that every reader can see. It is a cursor for
    /// [`global_reader`](Self::global_reader): read it before you list sessions, and a reader from it misses
    /// no later change.
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch(), pos: self.shared.last_pos.last() }
    }

    /// Returns a handle of a session's log. A session that the store does not know starts at seq 1.
    pub async fn session(&self, tenant: &Tenant, id: SessionId) -> Result<SessionLog, ReadError> {
        if let Some(state) = self.shared.state(id) {
            return Ok(SessionLog { state });
        }
        let _alone = self.shared.opening.lock().await;
        if let Some(state) = self.shared.state(id) {
            return Ok(SessionLog { state });
        }
        // A freed state has no pending events: the writer's queue holds a reference while it does.
        let store = Arc::clone(&self.shared.store);
        let ends = self.shared.blocking(move || store.bounds(id)).await?;
        let last_seq = ends.map_or(0, |log| log.last_seq);
        let erased = last_seq > 0 && self.get(Table::Tombstone, id.as_bytes().to_vec()).await?.is_some();
        let state = Arc::new(State::new(Arc::clone(&self.shared), tenant.clone(), id, last_seq, erased));
        self.shared.sessions().insert(id, Arc::downgrade(&state));
        Ok(SessionLog { state })
    }

    /// Commits records that belong to no event. Returns when they are durable.
    pub async fn write(&self, records: Records) -> Result<(), WriteError> {
        let _place = self.shared.writes.acquire().await.map_err(|_| WriteError::Closed)?;
        let (done, written) = oneshot::channel();
        self.shared.queue.push_write(Write { records, done });
        written.await.unwrap_or(Err(WriteError::Closed))
    }

    pub async fn get(&self, table: Table, key: Vec<u8>) -> Result<Option<Bytes>, ReadError> {
        let store = Arc::clone(&self.shared.store);
        self.shared.blocking(move || store.get(table, &key)).await
    }

    /// Returns the records of `keys` in the same order.
    pub async fn get_all(&self, table: Table, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Bytes>>, ReadError> {
        let store = Arc::clone(&self.shared.store);
        self.shared.blocking(move || keys.iter().map(|key| store.get(table, key)).collect()).await
    }

    /// Returns up to `limit` records whose key starts with `prefix` and is greater than `after`, ordered by
    /// key.
    pub async fn scan(
        &self,
        table: Table,
        prefix: Vec<u8>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        let store = Arc::clone(&self.shared.store);
        self.shared.blocking(move || store.scan(table, &prefix, after.as_deref(), limit)).await
    }

    /// The reason why prompts are rejected at the moment, if there is one.
    pub fn alarm(&self) -> Option<Alarm> {
        self.shared.alarms.get()
    }

    /// Whether commits find space on the disk; the receiver is notified of changes.
    pub fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.shared.alarms.disk_space()
    }

    /// Returns up to `limit` sessions whose last event is older than `retention.max_age`. Retention has already
    /// deleted all their runs except the last. The session's owner erases the session.
    pub fn expired(&self, limit: usize) -> Vec<(Tenant, SessionId)> {
        let old = self.shared.expired_before(self.shared.limits.max_log_age);
        let expired = self.shared.store.usages(limit, &|log| log.last_time < old);
        expired.into_iter().map(|log| (log.tenant, log.session)).collect()
    }

    /// Erases a log that belongs to no session: a leftover, or a damaged log.
    pub async fn erase_orphan(&self, session: SessionId) {
        let batch = Batch { erase: vec![session], ..Batch::default() };
        self.shared.run_maintenance(move |store| store.commit(&batch)).await;
    }

    /// The clock for expiry, which tolerates jumps of the wall clock.
    pub fn expiry(&self) -> &Expiry {
        &self.shared.expiry
    }

    /// Commits all appended events, then stops the writer. Nothing is committed afterwards.
    pub async fn close(&self) {
        self.shared.queue.close();
        self.shared.closed.cancelled().await;
    }
}

/// The commit time of the last run. [`Expiry`] uses it to detect a wall clock that jumped.
fn last_time(store: &dyn EventStore) -> Option<Timestamp> {
    let last = Cell::new(0);
    store.usages(1, &|log| {
        last.set(log.last_pos.max(last.get()));
        false
    });
    let heads = store.run_headers(None, last.get().checked_sub(1)?, 1).ok()?;
    heads.first().map(|head| head.time)
}

impl Shared {
    fn tails(&self) -> MutexGuard<'_, Tails> {
        lock_or_abort(self.tails.lock())
    }

    fn read_cache(&self) -> MutexGuard<'_, ReadCache> {
        lock_or_abort(self.read_cache.lock())
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<State>>> {
        lock_or_abort(self.sessions.lock())
    }

    fn state(&self, id: SessionId) -> Option<Arc<State>> {
        self.sessions().get(&id).and_then(Weak::upgrade)
    }

    /// Removes the entry of a freed state. A new state of the same session may already have replaced it.
    fn remove_state(&self, id: SessionId) {
        let mut sessions = self.sessions();
        if sessions.get(&id).is_some_and(|state| state.strong_count() == 0) {
            sessions.remove(&id);
        }
    }

    /// Logs a damaged range of events, once for each range.
    fn report_damage(&self, session: SessionId, first_seq: u64, last_seq: u64) {
        /// Limits the memory for logged ranges. Further damage is not logged.
        const MAX_REPORTED: usize = 4096;
        let mut known = lock_or_abort(self.reported_damage.lock());
        if known.len() >= MAX_REPORTED || !known.insert((session, last_seq)) {
            return;
        }
        drop(known);
        tracing::error!(%session, first_seq, last_seq, "events are damaged on disk: readers skip them with a reset");
    }

    /// The bounds of a session's log for a reader that starts inside it. If no state of the session is
    /// loaded, the bounds in memory are first compared with the stored runs.
    async fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        let _alone = self.opening.lock().await;
        if self.state(session).is_some() {
            return Ok(self.store.usage(session));
        }
        let store = Arc::clone(&self.store);
        self.blocking(move || store.bounds(session)).await
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.reads).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Events from before this time are older than `age`.
    fn expired_before(&self, age: Duration) -> Timestamp {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.expiry.earliest_now().as_millis().saturating_sub(age))
    }

    /// Runs a maintenance job on the writer thread between two commits. Returns `None` if the job failed or
    /// the log is closed.
    async fn run_maintenance<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn EventStore) -> Result<T, CommitError> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.queue.push_maintenance(MaintenanceJob(Box::new(move |store| {
            // The caller may have stopped waiting.
            done.send(job(store)?).ok();
            Ok(())
        })));
        result.await.ok()
    }

    /// Runs a blocking read of the store. A semaphore limits the number of concurrent reads.
    async fn blocking<T, F>(&self, work: F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, ReadError> + Send + 'static,
    {
        let permit = self.permit().await;
        let done = self.shutdown.spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        done.await.map_err(|lost| ReadError::Failed(lost.into()))?
    }
}
