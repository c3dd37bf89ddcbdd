//! The record of an `Idempotency-Key`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::codec::encode;
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{PromptId, SessionId, Timestamp};

/// The result of the first request with a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct IdempotencyRecord {
    /// The SHA-256 of the request's body.
    pub(in crate::session) body_hash: [u8; 32],
    pub(in crate::session) expires_at: Timestamp,
    /// The session that the request created or prompted.
    pub(in crate::session) session: Option<SessionId>,
    pub(in crate::session) prompt: Option<PromptId>,
    /// The response of a request without a session of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) response: Option<Box<RawValue>>,
}

impl IdempotencyRecord {
    /// The response of a request without a session of its own.
    pub fn response<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        let raw = self.response.as_ref();
        raw.map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    pub(in crate::session) fn put(&self, key: Vec<u8>, records: &mut Records) {
        records.puts.push(Put {
            table: Table::Idempotency,
            key,
            value: encode(self),
        });
    }
}
