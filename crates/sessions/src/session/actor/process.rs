//! The process of a session: acquires it for clients and turns, reacts to the agent's responses of the setup, and releases it
//! after a failed setup, when the session is idle, in a drain, and when the process ends.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Actor, send_reply};
use crate::session::binding::client_calls::{BindingWaiter, Waiters};
use crate::session::binding::setup::{append_detached, has_failed_too_often};
use crate::session::binding::state::{
    CallPurpose, LostContext, RestoreStep, Retry, SetUp, SetupMethod,
};
use crate::session::command::{CreateWaiter, Reply};
use crate::session::error::{AttachError, ProcessError, TurnRunning};
use crate::session::requests::EndedBy;
use agents::agent::{AgentExit, AgentFailure};
use agents::pool::{Disposition, Lease};
use events::api::RequestedContext;
use events::event::{AgentExited, DetachedReason, LostReason};
use wire::acp::{self, McpServer, TraceContext};
use wire::jsonrpc::RpcError;

// Acquire a process.

impl Actor {
    pub(super) fn reserve(&mut self) -> Result<(), ProcessError> {
        let is_draining = self.is_draining();
        self.binding
            .reserve(&self.context, &self.journal, is_draining)
    }

    pub(super) fn reserve_or_fail(&mut self) {
        if let Err(error) = self.reserve() {
            self.attach_failed(&error);
        }
    }

    /// Begins a new session. No event is written before the agent has the session.
    pub(crate) fn create(&mut self, mut creating: CreateWaiter) {
        self.binding
            .set_client_servers(std::mem::take(&mut creating.servers));
        match self.reserve() {
            Ok(()) => self.binding.calls.wait_for_creation(creating),
            Err(error) => {
                self.stopping = true;
                send_reply(creating.reply, Err(error.into()));
            }
        }
    }

    pub(crate) fn attach(
        &mut self,
        context: RequestedContext,
        trace: Option<TraceContext>,
        reply: Reply<u64, AttachError>,
    ) {
        if context == RequestedContext::New {
            if let Some(prompt) = self.turns.sent() {
                return send_reply(reply, Err(TurnRunning(prompt).into()));
            }
            self.discard_context();
        } else if self.binding.is_attached() && !self.journal.record().is_closed() {
            return send_reply(reply, Ok(self.journal.appended()));
        }
        match self.check_quota().and_then(|()| self.reserve()) {
            Ok(()) => {
                let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
                self.binding.calls.wait_for_binding(BindingWaiter {
                    trace,
                    reply,
                    deadline,
                });
            }
            Err(error) => send_reply(reply, Err(error.into())),
        }
    }

    /// Makes the next process begin a new agent session. A process that has the current one, or restores it, is released.
    fn discard_context(&mut self) {
        tracing::info!(session = %self.journal.session(), "a client asked for a new conversation of the session");
        self.journal.update(|record| record.discards_context = true);
        self.journal.save_record();
        if !self.abort_set_up() && self.binding.is_attached() {
            self.end_requests(EndedBy::Release);
            self.detach(DetachedReason::Closed);
        }
    }

    /// Cancels the setup that waits for the agent, and releases the process. Returns whether there was one.
    pub(super) fn abort_set_up(&mut self) -> bool {
        let Some(call) = self.binding.open_call() else {
            return false;
        };
        self.binding.cancel_call(call);
        self.release(Disposition::Stop, &ProcessError::Closed);
        self.binding.detach();
        true
    }

    /// Replaces the MCP servers that clients bring. An agent receives them only in `session/new`, `session/load` or
    /// `session/resume`. Therefore, an idle session releases its process if the agent can restore the session.
    /// Otherwise, the next process of the session receives them.
    pub(crate) fn bring_servers(&mut self, servers: Vec<McpServer>) {
        if self.binding.set_client_servers(servers) && self.binding.can_restore() == Some(true) {
            self.detach_if_idle(DetachedReason::Idle);
        }
    }

    pub(super) fn leased(&mut self, lease: Result<Lease, AgentFailure>) {
        self.binding.drop_pending();
        let lease = match lease {
            Ok(lease) => lease,
            // The pool has begun to drain before this session has.
            Err(AgentFailure::Draining) if self.drain_at.is_none() => return self.drain(),
            Err(failure) if self.binding.has_previous() => {
                return self.not_continued(&failure.into());
            }
            Err(failure) => return self.attach_failed(&failure.into()),
        };
        self.binding.offered(&lease);
        let Some(lease) = self.binding.continue_previous(lease, self.journal.record()) else {
            self.report_holder();
            return self.next_queued();
        };
        match self.binding.accept(lease, self.journal.record()) {
            Ok(Some(set_up)) => {
                self.report_holder();
                self.set_up(set_up);
            }
            Ok(None) => self.reserve_or_fail(),
            Err(error) => self.attach_failed(&error),
        }
    }

