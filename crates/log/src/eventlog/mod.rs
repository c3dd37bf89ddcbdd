//! The event log: append, commit, read from the tail, retention.
//!
//! Each session belongs to a user, its owner. Readers of many sessions and of summaries name a user, and get nothing of
//! the sessions to which the user has no access.
//!
//! This module owns appended events that are not committed yet, the writer thread, the in-memory tails, the
//! read cache, the notification of readers and retention. A reader sees an event only after its commit. The
//! module must not know ACP or HTTP: event types and JSON members pass through unchanged.
//!
//! Reading order:
//!
//! 1. `notify`, `summaries` (of changed sessions), `records`, `record_pages`, `pending` (appended events), `queue` (jobs of the writer).
//! 2. `tails` (committed events in memory), `store_reader`.
//! 3. `shares` (grants), `state` (all of these together, and one session).
//! 4. `writer` (append to commit), `session` (the handle), `scope` and `reader`.
//! 5. `retention`, `alarm`.

mod alarm;
mod notify;
mod pending;
mod queue;
mod reader;
mod record_pages;
mod records;
mod retention;
mod scope;
mod session;
mod shares;
mod state;
mod store_reader;
mod summaries;
mod tails;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use crate::limits::Limits;
use crate::store::{
    Batch, CommitError, Cut, EventStore, LogUsage, Maintenance, Record, RunHeader, Table,
};
use base::shutdown::Shutdown;
use base::types::{
    Access, Epoch, Expiry, Groups, Ids, Position, SessionId, Tenant, Timestamp, UserId,
};

use alarm::Alarms;
use queue::CommitQueue;
use state::{Growth, LoadedSessions, Published, Shared};
use store_reader::{Store, StoreReader};

/// Types that readers return, so that a caller that only reads does not import the store.
pub use crate::store::{ReadError, Run};
pub use alarm::DiskSpace;
pub use notify::{Delivery, DirectSink, Notifier};
pub use queue::Closed;
pub use reader::{Item, NotReady, Reader, Start, TailCursor};
pub use record_pages::{
    MAX_SCANNED, RecordPages, Selected, from_json, newest_first_id, prune, tenant_prefix, to_json,
    user_key, user_prefix,
};
pub use records::Records;
pub use scope::GlobalScope;
pub use session::{Group, SessionLog};
pub use shares::{ChangedAccess, SharedSession};
pub use summaries::{Summary, SummaryReader};
pub use writer::Fatal;

/// The number of record writes outside sessions that may wait for their commit. Beyond it, the next write waits.
const MAX_QUEUED_WRITES: usize = 256;

