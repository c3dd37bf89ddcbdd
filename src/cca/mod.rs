//! Members of the fleet that exchange JSON messages (dialect `cca`) instead of the frames of `acp-gateway connect`.
//!
//! Such a member knows tasks, not processes. [`CcaMember`] takes the place of `connect`: towards the fleet it is a member with
//! channels, and each channel looks like a process that speaks ACP. A prompt becomes a task, and the result of the task ends
//! the turn. Therefore sessions, the pool and the log know nothing about the dialect.
//!
//! The module has no I/O. Reading order: [`message`] (the messages), [`process`] (one channel), [`member`], [`registry`] (all
//! members).

mod member;
mod message;
mod process;
mod registry;
#[cfg(test)]
mod tests;

pub use member::{CcaError, CcaMember, Output};
pub use message::{BroadcastMessage, MAX_MESSAGE_BYTES};
pub use registry::{CcaConnection, CcaMembers, OpenError, SendError};
