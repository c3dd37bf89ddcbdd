//! What an agent of v2 tells of its work: when a turn's work is over, what it does without a turn, and which parts of
//! it can be cancelled (ACP v2, Prompt Lifecycle).
//!
//! In v1 the answer to `session/prompt` ends the turn, and none of this happens.

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

/// What the agent last said of its work on this process.
#[derive(Debug)]
pub(super) struct Foreground {
    /// It reported work that has not ended.
    busy: bool,
    /// When it last said something.
    heard: Instant,
    /// What it said can be cancelled by itself, the last ones.
    cancellable: Vec<Part>,
}

impl Foreground {
    pub(super) fn new() -> Self {
        Self { busy: false, heard: Instant::now(), cancellable: Vec::new() }
    }

    /// The agent said something of this session.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }
}

/// How far the agent is with the prompt of a turn.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The work that ran when the prompt was sent is the agent's own, and its end is not the turn's.
    foreign: bool,
    /// The answer to the prompt came: the message is in the conversation.
    inserted: bool,
    /// The `state_update` that ended the work, and when. It may come before the answer.
    over: Option<(Instant, Box<RawValue>)>,
}

impl Actor {
    pub(super) fn dialect(&self) -> Dialect {
        self.inputs.lease.as_ref().map_or(Dialect::V1, |lease| lease.process().initialized.dialect)
    }

    /// The agent works without having been asked to.
    pub(super) fn works_alone(&self) -> bool {
        self.foreground.busy && self.running().is_none()
    }

    /// The agent has heard of the turn; what it worked on before is its own.
    pub(super) fn work_asked(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work = Work { foreign: self.foreground.busy, ..Work::default() };
        }
    }

    /// What an update of this session says of the agent's work. It is called right before the update is appended, and
    /// gives what is saved with it; [`Actor::work_over`] follows.
    pub(super) fn work(&mut self, kind: &str, raw: &RawValue) -> Records {
        self.foreground.heard(Instant::now());
        if self.dialect() != Dialect::V2 {
            return Records::default();
        }
        self.keep_part(kind, raw);
        let asked = self.running().is_some();
        match (kind, self.turn.as_mut().filter(|_| asked)) {
            (update::STATE, _) => {}
            // The agent shows the message that it was sent: from here on its work is the turn's.
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
            // It began something of its own: what comes from here on is not late.
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
        // Idle that is said again is no end. An agent that never says when it begins says at least why it stopped.
        if was_busy || (work.inserted && end.stop_reason.is_some()) {
            work.over = Some((Instant::now(), raw.to_owned()));
        }
    }

    /// The answer to `session/prompt`, where it is not the end of the turn.
    pub(super) fn prompt_inserted(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.work.inserted = true;
        }
        self.work_over();
    }

    /// Ends the turn if its work is over and the agent has said that it took the prompt.
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
                message: "its work ended with an error of which it told nothing".to_owned(),
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

    /// The work has ended, but the answer to the prompt does not come.
    pub(super) fn work_deadline(&self) -> Option<Instant> {
        let (at, _) = self.turn.as_ref()?.work.over.as_ref()?;
        Some(*at + self.context.limits.cancel)
    }

    /// The agent took the prompt and has nothing to do: ACP asks for no further word of it after a cancel.
    pub(super) fn nothing_to_cancel(&self) -> bool {
        !self.foreground.busy && self.turn.as_ref().is_some_and(|turn| turn.work.inserted)
    }

    /// Until when the agent's own work keeps the process without a word.
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

    /// Keeps what can be cancelled by itself.
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

    /// Whether the agent said that this part of its work can be cancelled now.
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
