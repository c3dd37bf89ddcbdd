//! Handles the agent's messages in the order of their arrival.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::{AttachMethod, Attachment};
use super::subagents::SessionOwner;
use crate::acp;
use crate::agent::{Batch, Inbound};
use crate::event::{AgentInvalidOutput, Extension, SessionUpdate};
use crate::eventlog::Records;
use crate::jsonrpc::{CallId, RpcError};
use crate::types::PromptId;

/// Counts lines that are not valid messages.
#[derive(Debug, Default)]
struct InvalidOutput {
    lines: u64,
    bytes: u64,
}

/// The approximate number of events after which the session's record is saved within a turn. It limits the
/// events to fold after a crash.
const MAX_UNSAVED_EVENTS: usize = 10_000;

impl Actor {
    pub(super) fn handle_batch(&mut self, mut batch: Batch) {
        let (mut invalid_line, now) = (InvalidOutput::default(), Instant::now());
        if let Some(turn) = &mut self.turn {
            turn.last_activity = now;
        }
        let mut messages = std::mem::take(&mut batch.messages).into_iter();
        loop {
            let chunks = self.append_chunks(&batch.block, messages.as_slice(), now);
            let Some(message) = messages.nth(chunks) else { break };
            match message {
                Inbound::Update(line) => {
                    if let Some(params) = batch.raw(&line.params) {
                        self.handle_notification(acp::method::SESSION_UPDATE, params.to_owned());
                    }
                }
                Inbound::Notification { method, params } => self.handle_notification(&method, params),
                Inbound::Request { id, method, params } => self.handle_request(id, &method, &params),
                Inbound::Response { call, outcome } => {
                    // The response may end the turn to which the preceding lines belong.
                    self.append_invalid_output(std::mem::take(&mut invalid_line));
                    self.handle_response(call, outcome);
                }
                Inbound::InvalidLine { bytes } => {
                    invalid_line.lines += 1;
                    invalid_line.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
                }
            }
        }
        self.append_invalid_output(invalid_line);
    }

    /// Appends the leading chunks of the batch together, and returns their number. They all belong to one
    /// turn.
    fn append_chunks(&mut self, block: &[u8], messages: &[Inbound], now: Instant) -> usize {
        // Each chunk may then need other records, so the caller appends the chunks one by one.
        let alone = self.unsaved_events >= MAX_UNSAVED_EVENTS
            || self.imports_history()
            || self.restore.replay.is_some();
        let attached = matches!(self.attachment, Attachment::Attached) && !alone;
        let Some(own) = self.record.agent_session_id.as_deref().filter(|_| attached) else { return 0 };
        let lines = messages.iter().map_while(|message| match message {
            Inbound::Update(line) if line.chunk && block[line.session_id.clone()] == *own.as_bytes() => {
                Some(line)
            }
            _ => None,
        });
        let (prompt, late) = self.turn_of_update(false);
        let events = lines.map(|line| {
            let meta = line.meta.clone().map(|meta| &block[meta]);
            SessionUpdate::chunk(prompt, &block[line.update.clone()], meta, late)
        });
        let (mut count, mut bytes) = (0, 0);
        for event in events.clone() {
            count += 1;
            bytes += event.members.len();
        }
        if count > 0 {
            self.log.append_all(events);
            self.quota.count(count, bytes, now);
            self.unsaved_events += count;
            self.background_work.note_update(now);
        }
        count
    }

    /// The turn of an update, and whether it has ended. State updates never belong to an ended turn.
    fn turn_of_update(&self, tells_state: bool) -> (Option<PromptId>, bool) {
        match (self.running_turn(), self.last_turn) {
            (Some(running), _) => (Some(running), false),
            (None, Some(ended)) if !tells_state => (Some(ended), true),
            (None, _) => (None, false),
        }
    }

    fn append_invalid_output(&mut self, InvalidOutput { lines, bytes }: InvalidOutput) {
        if lines > 0 && self.record.attached {
            let prompt = self.running_turn();
            self.append(prompt, &AgentInvalidOutput { lines, bytes }, Records::default());
        }
    }

    /// The turn whose prompt was sent to the agent.
    pub(super) fn running_turn(&self) -> Option<PromptId> {
        self.turn.as_ref().filter(|turn| turn.call.is_some()).map(|turn| turn.record.prompt_id)
    }

