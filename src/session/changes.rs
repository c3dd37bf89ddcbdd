//! What clients change: title and metadata, modes and options, and the end of a session.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::{Actor, answer};
use super::attachment::Attachment;
use super::command::{Reply, Wish};
use super::record::{index_key, prompt_key, put_open, request_key, session_key};
use super::refusal::{Refusal, failed};
use super::registry::check_metadata;
use super::written::Written;
use crate::acp::{self, ConfigValue, Dialect, TraceContext};
use crate::agent::AgentFailure;
use crate::api::event::{DetachedReason, SessionChanged, SessionClosed, SessionDeleted};
use crate::api::{SessionPatch, SessionState};
use crate::eventlog::{Event, Records};
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::Fate;
use crate::store::{Delete, Table};
use crate::types::{Principal, PromptId, RequestId};

/// A setting on its way to the agent.
#[derive(Debug)]
pub(super) struct Setting {
    by: Principal,
    wish: Wish,
    trace: Option<TraceContext>,
    pub(super) reply: Reply<(Box<RawValue>, u64)>,
    deadline: Instant,
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
            check_metadata(&metadata)?;
            event.metadata = Some(&metadata);
        }
        let event = Written::from(&event);
        self.record.metadata = metadata;
        Ok(self.changed(event))
    }

    /// Appends `session.changed` and folds it.
    fn changed(&mut self, event: Written) -> u64 {
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
        if let Wish::Config { value, .. } = &wish
            && ConfigValue::parse(value).is_err()
        {
            let detail = "the value is one of the option's value ids, or a boolean".to_owned();
            return answer(reply, Err(Refusal::Invalid { pointer: "/value".to_owned(), detail }));
        }
        if self.record.state == SessionState::Closed {
            return answer(reply, Err(Refusal::Closed));
        }
        if let Wish::Cancel(part) = &wish
            && let Err(refusal) = self.check_cancellable(part)
        {
            return answer(reply, Err(refusal));
        }
        if let Err(refusal) = self.reserve() {
            return answer(reply, Err(refusal));
        }
        let deadline = Instant::now() + self.context.limits.line_wait;
        self.wanted.push(Setting { by, wish, trace, reply, deadline });
    }

    /// Sends the settings that waited for a process.
    pub(super) fn send_settings(&mut self) {
        if !matches!(self.attachment, Attachment::Attached) || self.wanted.is_empty() {
            return;
        }
        let (Some(lease), Some(id)) = (&self.inputs.lease, &self.record.agent_session_id) else { return };
        let (dialect, options) = (self.dialect(), self.fold.config_options.as_deref());
        for mut setting in self.wanted.drain(..) {
            let Some((method, params)) = spoken(&setting, id, dialect, options) else {
                let method = setting.wish.method().to_owned();
                answer(setting.reply, Err(Refusal::Agent(AgentFailure::Unsupported { method })));
                continue;
            };
            setting.deadline = Instant::now() + self.context.limits.session_new;
            if let Ok(call) = lease.process().connection.call(method, &params) {
                self.settings.insert(call, setting);
            } else {
                let failure = AgentFailure::Exited(crate::agent::Ended::default());
                answer(setting.reply, Err(Refusal::Agent(failure)));
            }
        }
    }

    pub(super) fn setting_answered(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        let Some(setting) = self.settings.remove(&call) else { return };
        self.idle_since = Instant::now();
        let result = match outcome {
            Ok(result) => result,
            Err(error) => {
                let Some(lease) = &self.inputs.lease else { return };
                let failure = failed(error, lease);
                return answer(setting.reply, Err(Refusal::Agent(failure)));
            }
        };
        let mut event = SessionChanged { by: &setting.by.id, ..SessionChanged::default() };
        match &setting.wish {
            // The agent tells in its updates what becomes of it.
            Wish::Cancel(_) => return answer(setting.reply, Ok((result, self.log.appended()))),
            Wish::Mode(mode) if self.dialect().has_modes() => event.current_mode_id = Some(mode),
            Wish::Mode(_) | Wish::Config { .. } => event.config_options = acp::config_options_of(&result),
        }
        let seq = self.changed(Written::from(&event));
        let now = match &setting.wish {
            Wish::Mode(_) => &self.fold.modes,
            Wish::Config { .. } | Wish::Cancel(_) => &self.fold.config_options,
        };
        let null = || RawValue::NULL.to_owned();
        answer(setting.reply, Ok((now.clone().unwrap_or_else(null), seq)));
    }

    pub(super) fn setting_deadline(&self) -> Option<Instant> {
        self.wanted.iter().chain(self.settings.values()).map(|setting| setting.deadline).min()
    }

    pub(super) fn settings_overdue(&mut self, now: Instant) {
        let overdue: Vec<CallId> =
            self.settings.iter().filter(|(_, s)| now >= s.deadline).map(|(call, _)| *call).collect();
        let mut late: Vec<Setting> = Vec::new();
        for call in overdue {
            if let Some(lease) = &self.inputs.lease {
                lease.process().connection.forget(call);
            }
            late.extend(self.settings.remove(&call));
        }
        late.extend(self.wanted.extract_if(.., |setting| now >= setting.deadline));
        for setting in late {
            let method = setting.wish.method().to_owned();
            answer(setting.reply, Err(Refusal::Agent(AgentFailure::Timeout { method })));
        }
    }

    /// Ends what runs; the log stays readable, and `attach` opens it again.
    pub(super) fn close(&mut self, by: &Principal) -> u64 {
        if self.record.state == SessionState::Closed {
            return self.log.appended();
        }
        self.end_all();
        self.record.state = SessionState::Closed;
        let records = self.saved(Records::default());
        let mut seq = self.append(None, &SessionClosed { by: &by.id }, records);
        if self.record.attached {
            self.detached(DetachedReason::Closed);
            seq = self.log.appended();
            self.let_go(false);
        }
        seq
    }

    /// Erases the session: its log, its records, its own folder. Its owner ends.
    pub(super) fn delete(&mut self, by: &Principal) -> u64 {
        self.end_all();
        if self.record.attached {
            self.record.attached = false;
            self.let_go(true);
        }
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
        for number in 1..=self.record.last_prompt {
            gone(Table::Prompt, prompt_key(id, PromptId::new(number)));
        }
        for number in 1..=self.record.last_request {
            gone(Table::Request, request_key(id, RequestId::new(number)));
        }
        put_open(id, false, &mut records);
        let Written { kind, members } = Written::from(&SessionDeleted { by: &by.id });
        let seq = self.log.erase(&Event { kind, prompt: None, members: &members }, records);
        self.erased = true;
        self.over = true;
        seq
    }

    /// Cancels the turn and everything that waits, without waiting for the agent.
    fn end_all(&mut self) {
        let running = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        // With no prompt named there is nothing that could be missing.
        drop(self.cancel(None));
        if running.is_some() && self.turn.is_some() {
            self.complete_cancelled();
        }
        self.withdraw_requests();
        self.inputs.place = None;
        for reply in self.attaching.drain(..) {
            answer(reply, Err(Refusal::Closed));
        }
        for setting in self.wanted.drain(..).chain(self.settings.drain().map(|(_, setting)| setting)) {
            answer(setting.reply, Err(Refusal::Closed));
        }
        if matches!(self.attachment, Attachment::Setting { .. }) {
            self.release(Fate::Stop, &Refusal::Closed);
            self.attachment = Attachment::Detached;
        }
        self.settle();
    }
}

/// The call that a wish is for an agent of this version; None: it has none.
fn spoken(
    setting: &Setting,
    id: &str,
    dialect: Dialect,
    options: Option<&RawValue>,
) -> Option<(&'static str, Box<RawValue>)> {
    let trace = setting.trace.as_ref();
    let set_option = |option: &str, value: &ConfigValue<'_>| {
        let params = acp::set_config_option(dialect, id, option, value, trace);
        (acp::method::SESSION_SET_CONFIG_OPTION, params)
    };
    Some(match &setting.wish {
        Wish::Mode(mode) if dialect.has_modes() => {
            (acp::method::SESSION_SET_MODE, acp::set_mode(id, mode, trace))
        }
        Wish::Mode(mode) => set_option(&acp::mode_option(options?)?, &ConfigValue::Id(mode.into())),
        Wish::Config { option, value } => {
            set_option(option, &ConfigValue::parse(value).expect("it was checked when it came"))
        }
        Wish::Cancel(part) => (part.cancel_method(), acp::cancel_part(id, part, trace)),
    })
}
