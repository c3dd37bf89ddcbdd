//! A session and its process: getting one, setting the session up on it, giving it back (ACP, Session Setup).

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, answer};
use super::attachment::{Attaching, Attachment, By, Early};
use super::foreground::Foreground;
use super::refusal::{Refusal, failed};
use super::restore::LostContext;
use super::sign_in::LoadSignIn;
use super::suited;
use crate::acp::{self, ClientCapabilities, McpServer, SessionSetup, TraceContext};
use crate::agent::AgentFailure;
use crate::api::SessionState;
use crate::api::event::{Context, DetachedReason, SessionAttached, SessionDetached};
use crate::eventlog::Records;
use crate::jsonrpc::RpcError;
use crate::pool::{Fate, Lease, Refused, Standing};
use crate::types::ServedBy;
use crate::types::limits::FOLDED_MEMBER_BYTES;

impl Actor {
    /// Takes a place in the line if there is no process. Nothing is appended before this succeeds.
    pub(super) fn reserve(&mut self) -> Result<(), Refusal> {
        let has_process = matches!(
            self.attachment,
            Attachment::Setting { .. }
                | Attachment::SigningIn { .. }
                | Attachment::Attached
                | Attachment::Retrying { .. }
        );
        if has_process || self.inputs.place.is_some() {
            return Ok(());
        }
        if let Some(at) = self.deferred_load() {
            self.attachment = Attachment::Retrying { at };
            return Ok(());
        }
        if self.drain_at.is_some() {
            return Err(Refusal::Draining);
        }
        if self.live.is_none() {
            let limits = self.context.pool.principal_limits().of(&self.owner);
            self.live = Some(self.context.live.enter(&self.owner, &limits)?);
        }
        match self.context.pool.reserve(&self.record.agent, &self.owner, self.offer(), self.wanted_session())
        {
            Ok(place) => self.inputs.place = Some(place),
            Err(refused) => {
                self.settle();
                return Err(match refused {
                    // It was there when the session was made.
                    Refused::NoSuchAgent => Refusal::Agent(AgentFailure::removed()),
                    refused => refused.into(),
                });
            }
        }
        if matches!(self.attachment, Attachment::Detached) {
            self.attachment = Attachment::Waiting { since: Instant::now() };
        }
        Ok(())
    }

    /// Who serves the agent's files: what a client narrowed of what the agent's entry has.
    pub(super) fn files(&self) -> ServedBy {
        self.record.policy.files.map_or(self.spec.files, |wanted| wanted.min(self.spec.files))
    }

    /// Who serves the agent's terminals, likewise.
    pub(super) fn terminals(&self) -> ServedBy {
        self.record.policy.terminals.map_or(self.spec.terminals, |wanted| wanted.min(self.spec.terminals))
    }

    fn offer(&self) -> ClientCapabilities {
        ClientCapabilities::of(self.files(), self.terminals())
    }

    pub(super) fn attach(&mut self, attaching: Attaching) {
        if matches!(self.attachment, Attachment::Attached) && self.record.state != SessionState::Closed {
            return answer(attaching.reply, Ok(self.log.appended()));
        }
        match self.check_quota().and_then(|()| self.reserve()) {
            Ok(()) => self.attaching.push(attaching),
            Err(refusal) => answer(attaching.reply, Err(refusal)),
        }
    }

    /// A process came; the agent is asked to take the session.
    pub(super) fn leased(&mut self, lease: Result<Lease, AgentFailure>) {
        self.inputs.place = None;
        let lease = match lease {
            Ok(lease) => lease,
            // The pool drains already.
            Err(AgentFailure::Draining) if self.drain_at.is_none() => return self.drain(),
            Err(failure) => return self.unattached(&Refusal::Agent(failure)),
        };
        self.spec = Arc::clone(&lease.process().spec);
        let died = lease.process().is_over() && self.may_replace();
        if died || lease.process().offer != self.offer() {
            // It died while it was idle. Or the entry has changed while the session waited: this process was offered the
            // capabilities of the former entry.
            lease.release(Fate::Untouched);
            if let Err(refusal) = self.reserve() {
                self.unattached(&refusal);
            }
            return;
        }
        let capabilities = &lease.process().initialized.capabilities;
        let record = &self.record;
        let (servers, directories) = (&record.mcp_servers, &record.additional_directories);
        let suited = suited::check(&self.spec, servers, directories, capabilities);
        let by = match suited.and_then(|()| self.first_taken(capabilities)) {
            Ok(Some(by)) => by,
            Ok(None) => match &self.record.agent_session_id {
                None => By::New,
                Some(_) if self.begins_anew(lease.process()) => By::Fresh,
                Some(_) if capabilities.session.resume => By::Resume,
                Some(_) if capabilities.load_session => By::Load,
                Some(_) => By::Fresh,
            },
            Err(refusal) => {
                // Nothing was asked of it.
                lease.release(Fate::Untouched);
                return self.unattached(&refusal);
            }
        };
        self.inputs.recall = Some(lease.recalled());
        self.inputs.lease = Some(lease);
        self.told = Standing::Busy;
        if by == By::Fresh {
            self.restore.lost_context = Some(LostContext::unsupported());
        }
        self.set_up(by, None);
    }

