//! The turns of a session: the running turn, the queue behind it, and the work that the agent reports.
//!
//! A turn runs from a prompt to exactly one end (ACP, Prompt Turn). `Turns` appends all events of prompts, from their
//! acceptance to their end, and does not talk to the agent.

mod echo;
mod trace;
mod turn;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use tracing::Span;

use self::echo::Echo;
use self::trace::PromptTrace;
use self::turn::{Cancel, PromptWork, ReportedWork, RunningCalls, Turn, prompt_span};
pub(super) use self::turn::{Completion, NOT_YET, Queued, TurnClock, TurnEnd};
use super::command::PromptRequest;
use super::error::{AdmitError, TurnRunning};
use super::idempotency::Claim;
use super::journal::Journal;
use super::record::{PromptEdit, PromptRecord};
use super::requests::client_tools::ToolClient;
use crate::limits::Limits;
use agents::agent::AgentSpec;
use base::telemetry::metrics;
use base::telemetry::traces::TraceSpan;
use base::types::{AgentName, PromptId, Timestamp};
use events::api::{CancelCause, Problem, Prompt, PromptStatus};
use events::event::{
    EncodedEvent, PromptChanged, PromptCompleted, PromptFailed, PromptQueued, PromptStarted,
};
use wire::acp::{self, CancelTarget, TraceContext, WorkState, error_code, stop_reason, update};
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
        Some(self.running.as_ref()?.prompt.record.prompt_id)
    }

    /// The span of the running turn.
    pub(super) fn span(&self) -> Option<&Arc<Span>> {
        Some(&self.running.as_ref()?.prompt.span)
    }

    /// The running turn, if its prompt was sent to the agent.
    pub(super) fn sent(&self) -> Option<PromptId> {
        let turn = self.running.as_ref()?;
        turn.call.map(|_| turn.prompt.record.prompt_id)
    }

    fn sent_mut(&mut self) -> Option<&mut Turn> {
        self.running.as_mut().filter(|turn| turn.call.is_some())
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

    pub(super) fn trace(&self) -> Option<&TraceContext> {
        self.running.as_ref()?.prompt.request.trace.as_ref()
    }

    /// The place of a new prompt in the queue, from 1. `None`: it runs now. `queue`: the client accepts a place in the queue.
    pub(super) fn admit(
        &self,
        queue: bool,
        max_queued: usize,
    ) -> Result<Option<usize>, AdmitError> {
        // A restored prompt can wait for a process without a turn before it.
        let ahead = self
            .running()
            .or_else(|| self.queue.front().map(|queued| queued.record.prompt_id));
        let Some(ahead) = ahead else {
            return Ok(None);
        };
        // A prompt that waits for a process is in the queue that clients see.
        let queued = self.queue.len() + usize::from(self.is_waiting());
        if !queue {
            Err(TurnRunning(ahead).into())
        } else if queued >= max_queued {
            Err(AdmitError::QueueFull(max_queued))
        } else {
            Ok(Some(queued + 1))
        }
    }

    pub(super) fn enqueue(&mut self, queued: Queued) {
        self.queue.push_back(queued);
    }

    /// The head of the queue, if no turn runs.
    pub(super) fn next(&self) -> Option<&Queued> {
        match self.running {
            None => self.queue.front(),
            Some(_) => None,
        }
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

    /// Accepts a prompt: begins its turn, or puts it into the queue at this place. `starts`: a process can get the prompt as soon as
    /// its event is durable. Returns the prompt, its event, and the ACP client that serves the started turn.
    pub(super) fn accept(
        &mut self,
        journal: &mut Journal,
        by: &str,
        mut request: PromptRequest,
        claim: Option<&Claim>,
        place: Option<usize>,
        starts: bool,
        checked: Arc<AgentSpec>,
        now: Instant,
    ) -> (Prompt, u64, Option<ToolClient>) {
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
            imported: false,
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
                position: place.unwrap_or(1),
                by,
                idempotency_key,
                acp_request,
                broadcast_id: record.broadcast,
            })
        };
        journal.fold_with(|fold| fold.prompted(&request.blocks));
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
        let tool_client = request.tool_client.take_if(|_| starts);
        let agent = &journal.record().agent;
        let client = request.trace.as_ref();
        let trace = PromptTrace::begin(journal.session(), agent, prompt_id, client);
        if let Some(trace) = &trace {
            request.trace = trace.context();
        }
        let queued = Queued {
            span: prompt_span(journal, prompt_id, &request.span),
            record,
            request,
            restored: false,
            checked: Some(checked),
            trace,
        };
        if place.is_some() {
            self.enqueue(queued);
        } else {
            self.begin(queued, if starts { seq } else { NOT_YET }, now);
        }
        (prompt, seq, tool_client)
    }

    /// Starts the waiting turn, because a process can get its prompt. From the commit of its event on, the agent can have seen
    /// the prompt. Returns the ACP client that serves the turn.
    pub(super) fn start(&mut self, journal: &mut Journal) -> Option<ToolClient> {
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
        turn.prompt.request.tool_client.take()
    }

    /// Begins a turn. `started_seq`: the event that must be durable before the prompt is sent, or [`NOT_YET`].
    pub(super) fn begin(&mut self, prompt: Queued, started_seq: u64, now: Instant) {
        self.last_ended = None;
        self.running = Some(Turn {
            prompt,
            started_seq,
            call: None,
            sent_at: None,
            awaits_update_since: None,
            resent: false,
            work: PromptWork::default(),
            cancel: Cancel::None,
            last_activity: now,
            calls: RunningCalls::default(),
            echo: None,
        });
    }

    /// Begins the head of the queue.
    pub(super) fn begin_next(&mut self, journal: &mut Journal) {
        let Some(queued) = self.queue.pop_front() else {
            return;
        };
        if queued.record.unsent {
            // The commit of `session.attached` permits the send.
            let prompt = queued.record.prompt_id;
            journal.update(|record| record.begin_prompt(prompt));
        }
        self.begin(queued, NOT_YET, Instant::now());
    }

    /// Begins the head of the queue if it has started before, and was not sent.
    pub(super) fn begin_unsent(&mut self, journal: &mut Journal) {
        if self.next().is_some_and(|queued| queued.record.unsent) {
            self.begin_next(journal);
        }
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
        turn.prompt.record.unsent = true;
        turn.started_seq = NOT_YET;
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
    /// work. Returns the time of the acceptance if no agent had the prompt before.
    pub(super) fn prompt_sent(&mut self, call: Option<CallId>, now: Instant) -> Option<Timestamp> {
        let turn = self.running.as_mut()?;
        turn.last_activity = now;
        turn.call = call;
        turn.work = PromptWork {
            predates_prompt: self.work.busy,
            ..PromptWork::default()
        };
        if call.is_none() || turn.sent_at.is_some() {
            return None;
        }
        turn.sent_at = Some(now);
        turn.awaits_update_since = Some(now);
        if let Some(trace) = &mut turn.prompt.trace {
            trace.prompt_sent();
        }
        Some(turn.prompt.record.created_at)
    }

    /// Withdraws the sent prompt, because it is sent again in a new agent session.
    pub(super) fn prompt_withdrawn(&mut self) {
        if let Some(turn) = &mut self.running {
            turn.call = None;
            turn.resent = true;
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
        if let Some(turn) = self.sent_mut() {
            let trace = turn.prompt.trace.as_deref_mut();
            turn.calls.track(kind, raw, subagent, trace);
        }
    }

    /// The exported span of a request of the agent in the running turn.
    pub(super) fn trace_request(&self, kind: &'static str) -> Option<TraceSpan> {
        let turn = self.running.as_ref()?;
        turn.prompt.trace.as_ref()?.request(kind)
    }

    /// Whether an update of the agent repeats the open prompt, or the next part of it.
    pub(super) fn echoes_prompt(&mut self, kind: &str, raw: &RawValue) -> bool {
        if !matches!(kind, update::USER_MESSAGE | update::USER_MESSAGE_CHUNK) {
            return false;
        }
        let Some(turn) = self.sent_mut() else {
            return false;
        };
        let blocks = &turn.prompt.request.blocks;
        turn.echo
            .get_or_insert_with(|| Echo::of(blocks))
            .repeats(raw)
    }

    /// Notes an update of the agent. Returns the time since the prompt if the update is the first one.
    pub(super) fn note_update(&mut self, now: Instant) -> Option<Duration> {
        self.work.last_update = now;
        let turn = self.running.as_mut()?;
        let since = turn.awaits_update_since.take()?;
        Some(now.saturating_duration_since(since))
    }

    /// The time since an agent got the prompt of the running turn.
    pub(super) fn elapsed(&self, now: Instant) -> Option<Duration> {
        let sent_at = self.running.as_ref()?.sent_at?;
        Some(now.saturating_duration_since(sent_at))
    }

    /// The end of the turn after the response to `session/prompt`, or the agent's error. `None`: a `state_update` ends the turn.
    /// `ends_turn`: in this version of ACP the response ends the turn.
    pub(super) fn answered(
        &mut self,
        outcome: Result<Box<RawValue>, RpcError>,
        ends_turn: bool,
    ) -> Option<Result<Completion, RpcError>> {
        let turn = self.running.as_mut()?;
        Some(match outcome {
            Ok(_) if !ends_turn => {
                turn.work.acknowledged = true;
                return None;
            }
            Ok(result) => Completion::parse(result),
            // The agent confirms the cancel with an error.
            Err(error) if error.code == error_code::REQUEST_CANCELLED && turn.is_cancelled() => {
                Ok(Completion::cancelled())
            }
            Err(error) => Err(error),
        })
    }

    /// Removes the running turn, so that the actor can end it. Returns its prompt.
    pub(super) fn take(&mut self) -> Option<Queued> {
        Some(self.running.take()?.prompt)
    }

    /// Sets the ended turn to which later updates of the process belong.
    pub(super) fn ended(&mut self, prompt: Option<PromptId>) {
        self.last_ended = prompt;
    }

    /// Appends the only end of a turn, with its record in the same commit.
    pub(super) fn append_end(&self, journal: &mut Journal, prompt: Queued, end: TurnEnd) {
        let Queued {
            mut record,
            span,
            trace,
            ..
        } = prompt;
        let _entered = span.enter();
        report_end(&journal.record().agent, trace.as_deref(), &end);
        record.ended_at = Some(journal.now());
        record.unsent = false;
        let cancel_cause = record.cancel_cause;
        if let Some(cause) = cancel_cause {
            let reason = cause.words();
            tracing::info!(cause = cause.as_str(), reason, "a cancelled turn ended");
        }
        let event = match end {
            Ok(completion) => {
                let event = EncodedEvent::from(&PromptCompleted {
                    stop_reason: &completion.stop_reason,
                    result: &completion.result,
                    usage: completion.usage.as_deref(),
                    cancel_cause,
                    acp_request: record.acp_request.as_ref(),
                });
                record.status = PromptStatus::Completed;
                record.stop_reason = Some(completion.stop_reason);
                record.usage = completion.usage;
                event
            }
            Err(problem) => {
                let event = EncodedEvent::from(&PromptFailed {
                    problem: &problem,
                    cancel_cause,
                    acp_request: record.acp_request.as_ref(),
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

    /// Fails prompts of the queue.
    pub(super) fn fail_queued(&mut self, journal: &mut Journal, failed: Vec<(PromptId, Problem)>) {
        for (prompt, problem) in failed {
            for queued in self.remove_queued(Some(prompt)) {
                self.append_end(journal, queued, Err(problem.clone()));
            }
        }
    }

    /// Clears the state of the process, which the session releases.
    pub(super) fn process_released(&mut self, now: Instant) {
        self.last_ended = None;
        self.work = ReportedWork::new(now);
    }

    /// Cancels the running turn. The first cause remains. Returns whether the agent must be asked: its prompt was sent, and the
    /// agent was not asked before.
    pub(super) fn cancel(&mut self, cause: CancelCause, now: Instant) -> bool {
        let Some(turn) = &mut self.running else {
            return false;
        };
        turn.prompt.record.cancel_cause.get_or_insert(cause);
        let asks = turn.call.is_some() && !turn.is_cancelled();
        if asks {
            turn.cancel = Cancel::Requested { at: now };
        }
        asks
    }

    /// Notes that the agent ignored the cancel, and that the graceful stop of its process begins.
    pub(super) fn stop_begun(&mut self) {
        if let Some(turn) = &mut self.running
            && let Cancel::Requested { at } = turn.cancel
        {
            turn.cancel = Cancel::Stopping { at };
        }
    }

    /// Whether the agent acknowledged the prompt and is idle. ACP then requires no reaction to a cancel.
    pub(super) fn is_idle(&self) -> bool {
        let acknowledged = self.running.as_ref().map(|turn| turn.work.acknowledged);
        acknowledged == Some(true) && !self.work.busy
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

    /// Why the running turn is cancelled at its deadline: the agent is silent, or the gateway drains.
    pub(super) fn deadline_cause(
        &self,
        limits: &Limits,
        clock: TurnClock,
        now: Instant,
    ) -> CancelCause {
        match &self.running {
            Some(turn) if clock.drain_at.is_none_or(|drain| now < drain) => {
                turn.silence_cause(limits, clock)
            }
            _ => CancelCause::Drain,
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
        let was_in_background = self.works_in_background();
        let sent = self.running.as_mut().filter(|turn| turn.call.is_some());
        match kind {
            update::STATE => match WorkState::parse(raw) {
                None => {}
                Some(WorkState::Busy) => {
                    self.work.busy = true;
                    match sent {
                        Some(turn) => turn.work.ended = None,
                        // The agent began background work, so later updates do not belong to the last turn.
                        None => self.last_ended = None,
                    }
                }
                Some(WorkState::Idle(end)) => {
                    let was_busy = std::mem::take(&mut self.work.busy);
                    if let Some(turn) = sent {
                        turn.work.note_end(was_busy, &end, raw, now);
                    }
                }
            },
            update::USER_MESSAGE | update::USER_MESSAGE_CHUNK => {
                // The agent has echoed the message of the prompt. From here on its work belongs to the turn.
                if let Some(turn) = sent {
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
    pub(super) fn work_end(&mut self) -> Option<Result<Completion, RpcError>> {
        let turn = self.running.as_mut()?;
        if !turn.work.acknowledged {
            return None;
        }
        let (_, raw) = turn.work.ended.take()?;
        let Some(WorkState::Idle(end)) = WorkState::parse(&raw) else {
            return None;
        };
        if end.stop_reason.as_deref() == Some(stop_reason::ERROR) {
            return Some(Err(end.error.unwrap_or_else(|| RpcError {
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
        Some(Ok(Completion {
            stop_reason: end.stop_reason.as_deref().unwrap_or(unnamed).to_owned(),
            usage: end.usage.map(ToOwned::to_owned),
            result: raw,
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

    /// The prompts that no process has got: those of the queue, and the one that waits for a process.
    pub(super) fn unsent(&self) -> Vec<&PromptRecord> {
        let mut unsent = Vec::new();
        if self.is_waiting()
            && let Some(turn) = &self.running
        {
            unsent.push(&turn.prompt.record);
        }
        unsent.extend(self.queue.iter().map(|queued| &queued.record));
        unsent
    }

    /// Changes the content and the place of a queued prompt in one event. With two events, a crash could keep half of a request.
    /// `before`: the queued prompt before which the prompt moves; `Some(None)`: to the end. `checked`: the entry whose denied modes the content was checked against.
    #[expect(
        clippy::option_option,
        reason = "a place that is absent stays, and one that is null is the end of the queue"
    )]
    pub(super) fn change(
        &mut self,
        journal: &mut Journal,
        by: &str,
        prompt: PromptId,
        blocks: Option<Box<RawValue>>,
        before: Option<Option<PromptId>>,
        checked: Arc<AgentSpec>,
    ) {
        let moved = before.and_then(|before| self.moved(prompt, before));
        if blocks.is_none() && moved.is_none() {
            return;
        }
        let event = EncodedEvent::from(&PromptChanged {
            prompt: blocks.as_deref(),
            before: if moved.is_some() { before } else { None },
            by,
        });
        let order = moved.unwrap_or_else(|| self.order());
        self.reorder(&order);
        if let Some(blocks) = &blocks {
            journal.fold_with(|fold| fold.prompted(blocks));
        }
        let queued = self
            .queue
            .iter_mut()
            .find(|queued| is_prompt(queued, prompt));
        journal.append_with(Some(prompt), event, |seq, change| {
            change.set_queue(order);
            if let (Some(queued), Some(blocks)) = (queued, blocks) {
                queued.request.blocks = blocks;
                queued.checked = Some(checked);
                let by = by.to_owned();
                queued.record.edit = Some(PromptEdit { seq, by });
                change.put_prompt(&queued.record);
            }
        });
    }

    fn order(&self) -> Vec<PromptId> {
        self.queue
            .iter()
            .map(|queued| queued.record.prompt_id)
            .collect()
    }

    /// The order after a move of `prompt` before another queued prompt, or to the end (`None`). `None`: the order stays.
    fn moved(&self, prompt: PromptId, before: Option<PromptId>) -> Option<Vec<PromptId>> {
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
    fn reorder(&mut self, order: &[PromptId]) {
        let place = |queued: &Queued| order.iter().position(|id| *id == queued.record.prompt_id);
        self.queue.make_contiguous().sort_by_key(place);
    }
}

/// Counts the end of a prompt and the tokens that the agent reports for it, and sets them in its span.
fn report_end(agent: &AgentName, trace: Option<&PromptTrace>, end: &TurnEnd) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Usage {
        input_tokens: Option<u64>,
        output_tokens: Option<u64>,
    }
    let outcome = match end {
        Ok(completion) => stop_reason::known(&completion.stop_reason).unwrap_or("other"),
        Err(problem) => problem.code.as_str(),
    };
    metrics().prompts(agent, outcome, 1);
    if let Some(trace) = trace {
        trace.set_outcome(outcome, end.is_err());
    }
    let Ok(Completion {
        usage: Some(usage), ..
    }) = end
    else {
        return;
    };
    let Ok(usage) = serde_json::from_str::<Usage>(usage.get()) else {
        return;
    };
    for (kind, tokens) in [
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
    ] {
        // An agent could make the sums useless with a larger number.
        if let Some(Ok(tokens)) = tokens.map(u32::try_from) {
            metrics().token_usage(agent, kind, tokens.into());
            if let Some(trace) = trace {
                trace.set_tokens(kind, tokens);
            }
        }
    }
}

fn is_prompt(queued: &Queued, prompt: PromptId) -> bool {
    queued.record.prompt_id == prompt && queued.record.status == PromptStatus::Queued
}
