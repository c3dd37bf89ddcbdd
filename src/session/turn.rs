//! Turns: from a prompt to exactly one end (ACP, Prompt Turn).

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::background_work::PromptWork;
use super::idempotency::Claim;
use super::record::{PromptRecord, StoredStatus};
use super::refusal::{Refusal, prompt_failure};
use crate::acp::{
    self, ContentError, PromptCapabilities, PromptResult, TraceContext, error_code, stop_reason,
};
use crate::agent::AgentFailure;
use crate::api::{Problem, ProblemCode, Prompt};
use crate::event::{
    DetachedReason, EncodedEvent, PromptCompleted, PromptFailed, PromptQueued, PromptStarted,
};
use crate::eventlog::Records;
use crate::jsonrpc::{CallId, RpcError};
use crate::pool::{Disposition, Lease};
use crate::types::{Principal, PromptId};

/// The running turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) record: PromptRecord,
    pub(super) blocks: Box<RawValue>,
    pub(super) trace: Option<TraceContext>,
    /// The sequence number of the event that must be durable before the prompt is sent to the agent.
    pub(super) started_seq: u64,
    /// The call of `session/prompt`, after it was sent.
    pub(super) call: Option<CallId>,
    pub(super) work: PromptWork,
    pub(super) cancelled_at: Option<Instant>,
    /// The agent ignored the cancel, and the graceful stop of its process has begun.
    pub(super) stopping: bool,
    /// When the agent last sent a message.
    pub(super) last_activity: Instant,
}

/// A prompt that waits for the end of the turn before it.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) record: PromptRecord,
    pub(super) blocks: Box<RawValue>,
    pub(super) trace: Option<TraceContext>,
    /// Whether an earlier actor of the session accepted the prompt.
    pub(super) restored: bool,
}

impl Actor {
    pub(super) fn prompt(
        &mut self,
        by: &Principal,
        blocks: Box<RawValue>,
        queue: bool,
        trace: Option<TraceContext>,
        claim: Option<&Claim>,
    ) -> Result<(Prompt, u64), Refusal> {
        if self.record.is_closed() {
            return Err(Refusal::Closed);
        }
        if self.drain_at.is_some() {
            return Err(Refusal::Draining);
        }
        if self.context.log.alarm().is_some() {
            return Err(Refusal::StorageFull);
        }
        self.check_quota()?;
        self.check_crashes()?;
        self.check_content(&blocks)?;
        let running = self.turn.as_ref().map(|turn| turn.record.prompt_id);
        // A restored prompt can wait for a process without a turn before it.
        let ahead = running.or_else(|| self.queue.front().map(|queued| queued.record.prompt_id));
        match ahead {
            Some(prompt) if !queue => return Err(Refusal::TurnRunning(prompt)),
            Some(_) if self.queue.len() >= self.context.limits.max_session_queued_prompts => {
                return Err(Refusal::QueueFull(self.context.limits.max_session_queued_prompts));
            }
            Some(_) => {}
            None => self.reserve()?,
        }
        let prompt_id = PromptId::new(self.record.last_prompt + 1);
        self.record.last_prompt += 1;
        let seq = self.log.appended() + 1;
        let queued = ahead.is_some();
        let record = PromptRecord {
            prompt_id,
            status: if queued { StoredStatus::Queued } else { StoredStatus::Running },
            by: by.id.to_string(),
            created_at: self.context.ids.now(),
            ended_at: None,
            first_seq: seq,
            last_seq: None,
            stop_reason: None,
            usage: None,
            error: None,
            unsent: false,
        };
        let mut records = Records::default();
        record.put(self.record.session_id, &mut records);
        if let Some(claim) = claim {
            claim.put(self.record.session_id, Some(prompt_id), &mut records);
        }
        let (by, key) = (&*by.id, claim.map(|claim| &*claim.key));
        let prompt = record.to_prompt(self.record.session_id, self.log.id(seq));
        if queued {
            let position = self.queue.len() + 1;
            let event =
                EncodedEvent::from(&PromptQueued { prompt: &blocks, position, by, idempotency_key: key });
            self.queue.push_back(Queued { record, blocks, trace, restored: false });
            let records = self.with_session_records(records);
            self.append(Some(prompt_id), event, records);
        } else {
            let event =
                EncodedEvent::from(&PromptStarted { prompt: Some(&blocks), by, idempotency_key: key });
            self.begin(Queued { record, blocks, trace, restored: false }, seq);
            let records = self.with_session_records(records);
            self.append(Some(prompt_id), event, records);
        }
        Ok((prompt, seq))
    }

