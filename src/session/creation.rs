//! The creation of a session: new, adopted from the agent, or forked from another session.

use tokio::time::Instant;

use super::command::Reply;
use super::idempotency::Claim;
use super::refusal::Refusal;
use crate::acp::TraceContext;
use crate::agent::AgentFailure;
use crate::api::Session;
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

/// The client that waits for a new session, and the data that is written with the session.
#[derive(Debug)]
pub(super) struct CreateWaiter {
    pub(super) origin: Origin,
    pub(super) claim: Option<Claim>,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Session, u64)>,
    /// Until when the session waits for a process while all processes are busy.
    pub(super) deadline: Instant,
}

/// The error if the agent cannot move one of its sessions to another process.
pub(super) fn cannot_adopt() -> Refusal {
    let method = "session/load or session/resume, so its own sessions cannot be adopted".to_owned();
    Refusal::Agent(AgentFailure::Unsupported { method })
}
