//! `Idempotency-Key`: a repeated request gets the first result for as long as the key is stored.
//!
//! The record is written in the commit of the event that the request caused, so a crash leaves both or
//! neither.

use sha2::{Digest, Sha256};

use super::context::Context;
use super::record::{self, IdempotencyRecord};
use super::refusal::Refusal;
use crate::eventlog::Records;
use crate::store::Table;
use crate::types::{KeyedCounts, KeyedGuard, Principal, PromptId, SessionId, Timestamp};

/// A client's key, with the route and the SHA-256 of the body.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    pub key: String,
    pub route: String,
    pub body_hash: [u8; 32],
}

/// The permission to execute the first request with a key. Its record is written with the event.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    record_key: Vec<u8>,
    body_hash: [u8; 32],
    expires_at: Timestamp,
    /// The key as the client sent it, for the event.
    pub(super) key: String,
}

impl Claim {
    pub(super) fn put(&self, session: SessionId, prompt: Option<PromptId>, records: &mut Records) {
        let record =
            IdempotencyRecord { body_hash: self.body_hash, expires_at: self.expires_at, session, prompt };
        record.put(self.record_key.clone(), records);
    }
}

/// The keys whose first request is in flight.
pub(super) type InFlight = KeyedCounts<Vec<u8>>;

/// A claimed key.
pub(super) struct Claimed {
    pub(super) flight: KeyedGuard<Vec<u8>>,
    pub(super) claim: Claim,
    /// The result of an earlier request with the same key.
    pub(super) previous: Option<IdempotencyRecord>,
}

pub(super) async fn claim(
    context: &Context,
    by: &Principal,
    key: &IdempotencyKey,
) -> Result<Claimed, Refusal> {
    let mut hash = Sha256::new();
    for part in [by.tenant.as_str(), &by.id, &key.route, &key.key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let record_key = hash.finalize().to_vec();
    let flight = context.in_flight.acquire(record_key.clone(), 1).ok_or(Refusal::IdempotencyInFlight)?;
    let stored = context
        .log
        .get(Table::Idempotency, record_key.clone())
        .await
        .map_err(|error| Refusal::internal(&error))?;
    let stored = stored.map(|bytes| record::decode::<IdempotencyRecord>(&bytes)).transpose();
    let stored = stored.map_err(|error| Refusal::internal(&error))?;
    let before = stored.filter(|record| record.expires_at > context.log.expiry().earliest_now());
    if before.as_ref().is_some_and(|record| record.body_hash != key.body_hash) {
        return Err(Refusal::IdempotencyMismatch);
    }
    let expires_at = context.log.expiry().latest_now().after(context.limits.idempotency_key_max_age);
    let claim = Claim { record_key, body_hash: key.body_hash, expires_at, key: key.key.clone() };
    Ok(Claimed { flight, claim, previous: before })
}