    /// The process of the previous gateway process is lost: its turn fails, and the next one starts a new process.
    pub(super) fn not_continued(&mut self, error: &ProcessError) {
        self.binding.forget_previous();
        self.stop_process(error);
        self.attach_failed(error);
    }
}

// Create or restore the session.

impl Actor {
    fn set_up(&mut self, set_up: SetUp) {
        let record = self.journal.record();
        let trace = self.turns.trace();
        self.binding
            .set_up(set_up, record, trace, &self.context.limits);
    }

    pub(super) fn setup_answered(
        &mut self,
        set_up: SetUp,
        outcome: Result<Box<RawValue>, RpcError>,
    ) {
        let method = set_up.method;
        let result = match outcome {
            Ok(result) => acp::null_to_empty(&result),
            Err(error) if method.is_new() => return self.setup_rejected(error),
            Err(error) => return self.restore_rejected(method, error, set_up.resume),
        };
        if method.is_new()
            && let Err(failure) =
                self.binding
                    .adopt_agent_session(&self.context, &mut self.journal, &result)
        {
            return self.setup_failed(&failure.into());
        }
        tracing::debug!(
            replayed_updates = set_up.replayed_updates,
            ?method,
            "attached"
        );
        self.attached(method, set_up.lost_context, &result);
        for params in set_up.updates {
            self.handle_update(&params);
        }
    }

    fn attached(&mut self, method: SetupMethod, lost: Option<LostContext>, result: &RawValue) {
        let waiting = self.turns.running();
        let attached = self.binding.attached(
            &self.context,
            &mut self.journal,
            &mut self.turns,
            method,
            lost,
            result,
        );
        let Some(seq) = attached else { return };
        if self.turns.running() != waiting {
            self.report_holder();
        }
        let creating = self.binding.calls.take_creating();
        self.report_current_mode(None);
        self.next_queued();
        for attaching in self.binding.calls.take_attaching() {
            send_reply(attaching.reply, Ok(seq));
        }
        if let Some(creating) = creating {
            send_reply(creating.reply, Ok(self.snapshot()));
        }
    }

    /// Handles the agent's error to the resume or the load of the session. `resume` is the agent's error to the
    /// `session/resume` that preceded a `session/load`.
    fn restore_rejected(&mut self, method: SetupMethod, error: RpcError, resume: Option<RpcError>) {
        let agent_session = self.journal.record().agent_session_id.as_deref();
        let step = RestoreStep::after(
            method,
            agent_session.unwrap_or_default(),
            self.binding
                .initialized()
                .is_some_and(|known| known.capabilities.load_session),
            self.binding.calls.imports_history(),
            error,
            resume,
        );
        match step {
            RestoreStep::Load(error) => {
                tracing::info!(%error, "session/resume failed; trying session/load");
                self.set_up(SetUp::load_after(error));
            }
            RestoreStep::SignIn(error) => {
                let begun = self.binding.sign_in_for_load(error, &self.context);
                if let Err(error) = begun {
                    self.setup_rejected(error);
                }
            }
            RestoreStep::Reject(error) => self.setup_rejected(error),
            RestoreStep::Begin(reason, error) => {
                self.set_up(SetUp::fresh(reason, Some(error.to_string())));
            }
            RestoreStep::Retry { error, in_use } => self.retry_restore(&error, in_use),
        }
    }

    pub(super) fn sign_in_answered(
        &mut self,
        load_error: RpcError,
        outcome: Result<Box<RawValue>, RpcError>,
    ) {
        if let Err(error) = outcome {
            tracing::info!(%error, "the agent does not sign in with its key");
            return self.setup_rejected(load_error);
        }
        self.binding.sign_in_advanced();
        self.set_up(SetUp::new(SetupMethod::Load));
    }

    /// Continues the turn in a new agent session, because the agent does not have the restored one.
    pub(super) fn run_in_new_session(&mut self, error: &RpcError) {
        self.end_requests(EndedBy::Release);
        self.turns.prompt_withdrawn();
        let reason = LostReason::RejectedSession;
        self.set_up(SetUp::fresh(reason, Some(error.to_string())));
    }

