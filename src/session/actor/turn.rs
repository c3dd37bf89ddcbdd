//! Turns: from a prompt to exactly one end (ACP, Prompt Turn).

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, ContentError, PromptCapabilities, TraceContext};
use crate::agent::AgentFailure;
use crate::api::{FieldError, Problem, ProblemCode, Prompt};
use crate::event::{EncodedEvent, PromptCompleted, PromptFailed, PromptQueued, PromptStarted};
use crate::jsonrpc::CallId;
use crate::jsonrpc::RpcError;
use crate::session::agent_requests::EndedBy;
use crate::session::command::PromptRequest;
use crate::session::error::{
    InputError, NotFound, PartError, ProcessError, PromptError, SessionError, ToProblem,
};
use crate::session::idempotency::Claim;
use crate::session::process_link::prompt_failure;
use crate::session::record::PromptRecord;
use crate::session::turns::{Admission, Answered, CancelStep, Completion, NOT_YET, Queued};
use crate::types::{CancelCause, Principal, PromptId, PromptStatus, SessionId};

/// The id of the call of a prompt to a process that outlives the gateway. A restarted gateway computes the same id. It is above
/// all counted ids, and a number that every JSON parser represents exactly.
pub(super) fn prompt_call(session: SessionId, prompt: PromptId) -> CallId {
    let [.., a, b, c, d] = *session.as_bytes();
    let session = u64::from(u32::from_be_bytes([a, b, c, d]));
    CallId::new((1 << 52) | (session << 20) | u64::from(prompt.number() & 0xF_FFFF))
}

/// The end of a turn.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the end of a turn is moved once, and not stored"
)]
pub(super) enum TurnEnd {
    Completed(Completion),
    Failed(Problem),
}

impl TurnEnd {
    pub(super) fn cancelled() -> Self {
        Self::Completed(Completion::cancelled())
    }
}

