//! Handles the agent's messages in the order of their arrival.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::session::binding::state::{CallPurpose, History, SessionOwner};
use crate::session::record::OutputPosition;
use agents::agent::{Batch, Inbound};
use agents::pool::Disposition;
use base::telemetry::metrics;
use events::event::{AgentInvalidOutput, EncodedEvent, Extension, SessionUpdate};
use wire::acp;
use wire::jsonrpc::{CallId, RpcError};

impl Actor {
    pub(super) fn handle_batch(&mut self, batch: Batch) {
        let (Some(channel), Some(offset)) = (self.binding.channel(), batch.offset) else {
            return self.handle_messages(batch);
        };
        // A restart continues with the output behind the position, so both are one commit.
        let group = self.journal.begin_group();
        self.handle_messages(batch);
        let seq = self
            .journal
            .end_group(group, OutputPosition { channel, offset });
        self.binding.acknowledge_after(seq, offset);
    }

    fn handle_messages(&mut self, mut batch: Batch) {
        let mut invalid_output = AgentInvalidOutput::default();
        let now = Instant::now();
        self.turns.note_activity(now);
        let mut messages = std::mem::take(&mut batch.messages).into_iter();
        loop {
            let chunks = self.append_chunks(&batch.block, messages.as_slice(), now);
            let Some(message) = messages.nth(chunks) else {
                break;
            };
            match message {
                Inbound::Update(line) => {
                    if let Some(params) = batch.raw(&line.params) {
                        self.handle_notification(acp::method::SESSION_UPDATE, params.to_owned());
                    }
                }
                Inbound::Notification { method, params } => {
                    self.handle_notification(&method, params);
                }
                Inbound::Request { id, method, params } => {
                    self.handle_request(id, &method, &params);
                }
                Inbound::Response { call, outcome } => {
                    // The response may end the turn to which the preceding lines belong.
                    self.append_invalid_output(&std::mem::take(&mut invalid_output));
                    self.handle_response(call, outcome);
                }
                Inbound::InvalidLine { bytes, excerpt } => {
                    if invalid_output.excerpt.is_empty() {
                        invalid_output.excerpt = excerpt;
                    }
                    invalid_output.lines += 1;
                    invalid_output.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
                }
            }
        }
        self.append_invalid_output(&invalid_output);
    }

    /// Appends the leading chunks of the batch together, and returns their number. They all belong to one
    /// turn.
    fn append_chunks(&mut self, block: &[u8], messages: &[Inbound], now: Instant) -> usize {
        // Otherwise each chunk may need other records, so the caller appends the chunks one by one.
        let together = self.binding.is_ready()
            && !self.journal.is_save_due()
            && !self.binding.calls.imports_history();
        let own = if together {
            self.journal.record().agent_session_id.as_deref()
        } else {
            None
        };
        let is_chunk = |message: &&Inbound| match message {
            Inbound::Update(line) if line.chunk => {
                own.is_some_and(|own| block[line.session_id.clone()] == *own.as_bytes())
            }
            _ => false,
        };
        let chunks = &messages[..messages.iter().take_while(is_chunk).count()];
        let (prompt, late) = self.turns.of_update(false);
        let lines = chunks.iter().filter_map(|message| match message {
            Inbound::Update(line) => Some(line),
            _ => None,
        });
        let events = lines.map(|line| {
            let meta = line.meta.clone().map(|meta| &block[meta]);
            SessionUpdate::chunk(prompt, &block[line.update.clone()], meta, late)
        });
        let count = self.journal.append_updates(events, now);
        if count > 0 {
            self.note_update(now);
        }
        count
    }

    fn append_invalid_output(&mut self, output: &AgentInvalidOutput) {
        if output.lines == 0 {
            return;
        }
        metrics().agent_invalid_lines(&self.journal.record().agent, output.lines);
        if self.journal.record().attached {
            self.journal.append(self.turns.sent(), output);
        }
    }

    fn handle_notification(&mut self, method: &str, params: Box<RawValue>) {
        let attached = self.journal.record().attached;
        match method {
            acp::method::SESSION_UPDATE => {
                if let Some(params) = self.binding.buffer_update(params, &self.context.limits) {
                    self.handle_update(&params);
                }
            }
            acp::method::CANCEL_REQUEST => self.cancelled_by_agent(&params),
            acp::method::ELICITATION_COMPLETE if attached => self.elicitation_completed(&params),
            _ if attached => self.append_extension(method, &params),
            // Before the first attach, notifications concern only the connection.
            _ => {}
        }
    }

