//! The turns of a session: the running turn, the queue behind it, and the work that the agent reports.
//!
//! A turn runs from a prompt to exactly one end (ACP, Prompt Turn). This part decides; it does not write the log and does
//! not talk to the agent. Each method changes the state and returns the effect that the actor applies.

mod calls;
mod echo;
mod queue;
mod turn;
mod work;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use self::calls::RunningCalls;
use self::echo::Echo;
pub(super) use self::turn::{
    Admission, Answered, CancelStep, Completion, NOT_YET, Queued, TurnClock,
};
use self::turn::{Cancel, Turn};
use self::work::{PromptWork, ReportedWork};
use super::error::{AdmitError, TurnRunning};
use super::record::PromptRecord;
use super::serving_clients::ServingClient;
use crate::acp::{
    self, CancelTarget, PromptResult, TraceContext, WorkState, error_code, stop_reason, update,
};
use crate::agent::AgentSpec;
use crate::jsonrpc::{CallId, RpcError};
use crate::types::{CancelCause, Limits, PromptId, PromptStatus};

#[derive(Debug)]
pub(super) struct Turns {
    running: Option<Turn>,
    queue: VecDeque<Queued>,
    /// The last turn that ended on this process. Updates that arrive after its end belong to it.
    last_ended: Option<PromptId>,
    work: ReportedWork,
    /// When the head of the queue is retried after a limit rejected it.
    retry_at: Option<Instant>,
    /// Notifies waiters of the sequence number of the last end of a turn.
    ends: watch::Sender<u64>,
}

impl Turns {
    pub(super) fn new(ends: watch::Sender<u64>, now: Instant) -> Self {
        Self {
            running: None,
            queue: VecDeque::new(),
            last_ended: None,
            work: ReportedWork::new(now),
            retry_at: None,
            ends,
        }
    }

    /// The running turn.
    pub(super) fn running(&self) -> Option<PromptId> {
        self.running
            .as_ref()
            .map(|turn| turn.prompt.record.prompt_id)
    }

    /// The running turn, if its prompt was sent to the agent.
    pub(super) fn sent(&self) -> Option<PromptId> {
        self.running
            .as_ref()
            .filter(|turn| turn.call.is_some())
            .map(|turn| turn.prompt.record.prompt_id)
    }