impl Actor {
    pub(super) fn prompt(
        &mut self,
        by: &Principal,
        request: PromptRequest,
        claim: Option<&Claim>,
    ) -> Result<(Prompt, u64), PromptError> {
        let blocks = request.blocks;
        let admission = self.admit(by, &blocks, request.queue)?;
        // A prompt that waits for a process has not started: a restart runs it.
        let starts = admission == Admission::Run && self.has_ready_process();
        let prompt_id = self.journal.next_prompt();
        let mut record = PromptRecord {
            prompt_id,
            status: if starts {
                PromptStatus::Running
            } else {
                PromptStatus::Queued
            },
            by: by.id.to_string(),
            created_at: self.context.ids.now(),
            ended_at: None,
            first_seq: 0,
            last_seq: None,
            stop_reason: None,
            usage: None,
            cancel_cause: None,
            error: None,
            unsent: false,
            acp_request: request.acp_request,
            broadcast: request.broadcast,
            edit: None,
        };
        let idempotency_key = claim.map(|claim| &*claim.key);
        let acp_request = record.acp_request.as_ref();
        let event = if starts {
            EncodedEvent::from(&PromptStarted {
                prompt: Some(&blocks),
                by: &by.id,
                idempotency_key,
                acp_request,
                broadcast_id: record.broadcast,
            })
        } else {
            EncodedEvent::from(&PromptQueued {
                prompt: &blocks,
                position: match admission {
                    Admission::Run => 1,
                    Admission::Queue { position } => position,
                },
                by: &by.id,
                idempotency_key,
                acp_request,
                broadcast_id: record.broadcast,
            })
        };
        self.journal.fold_prompt(&blocks);
        let seq = self
            .journal
            .append_with(Some(prompt_id), event, |seq, change| {
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
        let prompt = record.to_prompt(self.journal.session(), self.journal.log().id(seq));
        let checked = Some(self.client_rules());
        let mut queued = Queued {
            record,
            blocks,
            trace: request.trace,
            restored: false,
            checked,
            serving: request.serving.map(Arc::new),
        };
        match admission {
            Admission::Run if starts => {
                self.serving.turn_began(queued.serving.take());
                self.begin_turn(queued, seq);
            }
            Admission::Run => self.begin_turn(queued, NOT_YET),
            Admission::Queue { .. } => self.turns.enqueue(queued),
        }
        Ok((prompt, seq))
    }

    /// Begins a turn. `started_seq`: the event that must be durable before the prompt is sent, or [`NOT_YET`].
    pub(super) fn begin_turn(&mut self, queued: Queued, started_seq: u64) {
        self.turns.begin(queued, started_seq, Instant::now());
        self.report_holder();
    }

    /// Decides whether a prompt runs, waits or is rejected. A prompt that runs has a process or a place in the pool's queue.
    fn admit(
        &mut self,
        by: &Principal,
        blocks: &RawValue,
        queue: bool,
    ) -> Result<Admission, PromptError> {
        if self.journal.record().is_closed() {
            return Err(ProcessError::Closed.into());
        }
        if self.is_draining() {
            return Err(ProcessError::DRAINING.into());
        }
        if self.context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        self.check_turn()?;
        self.check_content(by, blocks)?;
        let admission = self
            .turns
            .admit(queue, self.context.limits.max_session_queued_prompts)?;
        if admission == Admission::Run {
            self.reserve()?;
        }
        Ok(admission)
    }

    pub(super) fn check_content(
        &self,
        by: &Principal,
        blocks: &RawValue,
    ) -> Result<(), InputError> {
        // If no process has reported the agent's capabilities yet, the agent itself checks the content.
        let unknown = PromptCapabilities {
            image: true,
            audio: true,
            embedded_context: true,
        };
        let known = self
            .link
            .initialized()
            .map(|initialized| initialized.capabilities.prompt);
        let known = known.or_else(|| {
            let (_, initialized) = self
                .context
                .pool
                .agent_stats(&self.journal.record().agent, &self.link.owner().tenant)?;
            Some(initialized?.capabilities.prompt)
        });
        let blocks = acp::validate_prompt(blocks, known.unwrap_or(unknown)).map_err(|error| {
            let (pointer, detail) = (format!("/prompt{}", error.pointer()), error.to_string());
            match error {
                ContentError::Unsupported { .. } => {
                    InputError::ContentUnsupported(FieldError { pointer, detail })
                }
                _ => InputError::invalid(pointer, detail),
            }
        })?;
        self.check_prompt_modes(by, &blocks)
    }

    /// Whether a process can get a prompt as soon as its event is durable.
    fn has_ready_process(&self) -> bool {
        self.attachment.is_ready()
            && self
                .link
                .process()
                .is_some_and(|process| !process.has_ended())
    }

    /// Starts the turn that waits for a process, when the process is ready. From the commit of its event on, the agent can have
    /// seen the prompt.
    pub(super) fn start_prompt(&mut self) {
        if !self.turns.is_waiting() || !self.has_ready_process() {
            return;
        }
        let Some((record, serving)) = self.turns.start() else {
            return;
        };
        self.serving.turn_began(serving);
        let event = EncodedEvent::from(&PromptStarted {
            prompt: None,
            by: &record.by,
            idempotency_key: None,
            acp_request: record.acp_request.as_ref(),
            broadcast_id: record.broadcast,
        });
        let seq = self
            .journal
            .append_with(Some(record.prompt_id), event, |_, change| {
                change.run_prompt(&record);
            });
        self.turns.started(seq);
    }

    /// Sends the prompt after its event is durable and a process has the session.
    pub(super) fn send_prompt(&mut self) {
        // If the process has exited, its last batches report that. The session then acquires another one.
        if !self.has_ready_process() {
            return;
        }
        if self.turns.ready(self.journal.log().committed()).is_none() {
            return;
        }
        if let Err(denied) = self.recheck_prompt_modes() {
            return self.end_turn(TurnEnd::Failed(PromptError::from(denied).problem()));
        }
        let Some((blocks, trace)) = self.turns.ready(self.journal.log().committed()) else {
            return;
        };
        let Some(id) = &self.journal.record().agent_session_id else {
            return;
        };
        let params = acp::prompt(id, blocks, trace);
        self.attachment.reset_replaced();
        let number = self
            .turns
            .running()
            .filter(|_| self.link.channel().is_some() && !self.turns.is_resent());
        let call = match number {
            Some(prompt) => {
                let id = prompt_call(self.journal.session(), prompt);
                self.link
                    .call_once(id, acp::method::SESSION_PROMPT, &params)
            }
            None => self.link.call(acp::method::SESSION_PROMPT, &params),
        };
        self.turns.prompt_sent(call, Instant::now());
    }

    /// Handles the response to `session/prompt`. It ends the turn unless a `state_update` does that.
    pub(super) fn prompt_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let rejected = outcome
            .as_ref()
            .err()
            .is_some_and(|error| self.is_session_rejected(error));
        let unproven = self.attachment.prompt_answered(rejected);
        let ends_turn = self.link.version().answer_ends_turn();
        if let Some(answered) = self.turns.answered(outcome, unproven, ends_turn) {
            self.apply_answer(answered);
        }
    }

    fn apply_answer(&mut self, answered: Answered) {
        match answered {
            Answered::Acknowledged => self.complete_if_work_ended(),
            Answered::Completed(completion) => {
                self.link
                    .lease()
                    .into_iter()
                    .for_each(|lease| lease.record_prompt_auth(true));
                self.end_turn(TurnEnd::Completed(completion));
            }
            Answered::Cancelled => self.end_turn(TurnEnd::cancelled()),
            Answered::SessionRejected(error) => self.run_in_new_session(&error),
            Answered::Failed(error) => {
                let Some(lease) = self.link.lease() else {
                    return;
                };
                let failure = prompt_failure(error, lease);
                self.fail_turn(&failure.into());
            }
            Answered::Invalid(error) => self.fail_turn(&AgentFailure::Rpc(error).into()),
        }
    }

    /// Completes the turn if its work has ended and the agent has acknowledged the prompt.
    pub(super) fn complete_if_work_ended(&mut self) {
        if let Some(answered) = self.turns.work_end() {
            self.apply_answer(answered);
        }
    }

    pub(super) fn fail_turn(&mut self, error: &ProcessError) {
        self.end_turn(TurnEnd::Failed(error.problem()));
    }

    /// Fails the turn after the stop of a process whose agent ignored a cancel.
    pub(super) fn cancel_timed_out(&mut self) {
        let detail = "the agent ignored session/cancel, so its process was stopped";
        self.end_turn(TurnEnd::Failed(Problem::new(
            ProblemCode::CancelTimeout,
            detail,
        )));
    }

    /// Ends the running turn and its questions, and begins the next one. No event belongs to a turn after its end.
    pub(super) fn end_turn(&mut self, end: TurnEnd) {
        let Some(prompt) = self.turns.running() else {
            return;
        };
        if self.turns.is_cancelling() {
            // The agent may have started another command after the cancel.
            self.client_methods.kill_terminals(Some(prompt));
        }
        self.end_requests(EndedBy::TurnEnd);
        let stopping = self.turns.is_stopping_process();
        let Some(record) = self.turns.take() else {
            return;
        };
        self.report_holder();
        if let TurnEnd::Failed(problem) = &end {
            let (session, agent, code) = (
                self.journal.session(),
                &self.journal.record().agent,
                problem.code.as_str(),
            );
            tracing::warn!(%session, %prompt, %agent, code, detail = problem.detail, "a turn failed");
        }
        self.append_turn_end(record, end);
        // A process that is being stopped runs no further turn.
        if stopping && self.link.is_leased() {
            self.stop_process(&ProcessError::Closed);
        }
        self.attachment.touch(Instant::now());
        self.turns
            .ended(Some(prompt).filter(|_| self.attachment.is_attached()));
        if self.lifecycle.drain_at.is_some() {
            self.detach_for_drain();
        } else {
            self.next_queued();
        }
        if stopping {
            self.acquire_for_waiters();
        }
    }

    /// Appends the only end of a turn, with its record in the same commit.
    pub(super) fn append_turn_end(&mut self, mut record: PromptRecord, end: TurnEnd) {
        record.ended_at = Some(self.context.ids.now());
        record.unsent = false;
        let cancel_cause = record.cancel_cause;
        if let Some(cause) = cancel_cause {
            let session = self.journal.session();
            let prompt = record.prompt_id;
            let agent = &self.journal.record().agent;
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
        let seq = self
            .journal
            .append_with(Some(record.prompt_id), event, |seq, change| {
                record.last_seq = Some(seq);
                change.end_prompt(&record);
            });
        self.turns.notify_end(seq);
    }

    /// Cancels one turn, or the running turn and all queued ones if `prompt` is `None`.
    pub(super) fn cancel(
        &mut self,
        prompt: Option<PromptId>,
        cause: CancelCause,
        trace: Option<&TraceContext>,
    ) -> Result<Vec<PromptId>, PartError> {
        if prompt.is_some_and(|id| id.number() > self.journal.record().last_prompt) {
            return Err(NotFound("turn").into());
        }
        let mut cancelled = Vec::new();
        for Queued { mut record, .. } in self.turns.remove_queued(prompt) {
            cancelled.push(record.prompt_id);
            record.cancel_cause = Some(cause);
            self.append_turn_end(record, TurnEnd::cancelled());
        }
        match self
            .turns
            .running()
            .filter(|running| prompt.is_none_or(|id| id == *running))
        {
            Some(running) => {
                cancelled.insert(0, running);
                // The cancel is sent at once and does not wait for a commit.
                let step = self.turns.cancel(cause, Instant::now());
                self.apply_cancel(step, trace);
            }
            None if prompt.is_none() && self.turns.works_in_background() => self.send_cancel(trace),
            None => {}
        }
        Ok(cancelled)
    }

    fn apply_cancel(&mut self, step: Option<CancelStep>, trace: Option<&TraceContext>) {
        match step {
            None => {}
            Some(CancelStep::Complete) => {
                self.end_turn(TurnEnd::cancelled());
                self.drop_pending_lease();
            }
            Some(CancelStep::Send(prompt)) => {
                self.send_cancel(trace);
                self.client_methods.kill_terminals(Some(prompt));
            }
            Some(CancelStep::StopProcess) => {
                self.link
                    .process()
                    .into_iter()
                    .for_each(crate::agent::Process::begin_stop);
            }
            Some(CancelStep::AbandonProcess) => {
                self.stop_process(&ProcessError::Closed);
                self.cancel_timed_out();
            }
        }
    }

    fn send_cancel(&mut self, trace: Option<&TraceContext>) {
        if let Some(id) = &self.journal.record().agent_session_id {
            self.link
                .notify(acp::method::SESSION_CANCEL, &acp::session_params(id, trace));
        }
        self.end_requests(EndedBy::Cancel(self.turns.sent()));
    }

    pub(super) fn check_turn_deadline(&mut self, now: Instant) {
        let step = self
            .turns
            .overdue(&self.context.limits, self.turn_clock(), now);
        self.apply_cancel(step, None);
    }

    /// Tracks the work that an update of ACP v2 reports. Returns whether the state of the session changes with it.
    pub(super) fn track_work(&mut self, kind: &str, update: &RawValue) -> bool {
        let now = Instant::now();
        self.turns.note_update(now);
        if self.link.version().answer_ends_turn() {
            return false;
        }
        let changed = self.turns.track_work(kind, update, now);
        self.journal.set_agent_busy(self.turns.is_agent_busy());
        if changed {
            self.attachment.touch(now);
        }
        changed
    }

    /// Until when background work keeps the process without an update.
    pub(super) fn background_deadline(&self) -> Option<Instant> {
        let timeout = self.link.spec().settings.turn_idle_timeout;
        self.turns
            .background_deadline(timeout)
            .filter(|_| self.attachment.is_attached())
    }

    pub(super) fn check_background_deadlines(&mut self, now: Instant) {
        if self
            .turns
            .work_deadline(&self.context.limits)
            .is_some_and(|deadline| now >= deadline)
        {
            self.turns.acknowledge();
            self.complete_if_work_ended();
        }
        if self
            .background_deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            self.turns.end_background_work();
            self.journal.set_agent_busy(false);
        }
    }
}
