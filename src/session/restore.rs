//! Restores a session at the agent: which errors end the conversation, and when the next attempt happens.
//!
//! A new agent session begins only if the former one does not exist, or if the agent can neither load nor
//! resume. Every other error is transient.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::{AttachMethod, Attachment};
use super::background_work::PromptWork;
use super::creation::Origin;
use super::refusal::Refusal;
use super::replay::Replay;
use super::sign_in::LoadSignIn;
use crate::acp::{self, RestoreFailure};
use crate::agent::Process;
use crate::event::LostReason;
use crate::jsonrpc::RpcError;
use crate::pool::{Disposition, RequestedSession};
use crate::types::Timestamp;
use crate::types::limits::{LOAD_DEFERRAL_MAX, RESTORE_ATTEMPTS, RESTORE_BACKOFF_MAX, RESTORE_BACKOFF_MIN};

/// The progress of restoring the session.
#[derive(Debug, Default)]
pub(super) struct Restore {
    /// Failed attempts, while the agent has not restored the session yet.
    pub(super) restoring: Option<Restoring>,
    /// Why the new agent session does not have the conversation.
    pub(super) lost_context: Option<LostContext>,
    /// A replay after `session/load` that may still deliver history.
    pub(super) replay: Option<Replay>,
    /// The agent reported that it restored the session, and has not accepted a prompt since.
    pub(super) unproven: bool,
    pub(super) load_sign_in: LoadSignIn,
}

/// The failed attempts to restore the session since a process was first requested for it.
#[derive(Debug)]
pub(super) struct Restoring {
    /// No attempt happens after this time.
    deadline: Instant,
    attempts: u32,
    /// Whether another process uses the session.
    in_use: bool,
    error: RpcError,
}

/// Why the agent lost the context of the session.
#[derive(Debug)]
pub(super) struct LostContext {
    pub(super) reason: LostReason,
    pub(super) detail: Option<String>,
}

impl LostContext {
    pub(super) fn unsupported() -> Self {
        Self { reason: LostReason::Unsupported, detail: None }
    }
}

impl Restoring {
    /// The time until the next attempt.
    fn backoff(&self) -> Duration {
        let doubled = RESTORE_BACKOFF_MIN * 2_u32.saturating_pow(self.attempts.saturating_sub(1).min(16));
        doubled.min(RESTORE_BACKOFF_MAX)
    }
}

impl Actor {
    /// The agent session for which the pool selects a process.
    pub(super) fn wanted_session(&self) -> Option<RequestedSession> {
        let session: Arc<str> = self.record.agent_session_id.as_deref()?.into();
        Some(RequestedSession {
            session,
            in_use: self.restore.restoring.as_ref().is_some_and(|restoring| restoring.in_use),
        })
    }

    /// Handles the agent's refusal to resume or load the session. `resume` is the agent's error to the
    /// `session/resume` that preceded a `session/load`.
    pub(super) fn restore_refused(&mut self, by: AttachMethod, error: RpcError, resume: Option<RpcError>) {
        let id = self.record.agent_session_id.clone().unwrap_or_default();
        let failure = RestoreFailure::classify(&error, &id);
        let may_load = !matches!(failure, RestoreFailure::InUse | RestoreFailure::AuthRequired);
        if by == AttachMethod::Resume && self.can_load() && may_load {
            tracing::info!(session = %self.record.session_id, %error, "session/resume failed; trying session/load");
            return self.set_up(AttachMethod::Load, Some(error));
        }
        // Some agents advertise both methods and implement one. The error of the implemented method counts.
        let (failure, error) = match (failure, resume) {
            (RestoreFailure::Unsupported, Some(resume)) => (RestoreFailure::classify(&resume, &id), resume),
            (failure, _) => (failure, error),
        };
        let origin = self.create_waiter.as_ref().map(|creating| creating.origin);
        let is_new_here = origin.is_some_and(|origin| origin != Origin::New);
        match failure {
            RestoreFailure::AuthRequired if by == AttachMethod::Load => self.sign_in_for_load(error),
            RestoreFailure::AuthRequired => self.setup_rejected(error),
            RestoreFailure::InUse => self.retry_restore(failure, error),
            _ if is_new_here => self.setup_rejected(error),
            RestoreFailure::NotFound => self.begin_new_agent_session(LostReason::NotFound, &error),
            RestoreFailure::Unsupported => self.begin_new_agent_session(LostReason::Unsupported, &error),
            RestoreFailure::Other => self.retry_restore(failure, error),
        }
    }

