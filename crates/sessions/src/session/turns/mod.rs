//! The turns of a session: the running turn, the queue behind it, and the work that the agent reports.
//!
//! A turn runs from a prompt to exactly one end (ACP, Prompt Turn). The events of prompts, from their
//! acceptance to their end, are appended here. This part does not talk to the agent.

mod echo;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};

use self::echo::Echo;
pub(super) use self::turn::{
    Admission, Answered, CancelStep, Completion, NOT_YET, Queued, TurnClock, TurnEnd,
};
use self::turn::{Cancel, PromptWork, ReportedWork, RunningCalls, Turn};
use super::command::PromptRequest;
use super::error::{AdmitError, TurnRunning};
use super::idempotency::Claim;
use super::journal::Journal;
use super::record::{PromptEdit, PromptRecord};
use super::requests::serving::ServingClient;
use agents::agent::AgentSpec;
use base::types::{CancelCause, Limits, PromptId, PromptStatus};
use events::api::Prompt;
use events::event::{EncodedEvent, PromptCompleted, PromptFailed, PromptQueued, PromptStarted};
use wire::acp::{
    self, CancelTarget, PromptResult, TraceContext, WorkState, error_code, stop_reason, update,
};
use wire::jsonrpc::{CallId, RpcError};

pub(super) struct Turns {
    running: Option<Turn>,
    queue: VecDeque<Queued>,
    /// The last turn that ended on this process. Updates that arrive after its end belong to it.
    last_ended: Option<PromptId>,
    work: ReportedWork,
    /// When the head of the queue is retried after a limit rejected it.
    pub(super) retry_at: Option<Instant>,
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

    pub(super) fn trace(&self) -> Option<&TraceContext> {
        self.running.as_ref()?.prompt.request.trace.as_ref()
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

    /// Whether the running turn waits for a process and has no `prompt.started`. Its record is that of a queued prompt.
    pub(super) fn is_waiting(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|turn| turn.started_seq == NOT_YET && !turn.prompt.record.unsent)
    }

    /// Accepts a prompt: begins its turn, or puts it into the queue. `starts`: a process can get the prompt as soon as its event
    /// is durable. Returns the prompt, its event, and the ACP client that serves the started turn.
    pub(super) fn accept(
        &mut self,
        journal: &mut Journal,
        by: &str,
        mut request: PromptRequest,
        claim: Option<&Claim>,
        admission: Admission,
        starts: bool,
        checked: Arc<AgentSpec>,
        now: Instant,
    ) -> (Prompt, u64, Option<ServingClient>) {
        let prompt_id = journal.next_prompt();
        let mut record = PromptRecord {
            prompt_id,
            status: if starts {
                PromptStatus::Running
            } else {
                PromptStatus::Queued
            },
            by: by.to_owned(),
            created_at: journal.now(),
            ended_at: None,
            first_seq: 0,
            last_seq: None,
            stop_reason: None,
            usage: None,
            cancel_cause: None,
            error: None,
            unsent: false,
            acp_request: request.acp_request.take(),
            broadcast: request.broadcast,
            edit: None,
        };
        let idempotency_key = claim.map(|claim| &*claim.key);
        let acp_request = record.acp_request.as_ref();
        let event = if starts {
            EncodedEvent::from(&PromptStarted {
                prompt: Some(&request.blocks),
                by,
                idempotency_key,
                acp_request,
                broadcast_id: record.broadcast,
            })
        } else {
            EncodedEvent::from(&PromptQueued {
                prompt: &request.blocks,
                position: match admission {
                    Admission::Run => 1,
                    Admission::Queue { position } => position,
                },
                by,
                idempotency_key,
                acp_request,
                broadcast_id: record.broadcast,
            })
        };
        journal.fold_prompt(&request.blocks);
        let seq = journal.append_with(Some(prompt_id), event, |seq, change| {
            record.first_seq = seq;
            if starts {
                change.run_prompt(&record);
            } else {
                change.queue_prompt(&record);
            }
            if let Some(claim) = claim {
                change.put_claim(claim, Some(prompt_id));
            }
        });
        let prompt = record.to_prompt(journal.session(), journal.log().id(seq));
        let serving = request.serving.take_if(|_| starts);
        let queued = Queued {
            record,
            request,
            restored: false,
            checked: Some(checked),
        };
        match admission {
            Admission::Run => self.begin(queued, if starts { seq } else { NOT_YET }, now),
            Admission::Queue { .. } => self.enqueue(queued),
        }
        (prompt, seq, serving)
    }

