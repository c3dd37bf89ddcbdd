//! Changes by clients: title and metadata, modes and options, and the end of a session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, send_reply};
use super::attachment::Attachment;
use super::command::{ClientCall, Reply};
use super::metadata;
use super::record::{StoredState, index_key, prompt_key, put_open, request_key, session_key, terminal_key};
use super::refusal::{Refusal, agent_failure};
use super::upstream_delete;
use crate::acp::TraceContext;
use crate::agent::AgentFailure;
use crate::api::SessionPatch;
use crate::event::{DetachedReason, EncodedEvent, SessionChanged, SessionClosed, SessionDeleted};
use crate::eventlog::Records;
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Disposition;
use crate::store::{Delete, Table};
use crate::types::{Principal, PromptId, RequestId, TerminalId};

/// The suggested delay before a client asks again for a process.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A client-initiated call that waits for a process or for the agent's response.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) by: Principal,
    pub(super) call: ClientCall,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Box<RawValue>, u64)>,
    pub(super) deadline: Instant,
}

impl Actor {
    /// Applies a merge patch (RFC 7396) to title and metadata.
    pub(super) fn patch(
        &mut self,
        by: &Principal,
        patch: &SessionPatch,
        if_match: Option<&[String]>,
    ) -> Result<u64, Refusal> {
        if if_match.is_some_and(|etags| !etags.contains(&self.snapshot().etag())) {
            return Err(Refusal::PreconditionFailed);
        }
        if patch.is_empty() {
            return Ok(self.log.appended());
        }
        let title = patch.title.as_ref().map(Option::as_deref);
        let mut event = SessionChanged { by: &by.id, title, ..SessionChanged::default() };
        let metadata = patch.merged_metadata(self.record.metadata.clone());
        if patch.metadata.is_some() {
            metadata::check(&metadata)?;
            event.metadata = Some(&metadata);
            self.metadata_index.changed();
        }
        let event = EncodedEvent::from(&event);
        self.record.metadata = metadata;
        Ok(self.append_changed(event))
    }

    /// Appends `session.changed` and updates the fold.
    pub(super) fn append_changed(&mut self, event: EncodedEvent) -> u64 {
        self.fold_changed |= self.fold.changed(&event.changed_members());
        let records = self.with_session_records(Records::default());
        self.append(None, event, records)
    }

    pub(super) fn queue_call(
        &mut self,
        by: Principal,
        client_call: ClientCall,
        trace: Option<TraceContext>,
        reply: Reply<(Box<RawValue>, u64)>,
    ) {
        if self.record.is_closed() {
            return send_reply(reply, Err(Refusal::Closed));
        }
        // A cancel ends work, so the quota does not apply to it.
        let quota = if matches!(client_call, ClientCall::Cancel(_)) { Ok(()) } else { self.check_quota() };
        let allowed = quota.and_then(|()| self.check_call(&client_call));
        if let Err(refusal) = allowed.and_then(|()| self.reserve()) {
            return send_reply(reply, Err(refusal));
        }
        let deadline = Instant::now() + self.context.limits.settings_queue_timeout;
        self.queued_calls.push(PendingCall { by, call: client_call, trace, reply, deadline });
    }

    /// Sends the calls that waited for a process. A process that is being stopped gets none.
    pub(super) fn send_queued_calls(&mut self) {
        let stopping = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if !matches!(self.attachment, Attachment::Attached) || self.queued_calls.is_empty() || stopping {
            return;
        }
        let Some(id) = self.record.agent_session_id.clone() else { return };
        for setting in std::mem::take(&mut self.queued_calls) {
            self.send_call(setting, &id);
        }
    }

    pub(super) fn call_answered(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        let Some(setting) = self.sent_calls.remove(&call) else { return };
        self.idle_since = Instant::now();
        match outcome {
            Ok(result) => self.call_succeeded(setting, &result),
            Err(error) => {
                let Some(lease) = &self.event_loop.lease else { return };
                let failure = agent_failure(error, lease);
                self.call_failed(setting, &Refusal::Agent(failure));
            }
        }
    }

    pub(super) fn call_deadline(&self) -> Option<Instant> {
        let asked = self.sent_calls.values().map(|setting| setting.deadline);
        let wanted = self.queued_calls.iter().map(|setting| setting.deadline);
        let attaching = self.attach_waiters.iter().map(|attaching| attaching.deadline);
        let creating = self.create_waiter.iter().map(|creating| creating.deadline);
        asked.chain(wanted.chain(attaching).chain(creating).filter(|_| self.waits_for_process())).min()
    }

    /// Whether the session waits for a process. During the setup its clients wait for the agent instead.
    fn waits_for_process(&self) -> bool {
        !matches!(
            self.attachment,
            Attachment::SettingUp { .. } | Attachment::SigningIn { .. } | Attachment::Attached
        )
    }

    pub(super) fn check_call_deadlines(&mut self, now: Instant) {
        let overdue: Vec<CallId> =
            self.sent_calls.iter().filter(|(_, s)| now >= s.deadline).map(|(call, _)| *call).collect();
        for call in overdue {
            self.cancel_call(call);
            let Some(setting) = self.sent_calls.remove(&call) else { continue };
            let method = setting.call.method().to_owned();
            self.call_failed(setting, &Refusal::Agent(AgentFailure::Timeout { method }));
        }
        if self.waits_for_process() {
            self.expire_waiters(now);
        }
    }

