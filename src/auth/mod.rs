//! Authentication: keys, tickets, and the policy for `Host` and `Origin`.
//!
//! The policy decides on `http::request::Parts` and the address of the peer, and returns an [`Admission`]
//! with a [`base::types::Principal`]. This module must not know axum, status codes, the configuration, or
//! routes other than the public paths. Each route checks the scopes of the principal itself.
//!
//! Begin with `policy`, which uses `keys` and `tickets`.

mod key;
mod keys;
pub mod limits;
mod network;
mod policy;
mod tickets;
mod users;

pub use key::{Key, KeyHash, KeyId, KeyText};
pub use keys::{
    CreateKeyError, GrantError, KeyChange, KeyStoreError, Keys, NewKey, NewOwnKey, OwnKeyError,
    RevokeError, UpdateKeyError, UpdateUserError, UserChange, Verified,
};
pub use network::{Network, NetworkError};
pub use policy::{Admission, AdmissionError, Credential, INVALID_TOKEN, Policy, PolicyOptions};
pub use tickets::{IssuedTicket, TicketGuard, TicketStoreError, Tickets};
pub use users::{ActAsError, Roles, UserInfo};
