//! The process of a session: lease it, set up the session on it, release it (ACP, Session Setup).

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, send_reply};
use super::attachment::{AttachMethod, AttachWaiter, Attachment, PreAttachBuffer};
use super::background_work::BackgroundWork;
use super::record::StoredState;
use super::refusal::{Refusal, agent_failure};
use super::requirements;
use super::restore::LostContext;
use super::sign_in::LoadSignIn;
use crate::acp::{self, McpServer, SessionSetup, TraceContext};
use crate::agent::AgentFailure;
use crate::event::{Context, DetachedReason, SessionAttached, SessionDetached};
use crate::eventlog::Records;
use crate::jsonrpc::RpcError;
use crate::pool::{AcquireError, Disposition, Lease, LeaseActivity};
use crate::types::limits::FOLDED_MEMBER_BYTES;

impl Actor {
    /// Reserves a process if the session has none. No event is appended before this succeeds.
    pub(super) fn reserve(&mut self) -> Result<(), Refusal> {
        let has_process = matches!(
            self.attachment,
            Attachment::SettingUp { .. }
                | Attachment::SigningIn { .. }
                | Attachment::Attached
                | Attachment::Retrying { .. }
        );
        if has_process || self.event_loop.pending_lease.is_some() {
            return Ok(());
        }
        if let Some(at) = self.deferred_load() {
            self.attachment = Attachment::Retrying { at };
            return Ok(());
        }
        if self.drain_at.is_some() {
            return Err(Refusal::Draining);
        }
        if self.live_guard.is_none() {
            let limits = self.context.pool.principal_limits().effective(&self.owner);
            self.live_guard = Some(self.context.live.acquire(&self.owner, &limits)?);
        }
        match self.context.pool.enqueue(
            &self.record.agent,
            &self.owner,
            (self.offered_capabilities(), self.granted_folders()),
            self.wanted_session(),
        ) {
            Ok(place) => self.event_loop.pending_lease = Some(place),
            Err(refused) => {
                self.release_live_guard();
                return Err(match refused {
                    // The agent was configured when the session was created.
                    AcquireError::NoSuchAgent => Refusal::Agent(AgentFailure::removed()),
                    refused => refused.into(),
                });
            }
        }
        if matches!(self.attachment, Attachment::Detached) {
            self.attachment = Attachment::Queued { since: Instant::now() };
        }
        Ok(())
    }

    /// The folders that the agent may access for this session.
    fn granted_folders(&self) -> Vec<PathBuf> {
        let record = &self.record;
        std::iter::once(&record.cwd).chain(&record.additional_directories).map(PathBuf::from).collect()
    }

    pub(super) fn attach(&mut self, attaching: AttachWaiter) {
        if matches!(self.attachment, Attachment::Attached) && !self.record.is_closed() {
            return send_reply(attaching.reply, Ok(self.log.appended()));
        }
        match self.check_quota().and_then(|()| self.reserve()) {
            Ok(()) => self.attach_waiters.push(attaching),
            Err(refusal) => send_reply(attaching.reply, Err(refusal)),
        }
    }

