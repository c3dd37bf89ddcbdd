//! Runs one task: its session, its prompt, and its end.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::budget::Usage;
use super::handle::{OpenTask, Tasks, session_request};
use super::outcome::{CancelReason, Outcome};
use super::queue::{QueuedTask, TaskKey};
use super::record::{self, TaskRecord};
use crate::api::{Problem, ProblemCode};
use crate::eventlog::{Closed, ReadError, Records, Start};
use crate::session::{IdempotencyKey, PromptRequest, SessionHandle, ToProblem};
use crate::types::{Principal, PromptId, Timestamp};

/// The delay before another attempt to begin, if the gateway gives no other one.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
/// The delay after a failed read.
const READ_RETRY: Duration = Duration::from_secs(5);
/// A wall clock that jumps delays a deadline by this time at most.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Why a task has not ended.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    /// The gateway stops. The task continues after the next start.
    #[error("the gateway is shutting down")]
    Draining,
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<Closed> for Stopped {
    fn from(_: Closed) -> Self {
        Self::Draining
    }
}

/// Runs a task to its end, or until the gateway stops.
pub(super) async fn run(tasks: Tasks, task: QueuedTask) {
    let shutdown = tasks.context().shutdown.clone();
    let key = (task.tenant, task.id);
    tokio::select! {
        () = run_with_retries(&tasks, &key) => {}
        () = shutdown.drain_started() => {}
    }
    tasks.free_slot(&task.agent);
}

async fn run_with_retries(tasks: &Tasks, key: &TaskKey) {
    while let Some(open) = tasks.open_task(key) {
        match run_to_end(tasks, key, open).await {
            Ok(()) | Err(Stopped::Draining) => return,
            Err(Stopped::Read(error)) => {
                tracing::error!(task = %key.1, error = &error as &dyn std::error::Error, "could not read a task; trying again");
                sleep(READ_RETRY).await;
            }
        }
    }
}

async fn run_to_end(tasks: &Tasks, key: &TaskKey, open: OpenTask) -> Result<(), Stopped> {
    let open_record = record::get(tasks.log(), &key.0, key.1)
        .await?
        .filter(|task| task.outcome.is_none());
    let Some(record) = open_record else {
        return Ok(());
    };
    let by = record.principal(&key.0);
    let mut run = Run {
        tasks,
        key,
        by,
        record,
        open,
    };
    let is_too_old =
        run.record.prompt.is_none() && run.record.started_at.is_some_and(|at| run.is_too_old(at));
    if run.record.started_at.is_none() {
        run.record.started_at = Some(run.now());
        run.save().await?;
    }
    run.record.outcome = Some(if is_too_old {
        let detail = "the gateway restarted while the task began, too long ago to continue it";
        Outcome::failed(&Problem::new(ProblemCode::Interrupted, detail), run.now())
    } else {
        match run.begin_until_cancelled().await? {
            Begun::Turn(session, prompt) => run.follow(&session, prompt).await?,
            Begun::Ended(outcome) => outcome,
        }
    });
    tasks.end(&key.0, &run.record).await?;
    if let Some(session) = run.record.session
        && let Ok(session) = tasks.sessions().open(&run.by, session).await
    {
        // The session releases its process. Its log stays readable.
        drop(session.close(&run.by, None).await);
    }
    Ok(())
}

/// The result of an attempt to begin.
enum Begun {
    Turn(SessionHandle, PromptId),
    Ended(Outcome),
}

struct Run<'a> {
    tasks: &'a Tasks,
    key: &'a TaskKey,
    by: Principal,
    record: TaskRecord,
    open: OpenTask,
}

