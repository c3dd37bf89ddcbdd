//! What the agent says, in its order.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::{Attachment, By};
use super::subagents::Whose;
use crate::acp;
use crate::agent::{Batch, Inbound};
use crate::api::event::{AgentNoise, EventMembers as _, Ext, SessionUpdate};
use crate::eventlog::{Event, Members, Records};
use crate::jsonrpc::{CallId, RpcError};
use crate::types::PromptId;

/// Lines that were no messages.
#[derive(Debug, Default)]
struct Noise {
    lines: u64,
    bytes: u64,
}

/// Events that whoever reads the session in after a crash folds at most, about: an agent may say millions in one turn.
const UNSAVED: usize = 10_000;

impl Actor {
    pub(super) fn batch(&mut self, mut batch: Batch) {
        let (mut noise, now) = (Noise::default(), Instant::now());
        if let Some(turn) = &mut self.turn {
            turn.active = now;
        }
        let mut messages = std::mem::take(&mut batch.messages).into_iter();
        loop {
            let chunks = self.chunks(&batch.block, messages.as_slice(), now);
            let Some(message) = messages.nth(chunks) else { break };
            match message {
                Inbound::Update(line) => {
                    if let Some(params) = batch.raw(&line.params) {
                        self.notified(acp::method::SESSION_UPDATE, params.to_owned());
                    }
                }
                Inbound::Notification { method, params } => self.notified(&method, params),
                Inbound::Request { id, method, params } => self.asked(id, &method, &params),
                Inbound::Response { call, outcome } => {
                    // It may end the turn that the lines before it belong to.
                    self.noise(std::mem::take(&mut noise));
                    self.answered(call, outcome);
                }
                Inbound::Noise { bytes } => {
                    noise.lines += 1;
                    noise.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
                }
            }
        }
        self.noise(noise);
    }

    /// Appends the chunks that come first, in one go, and gives how many they are: nothing changes between them that
    /// says where they belong.
    fn chunks(&mut self, block: &[u8], messages: &[Inbound], now: Instant) -> usize {
        // One that is to take the session's record along goes alone.
        let alone = self.unsaved >= UNSAVED || self.takes_history() || self.restore.replay.is_some();
        let attached = matches!(self.attachment, Attachment::Attached) && !alone;
        let Some(own) = self.record.agent_session_id.as_deref().filter(|_| attached) else { return 0 };
        let lines = messages.iter().map_while(|message| match message {
            Inbound::Update(line) if line.chunk && block[line.session_id.clone()] == *own.as_bytes() => {
                Some(line)
            }
            _ => None,
        });
        let (prompt, late) = self.place(false);
        let events = lines.map(|line| {
            let meta = line.meta.clone().map(|meta| &block[meta]);
            let pieces = SessionUpdate::pieces(&block[line.update.clone()], meta, late);
            Event { kind: SessionUpdate::TYPE, prompt, members: Members::pieces(pieces) }
        });
        let (mut count, mut bytes) = (0, 0);
        for event in events.clone() {
            count += 1;
            bytes += event.members.len();
        }
        if count > 0 {
            self.log.append_all(events);
            self.quota.count(count, bytes, now);
            self.unsaved += count;
            self.foreground.heard(now);
        }
        count
    }

    /// The turn that an update belongs to, and whether that has ended. What tells how the session stands is of none.
    fn place(&self, tells_state: bool) -> (Option<PromptId>, bool) {
        match (self.running(), self.late_of) {
            (Some(running), _) => (Some(running), false),
            (None, Some(ended)) if !tells_state => (Some(ended), true),
            (None, _) => (None, false),
        }
    }

    fn noise(&mut self, Noise { lines, bytes }: Noise) {
        if lines > 0 && self.record.attached {
            let prompt = self.running();
            self.append(prompt, &AgentNoise { lines, bytes }, Records::default());
        }
    }

    /// The turn that the agent works on.
    pub(super) fn running(&self) -> Option<PromptId> {
        self.turn.as_ref().filter(|turn| turn.call.is_some()).map(|turn| turn.record.prompt_id)
    }

