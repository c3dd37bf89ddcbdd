//! Members of the fleet that exchange JSON messages (dialect `cca`) instead of the frames of `acp-gateway connect`.
//!
//! Such a member knows tasks, not processes. [`CcaMember`] takes the place of `connect`: towards the fleet it is a member with
//! channels, and each channel looks like a process that speaks ACP. A prompt becomes a task, and the result of the task ends
//! the turn. Therefore sessions, the pool and the log know nothing about the dialect.
//!
//! The module has no I/O. Reading order: [`message`] (the messages), [`member`] (a member and its channels), [`members`] (all
//! members).
//!
//! The dialect is no translation program (`translate`), because such a member connects without a program of this
//! project and runs no command on the gateway's machine. One socket carries all tasks of the member.
//!
//! The gateway never assigns a task twice. The protocol acknowledges no message, so a restarted gateway cannot know
//! whether the member received a task. The state therefore survives a lost connection, but not a restart of the
//! gateway. A second assignment after a reconnect could run a task twice.

mod member;
mod message;
mod members;
#[cfg(test)]
mod tests;

pub use member::{CcaError, CcaMember, Output};
pub use members::{CcaConnection, CcaMembers, OpenError, SendError};
pub use message::{BroadcastMessage, MAX_MESSAGE_BYTES};