    pub(super) fn begin(&mut self, Queued { record, blocks, trace, .. }: Queued, started_seq: u64) {
        self.last_turn = None;
        self.turn = Some(Turn {
            record,
            blocks,
            trace,
            started_seq,
            call: None,
            work: PromptWork::default(),
            cancelled_at: None,
            stopping: false,
            last_activity: Instant::now(),
        });
    }

    fn check_content(&self, blocks: &RawValue) -> Result<(), Refusal> {
        // If no process has reported the agent's capabilities yet, the agent itself checks the content.
        let unknown = PromptCapabilities { image: true, audio: true, embedded_context: true };
        let known =
            self.event_loop.lease.as_ref().map(|lease| lease.process().initialized.capabilities.prompt);
        let known = known.or_else(|| {
            let (_, initialized) = self.context.pool.agent_stats(&self.record.agent, &self.owner.tenant)?;
            Some(initialized?.capabilities.prompt)
        });
        acp::validate_prompt(blocks, known.unwrap_or(unknown)).map_err(|error| {
            let (pointer, detail) = (format!("/prompt{}", error.pointer()), error.to_string());
            match error {
                ContentError::Unsupported { .. } => Refusal::ContentUnsupported { pointer, detail },
                _ => Refusal::Invalid { pointer, detail },
            }
        })
    }

    /// Sends the prompt after its event is durable and a process has the session.
    pub(super) fn send_prompt(&mut self) {
        let committed = self.log.committed();
        let (Some(turn), Some(lease)) = (&mut self.turn, &self.event_loop.lease) else { return };
        let ready = turn.call.is_none() && turn.started_seq <= committed && self.restore.replay.is_none();
        // If the process has exited, its last batches report that. The session then acquires another one.
        if !ready || !matches!(self.attachment, Attachment::Attached) || lease.process().has_ended() {
            return;
        }
        let Some(id) = &self.record.agent_session_id else { return };
        let params = acp::prompt(id, &turn.blocks, turn.trace.as_ref());
        turn.last_activity = Instant::now();
        self.replaced_processes = 0;
        // If stdin is closed, the batches report the end of the process.
        turn.call = lease.process().connection.call(acp::method::SESSION_PROMPT, &params).ok();
        self.begin_prompt_work();
    }

