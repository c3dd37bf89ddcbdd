//! Broadcasts: one message to the processes, sessions and members of a tenant, with a report of each target.
//!
//! The module selects the destinations and delivers the message to each of them within a deadline. It must not know HTTP. A
//! notification goes to processes through the pool, so no session decides about it. A prompt goes through the handle of its
//! session, as every prompt.
//!
//! Reading order: [`message`] (the forms of the message), [`selection`] (targets to destinations), [`delivery`] (one
//! destination), [`rate`], [`sender`] with [`parts`] (the whole broadcast).

mod delivery;
mod message;
mod parts;
mod rate;
mod selection;
mod sender;

pub use message::Broadcast;
pub use parts::Parts;
pub use sender::{BroadcastError, Broadcasts, MAX_CONTENT_BYTES, MAX_TARGETS};
