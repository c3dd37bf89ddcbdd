//! Replaces processes that died while they were idle. Clients do not notice it.

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::Refusal;
use crate::agent::{AgentExit, AgentFailure};
use crate::event::{AgentExited, DetachedReason};
use crate::eventlog::Records;
use crate::pool::Disposition;

/// The maximum number of idle processes that die before the session reports the failure.
const MAX_REPLACED_PROCESSES: u32 = 2;

impl Actor {
    /// Whether the session needs its process, and has neither received an update nor sent a prompt on it.
    pub(super) fn is_process_unused(&self) -> bool {
        match &self.attachment {
            Attachment::SettingUp { skipped_updates: swallowed, buffer: early, .. } => {
                *swallowed == 0 && early.updates.is_empty()
            }
            Attachment::Attached => self.turn.as_ref().is_some_and(|turn| turn.call.is_none()),
            // The process closed its stdin before the setup, or received only a sign-in.
            Attachment::Queued { .. } | Attachment::SigningIn { .. } => true,
            Attachment::Detached | Attachment::Retrying { .. } | Attachment::Releasing { .. } => false,
        }
    }

    /// Counts a process that was dead when it was acquired. Returns whether the session may replace it.
    pub(super) fn may_replace(&mut self) -> bool {
        self.replaced_processes += 1;
        self.replaced_processes <= MAX_REPLACED_PROCESSES
    }

    /// Replaces a process that died while it was idle. No turn fails.
    pub(super) fn replace_process(&mut self, ended: &AgentExit) {
        tracing::info!(session = %self.record.session_id, %ended, "an idle process died; acquiring another one");
        let refusal = Refusal::Agent(AgentFailure::Exited(ended.clone()));
        self.append_exited(ended);
        self.release(Disposition::Stop, &refusal);
        if self.record.attached {
            self.append_detached(DetachedReason::Exited);
        }
        self.attachment = Attachment::Detached;
        if let Err(refusal) = self.reserve() {
            self.attach_failed(&refusal);
        }
    }

    /// Rejects prompts while the breaker of this session is open. Other sessions are not affected.
    pub(super) fn check_crashes(&mut self) -> Result<(), Refusal> {
        match self.crashes.breaker_open_for(Instant::now(), &self.context.limits) {
            Some(retry_after) => Err(Refusal::CrashLoop(retry_after)),
            None => Ok(()),
        }
    }

    /// Appends the exit of the process to the log.
    pub(super) fn append_exited(&mut self, ended: &AgentExit) {
        if self.record.attached {
            let AgentExit { exit_code, signal, stderr_tail, .. } = ended;
            let event = AgentExited { exit_code: *exit_code, signal: signal.as_deref(), stderr_tail };
            self.append(None, &event, Records::default());
        }
    }

    /// Handles the exit of the process. `stopped`: the gateway stopped it.
    pub(super) fn process_exited(&mut self, ended: AgentExit, stopped: bool) {
        if self.turn.is_some() && !stopped {
            self.crashes.record(Instant::now(), &self.context.limits);
        }
        self.append_exited(&ended);
        let refusal = Refusal::Agent(AgentFailure::Exited(ended));
        self.release(Disposition::Stop, &refusal);
        if self.record.attached {
            self.append_detached(DetachedReason::Exited);
        }
        if stopped {
            self.process_stopped();
        } else {
            self.attach_failed(&refusal);
        }
    }
}
