//! Entries that are committed with the change that they describe, until the gateway moves them to the log.

use bytes::Bytes;

use crate::store::{Put, Table};
use base::types::Ids;
use events::event::{AuditActor, AuditEntry, AuditEvent};

/// The record of the last event of the chain.
pub(super) const HEAD: &[u8] = b"head";
/// The prefix of the keys of pending entries. A key continues with a UUID v7, so that keys have the order of time.
pub(super) const PENDING: &[u8] = b"pending-";

/// The record of an entry, for the commit of the change that it describes.
pub fn pending_entry(ids: &Ids, actor: impl Into<AuditActor>, event: impl Into<AuditEvent>) -> Put {
    let entry = AuditEntry {
        time: ids.now(),
        actor: actor.into(),
        event: event.into(),
    };
    let key = [PENDING, ids.uuid().as_bytes()].concat();
    let value = serde_json::to_vec(&entry).expect("an entry serializes to JSON");
    Put {
        table: Table::Audit,
        key,
        value: value.into(),
    }
}

/// `None` if the record is damaged.
pub(super) fn decode(record: &Bytes) -> Option<AuditEntry> {
    serde_json::from_slice(record).ok()
}