    /// Handles the result of a pending lease: sets up the session on the process.
    pub(super) fn leased(&mut self, lease: Result<Lease, AgentFailure>) {
        self.event_loop.pending_lease = None;
        let lease = match lease {
            Ok(lease) => lease,
            // The pool has begun to drain before this session has.
            Err(AgentFailure::Draining) if self.drain_at.is_none() => return self.drain(),
            Err(failure) => return self.attach_failed(&Refusal::Agent(failure)),
        };
        self.spec = Arc::clone(&lease.process().spec);
        let died = lease.process().has_ended() && self.may_replace();
        if died || lease.process().key.client_capabilities != self.offered_capabilities() {
            // The process died while it was idle, or the configuration has changed during the wait. In the
            // second case the process was started with the former client capabilities.
            lease.release(Disposition::Untouched);
            if let Err(refusal) = self.reserve() {
                self.attach_failed(&refusal);
            }
            return;
        }
        let capabilities = &lease.process().initialized.capabilities;
        let record = &self.record;
        let (servers, directories) = (&record.mcp_servers, &record.additional_directories);
        let suited = requirements::check(&self.spec, servers, directories, capabilities);
        let by = match suited.and_then(|()| self.adopt_method(capabilities)) {
            Ok(Some(by)) => by,
            Ok(None) => match &self.record.agent_session_id {
                None => AttachMethod::New,
                Some(_) if self.replaces_empty_session(lease.process()) => AttachMethod::Fresh,
                Some(_) if capabilities.session.resume => AttachMethod::Resume,
                Some(_) if capabilities.load_session => AttachMethod::Load,
                Some(_) => AttachMethod::Fresh,
            },
            Err(refusal) => {
                // The process received no request for this session.
                lease.release(Disposition::Untouched);
                return self.attach_failed(&refusal);
            }
        };
        self.event_loop.recall = Some(lease.recall_signal());
        self.event_loop.lease = Some(lease);
        self.reported_activity = LeaseActivity::Busy;
        if by == AttachMethod::Fresh {
            self.restore.lost_context = Some(LostContext::unsupported());
        }
        self.set_up(by, None);
    }

    /// Asks the agent to create or restore the session. `resume` is the error of a preceding resume.
    pub(super) fn set_up(&mut self, by: AttachMethod, resume: Option<RpcError>) {
        let Some(lease) = &self.event_loop.lease else { return };
        let servers = self.mcp_servers();
        let setup = self.setup(&servers);
        let trace = self.attach_trace();
        let params = match (&self.record.agent_session_id, by) {
            (Some(id), AttachMethod::Resume) => acp::resume_session(id, setup, trace),
            (Some(id), AttachMethod::Load) => acp::replay_session(self.dialect().version(), id, setup, trace),
            _ => acp::new_session(setup, trace),
        };
        let limits = &self.context.limits;
        let limit =
            if by == AttachMethod::Load { limits.session_load_timeout } else { limits.session_new_timeout };
        // If stdin is closed, the batches report the end of the process.
        if let Ok(call) = lease.process().connection.call(by.method(self.dialect()), &params) {
            let deadline = Instant::now() + limit;
            self.attachment = Attachment::SettingUp {
                method: by,
                resume,
                call,
                deadline,
                skipped_updates: 0,
                buffer: PreAttachBuffer::default(),
            };
        }
    }

    /// The parameters of every new, resume or load. The agent itself never restores directories and servers.
    pub(super) fn setup<'a>(&'a self, mcp_servers: &'a [McpServer]) -> SessionSetup<'a> {
        SessionSetup {
            cwd: &self.record.cwd,
            mcp_servers,
            additional_directories: &self.record.additional_directories,
            meta: self.record.meta.as_deref(),
        }
    }

    /// The MCP servers of the session in the agent's dialect, as far as they are still configured.
    pub(super) fn mcp_servers(&self) -> Vec<McpServer> {
        let Some(lease) = &self.event_loop.lease else { return Vec::new() };
        let process = lease.process();
        let version = process.dialect().version();
        let named = self.record.mcp_servers.iter().filter_map(|name| process.spec.mcp.get(name));
        named.map(|server| server.clone().for_version(version)).collect()
    }

    /// The trace context of the request that made the session acquire a process.
    fn attach_trace(&self) -> Option<&TraceContext> {
        let turn = self.turn.iter().map(|turn| turn.trace.as_ref());
        let creating = self.create_waiter.iter().map(|creating| creating.trace.as_ref());
        let attaching = self.attach_waiters.iter().map(|attaching| attaching.trace.as_ref());
        let wanted = self.queued_calls.iter().map(|setting| setting.trace.as_ref());
        turn.chain(creating).chain(attaching).chain(wanted).flatten().next()
    }