    /// Begins a new agent session on the same process, because the agent does not have the former one.
    pub(super) fn begin_new_agent_session(&mut self, reason: LostReason, error: &RpcError) {
        let detail = error.to_string();
        self.restore.lost_context = Some(LostContext { reason, detail: Some(detail) });
        self.set_up(AttachMethod::Fresh, None);
    }

    /// Whether the agent rejected the session id of a prompt.
    pub(super) fn is_session_rejected(&self, error: &RpcError) -> bool {
        self.record.agent_session_id.as_deref().is_some_and(|id| acp::rejects_session(error, id))
    }

    /// Continues the turn in a new agent session, because the agent does not have the restored one.
    pub(super) fn run_in_new_session(&mut self, error: &RpcError) {
        self.withdraw_requests();
        if let Some(turn) = &mut self.turn {
            turn.call = None;
            turn.work = PromptWork::default();
        }
        self.begin_new_agent_session(LostReason::RejectedSession, error);
    }

    /// Releases the process and schedules the next attempt, on the same or another process.
    fn retry_restore(&mut self, failure: RestoreFailure, error: RpcError) {
        let Some(lease) = &self.event_loop.lease else { return };
        let in_use = failure == RestoreFailure::InUse;
        if in_use && let Some(id) = &self.record.agent_session_id {
            lease.session_in_use(id);
        }
        tracing::info!(session = %self.record.session_id, %error, in_use, "the agent did not restore the session; retrying");
        let now = Instant::now();
        let (end, attempts) = match &self.restore.restoring {
            Some(former) => (former.deadline, former.attempts),
            None => (now + self.context.limits.restore_timeout, 0),
        };
        let restoring = Restoring { deadline: end, attempts: attempts + 1, in_use, error };
        let at = now + restoring.backoff();
        let exhausted = at >= end || (!in_use && restoring.attempts >= RESTORE_ATTEMPTS);
        // After two failures for the process's own reasons, the process is stopped.
        let healthy = in_use || restoring.attempts < 2;
        let refusal = Refusal::NotRestored(restoring.error.clone());
        self.restore.restoring = Some(restoring);
        self.release(if healthy { Disposition::Reuse } else { Disposition::Stop }, &refusal);
        if exhausted {
            return self.attach_failed(&refusal);
        }
        self.attachment = Attachment::Retrying { at };
    }

    /// Ends the back-off: the session asks for a process again.
    pub(super) fn end_restore_backoff(&mut self) {
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.attach_failed(&refusal);
        }
    }

    /// The time until which the session waits for a process that can restore it.
    pub(super) fn restore_deadline(&self) -> Option<Instant> {
        self.restore.restoring.as_ref().map(|restoring| restoring.deadline)
    }

    /// The error if no process has restored the session in time.
    pub(super) fn restore_failure(&self) -> Option<Refusal> {
        self.restore.restoring.as_ref().map(|restoring| Refusal::NotRestored(restoring.error.clone()))
    }

    /// Whether the agent's session contains a conversation that a new session would lose.
    pub(super) fn has_history(&self) -> bool {
        let not_answered = self.queue.len() + usize::from(self.turn.is_some());
        self.record.inherits_history || self.record.last_prompt as usize > not_answered
    }

    /// Whether to replace an empty agent session by a new one. Some agents cannot restore empty sessions.
    pub(super) fn replaces_empty_session(&self, process: &Process) -> bool {
        let untouched = !self.has_history() && !self.record.called;
        untouched && !acp::restores_empty_sessions(process.initialized.agent_info.as_deref())
    }

    /// When the agent may load the session that it has just created. `None`: at once.
    pub(super) fn earliest_load(&self) -> Option<Timestamp> {
        let process = self.event_loop.lease.as_ref()?.process();
        acp::earliest_load(process.initialized.agent_info.as_deref(), self.context.ids.now())
    }

    /// When the session may ask for a process, if the agent must not load the session yet.
    pub(super) fn deferred_load(&self) -> Option<Instant> {
        let wait =
            self.record.load_not_before?.as_millis().saturating_sub(self.context.ids.now().as_millis());
        // If the wall clock was set back, the wait does not become longer.
        let wait = Duration::from_millis(u64::try_from(wait).ok()?).min(LOAD_DEFERRAL_MAX);
        (!wait.is_zero()).then(|| Instant::now() + wait)
    }
}
