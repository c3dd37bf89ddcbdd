//! The encoding of records.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(super) fn encode(record: &impl Serialize) -> Bytes {
    serde_json::to_vec(record)
        .expect("records have string keys and serialize")
        .into()
}

pub(in crate::session) fn decode<'a, T: Deserialize<'a>>(
    bytes: &'a [u8],
) -> Result<T, serde_json::Error> {
    serde_json::from_slice(bytes)
}
