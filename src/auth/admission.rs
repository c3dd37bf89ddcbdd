//! What the policy answers.

use std::net::IpAddr;
use std::time::Duration;

use super::key::KeyId;
use super::keys::{Keys, Verified};
use super::tickets::TicketGuard;
use crate::types::Principal;

/// A request that may go on.
#[derive(Debug)]
pub struct Admission {
    /// The client's address: the peer's, or what a proxy of ours says.
    pub client: IpAddr,
    /// By what it came in; none for what is public, and for a preflight.
    pub credential: Option<Credential>,
    /// An `OPTIONS` that a browser sends before the real request: answer it by CORS and no further.
    pub preflight: bool,
}

impl Admission {
    pub fn principal(&self) -> Option<&Principal> {
        self.credential.as_ref().map(|credential| &credential.verified.principal)
    }

    /// Resolves when the key behind the request was revoked or ended; never without one. Cancel-safe.
    pub async fn wait_key_ended(&self) {
        match &self.credential {
            Some(credential) => credential.wait_ended().await,
            None => std::future::pending().await,
        }
    }

    /// Whether the key behind the request still holds; true without one.
    pub fn is_key_valid(&self) -> bool {
        self.credential.as_ref().is_none_or(|credential| credential.keys.is_valid(&credential.verified))
    }
}

/// The key behind a request. A stream keeps it and ends with it.
#[derive(Debug)]
pub struct Credential {
    keys: Keys,
    verified: Verified,
    /// Keeps the ticket alive while the stream lives.
    ticket: Option<TicketGuard>,
}

impl Credential {
    pub(super) fn from_key(keys: Keys, verified: Verified) -> Self {
        Self { keys, verified, ticket: None }
    }

    /// `verified` is the ticket's holder as it is now.
    pub(super) fn from_ticket(keys: Keys, verified: Verified, ticket: TicketGuard) -> Self {
        Self { keys, verified, ticket: Some(ticket) }
    }

    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    pub fn principal(&self) -> &Principal {
        &self.verified.principal
    }

    pub fn key_id(&self) -> &KeyId {
        &self.verified.key
    }

    /// Whether it came by `?ticket=`.
    pub fn is_ticket(&self) -> bool {
        self.ticket.is_some()
    }

    async fn wait_ended(&self) {
        self.keys.wait_ended(&self.verified).await;
    }
}

/// A request that goes no further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error("this gateway is not known by that name; see public_url")]
    MisdirectedRequest,
    #[error("pages of that origin may not use this gateway; see allowed_origins")]
    OriginForbidden,
    #[error("a key is needed: Authorization: Bearer")]
    MissingKey,
    #[error("this key does not hold")]
    InvalidKey,
    #[error("this ticket does not hold; get a new one")]
    InvalidTicket,
    #[error("too many wrong keys from this address (`limits.bad_keys_per_minute`)")]
    TooManyInvalidKeys { retry_after: Duration },
}