    /// Rejects clients that only need a process sooner than turns, which may wait in the pool's queue for
    /// longer. While a process is starting, the wait goes on: the start has its own limit.
    fn expire_waiters(&mut self, now: Instant) {
        let wait = self.context.limits.settings_queue_timeout;
        let overdue = |deadline: Instant| now >= deadline;
        let waits = self
            .queued_calls
            .iter()
            .map(|s| s.deadline)
            .chain(self.attach_waiters.iter().map(|a| a.deadline));
        if !waits.chain(self.create_waiter.iter().map(|c| c.deadline)).any(overdue) {
            return;
        }
        let starts = self.context.pool.is_starting(&self.record.agent, &self.owner.tenant);
        if starts {
            self.create_waiter.iter_mut().for_each(|c| c.deadline = c.deadline.max(now + wait));
            self.queued_calls
                .iter_mut()
                .for_each(|setting| setting.deadline = setting.deadline.max(now + wait));
            self.attach_waiters.iter_mut().for_each(|a| a.deadline = a.deadline.max(now + wait));
            return;
        }
        let refusal = || {
            let detail = "every process of this agent is busy; retry later, or cancel a turn";
            Refusal::PoolFull(detail.to_owned(), RETRY_AFTER)
        };
        for setting in self.queued_calls.extract_if(.., |setting| overdue(setting.deadline)) {
            send_reply(setting.reply, Err(refusal()));
        }
        for attaching in self.attach_waiters.extract_if(.., |attaching| overdue(attaching.deadline)) {
            send_reply(attaching.reply, Err(refusal()));
        }
        if self.create_waiter.as_ref().is_some_and(|creating| overdue(creating.deadline)) {
            self.create_failed(&refusal());
        }
        self.drop_pending_lease();
    }

    /// Closes the session and ends its work. The log remains readable, and `attach` reopens the session.
    pub(super) fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) -> u64 {
        if self.record.is_closed() {
            return self.log.appended();
        }
        self.end_all(trace);
        self.record.state = StoredState::Closed;
        let records = self.with_session_records(Records::default());
        let mut seq = self.append(None, &SessionClosed { by: &by.id }, records);
        if self.record.attached {
            self.append_detached(DetachedReason::Closed);
            seq = self.log.appended();
            self.close_at_agent(false, trace);
        }
        seq
    }

    /// Deletes the session: its log, its records and its own folder. The actor then stops.
    pub(super) fn delete(&mut self, by: &Principal, trace: Option<TraceContext>) -> u64 {
        self.end_all(trace.as_ref());
        if self.record.attached {
            self.record.attached = false;
            self.close_at_agent(true, trace.as_ref());
        } else {
            upstream_delete::request_delete(&self.context, &self.record, &self.owner, trace);
        }
        self.erase(&by.id)
    }

    /// Erases all stored data of the session.
    pub(super) fn erase(&mut self, by: &str) -> u64 {
        let id = self.record.session_id;
        let mut records = Records::default();
        let mut gone = |table, key| records.deletes.push(Delete { table, key });
        gone(Table::Session, session_key(id));
        gone(Table::Fold, session_key(id));
        gone(Table::SessionIndex, index_key(&self.record.tenant(), self.record.updated_at, id));
        if let Some(key) = self.stored_index_key.take() {
            gone(Table::SessionIndex, key);
        }
        for key in self.stored_agent_session_key.take().into_iter().chain(self.record.agent_session_key()) {
            gone(Table::AgentSession, key);
        }
        for key in self.metadata_index.take() {
            gone(Table::SessionMetadata, key);
        }
        for number in 1..=self.record.last_prompt {
            gone(Table::Prompt, prompt_key(id, PromptId::new(number)));
        }
        for number in 1..=self.record.last_request {
            gone(Table::Request, request_key(id, RequestId::new(number)));
        }
        for number in 1..=self.record.last_terminal {
            gone(Table::Terminal, terminal_key(id, TerminalId::new(number)));
        }
        put_open(id, false, &mut records);
        let seq = self.log.erase(&EncodedEvent::from(&SessionDeleted { by }).in_turn(None), records);
        self.erased = true;
        self.stopping = true;
        seq
    }

    /// Ends the turn and all waiting work, without waiting for the agent.
    fn end_all(&mut self, trace: Option<&TraceContext>) {
        let running = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        // Without a prompt id, the cancel cannot fail.
        drop(self.cancel(None, trace));
        if running.is_some() && self.turn.is_some() {
            self.complete_cancelled();
        }
        self.withdraw_requests();
        self.end_terminals();
        self.event_loop.pending_lease = None;
        for attaching in self.attach_waiters.drain(..) {
            send_reply(attaching.reply, Err(Refusal::Closed));
        }
        for setting in self.queued_calls.drain(..) {
            send_reply(setting.reply, Err(Refusal::Closed));
        }
        for (call, setting) in std::mem::take(&mut self.sent_calls) {
            self.cancel_call(call);
            self.call_failed(setting, &Refusal::Closed);
        }
        if let Attachment::SettingUp { call, .. } | Attachment::SigningIn { call, .. } = self.attachment {
            self.cancel_call(call);
            self.release(Disposition::Stop, &Refusal::Closed);
            self.attachment = Attachment::Detached;
        }
        self.release_live_guard();
    }
}