#[derive(Debug, thiserror::Error)]
#[error("could not start the log writer thread")]
pub struct StartError(#[source] std::io::Error);

/// The reason why the session of another log was not committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the disk is full")]
    DiskFull,
    #[error("the file is damaged")]
    Unreadable,
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The log of all sessions. Cheap to clone. The writer stops when the last clone is dropped or on
/// [`close`](Self::close). A [`SessionLog`] alone does not keep the writer running.
#[derive(Debug, Clone)]
pub struct EventLog {
    shared: Arc<Shared>,
    _writer: Arc<WriterGuard>,
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
    pub fn start<S: EventStore + Maintenance + 'static>(
        store: Arc<S>,
        ids: Ids,
        limits: Arc<Limits>,
        shutdown: Shutdown,
        fatal: Fatal,
    ) -> Result<Self, StartError> {
        let store: Arc<dyn Store> = store;
        let shared = Arc::new(Shared {
            epoch: store.epoch(),
            expiry: Expiry::new(ids.clone(), last_time(&*store)),
            ids,
            alarms: Arc::new(Alarms::new(store.clone(), Arc::clone(&limits))),
            queue: CommitQueue::new(MAX_QUEUED_WRITES),
            published: Published::new(store.tail().last_pos),
            reads: StoreReader::new(
                Arc::clone(&store),
                shutdown.clone(),
                limits.max_store_readers,
            ),
            store,
            growth: Growth::default(),
            readers: scope::Readers::default(),
            shares: Arc::default(),
            sessions: LoadedSessions::default(),
            limits,
        });
        shared.alarms.check_disk();
        let closed = shared.queue.closed.clone();
        let alarms = Arc::clone(&shared.alarms);
        shutdown.spawn(alarm::watch(alarms, shutdown.clone(), closed));
        let tasks = shutdown.clone();
        tasks.spawn(retention::run(Arc::clone(&shared), shutdown));
        let writer = Arc::clone(&shared);
        Shutdown::spawn_thread("log-writer", move || writer::run(writer, fatal))
            .map_err(StartError)?;
        let guard = Arc::new(WriterGuard(Arc::clone(&shared)));
        Ok(Self {
            shared,
            _writer: guard,
        })
    }

    pub fn epoch(&self) -> Epoch {
        self.shared.epoch.clone()
    }

    /// The id of a new session of this log.
    pub fn new_session_id(&self) -> SessionId {
        self.shared.ids.session().in_shard(self.shard())
    }

    /// The position of the last event that every reader can see. It is a cursor for
    /// [`global_reader`](Self::global_reader): read it before you list sessions, and a reader from it misses
    /// no later change.
    pub fn position(&self) -> Position {
        Position {
            epoch: self.epoch(),
            pos: self.shared.published.last_pos.last(),
        }
    }

    /// The position of the last committed event. No reader has seen a later event, and some readers may not have
    /// seen it yet.
    pub fn committed_position(&self) -> u64 {
        self.shared.store.tail().last_pos
    }

    /// Returns a handle of a session's log. A session that the store does not know starts at seq 1. Events that the handle
    /// appends belong to `owner`.
    pub async fn session(&self, owner: &UserId, id: SessionId) -> Result<SessionLog, ReadError> {
        let state = self.shared.state(owner, id).await?;
        Ok(SessionLog { state })
    }

    /// Replays the sessions of `scope` from `start` to the tail, then follows them.
    pub async fn global_reader(
        &self,
        scope: GlobalScope,
        start: Start,
    ) -> Result<Reader, ReadError> {
        Reader::of_scope(Arc::clone(&self.shared), scope, start).await
    }

    /// Reads the summaries of the user's sessions, and of those that are shared with the user, that change from now on.
    pub fn summaries(&self, owner: &UserId) -> SummaryReader {
        self.shared.published.summaries.reader(owner)
    }

    /// Commits records that belong to no event. Returns when they are durable.
    pub async fn write(&self, records: Records) -> Result<(), Closed> {
        self.shared.queue.write(records).await
    }

    pub async fn get(&self, table: Table, key: Vec<u8>) -> Result<Option<Bytes>, ReadError> {
        let get = move |store: &dyn Store| store.get(table, &key);
        self.shared.reads.blocking(get).await
    }

    /// Returns the records of `keys` in the same order.
    pub async fn get_all(
        &self,
        table: Table,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Bytes>>, ReadError> {
        let get = move |store: &dyn Store| {
            let records = keys.iter().map(|key| store.get(table, key));
            records.collect()
        };
        self.shared.reads.blocking(get).await
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
        let scan = move |store: &dyn Store| store.scan(table, &prefix, after.as_deref(), limit);
        self.shared.reads.blocking(scan).await
    }

    /// Whether prompts are rejected at the moment: the disk is full, or its free space is below the limit. Reads
    /// still succeed.
    pub fn storage_full(&self) -> bool {
        self.shared.alarms.storage_full()
    }

    /// The free space of the disk at the last check, a few seconds ago at most.
    pub fn free_disk_bytes(&self) -> u64 {
        self.shared.alarms.free_bytes()
    }

    /// The size of the disk.
    pub fn total_disk_bytes(&self) -> u64 {
        self.shared.alarms.total_bytes()
    }

    /// The size of all stored events, from memory.
    pub fn stored_bytes(&self) -> u64 {
        self.shared.store.total_bytes()
    }

    /// The user that owns a stored session, from memory. `None` if the log has no event of the session: a deleted session has
    /// an owner until retention removes its last event.
    pub fn owner(&self, session: SessionId) -> Option<UserId> {
        self.shared.store.usage(session).map(|log| log.owner)
    }

    /// The access of a user to a session of `owner`.
    pub fn access(&self, owner: &UserId, session: SessionId, user: &UserId) -> Option<Access> {
        if owner == user {
            return Some(Access::Own);
        }
        self.shared.shares.access(session, user)
    }

    /// The grants of a session. `None` if it has none.
    pub fn shared_session(&self, session: SessionId) -> Option<SharedSession> {
        self.shared.shares.get(session)
    }

    /// The sessions of others that are shared with a user.
    pub fn shared_with(&self, user: &UserId) -> Vec<(SessionId, Access)> {
        self.shared.shares.with(user)
    }

    /// Replaces the grants of a session after their commit. `summary` is for the lists of the users that have
    /// access now: a page that shows the session reads its access again.
    pub fn set_grants(&self, session: SessionId, grants: SharedSession, summary: Option<Summary>) {
        let owner = grants.owner.clone();
        let shares = &self.shared.shares;
        let summaries = &self.shared.published.summaries;
        let before = summaries.readers_with_access(&owner, session, shares);
        shares.set(session, grants);
        let after = summaries.readers_with_access(&owner, session, shares);
        for user in before.difference(&after) {
            summaries.publish_to(user, session, Summary::Gone);
        }
        let Some(summary) = summary else { return };
        for user in &after {
            summaries.publish_to(user, session, summary.clone());
        }
    }

    /// Replaces the groups of all users. The lists of users that lose a session forget it. Returns what users lose and gain.
    pub fn set_groups(&self, groups: Groups) -> Vec<ChangedAccess> {
        let changed = self.shared.shares.set_groups(groups);
        for lost in changed.iter().filter(|change| change.access.is_none()) {
            self.publish_summary(&lost.user, lost.session, Summary::Gone);
        }
        changed
    }

    /// Whether a user of the tenant is in the group.
    pub fn has_group(&self, tenant: &Tenant, name: &str) -> bool {
        self.shared.shares.has_group(tenant, name)
    }

    /// Publishes a summary to the lists of one user.
    pub fn publish_summary(&self, user: &UserId, session: SessionId, summary: Summary) {
        let summaries = &self.shared.published.summaries;
        summaries.publish_to(user, session, summary);
    }

    /// A receiver that is notified after each change of a grant or of groups.
    pub fn watch_grants(&self) -> watch::Receiver<u64> {
        self.shared.shares.watch()
    }

    /// The number of stored sessions, from memory.
    pub fn session_count(&self) -> usize {
        self.shared.store.session_count()
    }

    /// The usage of the largest logs, the largest first, from memory. Reads the usage of all logs, so it may take milliseconds.
    pub fn largest(&self, limit: usize) -> Vec<LogUsage> {
        let sizes = RefCell::new(BinaryHeap::new());
        self.shared.store.usages(1, &|log| {
            if log.session != SessionId::AUDIT {
                let mut sizes = sizes.borrow_mut();
                sizes.push(Reverse((log.bytes, log.session)));
                if sizes.len() > limit {
                    sizes.pop();
                }
            }
            false
        });
        let largest = sizes.into_inner().into_sorted_vec().into_iter();
        // A session may have been deleted.
        let usage = |Reverse((_, session))| self.shared.store.usage(session);
        largest.filter_map(usage).collect()
    }

    /// The random number of the store, which the ids of its new sessions carry.
    pub fn shard(&self) -> u16 {
        self.shared.store.shard()
    }

    /// Whether commits find space on the disk; the receiver is notified of changes.
    pub fn disk_space(&self) -> watch::Receiver<DiskSpace> {
        self.shared.alarms.disk_space()
    }

    /// Returns up to `limit` sessions whose last event is older than `retention.max_age`. Retention deletes all
    /// their runs except the last. The caller erases the sessions.
    pub fn expired(&self, limit: usize) -> Vec<(UserId, SessionId)> {
        let old = self.shared.expired_before(self.shared.limits.max_log_age);
        let is_expired = |log: &LogUsage| log.last_time < old && log.session != SessionId::AUDIT;
        let expired = self.shared.store.usages(limit, &is_expired);
        let ids = |log: LogUsage| (log.owner, log.session);
        expired.into_iter().map(ids).collect()
    }

    /// The last of the oldest events of a log that are older than `max_age` or exceed `max_bytes`. Later calls may
    /// return further events. The last run is always kept.
    pub async fn excess_of(
        &self,
        session: SessionId,
        max_age: Duration,
        max_bytes: u64,
    ) -> Result<Option<u64>, ReadError> {
        retention::excess_of(&self.shared, session, max_age, max_bytes).await
    }

    /// Deletes the events of a log up to the seq `through`, except the last run. Returns false if nothing was
    /// deleted.
    pub async fn prune(&self, session: SessionId, through: u64) -> bool {
        retention::prune(&self.shared, vec![Cut { session, through }]).await
    }

    /// Erases a log that belongs to no session: a leftover, or a damaged log.
    pub async fn erase_orphan(&self, session: SessionId) {
        let mut batch = Batch::default();
        batch.erase.push(session);
        let erase = move |store: &dyn Store| store.commit(&batch);
        self.shared.queue.run_maintenance(erase).await;
    }

    /// Runs the commit of a session from another log between two commits of the writer, and publishes it. `commit` receives the
    /// time of the commit, and returns `None` if the session cannot be read.
    pub async fn import(
        &self,
        owner: &UserId,
        session: SessionId,
        summary: Summary,
        commit: impl FnOnce(Timestamp) -> Result<Option<Vec<RunHeader>>, CommitError> + Send + 'static,
    ) -> Result<(), ImportError> {
        let shared = Arc::clone(&self.shared);
        let owner = owner.clone();
        let import = move |_: &dyn Store| {
            let runs = match commit(shared.expiry.latest_now()) {
                Err(CommitError::Full) => return Ok(Err(ImportError::DiskFull)),
                committed => committed?,
            };
            let Some(runs) = runs else {
                return Ok(Err(ImportError::Unreadable));
            };
            let bytes = runs.iter().map(|run| run.bytes).sum();
            shared.growth.add(bytes, &shared.limits);
            let summaries = &shared.published.summaries;
            summaries.publish_to(&owner, session, summary);
            if let Some(last) = runs.last() {
                shared.published.last_pos.advance(last.last_pos);
            }
            Ok(Ok(()))
        };
        let imported = self.shared.queue.run_maintenance(import).await;
        imported.unwrap_or(Err(Closed.into()))
    }

    /// The maximum stored size of a session's log.
    pub fn max_session_bytes(&self) -> u64 {
        self.shared.limits.max_session_log_bytes
    }

    /// The clock for expiry, which tolerates jumps of the wall clock.
    pub fn expiry(&self) -> &Expiry {
        &self.shared.expiry
    }

    /// Commits all appended events, then stops the writer. Nothing is committed afterwards.
    pub async fn close(&self) {
        self.shared.queue.close();
        self.shared.queue.closed.cancelled().await;
    }
}

/// The commit time of the last run. [`Expiry`] uses it to detect a wall clock that jumped.
fn last_time(store: &dyn Store) -> Option<Timestamp> {
    let last = Cell::new(0);
    store.usages(1, &|log| {
        last.set(log.last_pos.max(last.get()));
        false
    });
    let before = last.get().checked_sub(1)?;
    let heads = store.run_headers(None, before, 1).ok()?;
    heads.first().map(|head| head.time)
}
