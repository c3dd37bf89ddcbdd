//! The work that an agent of ACP v2 reports: when the work of a turn ends, which work runs without a turn,
//! and which parts can be cancelled (ACP v2, Prompt Lifecycle).
//!
//! In v1 the response to `session/prompt` ends the turn, and this module does nothing.

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::{Refusal, failed_prompt};
use crate::acp::{self, Dialect, Part, WorkEnd, WorkState, error_code, stop_reason, update};
use crate::eventlog::Records;
use crate::jsonrpc::RpcError;
use crate::pool::Lease;
use crate::types::limits::CANCELLABLE_PARTS;

/// The work that the agent last reported on this process.
#[derive(Debug)]
pub(super) struct Foreground {
    /// Whether the agent reported work that has not ended.
    busy: bool,
    /// When the agent last sent an update of this session.
    heard: Instant,
    /// The parts that the agent last reported as cancellable.
    cancellable: Vec<Part>,
}

impl Foreground {
    pub(super) fn new() -> Self {
        Self { busy: false, heard: Instant::now(), cancellable: Vec::new() }
    }

    /// Notes that the agent sent an update of this session.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }
}

/// The progress of the agent with the prompt of a turn.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Whether background work ran when the prompt was sent. The end of that work does not end the turn.
    foreign: bool,
    /// Whether the agent has responded to the prompt: the message is part of the conversation.
    inserted: bool,
    /// The `state_update` that ended the work, and when it arrived. It may arrive before the response.
    over: Option<(Instant, Box<RawValue>)>,
}

impl Actor {
    pub(super) fn dialect(&self) -> Dialect {
        self.inputs.lease.as_ref().map_or(Dialect::V1, |lease| lease.process().initialized.dialect)
    }

    /// Whether the agent works without a turn.
    pub(super) fn works_alone(&self) -> bool {
        self.foreground.busy && self.running().is_none()
    }

