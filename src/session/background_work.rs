//! What an agent of v2 tells of its work: when a turn's work is over, what it does without a turn, and which parts of
//! it can be cancelled (ACP v2, Prompt Lifecycle).
//!
//! In v1 the answer to `session/prompt` ends the turn, and none of this happens.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::{Refusal, prompt_failure};
use crate::acp::{self, AcpVersion, CancelTarget, WorkEnd, WorkState, error_code, stop_reason, update};
use crate::eventlog::Records;
use crate::jsonrpc::RpcError;
use crate::pool::Lease;
use crate::types::limits::CANCEL_TARGETS;

/// What the agent last said of its work on this process.
#[derive(Debug)]
pub(super) struct BackgroundWork {
    /// It reported work that has not ended.
    busy: bool,
    /// When it last said something.
    last_update: Instant,
    /// What it said can be cancelled by itself, the last ones.
    cancellable: Vec<CancelTarget>,
}

impl BackgroundWork {
    pub(super) fn new() -> Self {
        Self { busy: false, last_update: Instant::now(), cancellable: Vec::new() }
    }

    /// The agent said something of this session.
    pub(super) fn note_update(&mut self, now: Instant) {
        self.last_update = now;
    }
}

/// How far the agent is with the prompt of a turn.
#[derive(Debug, Default)]
pub(super) struct PromptWork {
    /// The work that ran when the prompt was sent is the agent's own, and its end is not the turn's.
    predates_prompt: bool,
    /// The answer to the prompt came: the message is in the conversation.
    acknowledged: bool,
    /// The `state_update` that ended the work, and when. It may come before the answer.
    ended: Option<(Instant, Box<RawValue>)>,
}

impl Actor {
    pub(super) fn dialect(&self) -> AcpVersion {
        self.event_loop.lease.as_ref().map_or(AcpVersion::V1, |lease| lease.process().initialized.acp_version)
    }

    /// The agent works without having been asked to.
    pub(super) fn works_in_background(&self) -> bool {
        self.background_work.busy && self.running_turn().is_none()
    }

