//! The stored form of keys.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::super::key::{Key, KeyHash, KeyKind};
use crate::store::{Batch, Expect, Put, Table};
use crate::types::{KeyLimits, Scope, Tenant, Timestamp};

/// The limits of each principal. All keys of a principal have the same limits; if not, the newest key counts.
pub(super) fn limits_by_principal<'a>(
    keys: impl Iterator<Item = &'a Key>,
) -> HashMap<(Tenant, Arc<str>), KeyLimits> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|key| key.created_at);
    let all = keys.into_iter().map(|key| ((key.tenant.clone(), key.name.clone()), key.limits));
    let mut limits: HashMap<_, _> = all.collect();
    limits.retain(|_, limits: &mut KeyLimits| !limits.is_empty());
    limits
}

/// Adds to `batch` a new record of a key. The commit fails unless the store still has `stored`.
pub(super) fn push_replace(batch: &mut Batch, hash: KeyHash, key: &Key, stored: Bytes) {
    let id = hash.as_bytes().to_vec();
    batch.puts.push(Put { table: Table::Key, key: id.clone(), value: encode(key) });
    batch.expect.push(Expect { table: Table::Key, key: id, value: Some(stored) });
}

/// The record of a key in `Table::Key`, stored under its hash.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeyRecord {
    kind: KeyKind,
    name: Arc<str>,
    tenant: String,
    scopes: Vec<Scope>,
    #[serde(default, skip_serializing_if = "KeyLimits::is_empty")]
    limits: KeyLimits,
    created_at: Timestamp,
    last_used_at: Option<Timestamp>,
}

impl KeyRecord {
    fn of(key: &Key) -> Self {
        Self {
            kind: key.kind,
            name: key.name.clone(),
            tenant: key.tenant.as_str().to_owned(),
            scopes: key.scopes.iter().collect(),
            limits: key.limits,
            created_at: key.created_at,
            last_used_at: key.last_used_at,
        }
    }

    fn into_key(self, hash: KeyHash) -> Key {
        Key {
            id: hash.id(),
            kind: self.kind,
            name: self.name,
            tenant: Tenant::new(&self.tenant),
            scopes: self.scopes.into_iter().collect(),
            limits: self.limits,
            created_at: self.created_at,
            last_used_at: self.last_used_at,
        }
    }
}

pub(super) fn encode(key: &Key) -> Bytes {
    serde_json::to_vec(&KeyRecord::of(key)).expect("a key record serializes to JSON").into()
}

/// Reads a stored record; `None` if it is damaged.
pub(super) fn decode(key: &[u8], value: &[u8]) -> Option<(KeyHash, Key)> {
    let hash = KeyHash::from_bytes(key.try_into().ok()?);
    let record: KeyRecord = serde_json::from_slice(value).ok()?;
    Some((hash, record.into_key(hash)))
}
