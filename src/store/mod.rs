//! The port `EventStore` and its adapters: runs of events and small records, in one atomic commit.
//!
//! It owns what is durable and the epoch. It knows runs, positions and records, no ACP word and no reader.

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

/// Why something failed, for the log.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Where events and records last.
///
/// Its methods block, but for [`usage`](Self::usage), [`usages`](Self::usages), [`total_bytes`](Self::total_bytes) and
/// [`tail`](Self::tail), which answer from memory. Anyone may call them; commits are done one after the other. Who
/// meets [`CommitError::Failed`] ends the process.
pub trait EventStore: Send + Sync + Debug {
    /// It changes only when history may differ from what a client saw.
    fn epoch(&self) -> Epoch;

    /// Everything of the batch or nothing, durable when it returns: first what is expected is compared, then logs
    /// are erased, runs appended and records written.
    fn commit(&self, batch: &Batch) -> Result<Committed, CommitError>;

    /// Events of a session after `after`, ascending; the first run is cut to begin there. About `max_bytes`, and at
    /// least one run if there is any. When older events were dropped it begins with the oldest that are left. It ends
    /// before a damaged run; one that comes first is [`ReadError::Corrupt`].
    fn read(&self, session: SessionId, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError>;

    /// Events of all sessions that `wanted` names, after the place `after_pos`, by place. It may stop before it found
    /// `max_bytes`, or anything: what follows is read from `through_pos` on. It stops before a damaged run of a session
    /// that is wanted; one that comes first is [`ReadError::Corrupt`].
    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        wanted: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError>;

    /// What a session's log is; `None` when the store holds no event of it.
    fn usage(&self, session: SessionId) -> Option<LogUsage>;

    /// The same, compared with what is stored, which blocks: for who goes on with a log that nobody writes to. What was
    /// believed is corrected, so that no seq is given twice.
    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        Ok(self.usage(session))
    }

    /// The first `limit` logs that `wanted` picks.
    fn usages(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage>;

    /// Bytes of all logs, as they are stored.
    fn total_bytes(&self) -> u64;

    /// The ends of the whole store.
    fn tail(&self) -> Tail;

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError>;

    /// Records whose key begins with `prefix` and is greater than `after`, by key.
    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError>;

    /// The oldest runs that are left, of one session or of all, after a place, by place.
    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError>;

    /// Drops the oldest runs of sessions, at most `max_runs` of each, so that no commit waits for long. The last run
    /// of a session stays: its seq goes on from there.
    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError>;

    /// Gives a little of the room that was freed back to the disk; true when there is more to give.
    fn compact(&self) -> Result<bool, CommitError> {
        Ok(false)
    }

    /// The disk that it writes to; `None` when there is none.
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

/// What one commit does. A record's key is in `puts` or in `deletes`, never in both.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    pub expect: Vec<Expect>,
    /// Sessions that lose all their runs, before `runs` are appended.
    pub erase: Vec<SessionId>,
    pub runs: Vec<Run>,
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    /// When the runs were written, by the clock of who keeps their age; else by the store's own.
    pub time: Option<Timestamp>,
}

/// What a commit gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// `last_pos` of each run, in the order of the batch.
    pub positions: Vec<u64>,
    /// Of the runs together, as they are stored.
    pub bytes: u64,
}

/// Runs of many sessions, and how far the store looked for them.
#[derive(Debug, Clone)]
pub struct Page {
    pub runs: Vec<Run>,
    pub through_pos: u64,
}

/// A cursor from `first_pos - 1` on misses nothing but what was erased by its owner.
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
    /// What its frames take where they are stored.
    pub bytes: u64,
    /// When it was committed.
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

/// Runs of `session` that end at or before `through` go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    pub session: SessionId,
    pub through: u64,
}

/// What [`EventStore::prune`] dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    /// As they were stored.
    pub bytes: u64,
}

impl Pruned {
    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.bytes += other.bytes;
    }
}

/// Room on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub free: u64,
    pub total: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written; the caller may try again with something else.
    #[error("a record is not what was expected (number {index})")]
    Conflict { index: usize },
    /// Nothing was written; the caller keeps the batch and tries again.
    #[error("the disk is full")]
    Full,
    /// What is on disk is unknown until the store is opened again: the process has to end.
    #[error("the store failed to write")]
    Failed(#[source] BoxError),
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Events are not what was written. It is told, never served; the rest of the store stays readable, and `after` is
    /// where reading goes on: a seq for [`EventStore::read`], a place for [`EventStore::read_all`].
    #[error("events {first_seq} to {last_seq} of session {session} are damaged on disk")]
    Corrupt { session: SessionId, first_seq: u64, last_seq: u64, after: u64 },
    #[error("the store failed to read")]
    Failed(#[source] BoxError),
}
