//! The end of the process: it exited, it was stopped, or it died while it was idle.

use tokio::time::Instant;

use super::Actor;
use crate::agent::{AgentExit, AgentFailure};
use crate::event::{AgentExited, DetachedReason};
use crate::pool::Disposition;
use crate::session::refusal::Refusal;

impl Actor {
    /// Handles the end of the process's stdout: the process has exited or is about to exit.
    pub(super) async fn stdout_closed(&mut self) {
        let Some(process) = self.link.process() else { return };
        // This wait is limited to a fraction of a second, so a zombie process does not delay the turn's end.
        let exit = process.exit().await;
        if self.attachment.is_releasing() {
            return self.finish_detach(Disposition::Stop);
        }
        // The gateway ordered this end, so it is not a crash.
        let stopped = self.turns.is_stopping_process();
        let unused = self.attachment.is_process_unused(self.turns.is_unsent());
        if !stopped && unused && self.attachment.may_replace() {
            return self.replace_process(&exit);
        }
        self.process_exited(exit, stopped);
    }

    /// Replaces a process that died while it was idle. No turn fails.
    fn replace_process(&mut self, exit: &AgentExit) {
        tracing::info!(session = %self.journal.session(), ended = %exit, "an idle process died; acquiring another one");
        let refusal = Refusal::Agent(AgentFailure::Exited(exit.clone()));
        self.append_exited(exit);
        self.release(Disposition::Stop, &refusal);
        self.append_detached_if_attached(DetachedReason::Exited);
        self.attachment.detach();
        self.reserve_or_fail();
    }

    /// Appends the exit of the process to the log.
    fn append_exited(&mut self, exit: &AgentExit) {
        if self.journal.record().attached {
            let AgentExit { exit_code, signal, stderr_tail, .. } = exit;
            let event = AgentExited { exit_code: *exit_code, signal: signal.as_deref(), stderr_tail };
            self.journal.append(None, &event);
        }
    }

    /// Handles the exit of the process. `stopped`: the gateway stopped it.
    fn process_exited(&mut self, exit: AgentExit, stopped: bool) {
        if self.turns.running().is_some() && !stopped {
            self.lifecycle.crashes.record(Instant::now(), &self.context.limits);
        }
        self.append_exited(&exit);
        let refusal = Refusal::Agent(AgentFailure::Exited(exit));
        self.release(Disposition::Stop, &refusal);
        self.append_detached_if_attached(DetachedReason::Exited);
        if stopped {
            self.process_stopped();
        } else {
            self.attach_failed(&refusal);
        }
    }

    /// Completes the stop of a process whose agent ignored a cancel.
    pub(super) fn process_stopped(&mut self) {
        self.attachment.detach();
        self.cancel_timed_out();
        self.acquire_for_waiters();
    }
}