    /// Whether a turn runs whose prompt was not sent to the agent.
    pub(super) fn is_unsent(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|turn| turn.call.is_none())
    }

    pub(super) fn is_cancelling(&self) -> bool {
        self.running.as_ref().is_some_and(Turn::is_cancelled)
    }

    /// Whether the process is being stopped because the agent ignored a cancel.
    pub(super) fn is_stopping_process(&self) -> bool {
        self.running.as_ref().is_some_and(Turn::is_stopping)
    }

    /// Whether the agent may write output that belongs to the running turn.
    pub(super) fn produces_output(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|turn| turn.call.is_some() && !turn.is_cancelled())
    }

    /// The number of prompts without an end.
    pub(super) fn unfinished(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }

    /// The trace context of the request that caused the running turn.
    pub(super) fn trace(&self) -> Option<&TraceContext> {
        self.running.as_ref()?.prompt.trace.as_ref()
    }

    /// Decides where a new prompt goes. `queue`: the client accepts a place in the queue.
    pub(super) fn admit(&self, queue: bool, max_queued: usize) -> Result<Admission, AdmitError> {
        // A restored prompt can wait for a process without a turn before it.
        let ahead = self
            .running()
            .or_else(|| self.queue.front().map(|queued| queued.record.prompt_id));
        // A prompt that waits for a process is in the queue that clients see.
        let queued = self.queue.len() + usize::from(self.is_waiting());
        match ahead {
            Some(prompt) if !queue => Err(TurnRunning(prompt).into()),
            Some(_) if queued >= max_queued => Err(AdmitError::QueueFull(max_queued)),
            Some(_) => Ok(Admission::Queue {
                position: queued + 1,
            }),
            None => Ok(Admission::Run),
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued) {
        self.queue.push_back(queued);
    }

    /// The head of the queue, if no turn runs.
    pub(super) fn next(&self) -> Option<&Queued> {
        self.queue.front().filter(|_| self.running.is_none())
    }

    /// Removes and returns the head of the queue.
    pub(super) fn dequeue(&mut self) -> Option<Queued> {
        self.queue.pop_front()
    }

    /// Removes and returns the prompt with this id, or all prompts, of the queue.
    pub(super) fn remove_queued(&mut self, prompt: Option<PromptId>) -> Vec<Queued> {
        let (removed, remaining) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|queued| prompt.is_none_or(|id| id == queued.record.prompt_id));
        self.queue = remaining;
        Vec::from(removed)
    }

    /// Sets when the head of the queue is tried again.
    pub(super) fn retry_at(&mut self, at: Option<Instant>) {
        self.retry_at = at;
    }

    /// When the head of the queue is tried again.
    pub(super) fn retry_deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether the running turn waits for a process and has no `prompt.started`. Its record is that of a queued prompt.
    pub(super) fn is_waiting(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|turn| turn.started_seq == NOT_YET && !turn.prompt.record.unsent)
    }

    /// Starts the waiting turn, because a process can get its prompt. Returns its record and the ACP client that serves it. Call
    /// [`Self::started`] with the event.
    pub(super) fn start(&mut self) -> Option<(PromptRecord, Option<Arc<ServingClient>>)> {
        let turn = self
            .running
            .as_mut()
            .filter(|turn| turn.started_seq == NOT_YET && !turn.prompt.record.unsent)?;
        turn.prompt.record.status = PromptStatus::Running;
        Some((turn.prompt.record.clone(), turn.prompt.serving.take()))
    }

    /// The event `seq` is the start of the running turn.
    pub(super) fn started(&mut self, seq: u64) {
        if let Some(turn) = &mut self.running {
            turn.started_seq = seq;
        }
    }

    /// Begins a turn. `started_seq`: the event that must be durable before the prompt is sent, or [`NOT_YET`].
    pub(super) fn begin(&mut self, prompt: Queued, started_seq: u64, now: Instant) {
        self.last_ended = None;
        self.running = Some(Turn {
            prompt,
            started_seq,
            call: None,
            resent: false,
            work: PromptWork::default(),
            cancel: Cancel::None,
            last_activity: now,
            calls: RunningCalls::default(),
            echo: None,
        });
    }

    /// Marks a turn that a drain had returned to the queue as sent with the event `seq`. Returns its record.
    pub(super) fn mark_sent(&mut self, seq: u64) -> Option<&PromptRecord> {
        let turn = self
            .running
            .as_mut()
            .filter(|turn| turn.prompt.record.unsent)?;
        turn.prompt.record.unsent = false;
        turn.started_seq = seq;
        Some(&turn.prompt.record)
    }

    /// Marks a started turn whose process has ended before the prompt was sent. Returns its record.
    pub(super) fn mark_unsent(&mut self) -> Option<&PromptRecord> {
        let turn = self
            .running
            .as_mut()
            .filter(|turn| turn.call.is_none() && turn.started_seq != NOT_YET)?;
        (turn.prompt.record.unsent, turn.started_seq) = (true, NOT_YET);
        Some(&turn.prompt.record)
    }

    /// Returns a turn whose prompt was not sent to the head of the queue. If it has a `prompt.started`, it gets no second one.
    pub(super) fn return_unsent(&mut self) -> bool {
        let Some(turn) = self.running.take_if(|turn| turn.call.is_none()) else {
            return false;
        };
        let mut prompt = turn.prompt;
        prompt.record.unsent |= turn.started_seq != NOT_YET;
        prompt.restored = false;
        self.queue.push_front(prompt);
        true
    }

    /// The head of the queue, if a drain returned it there.
    pub(super) fn unsent_head(&self) -> Option<&PromptRecord> {
        self.queue
            .front()
            .map(|queued| &queued.record)
            .filter(|record| record.unsent)
    }

    /// The content blocks and the trace context of a prompt that can be sent now.
    pub(super) fn ready(&self, committed: u64) -> Option<(&RawValue, Option<&TraceContext>)> {
        let turn = self.running.as_ref()?;
        let ready = turn.call.is_none() && turn.started_seq <= committed;
        ready.then_some((&*turn.prompt.blocks, turn.prompt.trace.as_ref()))
    }

    /// The blocks of the running prompt if it was not checked against the denied modes of this entry, with the entry that it
    /// was checked against.
    pub(super) fn unchecked(
        &self,
        entry: &Arc<AgentSpec>,
    ) -> Option<(&RawValue, Option<&AgentSpec>)> {
        let turn = self.running.as_ref()?;
        let is_checked = turn
            .prompt
            .checked
            .as_ref()
            .is_some_and(|checked| Arc::ptr_eq(checked, entry));
        (!is_checked).then_some((&*turn.prompt.blocks, turn.prompt.checked.as_deref()))
    }

    pub(super) fn set_checked(&mut self, entry: Arc<AgentSpec>) {
        if let Some(turn) = &mut self.running {
            turn.prompt.checked = Some(entry);
        }
    }

    /// Notes that the prompt was written to the agent. `None`: its stdin is closed. Earlier work of the agent is background
    /// work.
    pub(super) fn prompt_sent(&mut self, call: Option<CallId>, now: Instant) {
        let Some(turn) = &mut self.running else {
            return;
        };
        turn.last_activity = now;
        turn.call = call;
        turn.work = PromptWork {
            predates_prompt: self.work.busy,
            ..PromptWork::default()
        };
    }

    /// Withdraws the sent prompt, because it is sent again in a new agent session.
    pub(super) fn prompt_withdrawn(&mut self) {
        if let Some(turn) = &mut self.running {
            (turn.call, turn.resent) = (None, true);
            turn.work = PromptWork::default();
        }
    }

    /// Sends the prompt only after the event `seq` is durable.
    pub(super) fn send_after(&mut self, seq: u64) {
        if let Some(turn) = &mut self.running {
            turn.started_seq = turn.started_seq.max(seq);
        }
    }

    /// Whether the running prompt is sent for the second time.
    pub(super) fn is_resent(&self) -> bool {
        self.running.as_ref().is_some_and(|turn| turn.resent)
    }

    /// Whether this is the call of the running turn.
    pub(super) fn is_prompt(&self, call: CallId) -> bool {
        self.running
            .as_ref()
            .is_some_and(|turn| turn.call == Some(call))
    }

    /// Notes that the agent continues or sent a message: the idle time of the turn starts here.
    pub(super) fn note_activity(&mut self, now: Instant) {
        if let Some(turn) = &mut self.running {
            turn.last_activity = now;
        }
    }

    /// Notes the status of a tool call that an update reports. `subagent`: the child session that sent the update.
    pub(super) fn track_call(&mut self, kind: &str, raw: &RawValue, subagent: Option<&str>) {
        if let Some(turn) = self.running.as_mut().filter(|turn| turn.call.is_some()) {
            turn.calls.track(kind, raw, subagent);
        }
    }

    /// Whether an update of the agent repeats the open prompt, or the next part of it.
    pub(super) fn echoes_prompt(&mut self, kind: &str, raw: &RawValue) -> bool {
        if !matches!(kind, update::USER_MESSAGE | update::USER_MESSAGE_CHUNK) {
            return false;
        }
        let Some(turn) = self.running.as_mut().filter(|turn| turn.call.is_some()) else {
            return false;
        };
        let blocks = &turn.prompt.blocks;
        turn.echo
            .get_or_insert_with(|| Echo::of(blocks))
            .repeats(raw)
    }

    /// Notes an update of this session.
    pub(super) fn note_update(&mut self, now: Instant) {
        self.work.last_update = now;
    }

    /// Decides the effect of the response to `session/prompt`. `unproven`: the session was restored, and the agent has not
    /// accepted a prompt since. `ends_turn`: in this version of ACP the response ends the turn.
    pub(super) fn answered(
        &mut self,
        outcome: Result<Box<RawValue>, RpcError>,
        unproven: bool,
        ends_turn: bool,
    ) -> Option<Answered> {
        let turn = self.running.as_mut()?;
        Some(match outcome {
            Err(error) if unproven && !turn.is_cancelled() => Answered::SessionRejected(error),
            Ok(_) if !ends_turn => {
                turn.work.acknowledged = true;
                Answered::Acknowledged
            }
            Ok(result) => match acp::parse::<PromptResult<'_>>(&result) {
                Ok(end) => {
                    let (usage, stop_reason) = (
                        end.usage.map(ToOwned::to_owned),
                        end.stop_reason.into_owned(),
                    );
                    Answered::Completed(Completion {
                        stop_reason,
                        result,
                        usage,
                    })
                }
                Err(error) => Answered::Invalid(RpcError {
                    code: error_code::INTERNAL,
                    message: format!("invalid result of session/prompt: {error}"),
                    data: None,
                }),
            },
            Err(error) if error.code == error_code::REQUEST_CANCELLED && turn.is_cancelled() => {
                Answered::Cancelled
            }
            Err(error) => Answered::Failed(error),
        })
    }

    /// Removes the running turn, so that the actor can end it. Returns its record.
    pub(super) fn take(&mut self) -> Option<PromptRecord> {
        Some(self.running.take()?.prompt.record)
    }

    /// Sets the ended turn to which later updates of the process belong.
    pub(super) fn ended(&mut self, prompt: Option<PromptId>) {
        self.last_ended = prompt;
    }

    /// Notifies waiters that the event `seq` ended a turn.
    pub(super) fn notify_end(&self, seq: u64) {
        self.ends.send_replace(seq);
    }

    /// Clears the state of the process, which the session releases.
    pub(super) fn process_released(&mut self, now: Instant) {
        self.last_ended = None;
        self.work = ReportedWork::new(now);
    }

    /// Cancels the running turn. The first cause remains. `None`: the agent was asked before, or nothing runs.
    pub(super) fn cancel(&mut self, cause: CancelCause, now: Instant) -> Option<CancelStep> {
        let turn = self.running.as_mut()?;
        turn.prompt.record.cancel_cause.get_or_insert(cause);
        if turn.call.is_none() {
            return Some(CancelStep::Complete);
        }
        if turn.is_cancelled() {
            return None;
        }
        turn.cancel = Cancel::Requested { at: now };
        Some(CancelStep::Send(turn.prompt.record.prompt_id))
    }

    /// When the running turn needs a decision.
    pub(super) fn deadline(&self, limits: &Limits, clock: TurnClock) -> Option<Instant> {
        let turn = self.running.as_ref()?;
        match turn.cancel {
            Cancel::Stopping { at } => Some(at + limits.cancel_total_timeout),
            Cancel::Requested { at } => {
                // The graceful stop must fit into the time that a drain may take.
                let drain = clock
                    .drain_at
                    .map(|drain| drain.max(at) + limits.drain_cancel_timeout);
                drain.into_iter().chain([at + limits.cancel_timeout]).min()
            }
            Cancel::None if turn.call.is_some() && !clock.agent_waits => {
                let silent = turn.last_activity + turn.max_silence(limits, clock);
                Some(clock.drain_at.map_or(silent, |drain| drain.min(silent)))
            }
            Cancel::None => clock.drain_at,
        }
    }

    /// The effect of the deadline, if it has passed: the agent is silent, a drain ends the turn, or the agent ignores a
    /// cancel.
    pub(super) fn overdue(
        &mut self,
        limits: &Limits,
        clock: TurnClock,
        now: Instant,
    ) -> Option<CancelStep> {
        self.deadline(limits, clock)
            .filter(|deadline| now >= *deadline)?;
        let turn = self.running.as_mut()?;
        match turn.cancel {
            Cancel::None => {
                let is_drained = clock.drain_at.is_some_and(|drain| now >= drain);
                let cause = if is_drained {
                    CancelCause::Drain
                } else {
                    turn.silence_cause(limits, clock)
                };
                self.cancel(cause, now)
            }
            // The agent acknowledged the prompt and is idle. ACP then requires no reaction to a cancel.
            Cancel::Requested { .. } if turn.work.acknowledged && !self.work.busy => {
                Some(CancelStep::Complete)
            }
            Cancel::Requested { at } => {
                turn.cancel = Cancel::Stopping { at };
                Some(CancelStep::StopProcess)
            }
            Cancel::Stopping { .. } => Some(CancelStep::AbandonProcess),
        }
    }

    /// The turn of an update, and whether it has ended. State updates never belong to an ended turn.
    pub(super) fn of_update(&self, is_state: bool) -> (Option<PromptId>, bool) {
        match (self.sent(), self.last_ended) {
            (Some(sent), _) => (Some(sent), false),
            (None, Some(ended)) if !is_state => (Some(ended), true),
            (None, _) => (None, false),
        }
    }

    /// Whether the agent reported work that has not ended.
    pub(super) fn is_agent_busy(&self) -> bool {
        self.work.busy
    }

    /// Whether the agent works without a turn.
    pub(super) fn works_in_background(&self) -> bool {
        self.work.busy && self.sent().is_none()
    }

    /// Tracks the work that an update of ACP v2 reports. Returns whether background work began or ended.
    pub(super) fn track_work(&mut self, kind: &str, raw: &RawValue, now: Instant) -> bool {
        self.track_cancellable(kind, raw);
        let sent = self.sent().is_some();
        let was_in_background = self.works_in_background();
        match kind {
            update::STATE => match WorkState::parse(raw) {
                None => {}
                Some(WorkState::Busy) => {
                    self.work.busy = true;
                    match self.running.as_mut().filter(|_| sent) {
                        Some(turn) => turn.work.ended = None,
                        // The agent began background work, so later updates do not belong to the last turn.
                        None => self.last_ended = None,
                    }
                }
                Some(WorkState::Idle(end)) => {
                    let was_busy = std::mem::take(&mut self.work.busy);
                    if let Some(turn) = self.running.as_mut().filter(|_| sent) {
                        turn.work.note_end(was_busy, &end, raw, now);
                    }
                }
            },
            update::USER_MESSAGE | update::USER_MESSAGE_CHUNK => {
                // The agent has echoed the message of the prompt. From here on its work belongs to the turn.
                if let Some(turn) = self.running.as_mut().filter(|_| sent) {
                    turn.work.predates_prompt = false;
                }
            }
            _ => {}
        }
        self.works_in_background() != was_in_background
    }

    /// Tracks a part that can be cancelled.
    pub(super) fn track_cancellable(&mut self, kind: &str, raw: &RawValue) {
        if let Some((part, can)) = acp::parse_cancel_target(kind, raw) {
            self.work.track_cancellable(part, can);
        }
    }

    /// Whether the agent reported that this part can be cancelled now.
    pub(super) fn can_cancel(&self, part: &CancelTarget) -> bool {
        self.work.can_cancel(part)
    }

    /// The end of the turn, if its work has ended and the agent has acknowledged the prompt.
    pub(super) fn work_end(&mut self) -> Option<Answered> {
        let turn = self
            .running
            .as_mut()
            .filter(|turn| turn.work.acknowledged)?;
        let (_, raw) = turn.work.ended.take()?;
        let Some(WorkState::Idle(end)) = WorkState::parse(&raw) else {
            return None;
        };
        if end.stop_reason.as_deref() == Some(stop_reason::ERROR) {
            return Some(Answered::Failed(end.error.unwrap_or_else(|| RpcError {
                code: error_code::INTERNAL,
                message: "the agent reported an error without details".to_owned(),
                data: None,
            })));
        }
        let unnamed = if turn.is_cancelled() {
            stop_reason::CANCELLED
        } else {
            stop_reason::END_TURN
        };
        let stop_reason = end.stop_reason.as_deref().unwrap_or(unnamed).to_owned();
        let usage = end.usage.map(ToOwned::to_owned);
        Some(Answered::Completed(Completion {
            stop_reason,
            result: raw,
            usage,
        }))
    }

    /// When to stop waiting for the response to the prompt after its work has ended.
    pub(super) fn work_deadline(&self, limits: &Limits) -> Option<Instant> {
        let (at, _) = self.running.as_ref()?.work.ended.as_ref()?;
        Some(*at + limits.cancel_timeout)
    }

    /// Treats the prompt as acknowledged, because its response is overdue.
    pub(super) fn acknowledge(&mut self) {
        if let Some(turn) = &mut self.running {
            turn.work.acknowledged = true;
        }
    }

    /// Until when background work keeps the process without an update.
    pub(super) fn background_deadline(&self, idle_timeout: Duration) -> Option<Instant> {
        self.works_in_background()
            .then(|| self.work.last_update + idle_timeout)
    }

    /// Treats the background work as ended.
    pub(super) fn end_background_work(&mut self) {
        self.work.busy = false;
    }
}
