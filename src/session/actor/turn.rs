//! Turns: from a prompt to exactly one end (ACP, Prompt Turn).

use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::Actor;
use crate::acp::{self, ContentError, PromptCapabilities, TraceContext};
use crate::agent::AgentFailure;
use crate::api::{FieldError, Problem, ProblemCode, Prompt};
use crate::event::{
    DetachedReason, EncodedEvent, PromptCompleted, PromptFailed, PromptQueued, PromptStarted,
};
use crate::jsonrpc::RpcError;
use crate::pool::Disposition;
use crate::session::agent_requests::EndedBy;
use crate::session::error::{InputError, SessionError, ToProblem};
use crate::session::idempotency::Claim;
use crate::session::record::PromptRecord;
use crate::session::refusal::{Refusal, prompt_failure};
use crate::session::turns::{
    Admission, Answered, CancelEffect, Completion, EndedTurn, NotAdmitted, Overdue, Queued,
};
use crate::types::{Principal, PromptId, PromptStatus};

impl Actor {
    pub(super) fn prompt(
        &mut self,
        by: &Principal,
        blocks: Box<RawValue>,
        queue: bool,
        trace: Option<TraceContext>,
        claim: Option<&Claim>,
    ) -> Result<(Prompt, u64), Refusal> {
        let admission = self.admit(&blocks, queue)?;
        let prompt_id = self.journal.next_prompt();
        let mut record = PromptRecord {
            prompt_id,
            status: match admission {
                Admission::Run => PromptStatus::Running,
                Admission::Queue { .. } => PromptStatus::Queued,
            },
            by: by.id.to_string(),
            created_at: self.context.ids.now(),
            ended_at: None,
            first_seq: 0,
            last_seq: None,
            stop_reason: None,
            usage: None,
            error: None,
            unsent: false,
        };
        let (by, key) = (&*by.id, claim.map(|claim| &*claim.key));
        let event = match admission {
            Admission::Run => {
                EncodedEvent::from(&PromptStarted { prompt: Some(&blocks), by, idempotency_key: key })
            }
            Admission::Queue { position } => {
                EncodedEvent::from(&PromptQueued { prompt: &blocks, position, by, idempotency_key: key })
            }
        };
        let seq = self.journal.append_with(Some(prompt_id), event, |seq, change| {
            record.first_seq = seq;
            match admission {
                Admission::Run => change.run_prompt(&record),
                Admission::Queue { .. } => change.queue_prompt(&record),
            }
            if let Some(claim) = claim {
                change.put_claim(claim, Some(prompt_id));
            }
        });
        let prompt = record.to_prompt(self.journal.session(), self.journal.id(seq));
        let queued = Queued { record, blocks, trace, restored: false };
        match admission {
            Admission::Run => self.turns.begin(queued, seq, Instant::now()),
            Admission::Queue { .. } => self.turns.enqueue(queued),
        }
        Ok((prompt, seq))
    }

    /// Decides whether a prompt runs, waits or is rejected. A prompt that runs has a process or a place in the pool's queue.
    fn admit(&mut self, blocks: &RawValue, queue: bool) -> Result<Admission, Refusal> {
        if self.journal.is_closed() {
            return Err(Refusal::Closed);
        }
        if self.lifecycle.drain_at.is_some() {
            return Err(Refusal::Draining);
        }
        if self.context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        self.check_quota()?;
        self.check_crashes()?;
        self.check_content(blocks)?;
        let max_queued = self.context.limits.max_session_queued_prompts;
        let admission = self.turns.admit(queue, max_queued).map_err(|error| match error {
            NotAdmitted::Behind(prompt) => Refusal::TurnRunning(prompt),
            NotAdmitted::QueueFull => Refusal::QueueFull(max_queued),
        })?;
        if admission == Admission::Run {
            self.reserve()?;
        }
        Ok(admission)
    }

    fn check_content(&self, blocks: &RawValue) -> Result<(), Refusal> {
        // If no process has reported the agent's capabilities yet, the agent itself checks the content.
        let unknown = PromptCapabilities { image: true, audio: true, embedded_context: true };
        let known = self.link.initialized().map(|initialized| initialized.capabilities.prompt);
        let known = known.or_else(|| {
            let (_, initialized) =
                self.context.pool.agent_stats(&self.journal.record().agent, &self.link.owner().tenant)?;
            Some(initialized?.capabilities.prompt)
        });
        acp::validate_prompt(blocks, known.unwrap_or(unknown)).map_err(|error| {
            let (pointer, detail) = (format!("/prompt{}", error.pointer()), error.to_string());
            match error {
                ContentError::Unsupported { .. } => {
                    InputError::ContentUnsupported(FieldError { pointer, detail }).into()
                }
                _ => InputError::invalid(pointer, detail).into(),
            }
        })
    }

