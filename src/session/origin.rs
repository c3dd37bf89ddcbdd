//! The origin of a session, and the capabilities that an agent needs for it.

use super::error::ProcessError;
use crate::acp::{self, AgentCapabilities};
use crate::types::SessionId;

/// The origin of a new session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    /// The agent already has the session.
    Adopted,
    /// The agent forked the session from another one.
    Forked(SessionId),
}

/// Checks whether the agent can fork a session and load the fork in another process.
pub(super) fn can_fork(capabilities: &AgentCapabilities) -> Result<(), ProcessError> {
    if !capabilities.session.fork {
        return Err(ProcessError::unsupported(acp::method::SESSION_FORK));
    }
    if !capabilities.load_session && !capabilities.session.resume {
        return Err(cannot_adopt());
    }
    Ok(())
}

/// The error if the agent cannot restore one of its sessions in another process.
pub(super) fn cannot_adopt() -> ProcessError {
    ProcessError::unsupported(
        "session/load or session/resume, so another process cannot restore its sessions",
    )
}