    /// The agent has heard of the turn; what it worked on before is its own.
    pub(super) fn begin_prompt_work(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work = PromptWork { predates_prompt: self.background_work.busy, ..PromptWork::default() };
        }
    }

    /// What an update of this session says of the agent's work. It is called right before the update is appended, and
    /// gives what is saved with it; [`Actor::work_over`] follows.
    pub(super) fn track_work(&mut self, kind: &str, raw: &RawValue) -> Records {
        self.background_work.note_update(Instant::now());
        if self.dialect() != AcpVersion::V2 {
            return Records::default();
        }
        self.track_cancellable(kind, raw);
        let asked = self.running_turn().is_some();
        match (kind, self.turn.as_mut().filter(|_| asked)) {
            (update::STATE, _) => {}
            // The agent shows the message that it was sent: from here on its work is the turn's.
            (update::USER_MESSAGE | update::USER_MESSAGE_CHUNK, Some(turn)) => {
                turn.work.predates_prompt = false;
                return Records::default();
            }
            _ => return Records::default(),
        }
        let was_alone = self.works_in_background();
        match WorkState::parse(raw) {
            None => {}
            Some(WorkState::Busy) => self.work_continues(),
            Some(WorkState::Idle(end)) => self.work_ended(&end, raw),
        }
        if self.works_in_background() == was_alone {
            return Records::default();
        }
        self.idle_since = Instant::now();
        self.with_session_records(Records::default())
    }

    fn work_continues(&mut self) {
        self.background_work.busy = true;
        let asked = self.running_turn().is_some();
        match self.turn.as_mut().filter(|_| asked) {
            Some(turn) => turn.work.ended = None,
            // It began something of its own: what comes from here on is not late.
            None => self.last_turn = None,
        }
    }

    fn work_ended(&mut self, end: &WorkEnd<'_>, raw: &RawValue) {
        let was_busy = std::mem::take(&mut self.background_work.busy);
        let asked = self.running_turn().is_some();
        let Some(turn) = self.turn.as_mut().filter(|_| asked) else { return };
        let work = &mut turn.work;
        if work.predates_prompt && !work.acknowledged {
            work.predates_prompt = false;
            return;
        }
        // Idle that is said again is no end. An agent that never says when it begins says at least why it stopped.
        if was_busy || (work.acknowledged && end.stop_reason.is_some()) {
            work.ended = Some((Instant::now(), raw.to_owned()));
        }
    }

    /// The answer to `session/prompt`, where it is not the end of the turn.
    pub(super) fn prompt_acknowledged(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work.acknowledged = true;
        }
        self.complete_if_work_ended();
    }

    /// Ends the turn if its work is over and the agent has said that it took the prompt.
    pub(super) fn complete_if_work_ended(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if turn.work.acknowledged
            && let Some((_, raw)) = turn.work.ended.take()
        {
            self.complete_with_state(&raw);
        }
    }

    fn complete_with_state(&mut self, raw: &RawValue) {
        let Some(WorkState::Idle(end)) = WorkState::parse(raw) else { return };
        if end.stop_reason.as_deref() == Some(stop_reason::ERROR) {
            let Some(lease) = &self.event_loop.lease else { return };
            let error = end.error.unwrap_or_else(|| RpcError {
                code: error_code::INTERNAL,
                message: "its work ended with an error of which it told nothing".to_owned(),
                data: None,
            });
            let failure = prompt_failure(error, lease);
            return self.fail_turn(&Refusal::Agent(failure));
        }
        let cancelled = self.turn.as_ref().is_some_and(|turn| turn.cancelled_at.is_some());
        let silent = if cancelled { stop_reason::CANCELLED } else { stop_reason::END_TURN };
        let reason = end.stop_reason.as_deref().unwrap_or(silent);
        self.event_loop.lease.iter().for_each(Lease::prompt_accepted);
        self.complete_turn(reason, raw, end.usage.map(ToOwned::to_owned));
    }

    /// The work has ended, but the answer to the prompt does not come.
    pub(super) fn work_deadline(&self) -> Option<Instant> {
        let (at, _) = self.turn.as_ref()?.work.ended.as_ref()?;
        Some(*at + self.context.limits.cancel)
    }

    /// The agent took the prompt and has nothing to do: ACP asks for no further word of it after a cancel.
    pub(super) fn is_prompt_idle(&self) -> bool {
        !self.background_work.busy && self.turn.as_ref().is_some_and(|turn| turn.work.acknowledged)
    }

    /// Until when the agent's own work keeps the process without a word.
    pub(super) fn background_deadline(&self) -> Option<Instant> {
        let alone = self.works_in_background() && matches!(self.attachment, Attachment::Attached);
        alone.then(|| self.background_work.last_update + self.spec.limits.turn_idle_timeout)
    }

    pub(super) fn check_background_deadlines(&mut self, now: Instant) {
        if self.work_deadline().is_some_and(|deadline| now >= deadline) {
            self.prompt_acknowledged();
        }
        if self.background_deadline().is_some_and(|deadline| now >= deadline) {
            self.background_work.busy = false;
        }
    }

    /// Keeps what can be cancelled by itself.
    pub(super) fn track_cancellable(&mut self, kind: &str, raw: &RawValue) {
        let Some((part, can)) = acp::parse_cancel_target(kind, raw) else { return };
        let parts = &mut self.background_work.cancellable;
        parts.retain(|known| *known != part);
        if can {
            if parts.len() >= CANCEL_TARGETS {
                parts.remove(0);
            }
            parts.push(part);
        }
    }

    /// Whether the agent said that this part of its work can be cancelled now.
    pub(super) fn check_cancellable(&self, part: &CancelTarget) -> Result<(), Refusal> {
        let speaks_v1 = match &self.event_loop.lease {
            Some(_) => !self.dialect().has_cancel_targets(),
            None => AcpVersion::from_number(self.spec.protocol) != Some(AcpVersion::V2),
        };
        if speaks_v1 {
            let method = part.cancel_method().to_owned();
            return Err(Refusal::Agent(crate::agent::AgentFailure::Unsupported { method }));
        }
        if self.background_work.cancellable.contains(part) {
            return Ok(());
        }
        Err(Refusal::NotFound(match part {
            CancelTarget::ToolCall(_) => "tool call that can be cancelled now",
            CancelTarget::Terminal(_) => "terminal of the agent that can be cancelled now",
        }))
    }
}
