//! The metadata index: finds a user's sessions by the value of a metadata key.
//!
//! An entry is a record without a value. Its key consists of the user, a hash of the metadata key and
//! value, and the session id. All entries of one value are therefore adjacent and have the same size. An
//! entry changes only in the commit of the event that changes the metadata. A reader also compares the
//! metadata in the session's record.
//!
//! The index is not sorted by the last change. With that order, each change of a session would move all its entries.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::record::{self, SessionRecord};
use super::validation::MAX_METADATA_MEMBERS;
use base::types::UserId;
use log::eventlog::{Records, user_prefix};
use log::store::Table;

/// The maximum number of bytes of a key and of a value in a filter.
pub const FILTER_KEY_BYTES: usize = 128;
pub const FILTER_VALUE_BYTES: usize = 512;
const HASH_BYTES: usize = 16;

/// The text that a filter compares. Objects, arrays and null have none.
pub(super) fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(flag) => Some(if *flag { "true" } else { "false" }.into()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub(super) fn prefix(user: &UserId, key: &str, value: &str) -> Vec<u8> {
    let hash = Sha256::new()
        .chain_update((key.len() as u64).to_be_bytes())
        .chain_update(key)
        .chain_update(value);
    [&user_prefix(user)[..], &hash.finalize()[..HASH_BYTES]].concat()
}

fn entries(record: &SessionRecord) -> BTreeSet<Vec<u8>> {
    let user = record.owner.clone();
    let members = record.metadata.iter().take(MAX_METADATA_MEMBERS);
    let entry = |(key, value): (&String, &Value)| {
        let value = text(value)?;
        let fits = key.len() <= FILTER_KEY_BYTES && (1..=FILTER_VALUE_BYTES).contains(&value.len());
        fits.then(|| {
            [
                &prefix(&user, key, &value)[..],
                record.session_id.as_bytes(),
            ]
            .concat()
        })
    };
    members.filter_map(entry).collect()
}

#[derive(Debug)]
pub(super) struct MetadataIndex {
    stored: BTreeSet<Vec<u8>>,
    stale: bool,
}

impl MetadataIndex {
    pub(super) fn empty() -> Self {
        Self {
            stored: BTreeSet::new(),
            stale: true,
        }
    }

    pub(super) fn of(record: &SessionRecord) -> Self {
        Self {
            stored: entries(record),
            stale: false,
        }
    }

    pub(super) fn changed(&mut self) {
        self.stale = true;
    }

    pub(super) fn put(&mut self, record: &SessionRecord, records: &mut Records) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let next = entries(record);
        for key in self.stored.difference(&next) {
            record::delete(Table::SessionMetadata, key.clone(), records);
        }
        for key in next.difference(&self.stored) {
            record::put(Table::SessionMetadata, key.clone(), Bytes::new(), records);
        }
        self.stored = next;
    }

    pub(super) fn take(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_value_boundaries_are_hashed() {
        let user = UserId::owner();
        assert_ne!(prefix(&user, "ab", "c"), prefix(&user, "a", "bc"));
        assert_ne!(
            prefix(&user, "a", "b"),
            prefix(&UserId::from_text("other"), "a", "b")
        );
    }
}
