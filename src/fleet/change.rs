//! The changes of the state of members, for observers.

use std::sync::Arc;

use crate::types::AgentName;
use crate::types::text::one_line;

/// The reasons of removals.
pub const REMOVED_TEXT: &str = "an operator removed the member from the fleet";
pub const KEY_ENDED_TEXT: &str =
    "the key of the member has ended, or does not permit its name any more";
/// The maximum number of bytes of an error that a member reports.
const ERROR_BYTES: usize = 512;

/// A state of a member that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedState {
    Connected,
    /// The connection was lost, and the processes of the member wait for its return.
    Reconnecting,
    /// The member did not return in time, or was removed. Its processes are lost.
    Disconnected,
    /// The gateway rejected the member.
    Failed,
}

/// A change of the state of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberChange {
    pub name: AgentName,
    /// The name of the key with which the member connects.
    pub key: Arc<str>,
    pub state: PublishedState,
    /// The number of failed attempts before a connection, which the member reports.
    pub attempt: u32,
    /// The cause of the state. For a connection, the member reports the cause of its last failed attempt.
    pub error: Option<String>,
}

/// An error that a member reports, bounded and in one line.
pub(super) fn shown_error(error: &str) -> String {
    let end = error.floor_char_boundary(ERROR_BYTES.min(error.len()));
    one_line(&error[..end])
}
