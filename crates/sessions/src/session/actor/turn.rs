//! Turns: a prompt is accepted, waits in the queue, is sent, and gets exactly one end (ACP, Prompt Turn). Also the queue during a
//! drain and after a restart.
//!
//! A prompt is sent to the agent at most once. The record of the prompt decides. A `queued` prompt was never
//! sent, also if it waits for a process at the head of the queue. A `running` prompt may have been sent, unless it is marked as
//! `unsent`, because its process ended before the send, or because of a drain. The commit of `session.attached` removes the mark,
//! and the prompt is sent only after that commit.
//!
//! - The blocks of a restored prompt are in the log. A copy in the record would double every prompt on disk.
//! - A change of the content and of the place is one event. With two events, a crash could keep half of a request.
//! - `before` names the next prompt. A number would mean another prompt after a concurrent start.
//! - `prompt.started` is appended when the process has the session. If it is appended at the request, a crash during
//!   the start of the process loses the prompt.
//! - The record does not store each send. The additional commit costs a sync, and a crash after it is as ambiguous.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Actor;
use super::modes::ANY_CONTENT;
use crate::session::command::PromptRequest;
use crate::session::context::prompt_blocks;
use crate::session::error::{
    InputError, NotFound, NotQueued, PartError, ProcessError, PromptError, QueueError,
    SessionError, ToProblem,
};
use crate::session::idempotency::Claim;
use crate::session::record::{self, PromptRecord, Stored as _};
use crate::session::requests::EndedBy;
use crate::session::turns::{Completion, Queued, TurnEnd};
use agents::agent::AgentFailure;
use agents::pool::AcquireError;
use base::telemetry::metrics;
use base::types::{Access, Principal, PromptId, SessionId, Timestamp, UserId};
use events::api::{CancelCause, FieldError, Problem, ProblemCode, Prompt, PromptStatus};
use log::eventlog::Records;
use wire::acp::{self, ContentError, TraceContext};
use wire::jsonrpc::{CallId, RpcError};

