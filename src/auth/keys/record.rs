//! The stored form of keys.

use std::collections::HashMap;

use bytes::Bytes;

use super::super::key::{Key, KeyHash};
use crate::store::{Batch, Delete, Expect, Put, Table};
use crate::types::{KeyLimits, PrincipalKey};

/// The limits of each principal. All keys of a principal have the same limits; if not, the newest key counts.
pub(super) fn limits_by_principal<'a>(
    keys: impl Iterator<Item = &'a Key>,
) -> HashMap<PrincipalKey, KeyLimits> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|key| key.created_at);
    let all = keys
        .into_iter()
        .map(|key| ((key.tenant.clone(), key.name.clone()), key.limits));
    let mut limits: HashMap<_, _> = all.collect();
    limits.retain(|_, limits: &mut KeyLimits| !limits.is_empty());
    limits
}

/// Adds to `batch` the record of a key. The commit fails unless the store still has `stored`.
pub(super) fn push_put(batch: &mut Batch, hash: KeyHash, key: &Key, stored: Option<Bytes>) {
    let id = hash.as_bytes().to_vec();
    let value = serde_json::to_vec(key)
        .expect("a key serializes to JSON")
        .into();
    batch.puts.push(Put {
        table: Table::Key,
        key: id.clone(),
        value,
    });
    batch.expect.push(Expect {
        table: Table::Key,
        key: id,
        value: stored,
    });
}

/// Adds to `batch` the removal of a key. The commit fails unless the store still has `stored`.
pub(super) fn push_delete(batch: &mut Batch, hash: KeyHash, stored: Bytes) {
    let key = hash.as_bytes().to_vec();
    batch.deletes.push(Delete {
        table: Table::Key,
        key: key.clone(),
    });
    batch.expect.push(Expect {
        table: Table::Key,
        key,
        value: Some(stored),
    });
}

/// Reads a stored record; `None` if it is damaged.
pub(super) fn decode(hash: &[u8], record: &[u8]) -> Option<(KeyHash, Key)> {
    let hash = KeyHash::from_bytes(hash.try_into().ok()?);
    let key: Key = serde_json::from_slice(record).ok()?;
    Some((
        hash,
        Key {
            id: hash.id(),
            ..key
        },
    ))
}
