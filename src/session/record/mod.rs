//! The stored records of a session. Each is written in the commit of the event that changed it.
//!
//! This module owns the stored form of all records and their keys. Their version is the version of the store's
//! file (`src/store/sqlite/schema.rs`): a change that cannot read the old bytes needs a new version, and the gateway
//! rejects files of other versions. The types must not depend on types of the API, which change for other reasons.
//! Only `api` knows both. Enums and the policy are types of `types`, and a test compares the stored bytes.
//!
//! Reading order: `session`, `prompt`, `request`, `position`, `terminal`, `idempotency`, then `keys`, `codec` and `api`.

mod api;
mod codec;
mod idempotency;
mod keys;
mod position;
mod prompt;
mod request;
mod session;
mod terminal;

pub(super) use codec::decode;
pub use idempotency::IdempotencyRecord;
pub(super) use keys::{agent_session_prefix, numbered_key, session_key};
pub(super) use position::OutputPosition;
pub(super) use prompt::{PromptEdit, PromptRecord};
pub(super) use request::{PeerRequest, RequestRecord};
pub(super) use session::{FoldRecord, SessionRecord, SessionRecordView, StoredChannel, put_open};
pub(super) use terminal::{StoredExit, StoredTerminal, TerminalRecord};

#[cfg(test)]
mod tests;
