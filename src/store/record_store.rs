//! The port for records, and for commits.

use std::fmt::Debug;

use bytes::Bytes;

use super::batch::Batch;
use super::error::{CommitError, ReadError};
use super::record::{Record, Table};
use super::run::RunHeader;

/// A store of small records.
///
/// The methods block and may be called from any thread.
pub trait RecordStore: Send + Sync + Debug {
    /// Commits a batch atomically: records, and runs of events if the batch has any. The batch is durable when
    /// this returns the headers of its runs, in their order. The order is: compare expected records, erase logs, append runs, write records.
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
