//! The process of a session: acquire it, and create or restore the session on it (ACP, Session Setup).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{Actor, send_reply};
use crate::session::attachment::{
    AttachMethod, CallPurpose, LoadSignIn, LostContext, RestoreAttempt, RestoreStep, Retry, SetUp,
    Setup,
};
use crate::session::client_calls::AttachWaiter;
use crate::session::command::{CreateWaiter, Reply};
use crate::session::error::{AttachError, InputError, ProcessError, TurnRunning};
use crate::session::requests::EndedBy;
use crate::session::validation::{Origin, cannot_adopt, check_supported};
use agents::agent::{AgentFailure, AgentSpec, Process};
use agents::pool::{Disposition, Lease, RequestedSession};
use base::types::limits::{FOLDED_MEMBER_BYTES, LOAD_DEFERRAL_MAX, RESTORE_FAILURES};
use events::api::RequestedContext;
use events::event::{
    AttachedBy, Context as AttachedContext, DetachedReason, EncodedEvent, LostReason,
    SessionAttached,
};
use wire::acp::{self, McpServer, SessionSetup, TraceContext, auth};
use wire::jsonrpc::RpcError;

impl Actor {
    /// Reserves a process if the session has none. No event is appended before this succeeds.
    pub(super) fn reserve(&mut self) -> Result<(), ProcessError> {
        if self.attachment.needs_no_request() || self.link.is_pending() {
            return Ok(());
        }
        if let Some(at) = self.deferred_load() {
            self.attachment.wait_until(at);
            return Ok(());
        }
        if self.is_draining() {
            return Err(ProcessError::DRAINING);
        }
        let record = self.journal.record();
        // The pool reports an agent that was removed.
        if let Some(spec) = self.context.catalogue.load().agent(&record.agent) {
            self.check_host(spec)?;
        }
        let folders = std::iter::once(&record.cwd)
            .chain(&record.additional_directories)
            .map(PathBuf::from);
        // No folder of this host belongs to a session on another host.
        let folders = if record.remote_folders {
            Vec::new()
        } else {
            folders.collect()
        };
        let requirements = (self.offered_capabilities(), folders);
        let in_use = self.attachment.is_in_use();
        let session = record.agent_session_id.as_deref();
        let former = self.link.former().cloned();
        let has_history =
            self.has_history() || record.called || self.client_calls.imports_history();
        let session = session.map(|session| RequestedSession {
            session: session.into(),
            has_history,
            in_use,
            former,
        });
        let allowed = (self.context.workspaces_of(record), requirements);
        let enqueued = self
            .link
            .enqueue(&self.context, &record.agent, allowed, session);
        if enqueued.is_ok() {
            self.attachment.enqueue(Instant::now());
        } else {
            self.release_live_guard();
        }
        enqueued
    }

    /// Rejects an agent on another host than that of the session's folders: its entry has changed.
    fn check_host(&self, spec: &AgentSpec) -> Result<(), ProcessError> {
        if spec.endpoint.remote_folders().is_some() == self.journal.record().remote_folders {
            return Ok(());
        }
        let detail = "the agent runs on another host than at the creation of the session: create a new session";
        Err(InputError::Forbidden(detail.to_owned()).into())
    }

    /// When the session may ask for a process, if the agent must not load the session yet.
    fn deferred_load(&self) -> Option<Instant> {
        let not_before = self.journal.record().load_not_before?;
        let wait = not_before
            .as_millis()
            .saturating_sub(self.context.ids.now().as_millis());
        // If the wall clock was set back, the wait does not become longer.
        let wait = Duration::from_millis(u64::try_from(wait).ok()?).min(LOAD_DEFERRAL_MAX);
        (!wait.is_zero()).then(|| Instant::now() + wait)
    }

    pub(super) fn reserve_or_fail(&mut self) {
        if let Err(error) = self.reserve() {
            self.attach_failed(&error);
        }
    }