    /// Handles the response to `session/prompt`. It ends the turn unless a `state_update` does that.
    pub(super) fn prompt_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let Some(turn) = &self.turn else { return };
        let rejected = outcome.as_ref().err().is_some_and(|error| self.is_session_rejected(error));
        self.restore.unproven &= rejected;
        match outcome {
            Err(error) if self.restore.unproven && turn.cancelled_at.is_none() => {
                self.run_in_new_session(&error);
            }
            Ok(_) if !self.dialect().answer_ends_turn() => self.prompt_acknowledged(),
            Ok(result) => match PromptResult::parse(&result) {
                Ok(end) => {
                    let usage = end.usage.map(ToOwned::to_owned);
                    let reason = end.stop_reason.into_owned();
                    self.event_loop.lease.iter().for_each(Lease::prompt_accepted);
                    self.complete_turn(&reason, &result, usage);
                }
                Err(error) => {
                    let detail = format!("invalid result of session/prompt: {error}");
                    self.fail_turn(&Refusal::Agent(AgentFailure::Rpc(RpcError {
                        code: error_code::INTERNAL,
                        message: detail,
                        data: None,
                    })));
                }
            },
            Err(error) if error.code == error_code::REQUEST_CANCELLED && turn.cancelled_at.is_some() => {
                self.complete_cancelled();
            }
            Err(error) => {
                let Some(lease) = &self.event_loop.lease else { return };
                let failure = prompt_failure(error, lease);
                self.fail_turn(&Refusal::Agent(failure));
            }
        }
    }

    pub(super) fn complete_cancelled(&mut self) {
        let result = cancelled_result();
        self.complete_turn(stop_reason::CANCELLED, &result, None);
    }

    pub(super) fn complete_turn(&mut self, reason: &str, result: &RawValue, usage: Option<Box<RawValue>>) {
        let Some(mut turn) = self.take_turn() else { return };
        turn.record.status = StoredStatus::Completed;
        turn.record.stop_reason = Some(reason.to_owned());
        let event =
            EncodedEvent::from(&PromptCompleted { stop_reason: reason, result, usage: usage.as_deref() });
        turn.record.usage = usage;
        let (prompt, stopping) = (turn.record.prompt_id, turn.stopping);
        self.append_turn_end(turn.record, event);
        self.finish_turn(prompt, stopping);
    }

    /// Takes the running turn to end it, after its questions. No event belongs to a turn after its end.
    fn take_turn(&mut self) -> Option<Turn> {
        let turn = self.turn.as_ref()?;
        if turn.cancelled_at.is_some() {
            // The agent may have started another command after the cancel.
            let prompt = turn.record.prompt_id;
            self.kill_commands(prompt);
        }
        self.withdraw_questions();
        self.turn.take()
    }

    /// Completes the end of a turn. A process that is being stopped runs no further turn.
    fn finish_turn(&mut self, prompt: PromptId, stopping: bool) {
        if stopping && self.event_loop.lease.is_some() {
            self.release(Disposition::Stop, &Refusal::Closed);
            self.append_detached(DetachedReason::Exited);
            self.attachment = Attachment::Detached;
        }
        self.begin_next_turn(prompt);
        if stopping {
            self.acquire_for_waiters();
        }
    }

    pub(super) fn fail_turn(&mut self, refusal: &Refusal) {
        self.fail_with(refusal.problem());
    }

    pub(super) fn cancel_timed_out(&mut self) {
        let detail = "the agent ignored session/cancel, so its process was stopped";
        self.fail_with(Problem::new(ProblemCode::CancelTimeout, detail));
    }

    fn fail_with(&mut self, problem: Problem) {
        let Some(turn) = self.take_turn() else { return };
        let (prompt, stopping) = (turn.record.prompt_id, turn.stopping);
        let (session, code) = (self.record.session_id, problem.code.as_str());
        tracing::warn!(%session, %prompt, agent = %self.record.agent, code, detail = problem.detail, "a turn failed");
        self.end_failed(turn.record, problem);
        self.finish_turn(prompt, stopping);
    }

    pub(super) fn end_failed(&mut self, mut record: PromptRecord, problem: Problem) {
        record.status = StoredStatus::Failed;
        let event = EncodedEvent::from(&PromptFailed { problem: &problem });
        record.error = Some(problem.into());
        self.append_turn_end(record, event);
    }

    /// Appends the only end of a turn, with its record in the same commit.
    pub(super) fn append_turn_end(&mut self, mut record: PromptRecord, event: impl Into<EncodedEvent>) {
        let prompt = record.prompt_id;
        record.ended_at = Some(self.context.ids.now());
        record.last_seq = Some(self.log.appended() + 1);
        let mut records = Records::default();
        record.put(self.record.session_id, &mut records);
        let records = self.with_session_records(records);
        let seq = self.append(Some(prompt), event, records);
        self.turn_ends.send_replace(seq);
    }

    /// Begins the next queued prompt after a turn has ended.
    fn begin_next_turn(&mut self, ended: PromptId) {
        self.idle_since = Instant::now();
        if matches!(self.attachment, Attachment::Attached) {
            self.last_turn = Some(ended);
        }
        if self.drain_at.is_some() {
            return self.detach_for_drain();
        }
        self.next_queued();
    }

    /// Cancels one turn, or the running turn and all queued ones if `prompt` is `None`.
    pub(super) fn cancel(
        &mut self,
        prompt: Option<PromptId>,
        trace: Option<&TraceContext>,
    ) -> Result<Vec<PromptId>, Refusal> {
        if prompt.is_some_and(|id| id.number() > self.record.last_prompt) {
            return Err(Refusal::NotFound("turn"));
        }
        let wanted = |id: PromptId| prompt.is_none_or(|one| one == id);
        let (cancelled_prompts, remaining) =
            std::mem::take(&mut self.queue).into_iter().partition(|q| wanted(q.record.prompt_id));
        self.queue = remaining;
        let mut cancelled = Vec::new();
        for Queued { mut record, .. } in cancelled_prompts {
            cancelled.push(record.prompt_id);
            record.status = StoredStatus::Completed;
            record.stop_reason = Some(stop_reason::CANCELLED.to_owned());
            let (stop_reason, result) = (stop_reason::CANCELLED, &cancelled_result());
            self.append_turn_end(record, &PromptCompleted { stop_reason, result, usage: None });
        }
        if let Some(running) = self.turn.as_ref().map(|turn| turn.record.prompt_id).filter(|id| wanted(*id)) {
            cancelled.insert(0, running);
            self.cancel_running(trace);
        } else if prompt.is_none() && self.works_in_background() {
            self.send_cancel(trace);
        }
        Ok(cancelled)
    }

    /// Cancels the running turn. The cancel is sent at once and does not wait for a commit.
    pub(super) fn cancel_running(&mut self, trace: Option<&TraceContext>) {
        let Some(turn) = &mut self.turn else { return };
        if turn.call.is_none() {
            // The prompt was not sent to the agent.
            self.complete_cancelled();
            return self.drop_pending_lease();
        }
        if turn.cancelled_at.is_some() {
            return;
        }
        turn.cancelled_at = Some(Instant::now());
        let prompt = turn.record.prompt_id;
        self.send_cancel(trace);
        self.kill_commands(prompt);
    }

    fn send_cancel(&mut self, trace: Option<&TraceContext>) {
        if let (Some(lease), Some(id)) = (&self.event_loop.lease, &self.record.agent_session_id) {
            // If stdin is closed, the batches report the end of the process.
            drop(lease.process().connection.notify(acp::method::SESSION_CANCEL, &acp::cancel(id, trace)));
        }
        self.cancel_requests();
    }

    /// Drops the pending lease if nothing waits for a process any more.
    pub(super) fn drop_pending_lease(&mut self) {
        if self.turn.is_none()
            && self.attach_waiters.is_empty()
            && self.queued_calls.is_empty()
            && self.create_waiter.is_none()
        {
            self.event_loop.pending_lease = None;
            self.release_live_guard();
        }
    }

    pub(super) fn turn_deadline(&self) -> Option<Instant> {
        let turn = self.turn.as_ref()?;
        let limits = &self.context.limits;
        match turn.cancelled_at {
            Some(at) if turn.stopping => Some(at + limits.cancel_total_timeout),
            Some(at) => {
                // The graceful stop must fit into the time that a drain may take.
                let drain = self.drain_at.map(|drain_at| drain_at.max(at) + limits.drain_cancel_timeout);
                drain.into_iter().chain([at + limits.cancel_timeout]).min()
            }
            None if turn.call.is_some() && !self.agent_is_waiting() => {
                Some(turn.last_activity + self.spec.settings.turn_idle_timeout)
            }
            None => self.drain_at,
        }
        .into_iter()
        .chain(self.drain_at.filter(|_| turn.cancelled_at.is_none()))
        .min()
    }

    pub(super) fn check_turn_deadline(&mut self, now: Instant) {
        if self.turn_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let Some(turn) = &self.turn else { return };
        match turn.cancelled_at {
            None => self.cancel_running(None),
            Some(_) if !turn.stopping && self.is_prompt_idle() => self.complete_cancelled(),
            Some(_) if turn.stopping => {
                self.release(Disposition::Stop, &Refusal::Closed);
                self.append_detached(DetachedReason::Exited);
                self.process_stopped();
            }
            Some(_) => {
                let Some(turn) = &mut self.turn else { return };
                turn.stopping = true;
                if let Some(lease) = &self.event_loop.lease {
                    lease.process().begin_stop();
                }
            }
        }
    }
}

fn cancelled_result() -> Box<RawValue> {
    RawValue::from_string(format!(r#"{{"stopReason":"{}"}}"#, stop_reason::CANCELLED)).expect("valid JSON")
}
