//! Restoring a session that the agent has: which of its refusals end the conversation, and when it is asked again.
//!
//! A new agent session begins only if the agent reports that the former one does not exist, or if it can neither load
//! nor resume. Every other refusal is transient.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::{Attachment, By};
use super::creation::Origin;
use super::foreground::Work;
use super::refusal::Refusal;
use super::replay::Replay;
use super::sign_in::LoadSignIn;
use crate::acp::{self, RestoreFailure};
use crate::agent::Process;
use crate::api::event::LostReason;
use crate::jsonrpc::RpcError;
use crate::pool::{Fate, Wanted};
use crate::types::Timestamp;
use crate::types::limits::{LOAD_DEFERRAL_MAX, RESTORE_ATTEMPTS, RESTORE_BACKOFF_MAX, RESTORE_BACKOFF_MIN};

/// How far the agent is with restoring the session.
#[derive(Debug, Default)]
pub(super) struct Restore {
    /// The agent has not restored the session yet.
    pub(super) restoring: Option<Restoring>,
    /// Why the agent session that is being made does not have the conversation.
    pub(super) lost_context: Option<LostContext>,
    /// History may still come of a session that was loaded.
    pub(super) replay: Option<Replay>,
    /// The agent reported that it has restored the session, and has not answered a prompt since.
    pub(super) unproven: bool,
    pub(super) load_sign_in: LoadSignIn,
}

/// Refusals to restore the session, since a process was first asked for it.
#[derive(Debug)]
pub(super) struct Restoring {
    /// After this time the session is not asked for again.
    end: Instant,
    attempts: u32,
    /// Another process uses the session.
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
    /// The session that the pool is asked to find a process for.
    pub(super) fn wanted_session(&self) -> Option<Wanted> {
        let session: Arc<str> = self.record.agent_session_id.as_deref()?.into();
        Some(Wanted {
            session,
            in_use: self.restore.restoring.as_ref().is_some_and(|restoring| restoring.in_use),
        })
    }

    /// The agent refused to resume or load the session. `resume` is its answer to the resume that came before a load.
    pub(super) fn restore_refused(&mut self, by: By, error: RpcError, resume: Option<RpcError>) {
        let id = self.record.agent_session_id.clone().unwrap_or_default();
        let failure = RestoreFailure::of(&error, &id);
        let may_load = !matches!(failure, RestoreFailure::InUse | RestoreFailure::AuthRequired);
        if by == By::Resume && self.can_load() && may_load {
            tracing::info!(session = %self.record.session_id, %error, "resume failed, loading");
            return self.set_up(By::Load, Some(error));
        }
        // An agent that advertises both methods and implements one: the other one counts.
        let (failure, error) = match (failure, resume) {
            (RestoreFailure::Unsupported, Some(resume)) => (RestoreFailure::of(&resume, &id), resume),
            (failure, _) => (failure, error),
        };
        let origin = self.creating.as_ref().map(|creating| creating.origin);
        let is_new_here = origin.is_some_and(|origin| origin != Origin::New);
        match failure {
            RestoreFailure::AuthRequired if by == By::Load => self.sign_in_for_load(error),
            RestoreFailure::AuthRequired => self.not_taken(error),
            RestoreFailure::InUse => self.retry_restore(failure, error),
            _ if is_new_here => self.not_taken(error),
            RestoreFailure::NotFound => self.begin_anew(LostReason::NotFound, &error),
            RestoreFailure::Unsupported => self.begin_anew(LostReason::Unsupported, &error),
            RestoreFailure::Other => self.retry_restore(failure, error),
        }
    }

    /// Begins a new session of the agent on the same process: the agent does not have the former one.
    pub(super) fn begin_anew(&mut self, reason: LostReason, error: &RpcError) {
        let detail = error.to_string();
        self.restore.lost_context = Some(LostContext { reason, detail: Some(detail) });
        self.set_up(By::Fresh, None);
    }