    /// Begins a new session. No event is written before the agent has the session.
    pub(crate) fn create(&mut self, mut creating: CreateWaiter) {
        self.brought_servers = std::mem::take(&mut creating.servers);
        match self.reserve() {
            Ok(()) => self.client_calls.wait_for_creation(creating),
            Err(error) => {
                self.lifecycle.stopping = true;
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
        } else if self.attachment.is_attached() && !self.journal.record().is_closed() {
            return send_reply(reply, Ok(self.journal.appended()));
        }
        match self.check_quota().and_then(|()| self.reserve()) {
            Ok(()) => {
                let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
                self.client_calls.wait_for_attach(AttachWaiter {
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
        if let Some(call) = self.attachment.open_call() {
            self.link.cancel_call(call);
            self.release(Disposition::Stop, &ProcessError::Closed);
            self.attachment.detach();
        } else if self.attachment.is_attached() {
            self.end_requests(EndedBy::Release);
            self.detach(DetachedReason::Closed);
        }
    }

    pub(super) fn leased(&mut self, lease: Result<Lease, AgentFailure>) {
        self.link.drop_pending();
        let lease = match lease {
            Ok(lease) => lease,
            // The pool has begun to drain before this session has.
            Err(AgentFailure::Draining) if self.lifecycle.drain_at.is_none() => {
                return self.drain();
            }
            Err(failure) if self.link.former().is_some() => {
                return self.not_continued(&failure.into());
            }
            Err(failure) => return self.attach_failed(&failure.into()),
        };
        self.link.offered(&lease);
        if let Some(former) = self.link.former.take() {
            return self.continue_with(lease, former);
        }
        let died = lease.process().has_ended() && self.attachment.may_replace();
        if died || lease.process().key.client_capabilities != self.offered_capabilities() {
            // The process died while it was idle, or the configuration has changed during the wait. In the
            // second case the process was started with the former client capabilities.
            lease.release(Disposition::Untouched);
            return self.reserve_or_fail();
        }
        match self.setup_method(lease.process()) {
            Ok(method) => {
                self.link.accept(lease);
                self.report_holder();
                let reason = if self.journal.record().discards_context {
                    LostReason::Requested
                } else {
                    LostReason::Unsupported
                };
                self.set_up(match method {
                    AttachMethod::Fresh => SetUp::fresh(reason, None),
                    method => SetUp::new(method),
                });
            }
            Err(error) => {
                // The process received no request for this session.
                lease.release(Disposition::Untouched);
                self.attach_failed(&error);
            }
        }
    }

    /// The method that creates or restores the session on a process. Fails if the process does not suit the session.
    fn setup_method(&self, process: &Process) -> Result<AttachMethod, ProcessError> {
        self.check_host(&process.spec)?;
        let (record, capabilities) = (self.journal.record(), &process.initialized.capabilities);
        let directories = &record.additional_directories;
        let servers = (&*record.mcp_servers, &*self.brought_servers);
        check_supported(self.link.spec(), servers, directories, capabilities)?;
        if record.discards_context && record.agent_session_id.is_some() {
            return Ok(AttachMethod::Fresh);
        }
        let untouched = !self.has_history() && !record.called;
        let agent_info = process.initialized.agent_info.as_deref();
        let setup = Setup {
            is_imported: self.client_calls.imports_history(),
            has_agent_session: record.agent_session_id.is_some(),
            replaces_empty: untouched && !acp::restores_empty_sessions(agent_info),
            capabilities,
        };
        setup.method().ok_or_else(cannot_adopt)
    }

    /// Whether the agent's session contains a conversation that a new session would lose.
    pub(super) fn has_history(&self) -> bool {
        let record = self.journal.record();
        record.inherits_history || record.last_prompt as usize > self.turns.unfinished()
    }

    pub(super) fn set_up(&mut self, set_up: SetUp) {
        let method = set_up.method;
        let record = self.journal.record();
        let version = self.link.version();
        let servers = self.mcp_servers();
        let setup = self.setup(&servers);
        let trace = self.turns.trace().or_else(|| self.client_calls.trace());
        let params = match (&record.agent_session_id, method) {
            (Some(id), AttachMethod::Resume) => acp::resume_session(id, setup, trace),
            (Some(id), AttachMethod::Load) => acp::replay_session(version, id, setup, trace),
            _ => acp::new_session(setup, trace),
        };
        let limits = &self.context.limits;
        let timeout = match method {
            AttachMethod::Load => limits.session_load_timeout,
            _ => limits.session_new_timeout,
        };
        self.call_for(
            CallPurpose::SetUp(set_up),
            method.method(version),
            &params,
            timeout,
        );
    }

    /// Sends a call of the attachment. If stdin is closed, the batches report the end of the process.
    pub(super) fn call_for(
        &mut self,
        purpose: CallPurpose,
        method: &str,
        params: &RawValue,
        timeout: Duration,
    ) -> bool {
        let Some(call) = self.link.call(method, params) else {
            return false;
        };
        self.attachment
            .called(call, Instant::now() + timeout, purpose);
        true
    }

    /// The parameters of every new, resume or load. The agent itself never restores directories and servers.
    pub(super) fn setup<'a>(&'a self, mcp_servers: &'a [McpServer]) -> SessionSetup<'a> {
        let record = self.journal.record();
        SessionSetup {
            cwd: &record.cwd,
            mcp_servers,
            additional_directories: &record.additional_directories,
            meta: record.meta.as_deref(),
        }
    }

    /// The MCP servers of the session in the agent's version of ACP: those that are still configured, and those of clients.
    pub(super) fn mcp_servers(&self) -> Vec<McpServer> {
        let Some(process) = self.link.process() else {
            return Vec::new();
        };
        let version = process.version();
        let named = self
            .journal
            .record()
            .mcp_servers
            .iter()
            .filter_map(|name| process.spec.mcp.get(name));
        named
            .chain(&self.brought_servers)
            .map(|server| server.clone().for_version(version))
            .collect()
    }

    /// Replaces the MCP servers that clients bring. An agent learns them only at the set-up of a session, so an idle session
    /// releases its process, if the agent can restore the session. Otherwise its next process gets them.
    pub(crate) fn bring_servers(&mut self, servers: Vec<McpServer>) {
        if self.brought_servers == servers {
            return;
        }
        self.brought_servers = servers;
        if self
            .link
            .initialized()
            .is_some_and(|known| known.capabilities.can_restore())
        {
            self.detach_if_idle(DetachedReason::Idle);
        }
    }

    pub(super) fn setup_answered(
        &mut self,
        set_up: SetUp,
        outcome: Result<Box<RawValue>, RpcError>,
    ) {
        let SetUp {
            method,
            resume,
            lost_context,
            replayed_updates,
            updates,
            ..
        } = set_up;
        let result = match outcome {
            Ok(result) => acp::null_to_empty(&result),
            Err(error) if method.is_new() => return self.setup_rejected(error),
            Err(error) => return self.restore_rejected(method, error, resume),
        };
        if method.is_new()
            && let Err(failure) = self.adopt_agent_session(&result)
        {
            return self.setup_failed(&failure.into());
        }
        tracing::debug!(session = %self.journal.session(), replayed_updates, ?method, "attached");
        self.attached(method, lost_context, &result);
        for params in updates {
            self.handle_update(&params);
        }
    }

    fn adopt_agent_session(&mut self, result: &RawValue) -> Result<(), AgentFailure> {
        let new: acp::NewSessionResult<'_> =
            acp::parse(result).map_err(|error| AgentFailure::Start {
                detail: format!("invalid result of session/new: {error}"),
            })?;
        let agent_info = self
            .link
            .initialized()
            .and_then(|known| known.agent_info.as_deref());
        let load_not_before = acp::earliest_load(agent_info, self.context.ids.now());
        self.journal.update(|record| {
            record.agent_session_id = Some(new.session_id.into_owned());
            record.load_not_before = load_not_before;
        });
        Ok(())
    }

    /// Handles the agent's error to the resume or the load of the session. `resume` is the agent's error to the
    /// `session/resume` that preceded a `session/load`.
    fn restore_rejected(
        &mut self,
        method: AttachMethod,
        error: RpcError,
        resume: Option<RpcError>,
    ) {
        let attempt = RestoreAttempt {
            method,
            agent_session: self
                .journal
                .record()
                .agent_session_id
                .as_deref()
                .unwrap_or_default(),
            can_load: self
                .link
                .initialized()
                .is_some_and(|known| known.capabilities.load_session),
            is_imported: self.client_calls.imports_history(),
        };
        match RestoreStep::after(attempt, error, resume) {
            RestoreStep::Load(error) => {
                tracing::info!(session = %self.journal.session(), %error, "session/resume failed; trying session/load");
                self.set_up(SetUp::load_after(error));
            }
            RestoreStep::SignIn(error) => self.sign_in_for_load(error),
            RestoreStep::Reject(error) => self.setup_rejected(error),
            RestoreStep::Begin(reason, error) => self.begin_new_agent_session(reason, &error),
            RestoreStep::Retry { error, in_use } => self.retry_restore(&error, in_use),
        }
    }

    fn begin_new_agent_session(&mut self, reason: LostReason, error: &RpcError) {
        self.set_up(SetUp::fresh(reason, Some(error.to_string())));
    }

    pub(super) fn is_session_rejected(&self, error: &RpcError) -> bool {
        let id = self.journal.record().agent_session_id.as_deref();
        id.is_some_and(|id| acp::rejects_session(error, id))
    }

    /// Continues the turn in a new agent session, because the agent does not have the restored one.
    pub(super) fn run_in_new_session(&mut self, error: &RpcError) {
        self.end_requests(EndedBy::Release);
        self.turns.prompt_withdrawn();
        self.begin_new_agent_session(LostReason::RejectedSession, error);
    }

    /// Releases the process and schedules the next attempt, on the same or another process.
    fn retry_restore(&mut self, error: &RpcError, in_use: bool) {
        let Some(lease) = self.link.lease() else {
            return;
        };
        if in_use && let Some(id) = &self.journal.record().agent_session_id {
            lease.session_in_use(id);
        }
        tracing::info!(session = %self.journal.session(), %error, in_use, "the agent did not restore the session; retrying");
        let not_restored = ProcessError::NotRestored(error.clone());
        let timeout = self.context.limits.restore_timeout;
        let Retry { is_healthy, at } =
            self.attachment
                .retry_restore(error.clone(), in_use, timeout, Instant::now());
        if at.is_none() && !in_use && !error.is_transient() && self.has_failed_too_often() {
            return self.begin_new_agent_session(LostReason::NotRestored, error);
        }
        self.release(
            if is_healthy {
                Disposition::Reuse
            } else {
                Disposition::Stop
            },
            &not_restored,
        );
        match at {
            Some(at) => self.attachment.wait_until(at),
            None => self.attach_failed(&not_restored),
        }
    }

    /// Counts an attach that failed because the agent refused to restore the session, also across restarts. Returns whether the
    /// refusal counts as final: the session would otherwise be unusable for ever.
    fn has_failed_too_often(&mut self) -> bool {
        self.journal.update(|record| record.restore_failures += 1);
        self.journal.save_record();
        self.journal.record().restore_failures >= RESTORE_FAILURES
    }

    /// Acquires another process if new processes sign in with the key of the agent's environment and this one
    /// did not. Returns false if `error` is final.
    pub(super) fn retried_with_key(&mut self, error: &ProcessError) -> bool {
        let needed = matches!(
            error,
            ProcessError::Agent(AgentFailure::AuthRequired { .. })
        );
        if !needed || !self.link.lease().is_some_and(Lease::sign_in_with_key) {
            return false;
        }
        tracing::info!(session = %self.journal.session(), "retrying with a process that signs in with the key of the agent's environment");
        self.release(Disposition::Stop, error);
        self.attachment.detach();
        self.reserve_or_fail();
        true
    }

    /// The agent did not load the session without a sign-in. Begins the next step of the sign-in with its key, if
    /// there is one; otherwise `load_error` is final.
    fn sign_in_for_load(&mut self, load_error: RpcError) {
        let Some(process) = self.link.process() else {
            return;
        };
        let Some(sign_in) = process.sign_in_by_variable_at_load() else {
            return self.setup_rejected(load_error);
        };
        let limits = &self.context.limits;
        let (method, params, timeout) = match self.attachment.load_sign_in() {
            LoadSignIn::NotTried => {
                // In HOME no settings of a project select a sign-in.
                let home = process.spec.home_of(&process.key.tenant);
                let home = home.to_string_lossy();
                let setup = SessionSetup {
                    cwd: &home,
                    mcp_servers: &[],
                    additional_directories: &[],
                    meta: None,
                };
                (
                    acp::method::SESSION_NEW,
                    acp::new_session(setup, None),
                    limits.session_new_timeout,
                )
            }
            LoadSignIn::KeyChecked => (
                self.link.version().login_method(),
                auth::authenticate(sign_in, None),
                limits.call_timeout,
            ),
            LoadSignIn::SignedIn => return self.setup_rejected(load_error),
        };
        if self.call_for(CallPurpose::SignIn { load_error }, method, &params, timeout) {
            tracing::info!(session = %self.journal.session(), method, "the agent loads no session without a sign-in, trying its key");
        }
    }

    pub(super) fn sign_in_answered(
        &mut self,
        load_error: RpcError,
        outcome: Result<Box<RawValue>, RpcError>,
    ) {
        if let Err(error) = outcome {
            tracing::info!(session = %self.journal.session(), %error, "the agent does not sign in with its key");
            return self.setup_rejected(load_error);
        }
        self.attachment.sign_in_advanced();
        self.set_up(SetUp::new(AttachMethod::Load));
    }

    fn attached(&mut self, method: AttachMethod, lost: Option<LostContext>, result: &RawValue) {
        let Some(lease) = self.link.lease() else {
            return;
        };
        lease.record_auth(false);
        if let Some(id) = &self.journal.record().agent_session_id {
            lease.record_session(id);
        }
        let (initialized, isolation) = (
            Arc::clone(&lease.process().initialized),
            lease.process().isolation(),
        );
        let channel = lease.process().channel();
        let (imports, has_turn) = (
            self.client_calls.imports_history(),
            self.turns.running().is_some(),
        );
        self.attachment.attached(
            method,
            imports,
            has_turn,
            &self.context.limits,
            Instant::now(),
        );
        let prompt = initialized
            .prompt_capabilities()
            .filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        let models =
            acp::RawObject::parse(result).is_some_and(|object| object.get("models").is_some());
        self.record_attached((isolation, prompt, models), channel, &initialized);
        self.cancel_lost_turn(method);
        self.journal.fold_with(|fold| fold.attached(result));
        let mut creating = self.client_calls.take_creating();
        let origin = creating.as_ref().map(|creating| creating.origin);
        let mut claim = creating.as_mut().and_then(|creating| creating.claim.take());
        if self.journal.appended() == 0 {
            self.journal.append_created(origin, claim.take().as_ref());
        }
        self.journal
            .update(|record| record.inherits_history |= imports);
        let lost = lost.filter(|_| self.has_history());
        if let Some(LostContext { reason, detail }) = &lost {
            let (session, reason) = (self.journal.session(), reason.into_str());
            tracing::warn!(%session, reason, detail, "the agent lost the conversation; a new one begins");
        }
        // Only the result of `session/new` contains the agent's session id, and it was parsed above.
        let result = acp::replace_session_id(result, &self.journal.session());
        let denied_modes = self.denied_modes();
        let event = EncodedEvent::from(&SessionAttached {
            by: attached_by(origin, method),
            context: if lost.is_some() {
                AttachedContext::Lost
            } else {
                AttachedContext::Kept
            },
            reason: lost.as_ref().map(|lost| lost.reason),
            detail: lost.as_ref().and_then(|lost| lost.detail.as_deref()),
            isolation,
            protocol_version: initialized.acp_version.number(),
            agent_info: initialized.agent_info.as_deref(),
            agent_capabilities: &initialized.raw_capabilities,
            result: result.as_deref().ok(),
            denied_modes: &denied_modes,
        });
        // A prompt that was not sent before a drain is sent when `session.attached`, the next event, is durable.
        if self.turns.next().is_some_and(|queued| queued.record.unsent) {
            self.begin_queued();
        }
        let turns = &mut self.turns;
        let seq = self.journal.append_with(None, event, |seq, change| {
            if let Some(claim) = &claim {
                change.put_claim(claim, None);
            }
            if let Some(record) = turns.mark_sent(seq) {
                change.put_prompt(record);
            }
        });
        if channel.is_some() {
            // A restart then knows that a prompt without a channel was not sent.
            self.turns.send_after(seq);
        }
        self.report_current_mode(None);
        self.next_queued();
        for attaching in self.client_calls.take_attaching() {
            send_reply(attaching.reply, Ok(seq));
        }
        if let Some(creating) = creating {
            send_reply(creating.reply, Ok(self.snapshot()));
        }
    }

    /// Cancels the turn of a lost connection, which an agent on another host continues.
    fn cancel_lost_turn(&self, method: AttachMethod) {
        let record = self.journal.record();
        if let (true, AttachMethod::Resume | AttachMethod::Load, Some(id)) =
            (record.remote_folders, method, &record.agent_session_id)
        {
            self.link
                .notify(acp::method::SESSION_CANCEL, &acp::session_params(id, None));
        }
    }

    /// Begins the log of an imported session with the history that the agent sends. If the import fails later, the session is
    /// erased.
    pub(super) fn begin_history(&mut self) {
        if self.journal.appended() == 0 {
            self.journal.update(|record| record.unfinished = true);
            self.journal
                .append_created(self.client_calls.origin(), None);
        }
    }
}

fn attached_by(origin: Option<Origin>, method: AttachMethod) -> AttachedBy {
    match origin {
        None | Some(Origin::New) => method.attached_by(),
        Some(Origin::Adopted) => AttachedBy::Adopt,
        Some(Origin::Forked(_)) => AttachedBy::Fork,
    }
}