    /// Resets the work of the turn when the prompt is sent. Earlier work is background work.
    pub(super) fn work_asked(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work = Work { foreign: self.foreground.busy, ..Work::default() };
        }
    }

    /// Tracks the work that an update of this session reports. Call this right before the update is appended,
    /// with the returned records, and then call [`Actor::complete_if_work_ended`].
    pub(super) fn work(&mut self, kind: &str, raw: &RawValue) -> Records {
        self.foreground.heard(Instant::now());
        if self.dialect() != Dialect::V2 {
            return Records::default();
        }
        self.keep_part(kind, raw);
        let asked = self.running().is_some();
        match (kind, self.turn.as_mut().filter(|_| asked)) {
            (update::STATE, _) => {}
            // The agent has echoed the message of the prompt. From here on its work belongs to the turn.
            (update::USER_MESSAGE | update::USER_MESSAGE_CHUNK, Some(turn)) => {
                turn.work.foreign = false;
                return Records::default();
            }
            _ => return Records::default(),
        }
        let was_alone = self.works_alone();
        match WorkState::parse(raw) {
            None => {}
            Some(WorkState::Busy) => self.work_goes_on(),
            Some(WorkState::Idle(end)) => self.work_ends(&end, raw),
        }
        if self.works_alone() == was_alone {
            return Records::default();
        }
        self.idle_since = Instant::now();
        self.saved(Records::default())
    }

    fn work_goes_on(&mut self) {
        self.foreground.busy = true;
        let asked = self.running().is_some();
        match self.turn.as_mut().filter(|_| asked) {
            Some(turn) => turn.work.over = None,
            // The agent began background work, so later updates do not belong to the last turn.
            None => self.late_of = None,
        }
    }

    fn work_ends(&mut self, end: &WorkEnd<'_>, raw: &RawValue) {
        let was_busy = std::mem::take(&mut self.foreground.busy);
        let asked = self.running().is_some();
        let Some(turn) = self.turn.as_mut().filter(|_| asked) else { return };
        let work = &mut turn.work;
        if work.foreign && !work.inserted {
            work.foreign = false;
            return;
        }
        // A repeated idle state ends nothing. Some agents report no start of their work, only a stop reason.
        if was_busy || (work.inserted && end.stop_reason.is_some()) {
            work.over = Some((Instant::now(), raw.to_owned()));
        }
    }

    /// Handles the response to `session/prompt` if it does not end the turn.
    pub(super) fn prompt_inserted(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work.inserted = true;
        }
        self.work_over();
    }

    /// Completes the turn if its work has ended and the agent has acknowledged the prompt.
    pub(super) fn work_over(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        if turn.work.inserted
            && let Some((_, raw)) = turn.work.over.take()
        {
            self.work_completed(&raw);
        }
    }

    fn work_completed(&mut self, raw: &RawValue) {
        let Some(WorkState::Idle(end)) = WorkState::parse(raw) else { return };
        if end.stop_reason.as_deref() == Some(stop_reason::ERROR) {
            let Some(lease) = &self.inputs.lease else { return };
            let error = end.error.unwrap_or_else(|| RpcError {
                code: error_code::INTERNAL,
                message: "the agent reported an error without details".to_owned(),
                data: None,
            });
            let failure = failed_prompt(error, lease);
            return self.fail_turn(&Refusal::Agent(failure));
        }
        let cancelled = self.turn.as_ref().is_some_and(|turn| turn.cancelled_at.is_some());
        let silent = if cancelled { stop_reason::CANCELLED } else { stop_reason::END_TURN };
        let reason = end.stop_reason.as_deref().unwrap_or(silent);
        self.inputs.lease.iter().for_each(Lease::prompt_accepted);
        self.complete_turn(reason, raw, end.usage.map(ToOwned::to_owned));
    }

    /// When to stop waiting for the response to the prompt after its work has ended.
    pub(super) fn work_deadline(&self) -> Option<Instant> {
        let (at, _) = self.turn.as_ref()?.work.over.as_ref()?;
        Some(*at + self.context.limits.cancel)
    }

    /// Whether the agent acknowledged the prompt and is idle. ACP then requires no reaction to a cancel.
    pub(super) fn nothing_to_cancel(&self) -> bool {
        !self.foreground.busy && self.turn.as_ref().is_some_and(|turn| turn.work.inserted)
    }

    /// Until when background work keeps the process without an update.
    pub(super) fn foreground_deadline(&self) -> Option<Instant> {
        let alone = self.works_alone() && matches!(self.attachment, Attachment::Attached);
        alone.then(|| self.foreground.heard + self.spec.limits.silence)
    }

    pub(super) fn foreground_overdue(&mut self, now: Instant) {
        if self.work_deadline().is_some_and(|deadline| now >= deadline) {
            self.prompt_inserted();
        }
        if self.foreground_deadline().is_some_and(|deadline| now >= deadline) {
            self.foreground.busy = false;
        }
    }

    /// Tracks a part that can be cancelled.
    pub(super) fn keep_part(&mut self, kind: &str, raw: &RawValue) {
        let Some((part, can)) = acp::cancellable(kind, raw) else { return };
        let parts = &mut self.foreground.cancellable;
        parts.retain(|known| *known != part);
        if can {
            if parts.len() >= CANCELLABLE_PARTS {
                parts.remove(0);
            }
            parts.push(part);
        }
    }

    /// Whether the agent reported that this part can be cancelled now.
    pub(super) fn check_cancellable(&self, part: &Part) -> Result<(), Refusal> {
        let speaks_v1 = match &self.inputs.lease {
            Some(_) => !self.dialect().cancels_parts(),
            None => Dialect::of(self.spec.protocol) != Some(Dialect::V2),
        };
        if speaks_v1 {
            let method = part.cancel_method().to_owned();
            return Err(Refusal::Agent(crate::agent::AgentFailure::Unsupported { method }));
        }
        if self.foreground.cancellable.contains(part) {
            return Ok(());
        }
        Err(Refusal::NotFound(match part {
            Part::ToolCall(_) => "tool call that can be cancelled now",
            Part::Terminal(_) => "terminal of the agent that can be cancelled now",
        }))
    }
}
