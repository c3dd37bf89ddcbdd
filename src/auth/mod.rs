//! Keys, tickets, and the policy for Host and Origin: who may ask at all.
//!
//! It decides over `http::request::Parts` and the peer's address and gives a [`crate::types::Principal`].
//! It must not know axum, statuses, routes beyond what is public, or the configuration. What a principal
//! may do with a route is asked there, by its scopes.

mod admission;
mod failures;
mod hosts;
mod key;
mod keys;
mod policy;
mod tickets;

pub use admission::{Admission, Credential, AdmissionError};
pub use key::{Key, KeyHash, KeyId, KeyKind, KeyText};
pub use keys::{
    CreateKeyError, KeyChange, KeyStoreError, Keys, NewKey, RevokeError, UpdateKeyError, Verified,
};
pub use policy::{Policy, PolicyOptions};
pub use tickets::{IssuedTicket, TicketError, TicketStoreError, TicketGuard, Tickets};