    /// Releases the process and schedules the next attempt, on the same or another process.
    fn retry_restore(&mut self, error: &RpcError, in_use: bool) {
        let Some(lease) = self.binding.lease() else {
            return;
        };
        if in_use && let Some(id) = &self.journal.record().agent_session_id {
            lease.session_in_use(id);
        }
        tracing::info!(%error, in_use, "the agent did not restore the session; retrying");
        let not_restored = ProcessError::NotRestored(error.clone());
        let timeout = self.context.limits.restore_timeout;
        let Retry { is_healthy, at } =
            self.binding
                .retry_restore(error.clone(), in_use, timeout, Instant::now());
        if at.is_none()
            && !in_use
            && !error.is_transient()
            && has_failed_too_often(&mut self.journal)
        {
            let reason = LostReason::NotRestored;
            return self.set_up(SetUp::fresh(reason, Some(error.to_string())));
        }
        let disposition = if is_healthy {
            Disposition::Reuse
        } else {
            Disposition::Stop
        };
        self.release(disposition, &not_restored);
        match at {
            Some(at) => self.binding.wait_until(at),
            None => self.attach_failed(&not_restored),
        }
    }

    /// Handles the agent's error to new, resume or load. The binding fails and the process is stopped.
    pub(super) fn setup_rejected(&mut self, error: RpcError) {
        let error = match error.code {
            // Only an adoption or a fork names a resource that the client chose.
            acp::error_code::RESOURCE_NOT_FOUND if self.binding.calls.imports_history() => {
                ProcessError::NoSuchResource(error)
            }
            _ => self.binding.agent_failure(error).into(),
        };
        if !self.retried_with_key(&error) {
            self.setup_failed(&error);
        }
    }

    /// Acquires another process if new processes sign in with the key of the agent's environment and this one
    /// did not. Returns false if `error` is final.
    fn retried_with_key(&mut self, error: &ProcessError) -> bool {
        let needed = matches!(
            error,
            ProcessError::Agent(AgentFailure::AuthRequired { .. })
        );
        if !needed || !self.binding.lease().is_some_and(Lease::sign_in_with_key) {
            return false;
        }
        tracing::info!(
            "retrying with a process that signs in with the key of the agent's environment"
        );
        self.release(Disposition::Stop, error);
        self.binding.detach();
        self.reserve_or_fail();
        true
    }

    pub(super) fn setup_failed(&mut self, error: &ProcessError) {
        self.release(Disposition::Stop, error);
        self.attach_failed(error);
    }

    /// Ends an attach without success: rejects every waiter with `error` and fails the turn.
    pub(super) fn attach_failed(&mut self, error: &ProcessError) {
        self.binding.reset_replaced();
        self.reject_waiters(error);
        self.fail_turn(error);
        self.binding.release_guard();
    }

    /// Rejects every waiter except the turn.
    fn reject_waiters(&mut self, error: &ProcessError) {
        self.binding.abandon();
        let waiters = self.binding.calls.take_waiters();
        self.reject(waiters, error);
    }

    pub(super) fn reject(&mut self, waiters: Waiters, error: &ProcessError) {
        if let Some(creating) = waiters.creating {
            if self.journal.record().unfinished {
                let owner = self.journal.record().owner.clone();
                self.erase(owner.name());
            }
            self.stopping = true;
            send_reply(creating.reply, Err(error.clone().into()));
        }
        for attaching in waiters.attaching {
            send_reply(attaching.reply, Err(error.clone().into()));
        }
        for call in waiters.queued {
            send_reply(call.reply, Err(error.clone().into()));
        }
    }

    /// Acquires the next process for the clients that waited for the previous one.
    pub(super) fn acquire_for_waiters(&mut self) {
        if self.binding.calls.wants_attached()
            && let Err(error) = self.reserve()
        {
            self.reject_waiters(&error);
        }
        self.binding.release_guard();
    }

    pub(super) fn check_attach_deadline(&mut self, now: Instant) {
        let limits = &self.context.limits;
        let deadline = self.binding.deadline(limits, self.idle_timeout());
        if deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.binding.take_call() {
            Some((_, CallPurpose::Release { .. })) => self.finish_detach(Disposition::Stop),
            Some((call, CallPurpose::SetUp(set_up))) => {
                self.binding.cancel_call(call);
                let method = set_up.method.method(self.binding.version());
                self.setup_failed(&self.binding.timeout(method));
            }
            Some((call, CallPurpose::SignIn { load_error })) => {
                self.binding.cancel_call(call);
                self.setup_rejected(load_error);
            }
            None if self.binding.is_attached() => self.detach_if_idle(DetachedReason::Idle),
            None if self.binding.is_retrying() => {
                self.binding.detach();
                self.reserve_or_fail();
            }
            None => {
                self.binding.drop_pending();
                let error = match self.binding.restore_error() {
                    Some(error) => ProcessError::NotRestored(error),
                    None => self.binding.timeout("a request for a process"),
                };
                self.setup_failed(&error);
            }
        }
    }
}

// Release the process.