    pub(super) fn handle_update(&mut self, params: &RawValue) {
        let Ok(view) = acp::parse_update(params) else {
            return self
                .binding
                .note_discarded("discarded an update that cannot be parsed");
        };
        let subagent = match self.owner_of(&view.session_id) {
            SessionOwner::ThisSession => None,
            SessionOwner::Subagent => Some(&*view.session_id),
            SessionOwner::Unknown => {
                return self
                    .binding
                    .note_discarded("discarded an update of an unknown session");
            }
        };
        if view.kind == acp::update::SUBAGENT && !self.binding.announce_subagent(view.update) {
            self.binding
                .note_discarded("ignored a subagent; there are too many, or its id is too long");
        }
        let imports = self.binding.calls.imports_history();
        let history =
            self.binding
                .classify_update(&view.kind, imports, &self.context.limits, Instant::now());
        if history == History::Known {
            return;
        }
        if imports {
            self.binding.begin_history(&mut self.journal);
        }
        let entered = self.entered_mode(&view.kind, view.update);
        let before = if entered.is_some() && subagent.is_none() {
            self.current_denied_mode()
        } else {
            None
        };
        let mut state_changed = false;
        if subagent.is_none() {
            self.journal
                .fold_with(|fold| fold.update(&view.kind, view.update));
            state_changed = self.track_work(&view.kind, view.update);
        }
        self.turns.track_call(&view.kind, view.update, subagent);
        let agent = &self.journal.record().agent;
        let allowed = &mut self.requests.allowed_calls;
        allowed.track(agent, &view.kind, view.update, subagent);
        let (prompt, late) = self
            .turns
            .of_update(acp::update::is_session_state(&view.kind));
        let replayed = history == History::New;
        let more = view.more.as_deref();
        let echo = subagent.is_none() && self.turns.echoes_prompt(&view.kind, view.update);
        let event = SessionUpdate {
            update: view.update,
            meta: view.meta,
            more,
            subagent,
            late,
            replayed,
            echo,
        };
        let event = EncodedEvent::from(&event);
        if state_changed || self.journal.is_save_due() {
            self.journal.append_with(prompt, event, |_, _| {});
        } else {
            self.journal.append(prompt, event);
        }
        if let Some(entered) = entered.filter(|entered| before.as_ref() != Some(entered)) {
            self.report_privileged_mode(&entered, subagent);
        }
        self.complete_if_work_ended();
    }

    fn owner_of(&self, id: &str) -> SessionOwner {
        self.binding
            .owner_of(id, self.journal.record().agent_session_id.as_deref())
    }

    /// The child session that the params name. `None` for the session itself or the whole connection.
    pub(super) fn subagent_of(&self, params: &RawValue) -> Option<String> {
        let id = acp::session_id_of(params).ok()??;
        (self.owner_of(&id) == SessionOwner::Subagent).then(|| id.into_owned())
    }

    fn append_extension(&mut self, method: &str, params: &RawValue) {
        let Some(own) = self.params_for_clients(params) else {
            return;
        };
        let subagent = self.subagent_of(params);
        let event = Extension {
            method,
            params: Some(&own),
            subagent: subagent.as_deref(),
        };
        self.journal.append(self.turns.sent(), &event);
    }

    /// The params with the gateway's session id. `None` if they name another session or cannot be parsed.
    pub(super) fn params_for_clients(&self, params: &RawValue) -> Option<Box<RawValue>> {
        match acp::session_id_of(params).ok()? {
            Some(id) if self.owner_of(&id) != SessionOwner::Unknown => {
                acp::replace_session_id(params, &self.journal.session()).ok()
            }
            Some(_) => None,
            None => Some(params.to_owned()),
        }
    }

    fn handle_response(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        if self.turns.is_prompt(call) {
            return self.prompt_answered(outcome);
        }
        match self.binding.answered(call) {
            Some(CallPurpose::SetUp(set_up)) => self.setup_answered(set_up, outcome),
            Some(CallPurpose::SignIn { load_error }) => self.sign_in_answered(load_error, outcome),
            Some(CallPurpose::Release { closes }) => {
                let reusable = closes && outcome.is_ok();
                self.finish_detach(if reusable {
                    Disposition::Reuse
                } else {
                    Disposition::Stop
                });
            }
            None => self.call_answered(call, outcome),
        }
    }
}
