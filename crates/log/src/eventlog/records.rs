//! Records that are committed together with events.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::store::{Batch, RecordState, Table};

use super::summaries::Summary;

/// Records for one commit. A later change of a key wins over an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub changed: Vec<RecordState>,
    /// The summary of the session after the commit. [`SessionLog`](super::SessionLog) publishes it; a write
    /// without a session ignores it.
    pub summary: Option<Summary>,
}

impl Records {
    #[must_use]
    pub fn put(mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Bytes>) -> Self {
        self.changed.push(RecordState::present(table, key, value));
        self
    }

    #[must_use]
    pub fn delete(mut self, table: Table, key: impl Into<Vec<u8>>) -> Self {
        self.changed.push(RecordState::absent(table, key));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.summary.is_none()
    }
}

/// The last change of each key. Repeated changes of a key cost one write per commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last: BTreeMap<(Table, Vec<u8>), Option<Bytes>>,
}

impl Changes {
    /// Returns the size of the records in bytes.
    pub(super) fn add(&mut self, records: Records) -> usize {
        let mut bytes = 0;
        for RecordState { table, key, value } in records.changed {
            bytes += key.len() + value.as_ref().map_or(0, Bytes::len);
            self.last.insert((table, key), value);
        }
        bytes
    }

    /// Adds later changes, which override earlier ones.
    pub(super) fn merge(&mut self, later: Self) {
        self.last.extend(later.last);
    }

    pub(super) fn write_to(self, batch: &mut Batch) {
        let records = self.last.into_iter();
        batch
            .records
            .extend(records.map(|((table, key), value)| RecordState { table, key, value }));
    }
}
