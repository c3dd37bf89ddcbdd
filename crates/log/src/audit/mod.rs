//! The audit log: changes of access rights, sign-ins, permission decisions, rejections and isolation levels.
//!
//! The audit log is one more log of the event log, under the id [`SessionId::AUDIT`](base::types::SessionId::AUDIT).
//! Its events are numbered without gaps, durable, and read by the same readers as the events of a session. No
//! function changes or deletes an event, except retention. Each event contains the hash of the previous one.
//!
//! An event reaches the log in one of four ways:
//!
//! - [`Audit::append`] appends it and never waits. It is durable no later than every event that is appended to a
//!   session afterwards.
//! - [`pending_entry`] is a record for the commit of a change to the store. The change and its event are then atomic,
//!   also in a command beside a running gateway. The gateway moves the record to the log within a second.
//! - [`Audit::session_read`] and [`Audit::transcript_exported`] append the first read of a reader in an hour.
//! - [`CountedEvents`] counts events that a client or an agent can repeat without bound. It writes the first one, and
//!   the number of the others at the end of a time window.
//!
//! The module must not know keys, sessions or HTTP. Its callers decide what is an event.
//!
//! Reading order: `chain`, `counted`, `reads`, `log`.

mod chain;
mod counted;
mod log;
mod reads;

pub use chain::{Archive, ArchiveError, ChainError, ExportError, Verified, verify_export};
pub use counted::{Counted, CountedEvents};
pub use log::{Audit, SignInRecord, pending_entries, pending_entry};
