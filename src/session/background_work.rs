//! The work that an agent of ACP v2 reports: when the work of a turn ends, which work runs without a turn,
//! and which parts can be cancelled (ACP v2, Prompt Lifecycle).
//!
//! In v1 the response to `session/prompt` ends the turn, and this module does nothing.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::{Refusal, prompt_failure};
use crate::acp::{self, AcpVersion, CancelTarget, WorkEnd, WorkState, error_code, stop_reason, update};
use crate::agent::{AcpV1, Dialect};
use crate::eventlog::Records;
use crate::jsonrpc::RpcError;
use crate::pool::Lease;
use crate::types::limits::CANCEL_TARGETS;

/// The work that the agent last reported on this process.
#[derive(Debug)]
pub(super) struct BackgroundWork {
    /// Whether the agent reported work that has not ended.
    busy: bool,
    /// When the agent last sent an update of this session.
    last_update: Instant,
    /// The parts that the agent last reported as cancellable.
    cancellable: Vec<CancelTarget>,
}

impl BackgroundWork {
    pub(super) fn new() -> Self {
        Self { busy: false, last_update: Instant::now(), cancellable: Vec::new() }
    }

    /// Notes that the agent sent an update of this session.
    pub(super) fn note_update(&mut self, now: Instant) {
        self.last_update = now;
    }
}

/// The progress of the agent with the prompt of a turn.
#[derive(Debug, Default)]
pub(super) struct PromptWork {
    /// Whether background work ran when the prompt was sent. The end of that work does not end the turn.
    predates_prompt: bool,
    /// Whether the agent has responded to the prompt: the message is part of the conversation.
    acknowledged: bool,
    /// The `state_update` that ended the work, and when it arrived. It may arrive before the response.
    ended: Option<(Instant, Box<RawValue>)>,
}

impl Actor {
    pub(super) fn dialect(&self) -> &dyn Dialect {
        self.event_loop.lease.as_ref().map_or(&AcpV1, |lease| lease.process().dialect())
    }

    /// Whether the agent works without a turn.
    pub(super) fn works_in_background(&self) -> bool {
        self.background_work.busy && self.running_turn().is_none()
    }

    /// Resets the work of the turn when the prompt is sent. Earlier work is background work.
    pub(super) fn begin_prompt_work(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work = PromptWork { predates_prompt: self.background_work.busy, ..PromptWork::default() };
        }
    }

    /// Tracks the work that an update of this session reports. Call this right before the update is appended,
    /// with the returned records, and then call [`Actor::complete_if_work_ended`].
    pub(super) fn track_work(&mut self, kind: &str, raw: &RawValue) -> Records {
        self.background_work.note_update(Instant::now());
        if self.dialect().answer_ends_turn() {
            return Records::default();
        }
        self.track_cancellable(kind, raw);
        let asked = self.running_turn().is_some();
        match (kind, self.turn.as_mut().filter(|_| asked)) {
            (update::STATE, _) => {}
            // The agent has echoed the message of the prompt. From here on its work belongs to the turn.
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
            // The agent began background work, so later updates do not belong to the last turn.
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
        // A repeated idle state ends nothing. Some agents report no start of their work, only a stop reason.
        if was_busy || (work.acknowledged && end.stop_reason.is_some()) {
            work.ended = Some((Instant::now(), raw.to_owned()));
        }
    }

    /// Handles the response to `session/prompt` if it does not end the turn.
    pub(super) fn prompt_acknowledged(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work.acknowledged = true;
        }
        self.complete_if_work_ended();
    }

    /// Completes the turn if its work has ended and the agent has acknowledged the prompt.
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
                message: "the agent reported an error without details".to_owned(),
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

    /// When to stop waiting for the response to the prompt after its work has ended.
    pub(super) fn work_deadline(&self) -> Option<Instant> {
        let (at, _) = self.turn.as_ref()?.work.ended.as_ref()?;
        Some(*at + self.context.limits.cancel_timeout)
    }

    /// Whether the agent acknowledged the prompt and is idle. ACP then requires no reaction to a cancel.
    pub(super) fn is_prompt_idle(&self) -> bool {
        !self.background_work.busy && self.turn.as_ref().is_some_and(|turn| turn.work.acknowledged)
    }

    /// Until when background work keeps the process without an update.
    pub(super) fn background_deadline(&self) -> Option<Instant> {
        let alone = self.works_in_background() && matches!(self.attachment, Attachment::Attached);
        alone.then(|| self.background_work.last_update + self.spec.settings.turn_idle_timeout)
    }

    pub(super) fn check_background_deadlines(&mut self, now: Instant) {
        if self.work_deadline().is_some_and(|deadline| now >= deadline) {
            self.prompt_acknowledged();
        }
        if self.background_deadline().is_some_and(|deadline| now >= deadline) {
            self.background_work.busy = false;
        }
    }

    /// Tracks a part that can be cancelled.
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

    /// Whether the agent reported that this part can be cancelled now.
    pub(super) fn check_cancellable(&self, part: &CancelTarget) -> Result<(), Refusal> {
        let speaks_v1 = match &self.event_loop.lease {
            Some(_) => !self.dialect().has_cancel_targets(),
            None => AcpVersion::from_number(self.spec.settings.protocol) != Some(AcpVersion::V2),
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
