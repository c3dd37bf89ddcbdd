//! The port for records, and for commits.

use std::fmt::Debug;

use bytes::Bytes;

use crate::types::{SessionId, Timestamp};

use super::error::{CommitError, ReadError};
use super::record::{Delete, Expect, Put, Record, Table};
use super::run::{Run, RunHeader};

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
