//! The port [`EventStore`] and its adapters: runs of events and small records, committed atomically.
//!
//! This module owns durable data and the epoch. It knows runs, positions and records. It must not know ACP or
//! readers.
//!
//! Reading order: `mod`, `run` and `record` (the data), `memory` (the reference adapter), `sqlite` (the
//! durable adapter), `usage` (log sizes in memory).

mod memory;
mod record;
mod run;
mod sqlite;
mod usage;

#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
pub(crate) mod faulty;

use std::error::Error;
use std::fmt::Debug;

use bytes::Bytes;

use crate::types::{Epoch, SessionId, Timestamp};

pub use memory::MemoryStore;
pub use record::{Delete, Expect, Put, Record, Table};
pub use run::Run;
pub use sqlite::compress;
pub use sqlite::{CheckError, CheckReport, OpenError, RestoreReport, SqliteStore, copy, restore};
pub use usage::LogUsage;

/// The cause of a failure, for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A store of events and records.
///
/// The methods block, except [`usage`](Self::usage), [`usages`](Self::usages),
/// [`total_bytes`](Self::total_bytes) and [`tail`](Self::tail), which answer from memory. They may be called
/// from any thread. Commits are serialized. After [`CommitError::Failed`] the process must exit.
pub trait EventStore: Send + Sync + Debug {
    /// The epoch of all event ids. It changes only if the history may differ from the one that clients saw.
    fn epoch(&self) -> Epoch;

    /// Commits a batch atomically. The batch is durable when this returns. The order is: compare expected
    /// records, erase logs, append runs, write records.
    fn commit(&self, batch: &Batch) -> Result<Committed, CommitError>;

    /// Returns events of a session after `after`, ascending: about `max_bytes`, and at least one run if one
    /// exists.
    ///
    /// The first run is cut to begin after `after`. If those events were pruned, the result begins with the
    /// oldest stored event. The result ends before a damaged run. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read(&self, session: SessionId, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError>;

    /// Returns events after position `after_pos` of all sessions that `wanted` accepts, ordered by position.
    ///
    /// The read may stop before `max_bytes`, or before the first match. Continue from `through_pos`. It stops
    /// before a damaged run of an accepted session. If the first run is damaged, the result is
    /// [`ReadError::Corrupt`].
    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        wanted: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError>;

    /// Bounds and size of a session's log. `None` if the store has no event of the session.
    fn usage(&self, session: SessionId) -> Option<LogUsage>;

    /// Like [`usage`](Self::usage), but verified against the stored runs, and blocking. Must be called before
    /// a log that no state owns is continued. A wrong bound in memory is corrected, so that no seq is used
    /// twice.
    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        Ok(self.usage(session))
    }

    /// Returns up to `limit` logs that `wanted` accepts.
    fn usages(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage>;

    /// The stored bytes of all logs.
    fn total_bytes(&self) -> u64;

    /// The first and last position of the whole store.
    fn tail(&self) -> Tail;

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

    /// Returns up to `limit` headers of the oldest runs after a position, of one session or of all, ordered
    /// by position.
    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError>;

    /// Deletes the oldest runs of sessions, at most `max_runs` of each, so that no commit waits long. The
    /// last run of a session is never deleted, because its seq continues from there.
    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError>;

    /// Returns some free pages to the disk. Returns true if more pages are free.
    fn compact(&self) -> Result<bool, CommitError> {
        Ok(false)
    }

    /// The disk that the store writes to. `None` if it has none.
    fn disk(&self) -> Option<std::io::Result<Disk>> {
        None
    }

    /// Reserves room on the disk, of which `free` bytes are free. Returns false if there is too little.
    fn keep_reserve(&self, _bytes: u64, _free: u64) -> std::io::Result<bool> {
        Ok(true)
    }

    /// Releases the reserve, so that commits can use it. Returns false if there was no reserve.
    fn release_reserve(&self) -> bool {
        false
    }
}

/// The changes of one commit. The key of a record is in `puts` or in `deletes`, never in both.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub expect: Vec<Expect>,
    /// Sessions whose runs are all deleted before `runs` are appended.
    pub erase: Vec<SessionId>,
    pub runs: Vec<Run>,
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    /// The commit time of the runs. `None`: the store reads its own clock.
    pub time: Option<Timestamp>,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// `last_pos` of each run, in the order of the batch.
    pub positions: Vec<u64>,
    /// The stored bytes of all runs of the batch.
    pub bytes: u64,
}

/// Runs of many sessions, and the last position that the read covered.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub through_pos: u64,
}

/// The bounds of the store. A cursor at `first_pos - 1` or later misses only events that their owner erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    pub first_pos: u64,
    pub last_pos: u64,
}

/// A run without its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunHeader {
    pub session: SessionId,
    pub first_seq: u64,
    pub last_seq: u64,
    pub last_pos: u64,
    /// The stored bytes of its frames.
    pub bytes: u64,
    /// The time of the commit.
    pub time: Timestamp,
}

impl Committed {
    fn of(runs: &[RunHeader]) -> Self {
        let positions = runs.iter().map(|run| run.last_pos).collect();
        Self { positions, bytes: runs.iter().map(|run| run.bytes).sum() }
    }
}

impl RunHeader {
    fn of(run: &Run, last_pos: u64, bytes: u64, time: Timestamp) -> Self {
        Self { session: run.session, first_seq: run.first_seq, last_seq: run.last_seq, last_pos, bytes, time }
    }
}

/// Deletes runs of `session` that end at or before the seq `through`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub session: SessionId,
    pub through: u64,
}

/// The result of [`EventStore::prune`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    /// The stored bytes of the runs.
    pub bytes: u64,
}

impl Pruned {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

/// Space on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub free: u64,
    pub total: u64,
}

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
    /// store is readable. Continue after `after`: a seq for [`EventStore::read`], a position for
    /// [`EventStore::read_all`].
    #[error("events {first_seq} to {last_seq} of session {session} are damaged on disk")]
    Corrupt { session: SessionId, first_seq: u64, last_seq: u64, after: u64 },
    #[error("the store could not read")]
    Failed(#[source] BoxError),
}
