//! `Idempotency-Key`: a repeated request gets the first result for as long as the key is stored.
//!
//! The record is written in the commit of the event that the request caused, so after a crash the store contains
//! both or neither.

use std::time::Duration;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::error::{ClaimError, IdempotencyError};
use super::record::{self, IdempotencyRecord};
use crate::eventlog::{EventLog, Records};
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
        let record = IdempotencyRecord {
            session: Some(session),
            prompt,
            ..self.record()
        };
        record.put(self.record_key.clone(), records);
    }

    /// Stores the response of a request without a session of its own.
    pub(super) fn put_response(&self, response: Box<RawValue>, records: &mut Records) {
        let record = IdempotencyRecord {
            response: Some(response),
            ..self.record()
        };
        record.put(self.record_key.clone(), records);
    }

    fn record(&self) -> IdempotencyRecord {
        let Self {
            body_hash,
            expires_at,
            ..
        } = self;
        IdempotencyRecord {
            body_hash: *body_hash,
            expires_at: *expires_at,
            session: None,
            prompt: None,
            response: None,
        }
    }
}

/// The keys of all clients.
#[derive(Debug, Clone)]
pub(super) struct IdempotencyKeys {
    log: EventLog,
    /// How long a record is kept.
    max_age: Duration,
    /// The keys whose first request is in flight.
    in_flight: KeyedCounts<Vec<u8>>,
}

/// The key of a request. All members are `None` for a request without a key.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    /// Must be kept until the result of the request is durable.
    pub(super) in_flight: Option<KeyedGuard<Vec<u8>>>,
    pub(super) claim: Option<Claim>,
    /// The result of an earlier request with the same key.
    pub(super) previous: Option<IdempotencyRecord>,
}

impl IdempotencyKeys {
    pub(super) fn new(log: EventLog, max_age: Duration) -> Self {
        Self {
            log,
            max_age,
            in_flight: KeyedCounts::default(),
        }
    }

    /// Claims the key of a request. Fails if the key is in flight or was used with another body.
    pub(super) async fn claim(
        &self,
        by: &Principal,
        key: Option<&IdempotencyKey>,
    ) -> Result<Claimed, ClaimError> {
        let Some(key) = key else {
            return Ok(Claimed::default());
        };
        let mut hash = Sha256::new();
        for part in [by.tenant.as_str(), &by.id, &key.route, &key.key] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let record_key = hash.finalize().to_vec();
        let in_flight = self
            .in_flight
            .acquire(record_key.clone(), 1)
            .ok_or(IdempotencyError::InFlight)?;
        let stored = self.log.get(Table::Idempotency, record_key.clone()).await?;
        let stored = stored
            .map(|bytes| record::decode::<IdempotencyRecord>(&bytes))
            .transpose()?;
        let previous = stored.filter(|record| record.expires_at > self.log.expiry().earliest_now());
        if previous
            .as_ref()
            .is_some_and(|record| record.body_hash != key.body_hash)
        {
            return Err(IdempotencyError::Mismatch.into());
        }
        let expires_at = self.log.expiry().latest_now().after(self.max_age);
        let claim = Claim {
            record_key,
            body_hash: key.body_hash,
            expires_at,
            key: key.key.clone(),
        };
        Ok(Claimed {
            in_flight: Some(in_flight),
            claim: Some(claim),
            previous,
        })
    }
}