    /// Starts the waiting turn, because a process can get its prompt. From the commit of its event on, the agent can have seen
    /// the prompt. Returns the ACP client that serves the turn.
    pub(super) fn start(&mut self, journal: &mut Journal) -> Option<ServingClient> {
        let turn = self
            .running
            .as_mut()
            .filter(|turn| turn.started_seq == NOT_YET && !turn.prompt.record.unsent)?;
        let record = &mut turn.prompt.record;
        record.status = PromptStatus::Running;
        let event = EncodedEvent::from(&PromptStarted {
            prompt: None,
            by: &record.by,
            idempotency_key: None,
            acp_request: record.acp_request.as_ref(),
            broadcast_id: record.broadcast,
        });
        turn.started_seq = journal.append_with(Some(record.prompt_id), event, |_, change| {
            change.run_prompt(record);
        });
        turn.prompt.request.serving.take()
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
        let request = &turn.prompt.request;
        ready.then_some((&*request.blocks, request.trace.as_ref()))
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
        (!is_checked).then_some((&*turn.prompt.request.blocks, turn.prompt.checked.as_deref()))
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

    pub(super) fn is_resent(&self) -> bool {
        self.running.as_ref().is_some_and(|turn| turn.resent)
    }

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
        let blocks = &turn.prompt.request.blocks;
        turn.echo
            .get_or_insert_with(|| Echo::of(blocks))
            .repeats(raw)
    }

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

    /// Appends the only end of a turn, with its record in the same commit.
    pub(super) fn append_end(&self, journal: &mut Journal, mut record: PromptRecord, end: TurnEnd) {
        record.ended_at = Some(journal.now());
        record.unsent = false;
        let cancel_cause = record.cancel_cause;
        if let Some(cause) = cancel_cause {
            let session = journal.session();
            let prompt = record.prompt_id;
            let agent = &journal.record().agent;
            let reason = cause.words();
            tracing::info!(%session, %prompt, %agent, cause = cause.as_str(), reason, "a cancelled turn ended");
        }
        let event = match end {
            TurnEnd::Completed(Completion {
                stop_reason,
                result,
                usage,
            }) => {
                let usage_raw = usage.as_deref();
                let event = EncodedEvent::from(&PromptCompleted {
                    stop_reason: &stop_reason,
                    result: &result,
                    usage: usage_raw,
                    cancel_cause,
                    acp_request: record.acp_request.as_ref(),
                });
                record.status = PromptStatus::Completed;
                record.stop_reason = Some(stop_reason);
                record.usage = usage;
                event
            }
            TurnEnd::Failed(problem) => {
                let acp_request = record.acp_request.as_ref();
                let event = EncodedEvent::from(&PromptFailed {
                    problem: &problem,
                    cancel_cause,
                    acp_request,
                });
                let error = to_raw_value(&problem);
                record.status = PromptStatus::Failed;
                record.error = Some(error.expect("a problem has string keys and serializes"));
                event
            }
        };
        let seq = journal.append_with(Some(record.prompt_id), event, |seq, change| {
            record.last_seq = Some(seq);
            change.end_prompt(&record);
        });
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

    pub(super) fn is_agent_busy(&self) -> bool {
        self.work.busy
    }

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

    pub(super) fn track_cancellable(&mut self, kind: &str, raw: &RawValue) {
        if let Some((part, can)) = acp::parse_cancel_target(kind, raw) {
            self.work.track_cancellable(part, can);
        }
    }

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

    pub(super) fn end_background_work(&mut self) {
        self.work.busy = false;
    }
}

impl Turns {
    /// A prompt of the queue that has not started.
    pub(super) fn queued(&self, prompt: PromptId) -> Option<&Queued> {
        self.queue.iter().find(|queued| is_prompt(queued, prompt))
    }

    pub(super) fn order(&self) -> Vec<PromptId> {
        self.queue
            .iter()
            .map(|queued| queued.record.prompt_id)
            .collect()
    }

    /// The order after a move of `prompt` before another queued prompt, or to the end (`None`). `None`: the order stays.
    pub(super) fn moved(
        &self,
        prompt: PromptId,
        before: Option<PromptId>,
    ) -> Option<Vec<PromptId>> {
        if before == Some(prompt) {
            return None;
        }
        let order = self.order();
        let mut moved: Vec<PromptId> = order.iter().copied().filter(|id| *id != prompt).collect();
        let at = before.and_then(|before| moved.iter().position(|id| *id == before));
        moved.insert(at.unwrap_or(moved.len()), prompt);
        (moved != order).then_some(moved)
    }

    /// Puts the queue into this order, which has the same prompts.
    pub(super) fn reorder(&mut self, order: &[PromptId]) {
        let place = |queued: &Queued| order.iter().position(|id| *id == queued.record.prompt_id);
        self.queue.make_contiguous().sort_by_key(place);
    }

    /// Replaces the content of a queued prompt. `checked` is the entry whose denied modes it was checked against.
    pub(super) fn edit(
        &mut self,
        prompt: PromptId,
        blocks: Box<RawValue>,
        edit: PromptEdit,
        checked: Arc<AgentSpec>,
    ) -> Option<&PromptRecord> {
        let queued = self
            .queue
            .iter_mut()
            .find(|queued| is_prompt(queued, prompt))?;
        queued.request.blocks = blocks;
        queued.checked = Some(checked);
        queued.record.edit = Some(edit);
        Some(&queued.record)
    }
}

fn is_prompt(queued: &Queued, prompt: PromptId) -> bool {
    queued.record.prompt_id == prompt && queued.record.status == PromptStatus::Queued
}
