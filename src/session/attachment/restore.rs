//! Restores a session at the agent: which errors end the conversation, and when the next attempt happens.
//!
//! After an error, a new agent session begins only if the former one does not exist, or if the agent can neither
//! load nor resume. A missing sign-in and a failed import reject the attach. Every other error is transient.

use tokio::time::Instant;

use super::setup::AttachMethod;
use crate::acp::{AgentCapabilities, RestoreFailure};
use crate::event::LostReason;
use crate::jsonrpc::RpcError;
use crate::types::limits::{RESTORE_ATTEMPTS, RESTORE_BACKOFF_MAX, RESTORE_BACKOFF_MIN};

/// The failed attempts to restore the session since a process was first requested for it.
#[derive(Debug)]
pub(super) struct Restoring {
    /// No attempt happens after this time.
    pub(super) deadline: Instant,
    attempts: u32,
    /// Whether another process uses the session.
    pub(super) in_use: bool,
    pub(super) error: RpcError,
}

/// The facts that decide how a process gets the session.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct Setup<'a> {
    /// Whether the session was adopted or forked, so the agent already has it.
    pub(in crate::session) is_imported: bool,
    /// Whether the agent has a session for this one.
    pub(in crate::session) has_agent_session: bool,
    /// Whether a new agent session may replace an empty one. Some agents cannot restore empty sessions.
    pub(in crate::session) replaces_empty: bool,
    pub(in crate::session) capabilities: &'a AgentCapabilities,
}

impl Setup<'_> {
    /// The method that creates or restores the session. `None` if the agent cannot move its own sessions.
    pub(in crate::session) fn method(self) -> Option<AttachMethod> {
        let capabilities = self.capabilities;
        if self.is_imported {
            // With its history, if the agent can replay it.
            return match (capabilities.can_replay, capabilities.session.resume) {
                (true, _) => Some(AttachMethod::Load),
                (false, true) => Some(AttachMethod::Resume),
                (false, false) => None,
            };
        }
        Some(match self.has_agent_session {
            false => AttachMethod::New,
            true if self.replaces_empty => AttachMethod::Fresh,
            true if capabilities.session.resume => AttachMethod::Resume,
            true if capabilities.load_session => AttachMethod::Load,
            true => AttachMethod::Fresh,
        })
    }
}

/// The step after the agent did not resume or load the session.
#[derive(Debug)]
pub(in crate::session) enum RestoreStep {
    /// The agent did not resume the session, and may be able to load it. The error is that of the resume.
    Load(RpcError),
    /// The agent loads the session only after a sign-in.
    SignIn(RpcError),
    Reject(RpcError),
    /// A new agent session begins without the conversation.
    Begin(LostReason, RpcError),
    /// Another attempt may succeed. `in_use`: another process uses the session.
    Retry {
        error: RpcError,
        in_use: bool,
    },
}

/// The failed attempt to restore the session.
#[derive(Debug, Clone, Copy)]
pub(in crate::session) struct RestoreAttempt<'a> {
    pub(in crate::session) method: AttachMethod,
    /// The agent's id of the session.
    pub(in crate::session) agent_session: &'a str,
    pub(in crate::session) can_load: bool,
    /// Whether the session is being adopted or forked.
    pub(in crate::session) is_imported: bool,
}

impl RestoreStep {
    /// Decides the step after `error`. `resume` is the agent's error to the `session/resume` that preceded a
    /// `session/load`.
    pub(in crate::session) fn after(
        attempt: RestoreAttempt<'_>,
        error: RpcError,
        resume: Option<RpcError>,
    ) -> Self {
        let failure = RestoreFailure::classify(&error, attempt.agent_session);
        let may_load = !matches!(
            failure,
            RestoreFailure::InUse | RestoreFailure::AuthRequired
        );
        if attempt.method == AttachMethod::Resume && attempt.can_load && may_load {
            return Self::Load(error);
        }
        // Some agents advertise both methods and implement one. The error of the implemented method counts.
        let (failure, error) = match (failure, resume) {
            (RestoreFailure::Unsupported, Some(resume)) => (
                RestoreFailure::classify(&resume, attempt.agent_session),
                resume,
            ),
            (failure, _) => (failure, error),
        };
        match failure {
            RestoreFailure::AuthRequired if attempt.method == AttachMethod::Load => {
                Self::SignIn(error)
            }
            RestoreFailure::AuthRequired => Self::Reject(error),
            RestoreFailure::InUse => Self::Retry {
                error,
                in_use: true,
            },
            _ if attempt.is_imported => Self::Reject(error),
            RestoreFailure::NotFound => Self::Begin(LostReason::NotFound, error),
            RestoreFailure::Unsupported => Self::Begin(LostReason::Unsupported, error),
            RestoreFailure::Other => Self::Retry {
                error,
                in_use: false,
            },
        }
    }
}

/// The effect of another failed attempt.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) struct Retry {
    /// Whether other sessions may use the process. False if at least two attempts failed and the last error is
    /// not "session in use". The process is then stopped.
    pub(in crate::session) is_healthy: bool,
    /// When the next attempt happens. `None`: the attempts are exhausted.
    pub(in crate::session) at: Option<Instant>,
}

impl Restoring {
    /// Counts another failed attempt. `deadline`: that of all attempts, if this is the first one.
    pub(super) fn after(
        former: Option<Self>,
        error: RpcError,
        in_use: bool,
        deadline: Instant,
    ) -> Self {
        let (deadline, attempts) =
            former.map_or((deadline, 0), |former| (former.deadline, former.attempts));
        Self {
            deadline,
            attempts: attempts + 1,
            in_use,
            error,
        }
    }

    /// The effect of the last failed attempt.
    pub(super) fn retry(&self, now: Instant) -> Retry {
        let doubled =
            RESTORE_BACKOFF_MIN * 2_u32.saturating_pow(self.attempts.saturating_sub(1).min(16));
        let at = now + doubled.min(RESTORE_BACKOFF_MAX);
        let exhausted = at >= self.deadline || (!self.in_use && self.attempts >= RESTORE_ATTEMPTS);
        Retry {
            is_healthy: self.in_use || self.attempts < 2,
            at: (!exhausted).then_some(at),
        }
    }
}