impl Actor {
    /// Removes and returns the lease, and clears all state of its process. Every transition that ends an attachment calls
    /// this, because the next process reuses request and call ids.
    fn take_lease(&mut self, error: &ProcessError) -> Option<Lease> {
        self.end_requests(EndedBy::Release);
        self.requests.process_released();
        self.turns.process_released(Instant::now());
        self.journal.set_agent_busy(false);
        self.end_terminals();
        for (_, call) in self.binding.calls.take_sent() {
            self.call_failed(call, error);
        }
        self.binding.take_lease()
    }

    pub(super) fn release(&mut self, disposition: Disposition, error: &ProcessError) {
        if let Some(lease) = self.take_lease(error) {
            lease.release(disposition);
        }
    }

    pub(super) fn stop_process(&mut self, error: &ProcessError) {
        self.release(Disposition::Stop, error);
        self.append_detached(DetachedReason::Exited);
        self.binding.detach();
    }

    /// Handles the end of the process's stdout: the process has exited or is about to exit.
    pub(super) fn process_exited(&mut self, exit: AgentExit) {
        if self.binding.is_releasing() {
            return self.finish_detach(Disposition::Stop);
        }
        // The gateway ordered this end, so it is not a crash.
        let stopped = self.turns.is_stopping_process();
        if !stopped {
            let record = self.journal.record();
            let pool = &self.context.pool;
            pool.record_exit(&record.agent, &record.owner.tenant(), &exit);
        }
        let unused = self.binding.is_process_unused(self.turns.is_unsent());
        // A process that died while it was idle is replaced, and no turn fails.
        let replace = !stopped && unused && self.binding.may_replace();
        if replace {
            tracing::info!(ended = %exit, "an idle process died; acquiring another one");
        } else if self.turns.running().is_some() && !stopped {
            self.crashes
                .record(Instant::now(), self.context.pool.limits());
        }
        if self.journal.record().attached {
            self.append_exited(&exit);
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

    fn append_exited(&mut self, exit: &AgentExit) {
        let lost = exit.disconnected.as_ref().map(|_| exit.to_string());
        let event = AgentExited {
            exit_code: exit.exit_code,
            signal: exit.signal.as_deref(),
            stderr_tail: &exit.stderr_tail,
            exceeded_limit: exit.exceeded_limit.as_deref(),
            disconnected: lost.as_deref(),
        };
        self.journal.append(None, &event);
    }

    pub(super) fn detach_if_idle(&mut self, reason: DetachedReason) {
        if !self.is_busy() && self.binding.is_attached() {
            self.detach(reason);
        }
    }

    /// Detaches the session for a drain, after its last turn has ended.
    pub(super) fn detach_for_drain(&mut self) {
        if self.binding.is_attached() {
            self.end_requests(EndedBy::Release);
            self.detach(DetachedReason::Drain);
        } else if !self.binding.is_releasing() {
            drop(self.take_lease(&ProcessError::DRAINING));
            self.stop_for_drain();
        }
    }

    /// Stops the actor, because the session has no process and the gateway drains.
    pub(super) fn stop_for_drain(&mut self) {
        self.binding.drop_pending();
        self.reject_waiters(&ProcessError::DRAINING);
        self.stopping = true;
    }

    /// Detaches the session. The caller has ended all work.
    fn detach(&mut self, reason: DetachedReason) {
        self.append_detached(reason);
        self.close_at_agent(false, None);
    }

    /// Appends the end of the attachment, unless the log contains it.
    pub(super) fn append_detached(&mut self, reason: DetachedReason) {
        if self.journal.record().attached {
            self.end_terminals();
            append_detached(&mut self.journal, &mut self.turns, reason);
        }
    }

    /// Asks the agent to close or delete the session, so that its process can serve another session.
    pub(super) fn close_at_agent(&mut self, delete: bool, trace: Option<&TraceContext>) {
        self.turns.ended(None);
        if self.binding.process().is_none() {
            return self.enter_detached();
        }
        let record = self.journal.record();
        let limits = &self.context.limits;
        if !self.binding.close_at_agent(delete, record, trace, limits) {
            self.finish_detach(Disposition::Stop);
        }
    }

    pub(super) fn finish_detach(&mut self, disposition: Disposition) {
        self.release(disposition, &ProcessError::Closed);
        self.enter_detached();
    }

    fn enter_detached(&mut self) {
        self.binding.enter_detached(Instant::now());
        if self.drain_at.is_some() && self.turns.running().is_none() {
            self.stop_for_drain();
        }
        self.binding.release_guard();
    }

    /// Drops the pending lease if nothing waits for a process any more.
    pub(super) fn drop_pending_lease(&mut self) {
        if self.turns.running().is_none() && !self.binding.calls.has_waiters() {
            self.binding.drop_pending();
            if self.binding.forget_previous() {
                self.append_detached(DetachedReason::Exited);
            }
            self.binding.release_guard();
        }
    }
}