/// The delay before a restored prompt is retried after a limit rejected it.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The call id of a prompt whose process may outlive the gateway. A restarted gateway computes the same id. The id is
/// above all counted ids, and every JSON parser represents it exactly.
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
        let place = self.admit(by, &request)?;
        // A prompt that waits for a process has not started: a restart runs it.
        let starts = place.is_none() && self.has_ready_process();
        let rules = self.client_rules();
        let (prompt, seq, tool_client) = self.turns.accept(
            &mut self.journal,
            by.user.name(),
            request,
            claim,
            place,
            starts,
            rules,
            Instant::now(),
        );
        if starts {
            self.requests
                .tool_clients
                .turn_began(tool_client.map(Arc::new));
        }
        if place.is_none() {
            self.report_holder();
        }
        Ok((prompt, seq))
    }

    /// Decides whether a prompt runs, waits or is rejected. A prompt that runs has a process or a place in the pool's queue.
    /// Returns its place in the queue of the session.
    fn admit(
        &mut self,
        by: &Principal,
        request: &PromptRequest,
    ) -> Result<Option<usize>, PromptError> {
        if self.journal.record().is_closed() {
            return Err(ProcessError::Closed.into());
        }
        self.check_accepts_changes::<PromptError>()?;
        self.check_turn()?;
        self.check_content(by, &request.blocks)?;
        let max_queued = self.context.limits.max_session_queued_prompts;
        let place = self.turns.admit(request.queue, max_queued)?;
        if place.is_none() {
            self.reserve()?;
        }
        Ok(place)
    }

    fn check_content(&self, by: &Principal, blocks: &RawValue) -> Result<(), InputError> {
        let known = self.binding.initialized().cloned().or_else(|| {
            let agent = &self.journal.record().agent;
            let user = &self.binding.owner().user;
            self.context.initialized(agent, user)
        });
        // If no process has reported the agent's capabilities yet, the agent itself checks the content.
        let capabilities = known.map_or(ANY_CONTENT, |known| known.capabilities.prompt);
        let blocks = acp::validate_prompt(blocks, capabilities).map_err(|error| {
            let pointer = format!("/prompt{}", error.pointer());
            let detail = error.to_string();
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
        self.binding.is_ready()
            && self
                .binding
                .process()
                .is_some_and(|process| !process.has_ended())
    }

    /// Starts the turn that waits for a process, when the process is ready. From the commit of its event on, the agent can have
    /// seen the prompt.
    pub(super) fn start_prompt(&mut self) {
        if self.turns.is_waiting() && self.has_ready_process() {
            let tool_client = self.turns.start(&mut self.journal);
            self.requests
                .tool_clients
                .turn_began(tool_client.map(Arc::new));
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
            return self.end_turn(Err(PromptError::from(denied).problem()));
        }
        let Some((blocks, trace)) = self.turns.ready(self.journal.log().committed()) else {
            return;
        };
        let Some(id) = &self.journal.record().agent_session_id else {
            return;
        };
        let params = acp::prompt(id, blocks, trace);
        self.binding.reset_replaced();
        let outlives = self.binding.channel().is_some() && !self.turns.is_resent();
        let method = acp::method::SESSION_PROMPT;
        let call = match self.turns.running() {
            Some(prompt) if outlives => {
                let id = prompt_call(self.journal.session(), prompt);
                self.binding.call_once(id, method, &params)
            }
            _ => self.binding.call(method, &params),
        };
        if let Some(accepted_at) = self.turns.prompt_sent(call, Instant::now()) {
            let wait = self.journal.now().since(accepted_at);
            metrics().prompt_wait(&self.journal.record().agent, wait.as_secs_f64());
        }
    }

    /// Handles the response to `session/prompt`. It ends the turn unless a `state_update` does that.
    pub(super) fn prompt_answered(&mut self, outcome: Result<Box<RawValue>, RpcError>) {
        let id = self.journal.record().agent_session_id.as_deref();
        let rejected = match (&outcome, id) {
            (Err(error), Some(id)) => acp::rejects_session(error, id),
            _ => false,
        };
        let unproven = self.binding.prompt_answered(rejected);
        let outcome = match outcome {
            Err(error) if unproven && !self.turns.is_cancelling() => {
                return self.run_in_new_session(&error);
            }
            outcome => outcome,
        };
        let succeeded = outcome.is_ok();
        let ends_turn = self.binding.version().answer_ends_turn();
        match self.turns.answered(outcome, ends_turn) {
            None => self.complete_if_work_ended(),
            // The result is invalid.
            Some(Err(error)) if succeeded => self.fail_turn(&AgentFailure::Rpc(error).into()),
            Some(end) => self.turn_ended(end, succeeded),
        }
    }

    pub(super) fn complete_if_work_ended(&mut self) {
        if let Some(end) = self.turns.work_end() {
            self.turn_ended(end, true);
        }
    }

    /// Ends the turn as the agent reports. `succeeded`: the agent has processed the prompt.
    fn turn_ended(&mut self, end: Result<Completion, RpcError>, succeeded: bool) {
        match end {
            Ok(completion) => {
                if succeeded && let Some(lease) = self.binding.lease() {
                    lease.record_prompt_auth(true);
                }
                self.end_turn(Ok(completion));
            }
            Err(error) => self.fail_turn(&self.binding.prompt_failure(error).into()),
        }
    }

    pub(super) fn fail_turn(&mut self, error: &ProcessError) {
        self.end_turn(Err(error.problem()));
    }

    /// Fails the turn after the stop of a process whose agent ignored a cancel.
    pub(super) fn cancel_timed_out(&mut self) {
        let detail = "the agent ignored session/cancel, so its process was stopped";
        self.end_turn(Err(Problem::new(ProblemCode::CancelTimeout, detail)));
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
        if let Some(elapsed) = self.turns.elapsed(Instant::now()) {
            metrics().turn_duration(&self.journal.record().agent, elapsed.as_secs_f64());
        }
        // A command can end a turn in the same step in which the turn began.
        let span = self.span();
        let Some(ended) = self.turns.take() else {
            return;
        };
        self.report_holder();
        if let Err(problem) = &end {
            let code = problem.code.as_str();
            span.in_scope(|| tracing::warn!(code, detail = problem.detail, "a turn failed"));
        }
        self.turns.append_end(&mut self.journal, ended, end);
        // A process that is being stopped runs no other turn.
        if stopping && self.binding.process().is_some() {
            self.stop_process(&ProcessError::Closed);
        }
        self.binding.touch(Instant::now());
        self.turns.ended(if self.binding.is_attached() {
            Some(prompt)
        } else {
            None
        });
        if self.drain_at.is_some() {
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
        for mut queued in self.turns.remove_queued(prompt) {
            cancelled.push(queued.record.prompt_id);
            queued.record.cancel_cause = Some(cause);
            self.turns
                .append_end(&mut self.journal, queued, Ok(Completion::cancelled()));
        }
        match self.turns.running() {
            Some(running) if prompt.is_none_or(|id| id == running) => {
                cancelled.insert(0, running);
                self.cancel_running(running, cause, trace);
            }
            _ if prompt.is_none() && self.turns.works_in_background() => self.send_cancel(trace),
            _ => {}
        }
        Ok(cancelled)
    }

    /// Cancels the queued prompts of users that may no longer prompt the session.
    pub(crate) fn cancel_without_access(&mut self) {
        let unsent = self.turns.unsent().into_iter();
        let without = unsent.filter(|record| !self.authors_have_access(record));
        let prompts: Vec<_> = without.map(|record| record.prompt_id).collect();
        for prompt in prompts {
            // It fails only for a prompt that the session never had.
            let _ = self.cancel(Some(prompt), CancelCause::Person, None);
        }
    }

    /// Fails if the user has a lower access. Commands of users check it here too, because the access can change while they
    /// wait for the actor.
    pub(crate) fn require(&self, user: &UserId, needed: Access) -> Result<(), SessionError> {
        let record = self.journal.record();
        self.context
            .require_access(&record.owner, record.session_id, user, needed)
    }

    /// The users that sent and edited a prompt.
    fn authors(&self, record: &PromptRecord) -> Vec<UserId> {
        let tenant = self.journal.record().owner.tenant();
        let editor = record.edit.as_ref().map(|edit| &*edit.by);
        let authors = [Some(&*record.by), editor].into_iter().flatten();
        authors.map(|name| UserId::new(&tenant, name)).collect()
    }

    fn authors_have_access(&self, record: &PromptRecord) -> bool {
        let mut authors = self.authors(record).into_iter();
        authors.all(|user| self.require(&user, Access::Prompt).is_ok())
    }

    fn cancel_running(
        &mut self,
        running: PromptId,
        cause: CancelCause,
        trace: Option<&TraceContext>,
    ) {
        if self.turns.cancel(cause, Instant::now()) {
            // The cancel is sent at once and does not wait for a commit.
            self.send_cancel(trace);
            self.requests.kill_terminals_of(running);
        } else if self.turns.is_unsent() {
            self.complete_cancelled();
        }
    }

    /// Ends a cancelled turn without the agent.
    fn complete_cancelled(&mut self) {
        self.end_turn(Ok(Completion::cancelled()));
        self.drop_pending_lease();
    }

    fn send_cancel(&mut self, trace: Option<&TraceContext>) {
        if let Some(id) = &self.journal.record().agent_session_id {
            self.binding
                .notify(acp::method::SESSION_CANCEL, &acp::session_params(id, trace));
        }
        self.end_requests(EndedBy::Cancel(self.turns.sent()));
    }

    /// Cancels the turn at its deadline. If the agent ignores the cancel, stops its process.
    pub(super) fn check_turn_deadline(&mut self, now: Instant) {
        let limits = &self.context.limits;
        let clock = self.turn_clock();
        let (Some(running), Some(deadline)) =
            (self.turns.running(), self.turns.deadline(limits, clock))
        else {
            return;
        };
        if now < deadline {
            return;
        }
        if !self.turns.is_cancelling() {
            let cause = self.turns.deadline_cause(limits, clock, now);
            self.cancel_running(running, cause, None);
        } else if self.turns.is_stopping_process() {
            // The graceful stop takes too long.
            self.stop_process(&ProcessError::Closed);
            self.cancel_timed_out();
        } else if self.turns.is_idle() {
            self.complete_cancelled();
        } else {
            self.turns.stop_begun();
            if let Some(process) = self.binding.process() {
                process.begin_stop();
            }
        }
    }

    pub(super) fn note_update(&mut self, now: Instant) {
        if let Some(elapsed) = self.turns.note_update(now) {
            metrics().turn_first_update(&self.journal.record().agent, elapsed.as_secs_f64());
        }
    }

    /// Tracks the work that an update of ACP v2 reports. Returns whether the state of the session changes with it.
    pub(super) fn track_work(&mut self, kind: &str, update: &RawValue) -> bool {
        let now = Instant::now();
        self.note_update(now);
        if self.binding.version().answer_ends_turn() {
            return false;
        }
        let changed = self.turns.track_work(kind, update, now);
        self.journal.set_agent_busy(self.turns.is_agent_busy());
        if changed {
            self.binding.touch(now);
        }
        changed
    }

    /// Until when background work keeps the process without an update.
    pub(super) fn background_deadline(&self) -> Option<Instant> {
        if !self.binding.is_attached() {
            return None;
        }
        let timeout = self.binding.spec().settings.turn_idle_timeout;
        self.turns.background_deadline(timeout)
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

// The queue.

impl Actor {
    /// Begins the next prompt of the queue, unless a turn runs.
    ///
    /// A prompt fails if the pool's queue is full. A restored prompt waits instead until it expires, because
    /// no client is there to send it again.
    pub(super) fn next_queued(&mut self) {
        self.turns.retry_at = None;
        while !self.is_draining()
            && let Some(next) = self.turns.next()
        {
            let restored = next.restored;
            let created_at = next.record.created_at;
            let problem = match self.check_turn().and_then(|()| Ok(self.reserve()?)) {
                Ok(()) => return self.begin_queued(),
                // The coming drain keeps the queue.
                Err(PromptError::Process(ProcessError::Acquire(AcquireError::Draining))) => return,
                Err(PromptError::Process(ProcessError::Acquire(_)))
                    if restored && !self.is_old(created_at) =>
                {
                    self.turns.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                    return;
                }
                Err(PromptError::Process(ProcessError::Acquire(_))) if restored => expired(self),
                Err(error) => error.problem(),
            };
            if let Some(queued) = self.turns.dequeue() {
                self.turns
                    .append_end(&mut self.journal, queued, Err(problem));
            }
        }
    }

    /// Whether a restored prompt has expired. If the clock may be ahead, its time counts as correct. A client can
    /// send a failed prompt again, but cannot undo a prompt that ran a day late.
    fn is_old(&self, created_at: Timestamp) -> bool {
        created_at.after(self.context.limits.queued_prompt_max_age)
            <= self.context.log.expiry().latest_now()
    }

    fn begin_queued(&mut self) {
        self.turns.begin_next(&mut self.journal);
        self.report_holder();
        self.start_prompt();
    }

    /// Changes a queued prompt, also the one that waits for a process: the agent cannot have seen it.
    #[expect(
        clippy::option_option,
        reason = "a place that is absent stays, and one that is null is the end of the queue"
    )]
    pub(crate) fn change_prompt(
        &mut self,
        by: &Principal,
        prompt: PromptId,
        blocks: Option<Box<RawValue>>,
        before: Option<Option<PromptId>>,
    ) -> Result<(), QueueError> {
        let waited = self.turns.is_waiting() && self.turns.return_unsent();
        let changed = self.change_queue(by, prompt, blocks, before);
        if waited {
            self.begin_queued();
        }
        changed
    }

    /// A prompt in the queue is never sent, so the agent gets the content after the last edit.
    #[expect(clippy::option_option, reason = "as in `change_prompt`")]
    fn change_queue(
        &mut self,
        by: &Principal,
        prompt: PromptId,
        mut blocks: Option<Box<RawValue>>,
        before: Option<Option<PromptId>>,
    ) -> Result<(), QueueError> {
        if prompt.number() > self.journal.record().last_prompt {
            return Err(NotFound("turn").into());
        }
        self.check_accepts_changes::<QueueError>()?;
        self.check_quota()?;
        let queued = self.turns.queued(prompt).ok_or(NotQueued(prompt))?;
        blocks.take_if(|blocks| blocks.get() == queued.request.blocks.get());
        if let Some(Some(other)) = before
            && self.turns.queued(other).is_none()
        {
            return Err(NotQueued(other).into());
        }
        if let Some(blocks) = &blocks {
            self.check_content(by, blocks)?;
        }
        let rules = self.client_rules();
        self.turns.change(
            &mut self.journal,
            by.user.name(),
            prompt,
            blocks,
            before,
            rules,
        );
        Ok(())
    }

    /// Whether new and changed prompts are accepted: the gateway does not drain, and the disk has space.
    fn check_accepts_changes<E>(&self) -> Result<(), E>
    where
        E: From<ProcessError> + From<SessionError>,
    {
        if self.is_draining() {
            return Err(ProcessError::DRAINING.into());
        }
        if self.context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        Ok(())
    }

    /// Saves the mark of `Turns::return_unsent` after all other commits of this actor.
    pub(super) async fn save_unsent(&self) {
        let Some(unsent) = self.turns.unsent_head() else {
            return;
        };
        let session = self.journal.session();
        let key = record::numbered_key(session, unsent.prompt_id.number());
        let mut records = Records::default();
        unsent.put_at(key, &mut records);
        if let Err(error) = self.context.log.write(records).await {
            tracing::warn!(%error, "could not keep an unsent prompt for the next start");
        }
    }

    /// Puts every prompt without an end into the queue, in order, and returns the prompts that fail.
    /// `restore`: prompts that were not sent may run.
    pub(super) async fn restore_queue(
        &mut self,
        restore: bool,
    ) -> Result<Vec<(PromptId, Problem)>, SessionError> {
        let record = self.journal.record();
        let open: Vec<_> = record
            .prompt_id
            .iter()
            .chain(&record.queued)
            .copied()
            .collect();
        let session = record.session_id;
        let mut failed = Vec::new();
        let mut queued = Vec::new();
        for prompt in open {
            let stored = self.context.read_numbered(session, prompt.number()).await?;
            let Some(record) = stored.filter(|record: &PromptRecord| !record.status.has_ended())
            else {
                continue;
            };
            let outcome = if restore {
                self.restored_blocks(&record).await?
            } else {
                Err(interrupted())
            };
            let blocks = outcome.unwrap_or_else(|problem| {
                failed.push((prompt, problem));
                RawValue::NULL.to_owned()
            });
            queued.push(prompt);
            let queued = Queued::restored(&self.journal, record, blocks);
            self.turns.enqueue(queued);
        }
        let restored = queued.len() - failed.len();
        self.journal.update(|record| {
            record.prompt_id = None;
            record.queued = queued;
        });
        if restored > 0 {
            tracing::info!(restored, "queued prompts were restored");
        }
        Ok(failed)
    }

    /// The blocks of a prompt that may still run, or the problem with which it fails.
    async fn restored_blocks(
        &self,
        record: &PromptRecord,
    ) -> Result<Result<Box<RawValue>, Problem>, SessionError> {
        // A prompt to a member is sent only after the commit that names the process.
        let session = self.journal.record();
        let is_unsent =
            record.unsent || (session.channel.is_none() && self.binding.spec().is_member());
        if record.imported || (record.status != PromptStatus::Queued && !is_unsent) {
            return Ok(Err(interrupted()));
        }
        let mut authors = self.authors(record).into_iter();
        if authors.any(|user| !self.context.may_prompt.allows(&user))
            || !self.authors_have_access(record)
        {
            let detail = "the user that sent or edited the prompt has no key with the scope prompt, or no access to the session";
            return Ok(Err(Problem::new(ProblemCode::KeyRevoked, detail)));
        }
        if self.is_old(record.created_at) {
            return Ok(Err(expired(self)));
        }
        let blocks = prompt_blocks(self.journal.log(), record.content_seq()).await?;
        Ok(blocks.ok_or_else(|| {
            let detail =
                "the gateway was restarted, and the log no longer has the content of the prompt";
            Problem::new(ProblemCode::Interrupted, detail)
        }))
    }
}

fn interrupted() -> Problem {
    let detail = "the gateway was restarted, or failed, while the turn was running or waiting";
    Problem::new(ProblemCode::Interrupted, detail)
}

fn expired(actor: &Actor) -> Problem {
    let age = actor.context.limits.queued_prompt_max_age.as_secs_f64();
    let detail =
        format!("the prompt waited for longer than queued_prompt_max_age ({age} s); send it again");
    Problem::new(ProblemCode::PromptExpired, detail)
}
