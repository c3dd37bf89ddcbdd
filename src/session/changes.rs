//! What clients change: title and metadata, modes and options, and the end of a session.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, answer};
use super::attachment::Attachment;
use super::command::{Reply, Wish};
use super::forgotten;
use super::metadata;
use super::record::{index_key, prompt_key, put_open, request_key, session_key, terminal_key};
use super::refusal::{Refusal, failed};
use super::written::Written;
use crate::acp::TraceContext;
use crate::agent::AgentFailure;
use crate::api::event::{DetachedReason, SessionChanged, SessionClosed, SessionDeleted};
use crate::api::{SessionPatch, SessionState};
use crate::eventlog::{Event, Members, Records};
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Fate;
use crate::store::{Delete, Table};
use crate::types::{Principal, PromptId, RequestId, TerminalId};

/// When it is worth to ask again for a process.
const RETRY: Duration = Duration::from_secs(5);

/// A setting on its way to the agent.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) by: Principal,
    pub(super) wish: Wish,
    pub(super) trace: Option<TraceContext>,
    pub(super) reply: Reply<(Box<RawValue>, u64)>,
    pub(super) deadline: Instant,
}

impl Actor {
    /// RFC 7396 on title and metadata.
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
        let metadata = patch.metadata(self.record.metadata.clone());
        if patch.metadata.is_some() {
            metadata::check(&metadata)?;
            event.metadata = Some(&metadata);
            self.metadata_index.changed();
        }
        let event = Written::from(&event);
        self.record.metadata = metadata;
        Ok(self.changed(event))
    }

    /// Appends `session.changed` and folds it.
    pub(super) fn changed(&mut self, event: Written) -> u64 {
        let object = [b"{", &event.members[..], b"}"].concat();
        let object: &RawValue = serde_json::from_slice(&object).expect("members are JSON");
        self.fold_changed |= self.fold.changed(object);
        let records = self.saved(Records::default());
        self.append(None, event, records)
    }

    pub(super) fn set(
        &mut self,
        by: Principal,
        wish: Wish,
        trace: Option<TraceContext>,
        reply: Reply<(Box<RawValue>, u64)>,
    ) {
        if self.record.state == SessionState::Closed {
            return answer(reply, Err(Refusal::Closed));
        }
        // What ends work is always allowed.
        let quota = if matches!(wish, Wish::Cancel(_)) { Ok(()) } else { self.check_quota() };
        let allowed = quota.and_then(|()| self.check_wish(&wish));
        if let Err(refusal) = allowed.and_then(|()| self.reserve()) {
            return answer(reply, Err(refusal));
        }
        let deadline = Instant::now() + self.context.limits.settings_wait;
        self.wanted.push(Setting { by, wish, trace, reply, deadline });
    }

    /// Sends the settings that waited for a process. One that is being ended for its ignored cancel gets none.
    pub(super) fn send_settings(&mut self) {
        let stopping = self.turn.as_ref().is_some_and(|turn| turn.stopping);
        if !matches!(self.attachment, Attachment::Attached) || self.wanted.is_empty() || stopping {
            return;
        }
        let Some(id) = self.record.agent_session_id.clone() else { return };
        for setting in std::mem::take(&mut self.wanted) {
            self.send_wish(setting, &id);
        }
    }

    pub(super) fn setting_answered(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        let Some(setting) = self.settings.remove(&call) else { return };
        self.idle_since = Instant::now();
        match outcome {
            Ok(result) => self.granted(setting, &result),
            Err(error) => {
                let Some(lease) = &self.inputs.lease else { return };
                let failure = failed(error, lease);
                self.refuse_setting(setting, &Refusal::Agent(failure));
            }
        }
    }

    pub(super) fn setting_deadline(&self) -> Option<Instant> {
        let asked = self.settings.values().map(|setting| setting.deadline);
        let wanted = self.wanted.iter().map(|setting| setting.deadline);
        let attaching = self.attaching.iter().map(|attaching| attaching.deadline);
        let creating = self.creating.iter().map(|creating| creating.deadline);
        asked.chain(wanted.chain(attaching).chain(creating).filter(|_| self.stands_in_line())).min()
    }

    /// A session that is being set up has its process: who waits for it then waits for the agent.
    fn stands_in_line(&self) -> bool {
        !matches!(
            self.attachment,
            Attachment::Setting { .. } | Attachment::SigningIn { .. } | Attachment::Attached
        )
    }

    pub(super) fn settings_overdue(&mut self, now: Instant) {
        let overdue: Vec<CallId> =
            self.settings.iter().filter(|(_, s)| now >= s.deadline).map(|(call, _)| *call).collect();
        for call in overdue {
            self.abandon(call);
            let Some(setting) = self.settings.remove(&call) else { continue };
            let method = setting.wish.method().to_owned();
            self.refuse_setting(setting, &Refusal::Agent(AgentFailure::Timeout { method }));
        }
        if self.stands_in_line() {
            self.waits_overdue(now);
        }
    }

    /// A client that only wants a process is not held for as long as a turn may stand in line. One that is being
    /// started is worth the wait, which has its own limit.
    fn waits_overdue(&mut self, now: Instant) {
        let wait = self.context.limits.settings_wait;
        let overdue = |deadline: Instant| now >= deadline;
        let waits = self.wanted.iter().map(|s| s.deadline).chain(self.attaching.iter().map(|a| a.deadline));
        if !waits.chain(self.creating.iter().map(|c| c.deadline)).any(overdue) {
            return;
        }
        let starts = self.context.pool.is_starting(&self.record.agent);
        if starts {
            self.creating.iter_mut().for_each(|c| c.deadline = c.deadline.max(now + wait));
            self.wanted.iter_mut().for_each(|setting| setting.deadline = setting.deadline.max(now + wait));
            self.attaching.iter_mut().for_each(|a| a.deadline = a.deadline.max(now + wait));
            return;
        }
        let refusal = || {
            let detail = "every process of this agent is at work; try again, or cancel a turn";
            Refusal::PoolFull(detail.to_owned(), RETRY)
        };
        for setting in self.wanted.extract_if(.., |setting| overdue(setting.deadline)) {
            answer(setting.reply, Err(refusal()));
        }
        for attaching in self.attaching.extract_if(.., |attaching| overdue(attaching.deadline)) {
            answer(attaching.reply, Err(refusal()));
        }
        if self.creating.as_ref().is_some_and(|creating| overdue(creating.deadline)) {
            self.not_created(&refusal());
        }
        self.leave_line();
    }

    /// Ends what runs; the log stays readable, and `attach` opens it again.
    pub(super) fn close(&mut self, by: &Principal, trace: Option<&TraceContext>) -> u64 {
        if self.record.state == SessionState::Closed {
            return self.log.appended();
        }
        self.end_all(trace);
        self.record.state = SessionState::Closed;
        let records = self.saved(Records::default());
        let mut seq = self.append(None, &SessionClosed { by: &by.id }, records);
        if self.record.attached {
            self.detached(DetachedReason::Closed);
            seq = self.log.appended();
            self.let_go(false, trace);
        }
        seq
    }

    /// Erases the session: its log, its records, its own folder. Its owner ends.
    pub(super) fn delete(&mut self, by: &Principal, trace: Option<TraceContext>) -> u64 {
        self.end_all(trace.as_ref());
        if self.record.attached {
            self.record.attached = false;
            self.let_go(true, trace.as_ref());
        } else {
            forgotten::ask(&self.context, &self.record, &self.owner, trace);
        }
        self.erase(&by.id)
    }

    /// Erases all that is kept of the session.
    pub(super) fn erase(&mut self, by: &str) -> u64 {
        let id = self.record.session_id;
        let mut records = Records::default();
        let mut gone = |table, key| records.deletes.push(Delete { table, key });
        gone(Table::Session, session_key(id));
        gone(Table::Fold, session_key(id));
        gone(Table::SessionIndex, index_key(&self.record.tenant(), self.record.updated_at, id));
        if let Some(key) = self.indexed_at.take() {
            gone(Table::SessionIndex, key);
        }
        for key in self.named_as.take().into_iter().chain(self.record.agent_session_key()) {
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
        let Written { kind, members } = Written::from(&SessionDeleted { by });
        let seq = self.log.erase(&Event { kind, prompt: None, members: Members::whole(&members) }, records);
        self.erased = true;
        self.over = true;
        seq
    }

    /// Cancels the turn and everything that waits, without waiting for the agent.
    fn end_all(&mut self, trace: Option<&TraceContext>) {
        let running = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        // With no prompt named there is nothing that could be missing.
        drop(self.cancel(None, trace));
        if running.is_some() && self.turn.is_some() {
            self.complete_cancelled();
        }
        self.withdraw_requests();
        self.end_terminals();
        self.inputs.place = None;
        for attaching in self.attaching.drain(..) {
            answer(attaching.reply, Err(Refusal::Closed));
        }
        for setting in self.wanted.drain(..) {
            answer(setting.reply, Err(Refusal::Closed));
        }
        for (call, setting) in std::mem::take(&mut self.settings) {
            self.abandon(call);
            self.refuse_setting(setting, &Refusal::Closed);
        }
        if let Attachment::Setting { call, .. } | Attachment::SigningIn { call, .. } = self.attachment {
            self.abandon(call);
            self.release(Fate::Stop, &Refusal::Closed);
            self.attachment = Attachment::Detached;
        }
        self.settle();
    }
}
