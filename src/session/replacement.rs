//! Processes that died while they were idle: a session takes another one, and its client does not notice.

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::Refusal;
use crate::agent::{AgentFailure, Ended};
use crate::api::event::{AgentExited, DetachedReason};
use crate::eventlog::Records;
use crate::pool::Fate;

/// How many processes that died while they were idle a session replaces before it reports the failure.
const REPLACED_PROCESSES: u32 = 2;

impl Actor {
    /// The session needs a process, and the agent has sent nothing for the session and received no prompt.
    pub(super) fn unused(&self) -> bool {
        match &self.attachment {
            Attachment::Setting { swallowed, early, .. } => *swallowed == 0 && early.updates.is_empty(),
            Attachment::Attached => self.turn.as_ref().is_some_and(|turn| turn.call.is_none()),
            // The stdin of the process was closed already, or the process received nothing but a sign-in.
            Attachment::Waiting { .. } | Attachment::SigningIn { .. } => true,
            Attachment::Detached | Attachment::Retrying { .. } | Attachment::Leaving { .. } => false,
        }
    }

    /// Counts processes that were dead when the session got them. Each may be replaced, up to a bound.
    pub(super) fn may_replace(&mut self) -> bool {
        self.replaced += 1;
        self.replaced <= REPLACED_PROCESSES
    }

    /// The process was idle when it died: the session takes another one, and no turn fails.
    pub(super) fn replace_process(&mut self, ended: &Ended) {
        tracing::info!(session = %self.record.session_id, %ended, "an idle process died, taking another one");
        let refusal = Refusal::Agent(AgentFailure::Exited(ended.clone()));
        self.exited(ended);
        self.release(Fate::Stop, &refusal);
        if self.record.attached {
            self.detached(DetachedReason::Exited);
        }
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.unattached(&refusal);
        }
    }

    /// Refuses prompts while the breaker of this session is open. Other sessions of the agent do not notice.
    pub(super) fn check_crashes(&mut self) -> Result<(), Refusal> {
        match self.crashes.open(Instant::now(), &self.context.limits) {
            Some(retry_after) => Err(Refusal::CrashLoop(retry_after)),
            None => Ok(()),
        }
    }

    /// Logs the end of the process that has the session.
    pub(super) fn exited(&mut self, ended: &Ended) {
        if self.record.attached {
            let Ended { exit_code, signal, stderr_tail, .. } = ended;
            let event = AgentExited { exit_code: *exit_code, signal: signal.as_deref(), stderr_tail };
            self.append(None, &event, Records::default());
        }
    }

    /// The process ended; `stopped` if that was ordered.
    pub(super) fn lost(&mut self, ended: Ended, stopped: bool) {
        if self.turn.is_some() && !stopped {
            self.crashes.note(Instant::now(), &self.context.limits);
        }
        self.exited(&ended);
        let refusal = Refusal::Agent(AgentFailure::Exited(ended));
        self.release(Fate::Stop, &refusal);
        if self.record.attached {
            self.detached(DetachedReason::Exited);
        }
        if stopped {
            self.stopped();
        } else {
            self.unattached(&refusal);
        }
    }
}
