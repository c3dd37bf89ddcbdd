//! Operations without a session of their own that run once for each idempotency key.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tracing::Instrument;

use super::SessionRegistry;
use crate::eventlog::Records;
use crate::session::error::{ClaimError, SessionError};
use crate::session::idempotency::{Claim, IdempotencyKey};
use crate::types::Principal;

/// The response of an operation, or of an earlier request with the same idempotency key.
#[derive(Debug)]
pub struct Responded<T> {
    pub response: T,
    pub replayed: bool,
}

impl SessionRegistry {
    /// Runs `act`, or returns the response of an earlier request with the same key. The operation continues if the caller is
    /// dropped. The response is stored after the operation: a crash between both runs a repeated request again.
    pub async fn respond_once<T, E, F>(
        &self,
        by: &Principal,
        key: Option<IdempotencyKey>,
        act: impl FnOnce() -> F + Send + 'static,
    ) -> Result<Responded<T>, E>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<ClaimError> + From<SessionError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        let (registry, by) = (self.clone(), by.clone());
        let responded = async move {
            let claimed = registry
                .entries
                .idempotency()
                .claim(&by, key.as_ref())
                .await?;
            if let Some(response) = claimed.previous.and_then(|previous| previous.response) {
                let response = serde_json::from_str(response.get()).map_err(SessionError::from)?;
                return Ok(Responded {
                    response,
                    replayed: true,
                });
            }
            let response = act().await?;
            if let Some(claim) = &claimed.claim {
                let raw = to_raw_value(&response).expect("a response serializes");
                registry.store_response(claim, raw).await;
            }
            drop(claimed.in_flight);
            Ok(Responded {
                response,
                replayed: false,
            })
        };
        let running = self
            .context()
            .shutdown
            .spawn_isolated(responded.in_current_span());
        running.await.map_err(SessionError::from)?
    }

    async fn store_response(&self, claim: &Claim, response: Box<RawValue>) {
        let mut records = Records::default();
        claim.put_response(response, &mut records);
        if let Err(error) = self.context().log.write(records).await {
            tracing::warn!(%error, "could not store the response of an idempotency key; a repeated request runs again");
        }
    }
}