    /// Handles the agent's response to new, resume or load.
    pub(super) fn setup_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let Attachment::SettingUp { method: by, resume, skipped_updates: swallowed, buffer: early, .. } =
            std::mem::replace(&mut self.attachment, Attachment::Attached)
        else {
            return;
        };
        let result = match outcome {
            Ok(result) => acp::null_to_empty(&result),
            Err(error) if matches!(by, AttachMethod::Resume | AttachMethod::Load) => {
                return self.restore_refused(by, error, resume);
            }
            Err(error) => return self.setup_rejected(error),
        };
        if matches!(by, AttachMethod::New | AttachMethod::Fresh) {
            match acp::NewSessionResult::parse(&result) {
                Ok(new) => {
                    self.record.agent_session_id = Some(new.session_id.into_owned());
                    self.record.load_not_before = self.earliest_load();
                }
                Err(error) => {
                    let detail = format!("invalid result of session/new: {error}");
                    return self.setup_failed(AgentFailure::Start { detail });
                }
            }
        }
        tracing::debug!(session = %self.record.session_id, swallowed, by = ?by, "attached");
        self.attached(by, &result);
        for params in early.updates {
            self.handle_update(&params);
        }
    }

    pub(super) fn can_load(&self) -> bool {
        self.event_loop.lease.as_ref().is_some_and(|l| l.process().initialized.capabilities.load_session)
    }

    fn attached(&mut self, by: AttachMethod, result: &RawValue) {
        let Some(lease) = &self.event_loop.lease else { return };
        lease.record_auth(false);
        if let Some(id) = &self.record.agent_session_id {
            lease.record_session(id);
        }
        let initialized = Arc::clone(&lease.process().initialized);
        self.attachment = Attachment::Attached;
        if self.turn.is_none() {
            self.replaced_processes = 0;
        }
        self.idle_since = Instant::now();
        self.record.attached = true;
        let prompt = initialized.prompt_capabilities().filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        self.record.prompt_capabilities = prompt;
        if self.record.is_closed() {
            self.record.state = StoredState::Idle;
        }
        self.fold_changed |= self.fold.attached(result);
        self.record.models =
            acp::RawObject::parse(result).is_some_and(|object| object.get("models").is_some());
        self.record.unfinished = false;
        self.restore.restoring = None;
        self.restore.unproven = matches!(by, AttachMethod::Resume | AttachMethod::Load);
        if by == AttachMethod::Load {
            self.track_trailing_replay(self.imports_history());
        }
        let word = self.attached_by(by);
        let mut claim = self.create_waiter.as_mut().and_then(|creating| creating.claim.take());
        if self.log.appended() == 0 {
            self.append_created(claim.take().as_ref());
        }
        self.record.inherits_history |= self.imports_history();
        let creating = self.create_waiter.take();
        let mut records = Records::default();
        if let Some(claim) = claim {
            claim.put(self.record.session_id, None, &mut records);
        }
        let lost =
            self.restore.lost_context.take().filter(|_| by == AttachMethod::Fresh && self.has_history());
        if let Some(LostContext { reason, detail }) = &lost {
            let session = &self.record.session_id;
            let reason = reason.as_str();
            tracing::warn!(%session, reason, detail, "the agent lost the conversation; a new one begins");
        }
        // Only the result of `session/new` contains the agent's session id, and it was parsed above.
        let result = acp::replace_session_id(result, &self.record.session_id);
        let event = SessionAttached {
            by: word,
            context: if lost.is_some() { Context::Lost } else { Context::Kept },
            reason: lost.as_ref().map(|lost| lost.reason),
            detail: lost.as_ref().and_then(|lost| lost.detail.as_deref()),
            agent_info: initialized.agent_info.as_deref(),
            agent_capabilities: &initialized.raw_capabilities,
            result: result.as_deref().ok(),
        };
        self.begin_unsent(&mut records);
        let records = self.with_session_records(records);
        let seq = self.append(None, &event, records);
        self.next_queued();
        for attaching in self.attach_waiters.drain(..) {
            send_reply(attaching.reply, Ok(seq));
        }
        if let Some(creating) = creating {
            send_reply(creating.reply, Ok((self.snapshot(), seq)));
        }
    }

    /// Handles the agent's error to new, resume or load. The attach fails and the process is stopped.
    pub(super) fn setup_rejected(&mut self, error: RpcError) {
        let Some(lease) = &self.event_loop.lease else { return };
        let refusal = match error.code {
            // Only an adoption or a fork names a resource that the client chose.
            acp::error_code::RESOURCE_NOT_FOUND if self.imports_history() => Refusal::NoSuchResource(error),
            _ => Refusal::Agent(agent_failure(error, lease)),
        };
        if self.retried_with_key(&refusal) {
            return;
        }
        self.release(Disposition::Stop, &refusal);
        self.attach_failed(&refusal);
    }

    /// Handles a process that cannot serve the session.
    pub(super) fn setup_failed(&mut self, failure: AgentFailure) {
        let refusal = Refusal::Agent(failure);
        self.release(Disposition::Stop, &refusal);
        self.attach_failed(&refusal);
    }

    /// Takes the lease and clears all state of its process. Every transition that ends an attachment calls
    /// this, because the next process reuses request and call ids.
    fn take_lease(&mut self, refusal: &Refusal) -> Option<Lease> {
        self.withdraw_requests();
        self.outbox.clear();
        self.event_loop.recall = None;
        self.last_turn = None;
        (self.restore.replay, self.restore.unproven) = (None, false);
        self.restore.load_sign_in = LoadSignIn::default();
        self.background_work = BackgroundWork::new();
        self.subagents.clear();
        self.client_methods.clear();
        self.end_terminals();
        for (_, setting) in std::mem::take(&mut self.sent_calls) {
            self.call_failed(setting, refusal);
        }
        self.event_loop.lease.take()
    }

    pub(super) fn release(&mut self, fate: Disposition, refusal: &Refusal) {
        if let Some(lease) = self.take_lease(refusal) {
            lease.release(fate);
        }
    }

    /// Ends an attach without success: rejects every waiter with `refusal` and fails the turn.
    pub(super) fn attach_failed(&mut self, refusal: &Refusal) {
        self.replaced_processes = 0;
        self.reject_waiters(refusal);
        if self.turn.is_some() {
            self.fail_turn(refusal);
        }
        self.release_live_guard();
    }

    /// Rejects every waiter except the turn.
    fn reject_waiters(&mut self, refusal: &Refusal) {
        self.attachment = Attachment::Detached;
        (self.restore.restoring, self.restore.lost_context) = (None, None);
        self.create_failed(refusal);
        for attaching in self.attach_waiters.drain(..) {
            send_reply(attaching.reply, Err(refusal.clone()));
        }
        for setting in self.queued_calls.drain(..) {
            send_reply(setting.reply, Err(refusal.clone()));
        }
    }

    /// Handles the end of the process's stdout: the process has exited or is about to exit.
    pub(super) async fn stdout_closed(&mut self) {
        let Some(lease) = &self.event_loop.lease else { return };
        // This wait is limited to a fraction of a second, so a zombie process does not delay the turn's end.
        let ended = lease.process().exit().await;
        if matches!(self.attachment, Attachment::Releasing { .. }) {
            return self.finish_detach(Disposition::Stop);
        }
        // The gateway ordered this end, so it is not a crash.
        let stopped = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if !stopped && self.is_process_unused() && self.may_replace() {
            return self.replace_process(&ended);
        }
        self.process_exited(ended, stopped);
    }

    /// Completes the stop of a process whose agent ignored a cancel.
    pub(super) fn process_stopped(&mut self) {
        self.attachment = Attachment::Detached;
        self.cancel_timed_out();
        self.acquire_for_waiters();
    }

    /// Acquires the next process for the clients that waited for the former one.
    pub(super) fn acquire_for_waiters(&mut self) {
        if (!self.queued_calls.is_empty() || !self.attach_waiters.is_empty())
            && let Err(refusal) = self.reserve()
        {
            self.reject_waiters(&refusal);
        }
        self.release_live_guard();
    }

    /// Detaches the session if it is idle. `reason` is that of the event `session.detached`.
    pub(super) fn detach_if_idle(&mut self, reason: DetachedReason) {
        if !self.is_busy() && matches!(self.attachment, Attachment::Attached) {
            self.detach(reason);
        }
    }

    /// Detaches the session for a drain, after its last turn has ended.
    pub(super) fn detach_for_drain(&mut self) {
        match self.attachment {
            Attachment::Attached => {
                self.withdraw_requests();
                self.detach(DetachedReason::Drain);
            }
            Attachment::Releasing { .. } => {}
            Attachment::Detached
            | Attachment::Queued { .. }
            | Attachment::Retrying { .. }
            | Attachment::SettingUp { .. }
            | Attachment::SigningIn { .. } => {
                self.event_loop.pending_lease = None;
                drop(self.take_lease(&Refusal::Draining));
                self.reject_waiters(&Refusal::Draining);
                self.stopping = true;
            }
        }
    }

    /// Detaches the session. The caller has ended all work.
    pub(super) fn detach(&mut self, reason: DetachedReason) {
        self.append_detached(reason);
        self.close_at_agent(false, None);
    }

    pub(super) fn append_detached(&mut self, reason: DetachedReason) {
        self.end_terminals();
        self.record.attached = false;
        self.fold_changed |= self.fold.detached();
        let records = self.with_session_records(Records::default());
        self.append(None, &SessionDetached { reason }, records);
    }

    /// Asks the agent to close or delete the session, so that its process can serve another session.
    pub(super) fn close_at_agent(&mut self, delete: bool, trace: Option<&TraceContext>) {
        self.last_turn = None;
        let Some(lease) = &self.event_loop.lease else { return self.enter_detached() };
        let capabilities = lease.process().initialized.capabilities.session;
        let asked = self.record.agent_session_id.as_deref().and_then(|id| {
            let (method, params, closes) = match (delete && capabilities.delete, capabilities.close) {
                (true, _) => (acp::method::SESSION_DELETE, acp::delete_session(id, trace), false),
                (false, true) => (acp::method::SESSION_CLOSE, acp::close_session(id, trace), true),
                (false, false) => return None,
            };
            lease.process().connection.call(method, &params).ok().map(|call| (call, closes))
        });
        match asked {
            Some((call, closes)) => {
                let deadline = Instant::now() + self.context.limits.stop_stdin_timeout;
                self.attachment = Attachment::Releasing { call, deadline, closes };
            }
            None => self.finish_detach(Disposition::Stop),
        }
    }

    /// Handles the agent's response to close or delete.
    pub(super) fn close_answered(&mut self, closed: bool) {
        self.finish_detach(if closed { Disposition::Reuse } else { Disposition::Stop });
    }

    pub(super) fn finish_detach(&mut self, fate: Disposition) {
        self.release(fate, &Refusal::Closed);
        self.enter_detached();
    }

    fn enter_detached(&mut self) {
        self.attachment = match self.event_loop.pending_lease {
            Some(_) => Attachment::Queued { since: Instant::now() },
            None => Attachment::Detached,
        };
        self.idle_since = Instant::now();
        if self.drain_at.is_some() && self.turn.is_none() {
            self.event_loop.pending_lease = None;
            self.reject_waiters(&Refusal::Draining);
            self.stopping = true;
        }
        self.release_live_guard();
    }

    /// Stops counting the session as live if it has neither a process nor a pending lease.
    pub(super) fn release_live_guard(&mut self) {
        if self.event_loop.lease.is_none() && self.event_loop.pending_lease.is_none() {
            self.live_guard = None;
            if matches!(self.attachment, Attachment::Queued { .. } | Attachment::Retrying { .. }) {
                self.attachment = Attachment::Detached;
                self.restore.restoring = None;
            }
        }
    }
}
