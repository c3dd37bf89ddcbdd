//! `Idempotency-Key`: a repeated request gets the first result for as long as the key is stored.
//!
//! The record is written in the commit of the event that the request caused, so after a crash the store contains
//! both or neither.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::context::Context;
use super::error::{ClaimError, IdempotencyError};
use super::record::{IdempotencyRecord, Stored as _};
use crate::limits::IDEMPOTENCY_KEY_MAX_AGE;
use base::types::{KeyedGuard, Principal, PromptId, SessionId};
use log::eventlog::Records;

/// A client's key, with the route and the SHA-256 of the body.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    pub key: String,
    pub route: String,
    pub body_hash: [u8; 32],
}

/// The permission to execute the first request with a key. Its record is written with the event.
#[derive(Debug, Clone)]
pub struct Claim {
    record_key: Vec<u8>,
    /// The record before the request has a result.
    record: IdempotencyRecord,
    /// The key as the client sent it, for the event.
    pub(super) key: String,
}

impl Claim {
    pub(super) fn put(&self, session: SessionId, prompt: Option<PromptId>, records: &mut Records) {
        let record = IdempotencyRecord {
            session: Some(session),
            prompt,
            ..self.record.clone()
        };
        record.put_at(self.record_key.clone(), records);
    }

    /// Stores the response of a request that creates no session.
    pub fn put_response(&self, response: Box<RawValue>, records: &mut Records) {
        let record = IdempotencyRecord {
            response: Some(response),
            ..self.record.clone()
        };
        record.put_at(self.record_key.clone(), records);
    }
}

/// The result of an operation, or of an earlier request with the same idempotency key.
#[derive(Debug)]
pub struct Responded<T> {
    pub response: T,
    pub replayed: bool,
}

impl Context {
    /// Runs `act`, or returns the result of an earlier request with the same key, which `replay` reads. `replay` returns `None`
    /// if the result does not exist any more. The operation continues if the caller is dropped, because its key must stay
    /// reserved until the result is durable.
    pub async fn once<T, E, R, F>(
        &self,
        by: &Principal,
        key: Option<IdempotencyKey>,
        replay: impl FnOnce(IdempotencyRecord) -> R + Send + 'static,
        act: impl FnOnce(Option<Claim>) -> F + Send + 'static,
    ) -> Result<Responded<T>, E>
    where
        T: Send + 'static,
        E: From<ClaimError> + Send + 'static,
        R: Future<Output = Result<Option<T>, E>> + Send,
        F: Future<Output = Result<T, E>> + Send,
    {
        let context = self.clone();
        let by = by.clone();
        let operation = async move {
            let Some(key) = key else {
                return Ok(Responded {
                    response: act(None).await?,
                    replayed: false,
                });
            };
            // The key is in flight until the result of the request is durable.
            let (_in_flight, claim, previous) = context.claim(&by, key).await?;
            if let Some(previous) = previous
                && let Some(response) = replay(previous).await?
            {
                return Ok(Responded {
                    response,
                    replayed: true,
                });
            }
            Ok(Responded {
                response: act(Some(claim)).await?,
                replayed: false,
            })
        };
        let running = self.shutdown.spawn_isolated(operation.in_current_span());
        running.await.map_err(ClaimError::from)?
    }

    /// Runs an operation that creates no session. The response is stored after the operation, so if the gateway crashes
    /// in between, a repeated request runs the operation again.
    pub async fn respond_once<T, E, F>(
        &self,
        by: &Principal,
        key: Option<IdempotencyKey>,
        act: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Responded<T>, E>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
        E: From<ClaimError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        let log = self.log.clone();
        let act = async move |claim: Option<Claim>| {
            let response = act().await?;
            if let Some(claim) = claim {
                let raw = to_raw_value(&response).expect("a response serializes");
                let mut records = Records::default();
                claim.put_response(raw, &mut records);
                if let Err(error) = log.write(records).await {
                    tracing::warn!(%error, "could not store the response of an idempotency key; a repeated request runs again");
                }
            }
            Ok(response)
        };
        let replay = async |previous: IdempotencyRecord| {
            let response = previous.response();
            Ok(response.map_err(ClaimError::from)?)
        };
        self.once(by, key, replay, act).await
    }

    /// Claims the key of a request, and returns the record of an earlier request with the same key. Fails if the key is in flight
    /// or was used with another body.
    async fn claim(
        &self,
        by: &Principal,
        key: IdempotencyKey,
    ) -> Result<(KeyedGuard<Vec<u8>>, Claim, Option<IdempotencyRecord>), ClaimError> {
        let tenant = by.user.tenant();
        let mut hash = Sha256::new();
        for part in [tenant.as_str(), by.user.name(), &key.route, &key.key] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let record_key = hash.finalize().to_vec();
        let in_flight = self
            .keys_in_flight
            .acquire(record_key.clone(), 1)
            .ok_or(IdempotencyError::InFlight)?;
        let stored: Option<IdempotencyRecord> = self.read(record_key.clone()).await?;
        let expiry = self.log.expiry();
        let previous = stored.filter(|record| record.expires_at > expiry.earliest_now());
        if let Some(previous) = &previous
            && previous.body_hash != key.body_hash
        {
            return Err(IdempotencyError::Mismatch.into());
        }
        let claim = Claim {
            record_key,
            record: IdempotencyRecord {
                body_hash: key.body_hash,
                expires_at: expiry.latest_now().after(IDEMPOTENCY_KEY_MAX_AGE),
                session: None,
                prompt: None,
                response: None,
            },
            key: key.key,
        };
        Ok((in_flight, claim, previous))
    }
}
