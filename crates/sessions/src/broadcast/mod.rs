//! Broadcasts: one message to processes and sessions of a user and to members of the tenant, with a report of each target.
//!
//! The module selects the destinations and delivers the message to each of them within a deadline. It must not know HTTP. A
//! notification goes to processes through the pool, so no session decides about it. A prompt goes through the handle of its
//! session, as every prompt.
//!
//! Reading order: [`selection`] (targets to destinations), [`delivery`] (the forms of the message, and one destination), and
//! [`sender`] (the whole broadcast).
//!
//! Rules of the design:
//!
//! - A notification does not pass through the actors of sessions. The pool also knows processes without a session,
//!   and a command to an actor would load an idle session.
//! - A target counts as reached only after its transport reports the delivery. A line in the queue proves nothing,
//!   because the process may not read its stdin.
//! - The sender does not withdraw a line after a timeout, because a partial line breaks the protocol.
//! - A prompt to `all` selects only sessions with a process. A prompt to every stored session would start a process
//!   for each.
//! - The rate is a constant and counts exactly. A bucket with a configured rate permits bursts, and a broadcast
//!   multiplies a burst by the number of its targets.
//! - After a crash between a delivery and the commit of the report, a retry repeats the notification. Prompts have
//!   derived idempotency keys, so a retry does not repeat them.

mod delivery;
mod selection;
mod sender;

pub use delivery::Parts;
pub use sender::{BroadcastError, Broadcasts, MAX_CONTENT_BYTES, MAX_TARGETS};