    /// Asks the agent to take the session. `resume` is its answer to the resume that came before a load.
    pub(super) fn set_up(&mut self, by: By, resume: Option<RpcError>) {
        let Some(lease) = &self.inputs.lease else { return };
        let servers = self.servers();
        let setup = self.setup(&servers);
        let trace = self.cause();
        let params = match (&self.record.agent_session_id, by) {
            (Some(id), By::Resume) => acp::resume_session(id, setup, trace),
            (Some(id), By::Load) => acp::replay_session(self.dialect(), id, setup, trace),
            _ => acp::new_session(setup, trace),
        };
        let limits = &self.context.limits;
        let limit = if by == By::Load { limits.session_load } else { limits.session_new };
        // A closed stdin shows as the end of the process, which comes through the batches.
        if let Ok(call) = lease.process().connection.call(by.method(self.dialect()), &params) {
            let deadline = Instant::now() + limit;
            self.attachment =
                Attachment::Setting { by, resume, call, deadline, swallowed: 0, early: Early::default() };
        }
    }

    /// What the agent is told whenever it gets the session: directories and servers are never restored by it.
    pub(super) fn setup<'a>(&'a self, mcp_servers: &'a [McpServer]) -> SessionSetup<'a> {
        SessionSetup {
            cwd: &self.record.cwd,
            mcp_servers,
            additional_directories: &self.record.additional_directories,
            meta: self.record.meta.as_deref(),
        }
    }

    /// The servers that were named, as this agent is told of them, without those that its entry does not have: they
    /// are no longer configured, or not yet.
    pub(super) fn servers(&self) -> Vec<McpServer> {
        let Some(lease) = &self.inputs.lease else { return Vec::new() };
        let process = lease.process();
        let dialect = process.initialized.dialect;
        let named = self.record.mcp_servers.iter().filter_map(|name| process.spec.mcp.get(name));
        named.map(|server| server.clone().spoken_in(dialect)).collect()
    }

    /// The trace of the request for whose sake the session gets a process.
    fn cause(&self) -> Option<&TraceContext> {
        let turn = self.turn.iter().map(|turn| turn.trace.as_ref());
        let creating = self.creating.iter().map(|creating| creating.trace.as_ref());
        let attaching = self.attaching.iter().map(|attaching| attaching.trace.as_ref());
        let wanted = self.wanted.iter().map(|setting| setting.trace.as_ref());
        turn.chain(creating).chain(attaching).chain(wanted).flatten().next()
    }