    fn handle_notification(&mut self, method: &str, params: Box<RawValue>) {
        match method {
            acp::method::SESSION_UPDATE => match &mut self.attachment {
                // The agent's session id is not known yet, so the update is buffered.
                Attachment::SettingUp {
                    method: AttachMethod::New | AttachMethod::Fresh,
                    buffer: early,
                    ..
                } => {
                    early.push(params, &self.context.limits);
                }
                _ => self.handle_update(&params),
            },
            acp::method::CANCEL_REQUEST => self.cancelled_by_agent(&params),
            acp::method::ELICITATION_COMPLETE if self.record.attached => self.elicitation_completed(&params),
            _ if self.record.attached => self.append_extension(method, &params),
            // Before the first attach, notifications concern only the connection.
            _ => {}
        }
    }

    pub(super) fn handle_update(&mut self, params: &RawValue) {
        let Ok(view) = acp::parse_update(params) else {
            return self.update_discarded("discarded an update that cannot be parsed");
        };
        let subagent = match self.session_owner(&view.session_id) {
            SessionOwner::ThisSession => None,
            SessionOwner::Subagent => Some(&*view.session_id),
            SessionOwner::Unknown => {
                return self.update_discarded("discarded an update of an unknown session");
            }
        };
        if view.kind == acp::update::SUBAGENT {
            self.subagent_announced(view.update);
        }
        let takes_history = self.imports_history();
        let mut replayed = false;
        if let Attachment::SettingUp { method: AttachMethod::Load, skipped_updates: swallowed, .. } =
            &mut self.attachment
            && acp::update::is_history(&view.kind)
        {
            if !takes_history {
                *swallowed += 1;
                return;
            }
            replayed = true;
        }
        match self.trailing_replay(&view.kind) {
            // The log already contains this history.
            Some(false) => return,
            Some(true) => replayed = true,
            None => {}
        }
        if takes_history {
            self.begin_history();
        }
        let records = if subagent.is_none() {
            self.fold_changed |= self.fold.update(&view.kind, view.update);
            self.track_work(&view.kind, view.update)
        } else {
            Records::default()
        };
        let (prompt, late) = self.turn_of_update(acp::update::is_session_state(&view.kind));
        let records = if self.unsaved_events < MAX_UNSAVED_EVENTS {
            records
        } else {
            self.with_session_records(records)
        };
        let more = view.more.as_deref();
        let event = SessionUpdate { update: view.update, meta: view.meta, more, subagent, late, replayed };
        self.append(prompt, &event, records);
        self.complete_if_work_ended();
    }

    /// Counts an update that cannot be shown to clients, and logs it.
    pub(super) fn update_discarded(&mut self, why: &str) {
        if let Some(dropped) = self.discarded.increment() {
            tracing::warn!(session = %self.record.session_id, dropped, "{why}");
        }
    }

    /// Appends a notification that the gateway does not know.
    fn append_extension(&mut self, method: &str, params: &RawValue) {
        let Some(own) = self.params_for_clients(params) else { return };
        let (prompt, subagent) = (self.running_turn(), self.subagent_of(params));
        let event = Extension { method, params: Some(&own), subagent: subagent.as_deref() };
        self.append(prompt, &event, Records::default());
    }

    /// The params with the gateway's session id. `None` if they name another session or cannot be parsed.
    pub(super) fn params_for_clients(&self, params: &RawValue) -> Option<Box<RawValue>> {
        match acp::session_id_of(params).ok()? {
            Some(id) if self.session_owner(&id) != SessionOwner::Unknown => {
                acp::replace_session_id(params, &self.record.session_id).ok()
            }
            Some(_) => None,
            None => Some(params.to_owned()),
        }
    }

    fn handle_response(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        if self.turn.as_ref().is_some_and(|turn| turn.call == Some(call)) {
            return self.prompt_answered(outcome);
        }
        match &self.attachment {
            Attachment::SettingUp { call: asked, .. } if *asked == call => self.setup_answered(outcome),
            Attachment::SigningIn { call: asked, .. } if *asked == call => self.sign_in_answered(outcome),
            Attachment::Releasing { call: asked, closes, .. } if *asked == call => {
                self.close_answered(*closes && outcome.is_ok());
            }
            _ => self.call_answered(call, outcome),
        }
    }
}