impl Run<'_> {
    fn now(&self) -> Timestamp {
        self.tasks.context().ids.now()
    }

    async fn save(&self) -> Result<(), Closed> {
        self.tasks
            .log()
            .write(self.record.put(&self.key.0, Records::default()))
            .await
    }

    /// Begins the turn. Waits while no process is free.
    async fn begin_until_cancelled(&mut self) -> Result<Begun, Stopped> {
        loop {
            // A prompt may exist already. Then the turn is cancelled, so that the task has the end of its turn.
            if self.record.session.is_none()
                && let Some(reason) = self.cancelled()
            {
                return Ok(Begun::Ended(Outcome::cancelled(reason, self.now())));
            }
            let problem = match self.begin().await? {
                Ok((session, prompt)) => return Ok(Begun::Turn(session, prompt)),
                Err(problem) => problem,
            };
            let wait = match problem.code {
                ProblemCode::Draining => return Err(Stopped::Draining),
                ProblemCode::PoolFull | ProblemCode::RateLimited | ProblemCode::QueueFull => {
                    problem
                        .retry_after_seconds
                        .map_or(RETRY_AFTER, Duration::from_secs)
                        .min(MAX_RETRY_AFTER)
                }
                _ => return Ok(Begun::Ended(Outcome::failed(&problem, self.now()))),
            };
            tokio::select! {
                () = sleep(wait) => {}
                reason = self.until_cancelled() => return Ok(Begun::Ended(Outcome::cancelled(reason, self.now()))),
            }
        }
    }

    /// Creates the session and the prompt, or finds those of an earlier attempt.
    async fn begin(&mut self) -> Result<Result<(SessionHandle, PromptId), Problem>, Stopped> {
        match self.try_begin().await {
            Ok(begun) => Ok(Ok(begun)),
            Err(BeginError::Problem(problem)) => Ok(Err(*problem)),
            Err(BeginError::Closed(Closed)) => Err(Stopped::Draining),
        }
    }

    async fn try_begin(&mut self) -> Result<(SessionHandle, PromptId), BeginError> {
        let sessions = self.tasks.sessions();
        if let (Some(session), Some(prompt)) = (self.record.session, self.record.prompt) {
            let session = sessions
                .open(&self.by, session)
                .await
                .map_err(|error| BeginError::of(&error))?;
            return Ok((session, prompt));
        }
        let context = self.tasks.context();
        if !context.may_prompt.allows(&self.by.tenant, &self.by.id) {
            let detail = "the key of the task no longer has the scope `prompt`";
            return Err(Problem::new(ProblemCode::KeyRevoked, detail).into());
        }
        let key = |part: &str| IdempotencyKey {
            key: self.record.id.to_string(),
            route: format!("task {part}"),
            body_hash: Sha256::digest(self.record.id.as_bytes()).into(),
        };
        let session = if let Some(session) = self.record.session {
            session
        } else {
            let request = session_request(&self.record);
            let created = sessions
                .create_for_task(&self.by, request, self.record.id, key("session"))
                .await;
            created
                .map_err(|error| BeginError::of(&error))?
                .response
                .session_id
        };
        let prompt_key = key("prompt");
        self.record.session = Some(session);
        self.save().await?;
        let session = sessions
            .open(&self.by, session)
            .await
            .map_err(|error| BeginError::of(&error))?;
        let prompt = PromptRequest {
            blocks: self.record.blocks.clone(),
            attachments: Vec::new(),
            queue: false,
            key: Some(prompt_key),
            trace: None,
            acp_request: None,
            serving: None,
            broadcast: None,
        };
        let admitted = session
            .prompt(&self.by, prompt, || Ok(()))
            .await
            .map_err(|error| BeginError::of(&error))?;
        self.record.prompt = Some(admitted.prompt.prompt_id);
        self.save().await?;
        Ok((session, admitted.prompt.prompt_id))
    }

    /// Whether the idempotency keys of an earlier gateway process may have expired, so that a repetition could run the task
    /// twice.
    fn is_too_old(&self, started: Timestamp) -> bool {
        started.after(self.tasks.context().limits.idempotency_key_max_age / 2) < self.now()
    }

    /// Waits for the end of the turn, and cancels it on request, at the deadline, and when the budget is used up.
    async fn follow(
        &mut self,
        session: &SessionHandle,
        prompt: PromptId,
    ) -> Result<Outcome, Stopped> {
        let mut usage = Usage::new(
            session
                .log()
                .reader(Start::After(self.first_seq(session, prompt).await)),
        );
        let mut reason = None;
        let turn = loop {
            tokio::select! {
                ended = session.wait_ended(prompt, LONGEST_WAIT) => match ended {
                    Ok(Some(turn)) => break turn,
                    Ok(None) if self.tasks.context().shutdown.is_draining() => return Err(Stopped::Draining),
                    Ok(None) => {}
                    Err(error) if error.problem().retryable => sleep(RETRY_AFTER).await,
                    Err(error) => return Ok(Outcome::failed(&error.problem(), self.now())),
                },
                used = usage.next() => {
                    if !self.record.usage_seen {
                        self.record.usage_seen = true;
                        self.save().await?;
                    }
                    if reason.is_none() && self.record.token_budget.is_some_and(|budget| used > budget) {
                        reason = self.cancel(session, prompt, CancelReason::Budget).await;
                    }
                }
                because = self.until_cancelled(), if reason.is_none() => {
                    reason = self.cancel(session, prompt, because).await;
                }
            }
        };
        // The turn can end before this loop reads a cancel of the client, in particular after a restart.
        let reason = reason.or_else(|| {
            self.open
                .cancel
                .is_cancelled()
                .then_some(CancelReason::Client)
        });
        usage.read_to(turn.last_event_id.seq).await;
        self.record.usage_seen |= turn.usage.is_some() || usage.reported().is_some();
        Ok(Outcome::of_turn(turn, reason, usage.reported(), self.now()))
    }

    /// The sequence number before the first event of the turn.
    async fn first_seq(&self, session: &SessionHandle, prompt: PromptId) -> u64 {
        let range = session.query().prompt_range(prompt).await;
        range.ok().flatten().map_or(0, |range| range.first_seq - 1)
    }

    /// Cancels the turn. `None`: the cancel failed, and the caller tries again.
    async fn cancel(
        &self,
        session: &SessionHandle,
        prompt: PromptId,
        reason: CancelReason,
    ) -> Option<CancelReason> {
        match session.cancel(Some(prompt), reason.of_turn(), None).await {
            Ok(_) => Some(reason),
            Err(error) => {
                tracing::warn!(task = %self.record.id, %error, "could not cancel the turn of a task; trying again");
                sleep(RETRY_AFTER).await;
                None
            }
        }
    }

    /// Why the task must not continue.
    fn cancelled(&self) -> Option<CancelReason> {
        if self.open.cancel.is_cancelled() {
            return Some(CancelReason::Client);
        }
        self.record
            .deadline
            .filter(|deadline| *deadline <= self.now())
            .map(|_| CancelReason::Deadline)
    }

    async fn until_cancelled(&self) -> CancelReason {
        loop {
            if let Some(reason) = self.cancelled() {
                return reason;
            }
            let left = self.record.deadline.map_or(i64::MAX, |deadline| {
                deadline.as_millis() - self.now().as_millis()
            });
            let left =
                Duration::from_millis(u64::try_from(left).unwrap_or_default()).min(LONGEST_WAIT);
            tokio::select! {
                () = sleep(left) => {}
                () = self.open.cancel.cancelled() => {}
            }
        }
    }
}

/// Why a turn did not begin.
enum BeginError {
    Problem(Box<Problem>),
    Closed(Closed),
}

impl BeginError {
    fn of(error: &impl ToProblem) -> Self {
        error.problem().into()
    }
}

impl From<Problem> for BeginError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<Closed> for BeginError {
    fn from(error: Closed) -> Self {
        Self::Closed(error)
    }
}
