//! The port for runs of events.

use std::error::Error;
use std::fmt::Debug;
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::run::{Run, RunHeader};
use crate::limits::Limits;
use base::types::{Epoch, SessionId, Timestamp, UserId};

/// A store of events. Its commits contain runs of events and records.
///
/// `read`, `read_all` and `bounds` block. The other methods answer from memory. All methods may be called from
/// any thread.
pub trait EventStore: RecordStore {
    /// The epoch of all event ids. It changes only if the history may differ from the one that clients saw.
    fn epoch(&self) -> Epoch;

    /// The random number of the store, which the ids of its new sessions carry.
    fn shard(&self) -> u16;

    /// Returns events of a session after `after`, ascending: about `max_bytes`, and at least one run if one
    /// exists.
    ///
    /// The first run is cut to begin after `after`. If those events were pruned, the result begins with the
    /// oldest stored event. The result ends before a damaged run. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read(&self, session: SessionId, after: u64, max_bytes: usize)
    -> Result<Vec<Run>, ReadError>;

    /// Returns events after position `after_pos` of all sessions that `wanted` accepts, ordered by position.
    ///
    /// The read may stop before `max_bytes`, or before the first match. Continue from `through`. It stops
    /// before a damaged run of an accepted session. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        filter: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError>;

    /// Bounds and size of a session's log. `None` if the store has no event of the session.
    fn usage(&self, session: SessionId) -> Option<LogUsage>;

    /// Like [`usage`](Self::usage), but verified against the stored runs, and blocking. Must be called before
    /// a log that no state owns is continued. A wrong bound in memory is corrected, so that no seq is used
    /// twice.
    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError>;

    /// The first and last position of the whole store.
    fn tail(&self) -> Tail;
}

/// The runs of one read, and the last position or seq that the read covered.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub through: u64,
}

/// The bounds of the store. A cursor at `first_pos - 1` or later misses only events of erased sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    pub first_pos: u64,
    pub last_pos: u64,
}

/// The user and the bounds of a session's log, its stored bytes and runs, and the time of its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogUsage {
    pub session: SessionId,
    pub owner: UserId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub first_pos: u64,
    pub last_pos: u64,
    pub bytes: u64,
    pub runs: u64,
    pub last_time: Timestamp,
}

/// The kind of a record. The numbers are stored on disk and must never be reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Table {
    Session = 1,
    SessionIndex = 2,
    Prompt = 3,
    Request = 4,
    Fold = 5,
    Idempotency = 6,
    Open = 7,
    Tombstone = 8,
    Key = 9,
    Meta = 10,
    Ticket = 11,
    AgentSession = 12,
    Terminal = 13,
    SessionMetadata = 14,
    Audit = 15,
    /// The position of a session in the output of a member's process.
    OutputPosition = 16,
    Member = 17,
    Task = 18,
    TaskChild = 19,
    Webhook = 20,
    WebhookDelivery = 21,
    /// The position up to which the events of a user have their deliveries.
    WebhookPosition = 22,
    OpenTask = 24,
    /// The sessions of the conversations of chat clients.
    Conversation = 25,
    /// The sessions of each user in the order of their creation, without a value.
    CreatedSession = 26,
    /// The grants of each shared session.
    Grant = 27,
    /// The users with a role, and those that a program created.
    User = 28,
}

/// A record that a commit writes or expects. `None` as the value: there is no record with this key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordState {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Option<Bytes>,
}

impl RecordState {
    pub fn present(table: Table, key: impl Into<Vec<u8>>, value: impl Into<Bytes>) -> Self {
        Self {
            table,
            key: key.into(),
            value: Some(value.into()),
        }
    }

    pub fn absent(table: Table, key: impl Into<Vec<u8>>) -> Self {
        Self {
            table,
            key: key.into(),
            value: None,
        }
    }
}

/// A record that a scan returns: key and value.
pub type Record = (Vec<u8>, Bytes);

/// A store of small records.
///
/// The methods block and may be called from any thread.
pub trait RecordStore: Send + Sync + Debug {
    /// Commits a batch atomically: records, and runs of events if the batch has any. The batch is durable when
    /// this returns. The result has the header of each run, in the order of the batch. The order of changes is:
    /// compare expected records, erase logs, append runs, write records.
    ///
    /// Commits are serialized. After [`CommitError::Failed`] the process must exit.
    fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError>;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError>;

    /// Returns up to `limit` records whose key starts with `prefix` and is greater than `after`, ordered by
    /// key.
    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError>;
}

/// The changes of one commit.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub expect: Vec<RecordState>,
    /// Sessions whose runs are all deleted before `runs` are appended.
    pub erase: Vec<SessionId>,
    pub runs: Vec<Run>,
    /// The records after the commit. The last state of a key counts.
    pub records: Vec<RecordState>,
    /// The commit time of the runs. `None`: the store reads its own clock.
    pub time: Option<Timestamp>,
}

/// Keeps a store within its limits.
///
/// The methods block, except `usages`, `session_count` and `total_bytes`, which answer from memory. They may be called
/// from any thread.
pub trait Maintenance: Send + Sync + Debug {
    /// Returns the usage of up to `limit` logs that `filter` accepts.
    fn usages(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage>;

    /// The number of logs without the audit log and without deleted sessions, which leave a tombstone and their last event.
    fn session_count(&self) -> usize;

    fn total_bytes(&self) -> u64;

    /// Returns up to `limit` headers of the oldest runs after a position, of one session or of all, ordered
    /// by position.
    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError>;

    /// Deletes the oldest runs of sessions, at most `max_runs` of each, so that no commit waits long. The
    /// last run of a session is never deleted, because it determines the seq of the next event.
    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError>;

    /// Returns some free pages to the disk. Returns true if more pages are free.
    fn compact(&self) -> Result<bool, CommitError>;

    fn disk(&self) -> io::Result<Disk>;

    /// Reserves room on the disk, of which `free` bytes are free. Returns false if there is too little.
    fn keep_reserve(&self, bytes: u64, free: u64) -> io::Result<bool>;

    /// Releases the reserve, so that commits can use it. Returns false if there was no reserve.
    fn release_reserve(&self) -> bool;
}

/// Deletes runs of `session` that end at or before the seq `through`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub session: SessionId,
    pub through: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    pub bytes: u64,
}

impl Pruned {
    pub(super) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub free: u64,
    pub total: u64,
}

impl Disk {
    /// The disk of a folder.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(folder)?;
        Ok(Self {
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
        })
    }

    /// The configured limit of free space in bytes.
    pub fn min_free(self, limits: &Limits) -> u64 {
        let part = self.total / 100 * limits.min_free_disk_percent;
        part.max(limits.min_free_disk_bytes)
    }
}

/// The cause of a failure, for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written. The caller may retry with other values.
    #[error("expected record {index} has another value; nothing was written")]
    Conflict { index: usize },
    /// Nothing was written. The caller keeps the batch and retries.
    #[error("the disk is full")]
    Full,
    /// The content of the disk is unknown until the store is opened again. The process must exit.
    #[error("the store could not write")]
    Failed(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Events are damaged. The error is reported, and damaged events are never returned. The rest of the
    /// store is readable. Continue after `after`: a seq for [`EventStore::read`](super::EventStore::read), a position
    /// for [`EventStore::read_all`](super::EventStore::read_all).
    #[error("events {first_seq} to {last_seq} of session {session} are damaged on disk")]
    Corrupt {
        session: SessionId,
        first_seq: u64,
        last_seq: u64,
        after: u64,
    },
    #[error("the store could not read")]
    Failed(#[source] BoxError),
}
