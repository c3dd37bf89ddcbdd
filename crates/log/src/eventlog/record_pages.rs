//! Pages of the records of a table, and records in JSON whose keys begin with their user.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{EventLog, ReadError, Records};
use crate::store::{Record, Table};
use base::types::{Tenant, Timestamp, UserId};

const PAGE: usize = 256;
/// The maximum number of records that the page of a list scans. It then ends early.
pub const MAX_SCANNED: usize = 5000;

/// The records of a table in the order of their keys, page by page.
#[derive(Debug)]
pub struct RecordPages<'a> {
    log: &'a EventLog,
    table: Table,
    prefix: Vec<u8>,
    after: Option<Vec<u8>>,
    size: usize,
    has_ended: bool,
}

#[derive(Debug)]
pub struct Selected<T> {
    pub entries: Vec<T>,
    /// The key after which the next page begins. `None` after the last entry.
    pub next: Option<Vec<u8>>,
}

impl<'a> RecordPages<'a> {
    pub fn of(log: &'a EventLog, table: Table) -> Self {
        Self::below(log, table, Vec::new())
    }

    /// The records whose keys begin with the prefix.
    pub fn below(log: &'a EventLog, table: Table, prefix: Vec<u8>) -> Self {
        Self {
            log,
            table,
            prefix,
            after: None,
            size: PAGE,
            has_ended: false,
        }
    }

    #[must_use]
    pub fn after(self, after: Option<Vec<u8>>) -> Self {
        Self { after, ..self }
    }
    /// Sets the number of records on a page, if it is less than the default.
    #[must_use]
    pub fn sized(self, size: usize) -> Self {
        let size = size.min(PAGE);
        Self { size, ..self }
    }

    /// The next page, or `None` after the last one.
    pub async fn next_raw(&mut self) -> Result<Option<Vec<Record>>, ReadError> {
        if self.has_ended {
            return Ok(None);
        }
        let after = self.after.take();
        let page = self
            .log
            .scan(self.table, self.prefix.clone(), after, self.size)
            .await?;
        self.has_ended = page.len() < self.size;
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        self.after = Some(last.clone());
        Ok(Some(page))
    }

    /// The records of the next page with their users, or `None` after the last page.
    pub async fn next<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Vec<(UserId, T)>>, ReadError> {
        let record = |(key, value): &(Vec<u8>, Bytes)| Some((user_of(key)?, from_json(value)?));
        let page = self.next_raw().await?;
        Ok(page.map(|page| page.iter().filter_map(record).collect()))
    }

    /// Up to `limit` entries that `accept` returns. One more entry shows whether there is another page.
    pub async fn select<T, E: From<ReadError>>(
        mut self,
        limit: usize,
        mut accept: impl FnMut(&Bytes) -> Result<Option<T>, E>,
    ) -> Result<Selected<T>, E> {
        let mut entries = Vec::new();
        let mut last_entry = None;
        let mut scanned = 0;
        while let Some(page) = self.next_raw().await? {
            scanned += page.len();
            for (key, value) in page {
                let Some(entry) = accept(&value)? else {
                    continue;
                };
                if entries.len() == limit {
                    let next = last_entry;
                    return Ok(Selected { entries, next });
                }
                entries.push(entry);
                last_entry = Some(key);
            }
            if scanned >= MAX_SCANNED && !self.has_ended {
                let next = self.after;
                return Ok(Selected { entries, next });
            }
        }
        let next = None;
        Ok(Selected { entries, next })
    }
}

/// Deletes records of each user that are too old, or that follow the newest `max_count`. `ended_at` is the time of a record that
/// can be deleted.
pub async fn prune<T: DeserializeOwned>(
    log: &EventLog,
    table: Table,
    oldest: Timestamp,
    max_count: usize,
    ended_at: impl Fn(&T) -> Option<Timestamp>,
    delete: impl Fn(&T, &UserId, Records) -> Records,
) -> Result<(), ReadError> {
    let mut current: Option<UserId> = None;
    let mut kept = 0;
    let mut pages = RecordPages::of(log, table);
    while let Some(page) = pages.next::<T>().await? {
        let mut records = Records::default();
        for (owner, record) in &page {
            let Some(ended_at) = ended_at(record) else {
                continue;
            };
            // The keys begin with the user.
            if current.as_ref() != Some(owner) {
                current = Some(owner.clone());
                kept = 0;
            }
            kept += 1;
            if kept > max_count || ended_at < oldest {
                records = delete(record, owner, records);
            }
        }
        // A closed log accepts no further records.
        if !records.is_empty() && log.write(records).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The common prefix of the keys of all users of a tenant.
pub fn tenant_prefix(tenant: &Tenant) -> Vec<u8> {
    [tenant.as_str(), "/"].concat().into_bytes()
}

pub fn user_prefix(owner: &UserId) -> Vec<u8> {
    [owner.as_str().as_bytes(), &[0]].concat()
}

pub fn user_key(owner: &UserId, id: u128) -> Vec<u8> {
    [&user_prefix(owner)[..], &id.to_be_bytes()].concat()
}

/// The id at the end of a key that begins with the newest record: the id is inverted.
pub fn newest_first_id(key: &[u8]) -> Option<Uuid> {
    let inverted = u128::from_be_bytes(*key.last_chunk()?);
    Some(Uuid::from_u128(!inverted))
}

fn user_of(key: &[u8]) -> Option<UserId> {
    let end = key.iter().position(|byte| *byte == 0)?;
    Some(UserId::from_text(std::str::from_utf8(&key[..end]).ok()?))
}

pub fn to_json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record has string keys and serializes")
}

/// A record that cannot be read is skipped: it cannot be repaired.
pub fn from_json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventlog::testing::memory_log;
    use crate::limits::Limits;

    #[tokio::test]
    async fn pages_skip_unreadable_records_and_end_with_a_cursor() {
        let log = memory_log(Limits::default());
        let owner = UserId::owner();
        let mut records = Records::default();
        for id in 0..600_u128 {
            let value = if id % 3 == 0 {
                b"not JSON".to_vec()
            } else {
                to_json(&id)
            };
            records = records.put(Table::Task, user_key(&owner, id), value);
        }
        log.write(records).await.unwrap();
        let accept = |value: &Bytes| Ok::<_, ReadError>(from_json::<u128>(value));
        let pages = || RecordPages::below(&log, Table::Task, user_prefix(&owner));
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = pages().after(after).select(7, accept).await.unwrap();
            assert!(page.entries.len() == 7 || page.next.is_none());
            found.extend(page.entries);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<u128> = (0..600).filter(|id| id % 3 != 0).collect();
        assert_eq!(found, expected);
        let all = pages().select(400, accept).await.unwrap();
        assert_eq!((all.entries.len(), all.next), (400, None));
    }
}
