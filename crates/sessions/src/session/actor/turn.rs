//! Turns: from a prompt to exactly one end (ACP, Prompt Turn).

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use crate::session::command::PromptRequest;
use crate::session::error::{
    InputError, NotFound, PartError, ProcessError, PromptError, SessionError, ToProblem,
};
use crate::session::idempotency::Claim;
use crate::session::process_link::prompt_failure;
use crate::session::requests::EndedBy;
use crate::session::turns::{Admission, Answered, CancelStep, Queued, TurnEnd};
use agents::agent::AgentFailure;
use base::types::{CancelCause, Principal, PromptId, SessionId};
use events::api::{FieldError, Problem, ProblemCode, Prompt};
use wire::acp::{self, ContentError, PromptCapabilities, TraceContext};
use wire::jsonrpc::CallId;
use wire::jsonrpc::RpcError;

/// The id of the call of a prompt to a process that outlives the gateway. A restarted gateway computes the same id. It is above
/// all counted ids, and a number that every JSON parser represents exactly.
pub(super) fn prompt_call(session: SessionId, prompt: PromptId) -> CallId {
    let [.., a, b, c, d] = *session.as_bytes();
    let session = u64::from(u32::from_be_bytes([a, b, c, d]));
    CallId::new((1 << 52) | (session << 20) | u64::from(prompt.number() & 0xF_FFFF))
}

impl Actor {
    pub(crate) fn prompt(
        &mut self,
        by: &Principal,
        request: PromptRequest,
        claim: Option<&Claim>,
    ) -> Result<(Prompt, u64), PromptError> {
        let admission = self.admit(by, &request.blocks, request.queue)?;
        // A prompt that waits for a process has not started: a restart runs it.
        let starts = admission == Admission::Run && self.has_ready_process();
        let rules = self.client_rules();
        let (prompt, seq, serving) = self.turns.accept(
            &mut self.journal,
            &by.id,
            request,
            claim,
            admission,
            starts,
            rules,
            Instant::now(),
        );
        if starts {
            self.requests.serving.turn_began(serving.map(Arc::new));
        }
        if admission == Admission::Run {
            self.report_holder();
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
        if self.turns.is_waiting() && self.has_ready_process() {
            let serving = self.turns.start(&mut self.journal);
            self.requests.serving.turn_began(serving.map(Arc::new));
        }
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
            self.requests.kill_terminals_of(prompt);
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
        self.turns.append_end(&mut self.journal, record, end);
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

    /// Cancels one turn, or the running turn and all queued ones if `prompt` is `None`.
    pub(crate) fn cancel(
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
            self.turns
                .append_end(&mut self.journal, record, TurnEnd::cancelled());
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
                self.requests.kill_terminals_of(prompt);
            }
            Some(CancelStep::StopProcess) => {
                self.link
                    .process()
                    .into_iter()
                    .for_each(agents::agent::Process::begin_stop);
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