    /// Whether the agent rejected the session id of a prompt.
    pub(super) fn is_session_rejected(&self, error: &RpcError) -> bool {
        self.record.agent_session_id.as_deref().is_some_and(|id| acp::rejects_session(error, id))
    }

    /// The agent reported that it had restored the session, but does not have it. The turn goes on in a new one.
    pub(super) fn run_in_new_session(&mut self, error: &RpcError) {
        self.withdraw_requests();
        if let Some(turn) = &mut self.turn {
            turn.call = None;
            turn.work = Work::default();
        }
        self.begin_anew(LostReason::RejectedSession, error);
    }

    /// Gives the process back and asks again later, on the same or another process.
    fn retry_restore(&mut self, failure: RestoreFailure, error: RpcError) {
        let Some(lease) = &self.inputs.lease else { return };
        let in_use = failure == RestoreFailure::InUse;
        if in_use && let Some(id) = &self.record.agent_session_id {
            lease.session_in_use(id);
        }
        tracing::info!(session = %self.record.session_id, %error, in_use, "the agent does not restore the session yet");
        let now = Instant::now();
        let (end, attempts) = match &self.restore.restoring {
            Some(former) => (former.end, former.attempts),
            None => (now + self.context.limits.restore_timeout, 0),
        };
        let restoring = Restoring { end, attempts: attempts + 1, in_use, error };
        let at = now + restoring.backoff();
        let exhausted = at >= end || (!in_use && restoring.attempts >= RESTORE_ATTEMPTS);
        // A process that has refused twice for a reason of its own is not asked a third time.
        let sound = in_use || restoring.attempts < 2;
        let refusal = Refusal::NotRestored(restoring.error.clone());
        self.restore.restoring = Some(restoring);
        self.release(if sound { Fate::Reuse } else { Fate::Stop }, &refusal);
        if exhausted {
            return self.unattached(&refusal);
        }
        self.attachment = Attachment::Retrying { at };
    }

    /// The pause is over: the session waits for a process again.
    pub(super) fn restore_again(&mut self) {
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.unattached(&refusal);
        }
    }

    /// Until when the session waits for a process that can restore it.
    pub(super) fn restore_deadline(&self) -> Option<Instant> {
        self.restore.restoring.as_ref().map(|restoring| restoring.end)
    }

    /// Why no process has restored the session in time.
    pub(super) fn not_restored(&self) -> Option<Refusal> {
        self.restore.restoring.as_ref().map(|restoring| Refusal::NotRestored(restoring.error.clone()))
    }

    /// Whether the agent's session holds a conversation that a new session would not have.
    pub(super) fn has_history(&self) -> bool {
        let not_answered = self.queue.len() + usize::from(self.turn.is_some());
        self.record.inherits_history || self.record.last_prompt as usize > not_answered
    }

    /// Whether a new session at the agent replaces one that is still empty, because the agent cannot restore it.
    pub(super) fn begins_anew(&self, process: &Process) -> bool {
        let untouched = !self.has_history() && !self.record.called;
        untouched && !acp::restores_empty_sessions(process.initialized.agent_info.as_deref())
    }

    /// When the agent may load the session that it has just begun, if not at once.
    pub(super) fn earliest_load(&self) -> Option<Timestamp> {
        let process = self.inputs.lease.as_ref()?.process();
        acp::earliest_load(process.initialized.agent_info.as_deref(), self.context.ids.now())
    }

    /// When the session may ask for a process, if the agent must not load it yet.
    pub(super) fn deferred_load(&self) -> Option<Instant> {
        let wait =
            self.record.load_not_before?.as_millis().saturating_sub(self.context.ids.now().as_millis());
        // A wall clock that was set back does not prolong the wait.
        let wait = Duration::from_millis(u64::try_from(wait).ok()?).min(LOAD_DEFERRAL_MAX);
        (!wait.is_zero()).then(|| Instant::now() + wait)
    }
}
