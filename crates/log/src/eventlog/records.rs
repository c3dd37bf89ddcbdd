//! Records that are committed together with events.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::store::{Batch, Delete, Put, Table};

use super::summaries::Summary;

/// Records for one commit. A later change of a key wins over an earlier one.
#[derive(Debug, Clone, Default)]
pub struct Records {
    pub puts: Vec<Put>,
    pub deletes: Vec<Delete>,
    /// The summary of the session after the commit. [`SessionLog`](super::SessionLog) publishes it; a write
    /// without a session ignores it.
    pub summary: Option<Summary>,
}

impl Records {
    #[must_use]
    pub fn put(mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Bytes>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.puts.push(Put { table, key, value });
        self
    }

    #[must_use]
    pub fn delete(mut self, table: Table, key: impl Into<Vec<u8>>) -> Self {
        let key = key.into();
        self.deletes.push(Delete { table, key });
        self
    }

    pub fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletes.is_empty() && self.summary.is_none()
    }
}

/// The last change of each key. Repeated changes of a key cost one write per commit.
#[derive(Debug, Default)]
pub(super) struct Changes {
    last: BTreeMap<(Table, Vec<u8>), Option<Bytes>>,
}

impl Changes {
    /// Adds the puts, then the deletes. Returns their size in bytes.
    pub(super) fn add(&mut self, records: Records) -> usize {
        let mut bytes = 0;
        for Put { table, key, value } in records.puts {
            bytes += key.len() + value.len();
            self.last.insert((table, key), Some(value));
        }
        for Delete { table, key } in records.deletes {
            bytes += key.len();
            self.last.insert((table, key), None);
        }
        bytes
    }

    /// Adds later changes, which override earlier ones.
    pub(super) fn merge(&mut self, later: Self) {
        self.last.extend(later.last);
    }

    pub(super) fn write_to(self, batch: &mut Batch) {
        for ((table, key), value) in self.last {
            match value {
                Some(value) => batch.puts.push(Put { table, key, value }),
                None => batch.deletes.push(Delete { table, key }),
            }
        }
    }
}
