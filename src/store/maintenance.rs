//! The port for the size of logs, for removal, and for the disk.

use std::fmt::Debug;
use std::io;

use crate::types::SessionId;

use super::error::{CommitError, ReadError};
use super::event_store::LogUsage;
use super::run::RunHeader;

/// Keeps a store within its limits.
///
/// The methods block, except `usages` and `total_bytes`, which answer from memory. They may be called from any
/// thread.
pub trait Maintenance: Send + Sync + Debug {
    /// Returns the usage of up to `limit` logs that `filter` accepts.
    fn usages(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage>;

    /// The stored bytes of all logs.
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

    /// The disk that the store writes to.
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

/// The result of [`Maintenance::prune`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub runs: u64,
    /// The stored bytes of the runs.
    pub bytes: u64,
}

impl Pruned {
    pub(super) fn add(&mut self, other: Self) {
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