    fn notified(&mut self, method: &str, params: Box<RawValue>) {
        match method {
            acp::method::SESSION_UPDATE => match &mut self.attachment {
                // The session's id at the agent is not known yet.
                Attachment::Setting { by: By::New | By::Fresh, early, .. } => {
                    early.keep(params, &self.context.limits);
                }
                _ => self.update(&params),
            },
            acp::method::CANCEL_REQUEST => self.taken_back(&params),
            acp::method::ELICITATION_COMPLETE if self.record.attached => self.elicitation_completed(&params),
            _ if self.record.attached => self.extension(method, &params),
            // What concerns the whole connection comes before any session.
            _ => {}
        }
    }

    pub(super) fn update(&mut self, params: &RawValue) {
        let Ok(peek) = acp::peek_update(params) else {
            return self.update_dropped("an update cannot be routed, and is dropped");
        };
        let subagent = match self.whose(&peek.session_id) {
            Whose::Own => None,
            Whose::Child => Some(&*peek.session_id),
            Whose::Nobodys => {
                return self.update_dropped("an update names a session that is not on this process");
            }
        };
        if peek.kind == acp::update::SUBAGENT {
            self.announced(peek.update);
        }
        let takes_history = self.takes_history();
        let mut replayed = false;
        if let Attachment::Setting { by: By::Load, swallowed, .. } = &mut self.attachment
            && acp::update::is_history(&peek.kind)
        {
            if !takes_history {
                *swallowed += 1;
                return;
            }
            replayed = true;
        }
        match self.rest_of_replay(&peek.kind) {
            // The log has it.
            Some(false) => return,
            Some(true) => replayed = true,
            None => {}
        }
        if takes_history {
            self.begin_history();
        }
        let records = if subagent.is_none() {
            self.fold_changed |= self.fold.update(&peek.kind, peek.update);
            self.work(&peek.kind, peek.update)
        } else {
            Records::default()
        };
        let (prompt, late) = self.place(acp::update::is_state(&peek.kind));
        let records = if self.unsaved < UNSAVED { records } else { self.saved(records) };
        let more = peek.more.as_deref();
        let event = SessionUpdate { update: peek.update, meta: peek.meta, more, subagent, late, replayed };
        self.append(prompt, &event, records);
        self.work_over();
    }

    /// Nobody is shown it.
    pub(super) fn update_dropped(&mut self, why: &str) {
        if let Some(dropped) = self.dropped.one_more() {
            tracing::warn!(session = %self.record.session_id, dropped, "{why}");
        }
    }

    /// A notification that the gateway does not know.
    fn extension(&mut self, method: &str, params: &RawValue) {
        let Some(own) = self.own_params(params) else { return };
        let (prompt, subagent) = (self.running(), self.subagent_of(params));
        let event = Ext { method, params: Some(&own), subagent: subagent.as_deref() };
        self.append(prompt, &event, Records::default());
    }

    /// The params with our session id; None when they name another session, or none that can be told.
    pub(super) fn own_params(&self, params: &RawValue) -> Option<Box<RawValue>> {
        match acp::session_id_of(params).ok()? {
            Some(id) if self.whose(&id) != Whose::Nobodys => {
                acp::replace_session_id(params, &self.record.session_id).ok()
            }
            Some(_) => None,
            None => Some(params.to_owned()),
        }
    }

    fn answered(&mut self, call: CallId, outcome: Result<Box<RawValue>, RpcError>) {
        if self.turn.as_ref().is_some_and(|turn| turn.call == Some(call)) {
            return self.prompt_answered(outcome);
        }
        match &self.attachment {
            Attachment::Setting { call: asked, .. } if *asked == call => self.set_up_answered(outcome),
            Attachment::SigningIn { call: asked, .. } if *asked == call => self.sign_in_answered(outcome),
            Attachment::Leaving { call: asked, closes, .. } if *asked == call => {
                self.let_go_answered(*closes && outcome.is_ok());
            }
            _ => self.setting_answered(call, outcome),
        }
    }
}
