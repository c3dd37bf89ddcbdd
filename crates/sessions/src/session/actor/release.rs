//! The release of a process: after a failed setup, when the session is idle, in a drain, and when the process ends.

use tokio::time::Instant;

use super::{Actor, send_reply};
use crate::session::attachment::{CallPurpose, Overdue};
use crate::session::client_calls::Waiters;
use crate::session::command::CreateWaiter;
use crate::session::error::ProcessError;
use crate::session::process_link::agent_failure;
use crate::session::requests::EndedBy;
use crate::transcript::SessionFold;
use agents::agent::AgentExit;
use agents::pool::{Disposition, Lease};
use events::event::{AgentExited, DetachedReason, SessionDetached};
use wire::acp::{self, TraceContext};
use wire::jsonrpc::RpcError;

impl Actor {
    /// Handles the agent's error to new, resume or load. The attach fails and the process is stopped.
    pub(super) fn setup_rejected(&mut self, error: RpcError) {
        let Some(lease) = self.link.lease() else {
            return;
        };
        let error = match error.code {
            // Only an adoption or a fork names a resource that the client chose.
            acp::error_code::RESOURCE_NOT_FOUND if self.client_calls.imports_history() => {
                ProcessError::NoSuchResource(error)
            }
            _ => agent_failure(error, lease).into(),
        };
        if !self.retried_with_key(&error) {
            self.setup_failed(&error);
        }
    }

    pub(super) fn setup_failed(&mut self, error: &ProcessError) {
        self.release(Disposition::Stop, error);
        self.attach_failed(error);
    }

    pub(super) fn check_attach_deadline(&mut self, now: Instant) {
        match self
            .attachment
            .overdue(&self.context.limits, self.idle_timeout(), now)
        {
            None => {}
            Some(Overdue::Queue { restore_error }) => {
                self.link.drop_pending();
                let timeout = self.link.timeout("a request for a process");
                self.setup_failed(&restore_error.map_or(timeout, ProcessError::NotRestored));
            }
            Some(Overdue::Retry) => {
                self.attachment.detach();
                self.reserve_or_fail();
            }
            Some(Overdue::Call(_, CallPurpose::Release { .. })) => {
                self.finish_detach(Disposition::Stop);
            }
            Some(Overdue::Call(call, CallPurpose::SetUp(set_up))) => {
                self.link.cancel_call(call);
                let method = set_up.method.method(self.link.version());
                self.setup_failed(&self.link.timeout(method));
            }
            Some(Overdue::Call(call, CallPurpose::SignIn { load_error })) => {
                self.link.cancel_call(call);
                self.setup_rejected(load_error);
            }
            Some(Overdue::Idle) => self.detach_if_idle(DetachedReason::Idle),
        }
    }

    /// Removes and returns the lease, and clears all state of its process. Every transition that ends an attachment calls
    /// this, because the next process reuses request and call ids.
    fn take_lease(&mut self, error: &ProcessError) -> Option<Lease> {
        self.end_requests(EndedBy::Release);
        self.requests.process_released();
        self.turns.process_released(Instant::now());
        self.journal.set_agent_busy(false);
        self.attachment.process_released();
        self.end_terminals();
        for (_, call) in self.client_calls.take_sent() {
            self.call_failed(call, error);
        }
        self.link.take_lease()
    }

    pub(super) fn release(&mut self, disposition: Disposition, error: &ProcessError) {
        if let Some(lease) = self.take_lease(error) {
            lease.release(disposition);
        }
    }

    pub(super) fn stop_process(&mut self, error: &ProcessError) {
        self.release(Disposition::Stop, error);
        self.append_detached(DetachedReason::Exited);
        self.attachment.detach();
    }

    /// Handles the end of the process's stdout: the process has exited or is about to exit.
    pub(super) async fn stdout_closed(&mut self) {
        let Some(process) = self.link.process() else {
            return;
        };
        // This wait is limited to a fraction of a second, so a zombie process does not delay the turn's end.
        let exit = process.exit().await;
        if self.attachment.is_releasing() {
            return self.finish_detach(Disposition::Stop);
        }
        // The gateway ordered this end, so it is not a crash.
        let stopped = self.turns.is_stopping_process();
        let unused = self.attachment.is_process_unused(self.turns.is_unsent());
        // A process that died while it was idle is replaced, and no turn fails.
        let replace = !stopped && unused && self.attachment.may_replace();
        if replace {
            tracing::info!(session = %self.journal.session(), ended = %exit, "an idle process died; acquiring another one");
        } else if self.turns.running().is_some() && !stopped {
            self.lifecycle
                .crashes
                .record(Instant::now(), &self.context.limits);
        }
        if self.journal.record().attached {
            let AgentExit {
                exit_code,
                signal,
                stderr_tail,
                exceeded_limit,
                ..
            } = &exit;
            let lost = exit.disconnected.as_ref().map(|_| exit.to_string());
            let (signal, exceeded_limit) = (signal.as_deref(), exceeded_limit.as_deref());
            let disconnected = lost.as_deref();
            let event = AgentExited {
                exit_code: *exit_code,
                signal,
                stderr_tail,
                exceeded_limit,
                disconnected,
            };
            self.journal.append(None, &event);
        }
        let error = ProcessError::Agent(exit.into());
        self.stop_process(&error);
        if replace {
            self.reserve_or_fail();
        } else if stopped {
            self.cancel_timed_out();
        } else {
            self.attach_failed(&error);
        }
    }

