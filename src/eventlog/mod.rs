//! Append, commit, tail and read: the log that every reader follows.
//!
//! It owns what is appended and not committed, the writer's thread, the tails in memory and retention. A reader sees
//! an event after its commit, never before. It knows no ACP word and no HTTP: kinds and members pass as they are.

mod alarm;
mod global_reader;
mod event;
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

/// What readers give: those who only read need no word of the store.
pub use crate::store::{Frame, ReadError, Run};
pub use alarm::{Alarm, DiskSpace};
pub use event::{Event, Framer, Members};
pub use global_reader::{GlobalItem, GlobalReader, GlobalScope, GlobalStart};
pub use notify::{Delivery, DirectSink, Notifier};
pub use reader::{Item, NotReady, Reader, ResetReason, Start, TailCursor};
pub use records::Records;
pub use session::{Closed, SessionLog};
pub use writer::Fatal;

#[derive(Debug, thiserror::Error)]
#[error("the log's writer did not start")]
pub struct StartError(#[source] std::io::Error);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Nothing was written.
    #[error("a record is not what was expected (number {index})")]
    Conflict { index: usize },
    #[error("the log is closed")]
    Closed,
}

/// The log of all sessions. Cheap to clone; the writer ends with the last clone, or by [`close`](Self::close): a
/// session's handle alone does not keep it.
#[derive(Debug, Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
    _writer: Arc<WriterGuard>,
}

/// What every part of the log holds.
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
    /// The place of the last event that is durable and told.
    last_pos: Watermark,
    tails: Mutex<Tails>,
    read_cache: Mutex<ReadCache>,
    growth: Growth,
    reader_registry: ReaderRegistry,
    /// Ends of damaged parts that were told of.
    reported_damage: Mutex<HashSet<(SessionId, u64)>>,
    sessions: Mutex<HashMap<SessionId, Weak<State>>>,
    /// One session at a time is read in, so that no two have a state of the same one.
    opening: tokio::sync::Mutex<()>,
    reads: Arc<Semaphore>,
    writes: Semaphore,
    /// The writer has ended: nothing more is committed.
    closed: CancellationToken,
}

/// Ends the writer when nobody can give it work.
#[derive(Debug)]
struct WriterGuard(Arc<Shared>);

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.0.queue.close();
    }
}

impl EventLog {
    /// Starts the writer's thread, retention and the watch over the disk. `fatal` is called when the store failed and the process has to end. Call it in a
    /// tokio runtime.
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
            reads: Arc::new(Semaphore::new(limits.store_readers.max(1))),
            writes: Semaphore::new(limits.writes.max(1)),
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

    /// The place of the last event that every reader can see: a cursor for [`reader_all`](Self::reader_all). Whoever
    /// takes it before a look at sessions misses nothing after that look.
    pub fn position(&self) -> Position {
        Position { epoch: self.epoch(), pos: self.shared.last_pos.last() }
    }

    /// A handle on a session's log; a session that the store does not know begins at seq 1.
    pub async fn session(&self, tenant: &Tenant, id: SessionId) -> Result<SessionLog, ReadError> {
        if let Some(state) = self.shared.state(id) {
            return Ok(SessionLog { state });
        }
        let _alone = self.shared.opening.lock().await;
        if let Some(state) = self.shared.state(id) {
            return Ok(SessionLog { state });
        }
        // A state that is gone has nothing pending: the writer's queue would hold it.
        let store = Arc::clone(&self.shared.store);
        let ends = self.shared.blocking(move || store.bounds(id)).await?;
        let last_seq = ends.map_or(0, |log| log.last_seq);
        let erased = last_seq > 0 && self.get(Table::Tombstone, id.as_bytes().to_vec()).await?.is_some();
        let state = Arc::new(State::new(Arc::clone(&self.shared), tenant.clone(), id, last_seq, erased));
        self.shared.sessions().insert(id, Arc::downgrade(&state));
        Ok(SessionLog { state })
    }

    /// Commits records that belong to no event, and returns when they are durable.
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

    /// The records of these keys, in their order.
    pub async fn get_all(&self, table: Table, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Bytes>>, ReadError> {
        let store = Arc::clone(&self.shared.store);
        self.shared.blocking(move || keys.iter().map(|key| store.get(table, key)).collect()).await
    }

    /// Records whose key begins with `prefix` and is greater than `after`, by key.
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

    /// What keeps the log from taking more; prompts are refused while it stands.
    pub fn alarm(&self) -> Option<Alarm> {
        self.shared.alarms.get()
    }

    /// Whether commits find room, as that changes.
    pub fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.shared.alarms.disk_space()
    }

    /// Sessions whose last event is older than the log's age, the first `limit` of them. Their events are dropped
    /// already, but for the last run; who owns a session erases it.
    pub fn expired(&self, limit: usize) -> Vec<(Tenant, SessionId)> {
        let old = self.shared.expired_before(self.shared.limits.log_age);
        let expired = self.shared.store.usages(limit, &|log| log.last_time < old);
        expired.into_iter().map(|log| (log.tenant, log.session)).collect()
    }

    /// Erases a log that belongs to no session: what was left of one, or is damaged.
    pub async fn erase_orphan(&self, session: SessionId) {
        let batch = Batch { erase: vec![session], ..Batch::default() };
        self.shared.run_maintenance(move |store| store.commit(&batch)).await;
    }

    /// How late it is, for what ends by its age.
    pub fn expiry(&self) -> &Expiry {
        &self.shared.expiry
    }

    /// Commits what was appended, then ends the writer. Nothing is committed afterwards.
    pub async fn close(&self) {
        self.shared.queue.close();
        self.shared.closed.cancelled().await;
    }
}

/// When the last run was written. What was written before, by a clock that was ahead, says nothing of it.
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

    /// A state is gone; another of the same session may be there already.
    fn remove_state(&self, id: SessionId) {
        let mut sessions = self.sessions();
        if sessions.get(&id).is_some_and(|state| state.strong_count() == 0) {
            sessions.remove(&id);
        }
    }

    /// Tells the operator of events that cannot be given, once for each part.
    fn report_damage(&self, session: SessionId, first_seq: u64, last_seq: u64) {
        /// Of so much damage no more is told.
        const MAX_REPORTED: usize = 4096;
        let mut known = lock_or_abort(self.reported_damage.lock());
        if known.len() >= MAX_REPORTED || !known.insert((session, last_seq)) {
            return;
        }
        drop(known);
        tracing::error!(%session, first_seq, last_seq, "events are damaged on disk: their readers are reset past them");
    }

    /// What a session's log is, for who begins in the middle of it: one that nobody holds is compared with what is
    /// stored.
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

    /// What was there at this time is older than `age`.
    fn expired_before(&self, age: Duration) -> Timestamp {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.expiry.earliest_now().as_millis().saturating_sub(age))
    }

    /// Has the writer do a piece of work between two commits; `None` when it could not.
    async fn run_maintenance<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn EventStore) -> Result<T, CommitError> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.queue.push_maintenance(MaintenanceJob(Box::new(move |store| {
            // Whoever no longer waits does not want to know.
            done.send(job(store)?).ok();
            Ok(())
        })));
        result.await.ok()
    }

    /// Reads the store, a few at a time.
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