    /// The agent's answer to new, resume or load.
    pub(super) fn set_up_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let Attachment::Setting { by, resume, swallowed, early, .. } =
            std::mem::replace(&mut self.attachment, Attachment::Attached)
        else {
            return;
        };
        let result = match outcome {
            Ok(result) => acp::or_empty(&result),
            Err(error) if matches!(by, By::Resume | By::Load) => {
                return self.restore_refused(by, error, resume);
            }
            Err(error) => return self.not_taken(error),
        };
        if matches!(by, By::New | By::Fresh) {
            match acp::NewSession::parse(&result) {
                Ok(new) => {
                    self.record.agent_session_id = Some(new.session_id.into_owned());
                    self.record.load_not_before = self.earliest_load();
                }
                Err(error) => {
                    let detail = format!("its answer to session/new: {error}");
                    return self.give_up(AgentFailure::Start { detail });
                }
            }
        }
        tracing::debug!(session = %self.record.session_id, swallowed, by = ?by, "attached");
        self.attached(by, &result);
        for params in early.updates {
            self.update(&params);
        }
    }

    pub(super) fn can_load(&self) -> bool {
        self.inputs.lease.as_ref().is_some_and(|l| l.process().initialized.capabilities.load_session)
    }

    fn attached(&mut self, by: By, result: &RawValue) {
        let Some(lease) = &self.inputs.lease else { return };
        lease.saw_auth(false);
        if let Some(id) = &self.record.agent_session_id {
            lease.holds(id);
        }
        let initialized = Arc::clone(&lease.process().initialized);
        self.attachment = Attachment::Attached;
        if self.turn.is_none() {
            self.replaced = 0;
        }
        self.idle_since = Instant::now();
        self.record.attached = true;
        let prompt = initialized.prompt_capabilities().filter(|raw| raw.get().len() <= FOLDED_MEMBER_BYTES);
        self.record.prompt_capabilities = prompt;
        if self.record.state == SessionState::Closed {
            self.record.state = SessionState::Idle;
        }
        self.fold_changed |= self.fold.attached(result);
        self.record.models = acp::Object::parse(result).is_some_and(|object| object.get("models").is_some());
        self.record.unfinished = false;
        self.restore.restoring = None;
        self.restore.unproven = matches!(by, By::Resume | By::Load);
        if by == By::Load {
            self.begin_replay_rest(self.takes_history());
        }
        let word = self.attached_by(by);
        let mut claim = self.creating.as_mut().and_then(|creating| creating.claim.take());
        if self.log.appended() == 0 {
            self.created(claim.take().as_ref());
        }
        self.record.inherits_history |= self.takes_history();
        let creating = self.creating.take();
        let mut records = Records::default();
        if let Some(claim) = claim {
            claim.put(self.record.session_id, None, &mut records);
        }
        let lost = self.restore.lost_context.take().filter(|_| by == By::Fresh && self.has_history());
        if let Some(LostContext { reason, detail }) = &lost {
            let session = &self.record.session_id;
            let reason = reason.as_str();
            tracing::warn!(%session, reason, detail, "the agent lost the conversation, a new one begins");
        }
        // Only the answer to `session/new` has the agent's own id in it, and was parsed: the id can be replaced.
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
        let records = self.saved(records);
        let seq = self.append(None, &event, records);
        self.next_queued();
        for attaching in self.attaching.drain(..) {
            answer(attaching.reply, Ok(seq));
        }
        if let Some(creating) = creating {
            answer(creating.reply, Ok((self.snapshot(), seq)));
        }
    }

    /// The agent refuses the session, but its process is sound.
    pub(super) fn not_taken(&mut self, error: RpcError) {
        let Some(lease) = &self.inputs.lease else { return };
        let refusal = match error.code {
            // Only here did a client name what the agent does not find.
            acp::error_code::RESOURCE_NOT_FOUND if self.takes_history() => Refusal::NoSuchResource(error),
            _ => Refusal::Agent(failed(error, lease)),
        };
        if self.retried_with_key(&refusal) {
            return;
        }
        self.release(Fate::Stop, &refusal);
        self.unattached(&refusal);
    }

    /// The process is of no use.
    pub(super) fn give_up(&mut self, failure: AgentFailure) {
        let refusal = Refusal::Agent(failure);
        self.release(Fate::Stop, &refusal);
        self.unattached(&refusal);
    }

    /// The one way in which a process leaves a session: nothing that belongs to it stays behind, because the numbers
    /// of its requests and calls mean others on the next one.
    fn part_with(&mut self, refusal: &Refusal) -> Option<Lease> {
        self.withdraw_requests();
        self.outbox.clear();
        self.inputs.recall = None;
        self.late_of = None;
        (self.restore.replay, self.restore.unproven) = (None, false);
        self.restore.load_sign_in = LoadSignIn::default();
        self.foreground = Foreground::new();
        self.subagents.forget();
        self.serving.forget();
        self.end_terminals();
        for (_, setting) in std::mem::take(&mut self.settings) {
            self.refuse_setting(setting, refusal);
        }
        self.inputs.lease.take()
    }

    pub(super) fn release(&mut self, fate: Fate, refusal: &Refusal) {
        if let Some(lease) = self.part_with(refusal) {
            lease.release(fate);
        }
    }

    /// No process comes: whoever waited for one is told why.
    pub(super) fn unattached(&mut self, refusal: &Refusal) {
        self.replaced = 0;
        self.refuse_all(refusal);
        if self.turn.is_some() {
            self.fail_turn(refusal);
        }
        self.settle();
    }

    /// Tells everyone but the turn that no process comes.
    fn refuse_all(&mut self, refusal: &Refusal) {
        self.attachment = Attachment::Detached;
        (self.restore.restoring, self.restore.lost_context) = (None, None);
        self.not_created(refusal);
        for attaching in self.attaching.drain(..) {
            answer(attaching.reply, Err(refusal.clone()));
        }
        for setting in self.wanted.drain(..) {
            answer(setting.reply, Err(refusal.clone()));
        }
    }

    /// The process closed its stdout: it is dead, or as good as dead.
    pub(super) async fn process_over(&mut self) {
        let Some(lease) = &self.inputs.lease else { return };
        // Bounded by a fraction of a second: a turn's end must not wait for a zombie.
        let ended = lease.process().ended().await;
        if matches!(self.attachment, Attachment::Leaving { .. }) {
            return self.part(Fate::Stop);
        }
        // An end that we have ordered is no crash.
        let stopped = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if !stopped && self.unused() && self.may_replace() {
            return self.replace_process(&ended);
        }
        self.lost(ended, stopped);
    }

    /// The process of a cancel that was ignored is gone.
    pub(super) fn stopped(&mut self) {
        self.attachment = Attachment::Detached;
        self.cancel_timed_out();
        self.next_process();
    }

    /// Whoever waited for the process that is gone gets the next one.
    pub(super) fn next_process(&mut self) {
        if (!self.wanted.is_empty() || !self.attaching.is_empty())
            && let Err(refusal) = self.reserve()
        {
            self.refuse_all(&refusal);
        }
        self.settle();
    }

    /// Gives the process back; `reason` is a word of `session.detached`.
    pub(super) fn leave(&mut self, reason: DetachedReason) {
        if !self.is_busy() && matches!(self.attachment, Attachment::Attached) {
            self.detach(reason);
        }
    }

    /// The gateway drains, and no turn runs any more.
    pub(super) fn leave_for_good(&mut self) {
        match self.attachment {
            Attachment::Attached => {
                self.withdraw_requests();
                self.detach(DetachedReason::Drain);
            }
            Attachment::Leaving { .. } => {}
            Attachment::Detached
            | Attachment::Waiting { .. }
            | Attachment::Retrying { .. }
            | Attachment::Setting { .. }
            | Attachment::SigningIn { .. } => {
                self.inputs.place = None;
                drop(self.part_with(&Refusal::Draining));
                self.refuse_all(&Refusal::Draining);
                self.over = true;
            }
        }
    }

    /// The same, whatever runs: the caller has ended it.
    pub(super) fn detach(&mut self, reason: DetachedReason) {
        self.detached(reason);
        self.let_go(false, None);
    }

    pub(super) fn detached(&mut self, reason: DetachedReason) {
        self.end_terminals();
        self.record.attached = false;
        self.fold_changed |= self.fold.detached();
        let records = self.saved(Records::default());
        self.append(None, &SessionDetached { reason }, records);
    }

    /// Asks the agent to close (or delete) the session, so that its process can serve another one.
    pub(super) fn let_go(&mut self, delete: bool, trace: Option<&TraceContext>) {
        self.late_of = None;
        let Some(lease) = &self.inputs.lease else { return self.left() };
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
                let deadline = Instant::now() + self.context.limits.stop_stdin;
                self.attachment = Attachment::Leaving { call, deadline, closes };
            }
            None => self.part(Fate::Stop),
        }
    }

    /// The agent's answer to close or delete.
    pub(super) fn let_go_answered(&mut self, closed: bool) {
        self.part(if closed { Fate::Reuse } else { Fate::Stop });
    }

    pub(super) fn part(&mut self, fate: Fate) {
        self.release(fate, &Refusal::Closed);
        self.left();
    }

    fn left(&mut self) {
        self.attachment = match self.inputs.place {
            Some(_) => Attachment::Waiting { since: Instant::now() },
            None => Attachment::Detached,
        };
        self.idle_since = Instant::now();
        if self.drain_at.is_some() && self.turn.is_none() {
            self.inputs.place = None;
            self.refuse_all(&Refusal::Draining);
            self.over = true;
        }
        self.settle();
    }

    /// Without a process and without a place the session no longer counts as live.
    pub(super) fn settle(&mut self) {
        if self.inputs.lease.is_none() && self.inputs.place.is_none() {
            self.live = None;
            if matches!(self.attachment, Attachment::Waiting { .. } | Attachment::Retrying { .. }) {
                self.attachment = Attachment::Detached;
                self.restore.restoring = None;
            }
        }
    }
}