    /// Ends an attach without success: rejects every waiter with `error` and fails the turn.
    pub(super) fn attach_failed(&mut self, error: &ProcessError) {
        self.attachment.reset_replaced();
        self.reject_waiters(error);
        self.fail_turn(error);
        self.release_live_guard();
    }

    /// Rejects every waiter except the turn.
    fn reject_waiters(&mut self, error: &ProcessError) {
        self.attachment.abandon();
        let waiters = self.client_calls.take_waiters();
        self.reject(waiters, error);
    }

    pub(super) fn reject(&mut self, waiters: Waiters, error: &ProcessError) {
        let Waiters {
            creating,
            attaching,
            queued,
        } = waiters;
        if let Some(creating) = creating {
            self.create_failed(creating, error);
        }
        for attaching in attaching {
            send_reply(attaching.reply, Err(error.clone().into()));
        }
        for call in queued {
            send_reply(call.reply, Err(error.clone().into()));
        }
    }

    fn create_failed(&mut self, creating: CreateWaiter, error: &ProcessError) {
        if self.journal.record().unfinished {
            let owner = self.journal.record().owner.clone();
            self.erase(&owner);
        }
        self.lifecycle.stopping = true;
        send_reply(creating.reply, Err(error.clone().into()));
    }

    /// Acquires the next process for the clients that waited for the former one.
    pub(super) fn acquire_for_waiters(&mut self) {
        if self.client_calls.wants_attached()
            && let Err(error) = self.reserve()
        {
            self.reject_waiters(&error);
        }
        self.release_live_guard();
    }

    pub(super) fn detach_if_idle(&mut self, reason: DetachedReason) {
        if !self.is_busy() && self.attachment.is_attached() {
            self.detach(reason);
        }
    }

    /// Detaches the session for a drain, after its last turn has ended.
    pub(super) fn detach_for_drain(&mut self) {
        if self.attachment.is_attached() {
            self.end_requests(EndedBy::Release);
            self.detach(DetachedReason::Drain);
        } else if !self.attachment.is_releasing() {
            drop(self.take_lease(&ProcessError::DRAINING));
            self.stop_for_drain();
        }
    }

    /// Stops the actor, because the session has no process and the gateway drains.
    pub(super) fn stop_for_drain(&mut self) {
        self.link.drop_pending();
        self.reject_waiters(&ProcessError::DRAINING);
        self.lifecycle.stopping = true;
    }

    /// Detaches the session. The caller has ended all work.
    pub(super) fn detach(&mut self, reason: DetachedReason) {
        self.append_detached(reason);
        self.close_at_agent(false, None);
    }

    /// Appends the end of the attachment, unless the log has it.
    pub(super) fn append_detached(&mut self, reason: DetachedReason) {
        if !self.journal.record().attached {
            return;
        }
        self.end_terminals();
        self.journal.fold_with(SessionFold::detached);
        let event = &SessionDetached { reason };
        let turns = &mut self.turns;
        self.journal.append_with(None, event, |_, change| {
            (change.record.attached, change.record.channel) = (false, None);
            // The next process gets the prompt, also after a restart.
            if let Some(record) = turns.mark_unsent() {
                change.put_prompt(record);
            }
        });
    }

    /// Asks the agent to close or delete the session, so that its process can serve another session.
    pub(super) fn close_at_agent(&mut self, delete: bool, trace: Option<&TraceContext>) {
        self.turns.ended(None);
        let Some(initialized) = self.link.initialized() else {
            return self.enter_detached();
        };
        let (can, limits) = (initialized.capabilities.session, &self.context.limits);
        let request = self
            .journal
            .record()
            .agent_session_id
            .as_deref()
            .and_then(|id| {
                if delete && can.delete {
                    Some((
                        acp::method::SESSION_DELETE,
                        acp::session_params(id, trace),
                        false,
                    ))
                } else {
                    can.close.then(|| {
                        (
                            acp::method::SESSION_CLOSE,
                            acp::session_params(id, trace),
                            true,
                        )
                    })
                }
            });
        let timeout = limits.stop_stdin_timeout;
        let sent = request.is_some_and(|(method, params, closes)| {
            self.call_for(CallPurpose::Release { closes }, method, &params, timeout)
        });
        if !sent {
            self.finish_detach(Disposition::Stop);
        }
    }

    pub(super) fn finish_detach(&mut self, disposition: Disposition) {
        self.release(disposition, &ProcessError::Closed);
        self.enter_detached();
    }

    fn enter_detached(&mut self) {
        let now = Instant::now();
        self.attachment.detach();
        if self.link.is_pending() {
            self.attachment.enqueue(now);
        }
        self.attachment.touch(now);
        if self.lifecycle.drain_at.is_some() && self.turns.running().is_none() {
            self.stop_for_drain();
        }
        self.release_live_guard();
    }

    /// Drops the pending lease if nothing waits for a process any more.
    pub(super) fn drop_pending_lease(&mut self) {
        if self.turns.running().is_none() && !self.client_calls.has_waiters() {
            self.link.drop_pending();
            if self.link.former.take().is_some() {
                self.append_detached(DetachedReason::Exited);
            }
            self.release_live_guard();
        }
    }

    /// Stops counting the session as live if it has neither a process nor a pending lease.
    pub(super) fn release_live_guard(&mut self) {
        if self.link.release_guard() {
            self.attachment.withdraw_request();
        }
    }
}
