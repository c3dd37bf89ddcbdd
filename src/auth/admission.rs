//! The results of the policy: an admission or an error.

use std::net::IpAddr;
use std::time::Duration;

use super::keys::{Keys, Verified};
use super::tickets::TicketGuard;
use crate::event::RejectReason;
use crate::types::{Author, Principal};

/// An admitted request.
#[derive(Debug)]
pub struct Admission {
    /// The address of the client: the peer's, or the one that a trusted proxy reports.
    pub client: IpAddr,
    /// The key or ticket of the request; `None` for public paths and CORS preflights.
    pub credential: Option<Credential>,
    /// Whether the request is a CORS preflight, which only the CORS layer handles.
    pub preflight: bool,
}

impl Admission {
    pub fn principal(&self) -> Option<&Principal> {
        self.credential
            .as_ref()
            .map(|credential| &credential.verified.principal)
    }

    /// The author of changes that the request makes; `None` without a key.
    pub fn author(&self) -> Option<Author> {
        self.credential
            .as_ref()
            .map(|credential| credential.verified.author(self.client))
    }

    /// Completes when the key of the request has ended; never completes without a key. Cancel-safe.
    pub async fn wait_key_ended(&self) {
        match &self.credential {
            Some(credential) => credential.keys.wait_ended(&credential.verified).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the key of the request is still valid; true without a key.
    pub fn is_key_valid(&self) -> bool {
        self.credential
            .as_ref()
            .is_none_or(|credential| credential.keys.is_valid(&credential.verified))
    }
}

/// The key of a request. A stream keeps it and ends when the key ends.
#[derive(Debug)]
pub struct Credential {
    keys: Keys,
    verified: Verified,
    /// Keeps the ticket valid while the stream is open.
    ticket: Option<TicketGuard>,
}

impl Credential {
    /// `verified` is the current state of the key, also for a ticket of the key.
    pub(super) fn new(keys: &Keys, verified: Verified, ticket: Option<TicketGuard>) -> Self {
        Self {
            keys: keys.clone(),
            verified,
            ticket,
        }
    }

    pub fn verified(&self) -> &Verified {
        &self.verified
    }

    pub fn principal(&self) -> &Principal {
        &self.verified.principal
    }

    /// Whether the request has authenticated with `?ticket=`.
    pub fn is_ticket(&self) -> bool {
        self.ticket.is_some()
    }
}

/// The challenge for a key that is not valid, or no longer valid (RFC 6750, section 3.1).
pub const INVALID_TOKEN: &str = "Bearer realm=\"acp-gateway\", error=\"invalid_token\"";

/// Why the policy rejects a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error("the request must name its host in one `Host` header (RFC 9112, section 3.2)")]
    InvalidHost,
    #[error(
        "the host name is not a name of this gateway: set server.public_url, or add the name to server.allowed_hosts"
    )]
    MisdirectedRequest,
    #[error("pages of this origin must not use this gateway: add the origin to allowed_origins")]
    OriginForbidden,
    #[error("this path requires a key: send it as Authorization: Bearer KEY")]
    MissingKey,
    #[error("this key is not valid")]
    InvalidKey,
    #[error("this ticket is not valid: create a new one")]
    InvalidTicket,
    #[error("too many invalid keys from this address (`auth.max_failed_keys_per_minute`)")]
    TooManyInvalidKeys { retry_after: Duration },
}

impl AdmissionError {
    /// The challenge of a response with status 401, as the value of `WWW-Authenticate` (RFC 6750, section 3.1). A request
    /// without a key gets no error code.
    pub const fn challenge(&self) -> &'static str {
        match self {
            Self::InvalidKey | Self::InvalidTicket => INVALID_TOKEN,
            _ => "Bearer realm=\"acp-gateway\"",
        }
    }

    /// The reason in the audit log.
    pub(super) const fn audit_reason(&self) -> RejectReason {
        match self {
            Self::InvalidHost | Self::MisdirectedRequest => RejectReason::MisdirectedRequest,
            Self::OriginForbidden => RejectReason::OriginForbidden,
            Self::MissingKey => RejectReason::MissingKey,
            Self::InvalidKey => RejectReason::InvalidKey,
            Self::InvalidTicket => RejectReason::InvalidTicket,
            Self::TooManyInvalidKeys { .. } => RejectReason::TooManyInvalidKeys,
        }
    }
}