    /// Sends the prompt after its event is durable and a process has the session.
    pub(super) fn send_prompt(&mut self) {
        // If the process has exited, its last batches report that. The session then acquires another one.
        if !self.attachment.is_ready() || self.link.process().is_none_or(crate::agent::Process::has_ended) {
            return;
        }
        let Some((blocks, trace)) = self.turns.ready(self.journal.committed()) else { return };
        let Some(id) = &self.journal.record().agent_session_id else { return };
        let params = acp::prompt(id, blocks, trace);
        self.attachment.reset_replaced();
        let call = self.link.call(acp::method::SESSION_PROMPT, &params);
        self.turns.prompt_sent(call, Instant::now());
    }

    /// Handles the response to `session/prompt`. It ends the turn unless a `state_update` does that.
    pub(super) fn prompt_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let rejected = outcome.as_ref().err().is_some_and(|error| self.is_session_rejected(error));
        let unproven = self.attachment.prompt_answered(rejected);
        let ends_turn = self.link.dialect().answer_ends_turn();
        if let Some(answered) = self.turns.answered(outcome, unproven, ends_turn) {
            self.apply_answer(answered);
        }
    }

    fn apply_answer(&mut self, answered: Answered) {
        match answered {
            Answered::Acknowledged => self.complete_if_work_ended(),
            Answered::Completed(completion) => {
                self.link.lease().into_iter().for_each(|lease| lease.record_prompt_auth(true));
                self.complete_turn(completion);
            }
            Answered::Cancelled => self.complete_turn(Completion::cancelled()),
            Answered::SessionRejected(error) => self.run_in_new_session(&error),
            Answered::Failed(error) => {
                let Some(lease) = self.link.lease() else { return };
                let failure = prompt_failure(error, lease);
                self.fail_turn(&Refusal::Agent(failure));
            }
            Answered::Invalid(error) => self.fail_turn(&Refusal::Agent(AgentFailure::Rpc(error))),
        }
    }

    /// Completes the turn if its work has ended and the agent has acknowledged the prompt.
    pub(super) fn complete_if_work_ended(&mut self) {
        if let Some(answered) = self.turns.work_end() {
            self.apply_answer(answered);
        }
    }

    pub(super) fn complete_turn(&mut self, completion: Completion) {
        let Some(EndedTurn { record, stopping }) = self.take_turn() else { return };
        let prompt = record.prompt_id;
        self.append_completed(record, completion);
        self.finish_turn(prompt, stopping);
    }

    /// Appends `prompt.completed`, the only end of the turn.
    fn append_completed(&mut self, mut record: PromptRecord, completion: Completion) {
        let Completion { stop_reason, result, usage } = completion;
        let usage_raw = usage.as_deref();
        let event = PromptCompleted { stop_reason: &stop_reason, result: &result, usage: usage_raw };
        let event = EncodedEvent::from(&event);
        record.status = PromptStatus::Completed;
        (record.stop_reason, record.usage) = (Some(stop_reason), usage);
        self.append_turn_end(record, event);
    }

    /// Ends the questions of the running turn, and removes and returns the turn. No event belongs to a turn after its end.
    fn take_turn(&mut self) -> Option<EndedTurn> {
        let prompt = self.turns.running()?;
        if self.turns.is_cancelling() {
            // The agent may have started another command after the cancel.
            self.client_methods.terminals.kill_all(Some(prompt));
        }
        self.end_requests(EndedBy::TurnEnd);
        self.turns.take()
    }

    /// Completes the end of a turn. A process that is being stopped runs no further turn.
    fn finish_turn(&mut self, prompt: PromptId, stopping: bool) {
        if stopping && self.link.is_leased() {
            self.release(Disposition::Stop, &Refusal::Closed);
            self.append_detached(DetachedReason::Exited);
            self.attachment.detach();
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
        let Some(EndedTurn { record, stopping }) = self.take_turn() else { return };
        let (session, prompt, code) = (self.journal.session(), record.prompt_id, problem.code.as_str());
        let agent = &self.journal.record().agent;
        tracing::warn!(%session, %prompt, %agent, code, detail = problem.detail, "a turn failed");
        self.append_failed(record, problem);
        self.finish_turn(prompt, stopping);
    }

    /// Appends `prompt.failed`, the only end of the turn.
    pub(super) fn append_failed(&mut self, mut record: PromptRecord, problem: Problem) {
        let event = EncodedEvent::from(&PromptFailed { problem: &problem });
        record.status = PromptStatus::Failed;
        record.error = Some(to_raw_value(&problem).expect("a problem has string keys and serializes"));
        self.append_turn_end(record, event);
    }

    /// Appends the only end of a turn, with its record in the same commit.
    fn append_turn_end(&mut self, mut record: PromptRecord, event: EncodedEvent) {
        let now = self.context.ids.now();
        let seq = self.journal.append_with(Some(record.prompt_id), event, |seq, change| {
            (record.ended_at, record.last_seq) = (Some(now), Some(seq));
            change.end_prompt(&record);
        });
        self.turns.notify_end(seq);
    }

    /// Begins the next queued prompt after a turn has ended.
    fn begin_next_turn(&mut self, ended: PromptId) {
        self.attachment.touch(Instant::now());
        self.turns.ended(ended, self.attachment.is_attached());
        if self.lifecycle.drain_at.is_some() {
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
        if prompt.is_some_and(|id| id.number() > self.journal.record().last_prompt) {
            return Err(Refusal::NotFound("turn"));
        }
        let mut cancelled = Vec::new();
        for Queued { record, .. } in self.turns.cancel_queued(prompt) {
            cancelled.push(record.prompt_id);
            self.append_completed(record, Completion::cancelled());
        }
        match self.turns.running().filter(|running| prompt.is_none_or(|id| id == *running)) {
            Some(running) => {
                cancelled.insert(0, running);
                self.cancel_running(trace);
            }
            None if prompt.is_none() && self.turns.works_in_background() => self.send_cancel(trace),
            None => {}
        }
        Ok(cancelled)
    }

    /// Cancels the running turn. The cancel is sent at once and does not wait for a commit.
    fn cancel_running(&mut self, trace: Option<&TraceContext>) {
        match self.turns.cancel(Instant::now()) {
            CancelEffect::None => {}
            CancelEffect::Complete => {
                self.complete_turn(Completion::cancelled());
                self.drop_pending_lease();
            }
            CancelEffect::Send(prompt) => {
                self.send_cancel(trace);
                self.client_methods.terminals.kill_all(Some(prompt));
            }
        }
    }

    fn send_cancel(&mut self, trace: Option<&TraceContext>) {
        if let Some(id) = &self.journal.record().agent_session_id {
            self.link.notify(acp::method::SESSION_CANCEL, &acp::session_params(id, trace));
        }
        self.end_requests(EndedBy::Cancel(self.turns.sent()));
    }

    pub(super) fn check_turn_deadline(&mut self, now: Instant) {
        let clock = self.turn_clock();
        match self.turns.overdue(&self.context.limits, clock, now) {
            None => {}
            Some(Overdue::Cancel) => self.cancel_running(None),
            Some(Overdue::Complete) => self.complete_turn(Completion::cancelled()),
            Some(Overdue::StopProcess) => {
                self.link.process().into_iter().for_each(crate::agent::Process::begin_stop);
            }
            Some(Overdue::AbandonProcess) => {
                self.release(Disposition::Stop, &Refusal::Closed);
                self.append_detached(DetachedReason::Exited);
                self.process_stopped();
            }
        }
    }

    /// Tracks the work that an update of ACP v2 reports. Returns whether the state of the session changes with it.
    pub(super) fn track_work(&mut self, kind: &str, update: &RawValue) -> bool {
        let now = Instant::now();
        self.turns.note_update(now);
        if self.link.dialect().answer_ends_turn() {
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
        self.turns.background_deadline(timeout).filter(|_| self.attachment.is_attached())
    }

    pub(super) fn check_background_deadlines(&mut self, now: Instant) {
        if self.turns.work_deadline(&self.context.limits).is_some_and(|deadline| now >= deadline) {
            self.turns.acknowledge();
            self.complete_if_work_ended();
        }
        if self.background_deadline().is_some_and(|deadline| now >= deadline) {
            self.turns.end_background_work();
            self.journal.set_agent_busy(false);
        }
    }
}
