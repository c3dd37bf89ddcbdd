//! Runs each task: its session, its prompt, and its end. Starts queued tasks and deletes old ones.

use std::sync::atomic::Ordering;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, sleep_until};

use super::handle::{OpenError, OpenTask, Tasks, session_request};
use super::queue::{QueuedTask, TaskKey};
use super::record::{self, CancelReason, TaskRecord, Usage};
use crate::limits::IDEMPOTENCY_KEY_MAX_AGE;

use crate::session::{IdempotencyKey, PromptRequest, SessionDirectory, SessionHandle, ToProblem};
use crate::webhooks::Webhooks;
use base::types::{Principal, PrincipalLimits, PromptId, Timestamp};
use events::api::{Problem, ProblemCode, TaskStatus};
use log::eventlog;
use log::eventlog::{Closed, ReadError, Records, Start};
use log::store::Table;

const RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(30);
const READ_RETRY: Duration = Duration::from_secs(5);

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

pub(super) async fn run(tasks: Tasks, task: QueuedTask) {
    let shutdown = tasks.context().shutdown.clone();
    tokio::select! {
        () = run_with_retries(&tasks, &task.key) => {}
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
    let Some(record) = record::get_open(tasks.log(), &key.0, key.1).await? else {
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
    let task = &mut run.record.task;
    let continues = task.started_at;
    if continues.is_none() {
        task.started_at = Some(tasks.context().ids.now());
        task.status = TaskStatus::Running;
        run.save().await?;
    }
    if run.record.task.prompt_id.is_none() && continues.is_some_and(|at| run.is_too_old(at)) {
        let detail = "the gateway restarted while the task began, too long ago to continue it";
        let problem = Problem::new(ProblemCode::Interrupted, detail);
        run.record.fail(&problem, run.now());
    } else if let Some((session, prompt)) = run.begin_until_cancelled().await? {
        run.open.has_begun.store(true, Ordering::Relaxed);
        run.follow(&session, prompt).await?;
    }
    tasks.end(&key.0, &run.record).await?;
    if let Some(session) = run.record.task.session_id
        && let Ok(session) = tasks.sessions().open(&run.by, session).await
    {
        // The session releases its process. Its log stays readable.
        let _ = session.close(&run.by, None).await;
    }
    Ok(())
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
        let records = self.record.put(&self.key.0, Records::default());
        self.tasks.log().write(records).await
    }

    /// The session and the prompt of the task. `None`: the task has ended without a turn.
    async fn begin_until_cancelled(
        &mut self,
    ) -> Result<Option<(SessionHandle, PromptId)>, Stopped> {
        loop {
            // A prompt may exist already. Then the turn is cancelled, so that the task has the end of its turn.
            if self.record.task.session_id.is_none()
                && let Some(reason) = self.cancelled()
            {
                self.record.cancel(reason, self.now());
                return Ok(None);
            }
            let problem = match self.begin().await {
                Ok(begun) => return Ok(Some(begun)),
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
                _ => {
                    self.record.fail(&problem, self.now());
                    return Ok(None);
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                reason = self.until_cancelled() => {
                    self.record.cancel(reason, self.now());
                    return Ok(None);
                }
            }
        }
    }

    /// Creates the session and the prompt, or finds those of an earlier attempt.
    async fn begin(&mut self) -> Result<(SessionHandle, PromptId), Box<Problem>> {
        let sessions = self.tasks.sessions();
        let task = &self.record.task;
        if let (Some(session), Some(prompt)) = (task.session_id, task.prompt_id) {
            let session = sessions
                .open(&self.by, session)
                .await
                .map_err(|error| problem_of(&error))?;
            return Ok((session, prompt));
        }
        let context = self.tasks.context();
        if !context.may_prompt.allows(&self.by.user) {
            let detail = "the key of the task no longer has the scope `prompt`";
            return Err(Box::new(Problem::new(ProblemCode::KeyRevoked, detail)));
        }
        let key = |part: &str| IdempotencyKey {
            key: task.task_id.to_string(),
            route: format!("task {part}"),
            body_hash: Sha256::digest(task.task_id.as_bytes()).into(),
        };
        let session = if let Some(session) = task.session_id {
            session
        } else {
            let request = session_request(&self.record);
            let id = Some(task.task_id);
            let created = sessions
                .create(&self.by, request, id, Some(key("session")), None)
                .await;
            created
                .map_err(|error| problem_of(&error))?
                .response
                .session_id
        };
        let prompt_key = key("prompt");
        self.record.task.session_id = Some(session);
        self.save().await.map_err(|Closed| draining())?;
        let session = sessions
            .open(&self.by, session)
            .await
            .map_err(|error| problem_of(&error))?;
        let prompt = PromptRequest {
            key: Some(prompt_key),
            ..PromptRequest::new(self.record.blocks.clone())
        };
        let admitted = session
            .prompt(&self.by, prompt, || Ok(()))
            .await
            .map_err(|error| problem_of(&error))?;
        let task = &mut self.record.task;
        task.prompt_id = Some(admitted.prompt.prompt_id);
        task.budget_enforced = task.token_budget.map(|_| false);
        self.save().await.map_err(|Closed| draining())?;
        Ok((session, admitted.prompt.prompt_id))
    }

    /// Whether the idempotency keys of an earlier gateway process may have expired, so that a repetition could run the task
    /// twice.
    fn is_too_old(&self, started: Timestamp) -> bool {
        started.after(IDEMPOTENCY_KEY_MAX_AGE / 2) < self.now()
    }

    /// Waits for the end of the turn, and cancels it on request, at the deadline, and when the budget is used up.
    async fn follow(&mut self, session: &SessionHandle, prompt: PromptId) -> Result<(), Stopped> {
        let start = Start::After(self.first_seq(session, prompt).await);
        let mut usage = Usage::new(session.log().reader(start));
        let mut reason = None;
        let turn = loop {
            tokio::select! {
                ended = session.wait_ended(prompt, LONGEST_WAIT) => match ended {
                    Ok(Some(turn)) => break turn,
                    Ok(None) if self.tasks.context().shutdown.is_draining() => return Err(Stopped::Draining),
                    Ok(None) => {}
                    Err(error) if error.problem().retryable => sleep(RETRY_AFTER).await,
                    Err(error) => {
                        self.record.fail(&error.problem(), self.now());
                        return Ok(());
                    }
                },
                used = usage.next() => {
                    if self.record.usage_reported() {
                        self.save().await?;
                    }
                    if reason.is_none() && self.record.task.token_budget.is_some_and(|budget| used > budget) {
                        reason = self.cancel(session, prompt, CancelReason::Budget).await;
                    }
                }
                because = self.until_cancelled(), if reason.is_none() => {
                    reason = self.cancel(session, prompt, because).await;
                }
            }
        };
        // The turn can end before this loop reads a cancel of the client, in particular after a restart.
        if self.open.cancel.is_cancelled() {
            reason.get_or_insert(CancelReason::Client);
        }
        usage.read_to(turn.last_event_id.seq).await;
        let now = self.now();
        self.record.end_turn(turn, reason, usage.reported, now);
        Ok(())
    }

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
                tracing::warn!(task = %self.key.1, %error, "could not cancel the turn of a task; trying again");
                sleep(RETRY_AFTER).await;
                None
            }
        }
    }

    fn cancelled(&self) -> Option<CancelReason> {
        if self.open.cancel.is_cancelled() {
            return Some(CancelReason::Client);
        }
        let deadline = self.record.task.deadline?;
        (deadline <= self.now()).then_some(CancelReason::Deadline)
    }

    async fn until_cancelled(&self) -> CancelReason {
        loop {
            if let Some(reason) = self.cancelled() {
                return reason;
            }
            let deadline = self.record.task.deadline;
            let left = deadline.map_or(LONGEST_WAIT, |deadline| deadline.since(self.now()));
            tokio::select! {
                () = sleep(left.min(LONGEST_WAIT)) => {}
                () = self.open.cancel.cancelled() => {}
            }
        }
    }
}

/// The problem of a task that the next start continues.
fn draining() -> Box<Problem> {
    Box::new(Problem::new(ProblemCode::Draining, "the log is closed"))
}

fn problem_of(error: &impl ToProblem) -> Box<Problem> {
    Box::new(error.problem())
}

/// How often old tasks are deleted, their age, and their number for one user.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
const MAX_ENDED: usize = 10_000;
const RETRY: Duration = Duration::from_secs(5);
/// A wall clock that jumps delays a deadline by this time at most.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Reads the open tasks, continues those that have begun, and starts queued ones when a process is free.
pub async fn start(
    sessions: SessionDirectory,
    webhooks: Webhooks,
    limits: PrincipalLimits,
) -> Result<Tasks, OpenError> {
    let (tasks, begun) = Tasks::read(sessions, webhooks, limits).await?;
    let shutdown = tasks.context().shutdown.clone();
    for task in begun {
        shutdown.spawn(run(tasks.clone(), task));
    }
    shutdown.spawn(run_queue(tasks.clone()));
    Ok(tasks)
}

async fn run_queue(tasks: Tasks) {
    let shutdown = tasks.context().shutdown.clone();
    let mut prune_at = Instant::now() + PRUNE_INTERVAL;
    loop {
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + PRUNE_INTERVAL;
            prune(&tasks).await;
        }
        for task in tasks.expire() {
            let id = task.key.1;
            if let Err(error) = tasks.end_queued(task, CancelReason::Deadline).await {
                tracing::error!(task = %id, error = &error as &dyn std::error::Error, "could not end a task at its deadline");
                sleep(RETRY).await;
            }
        }
        while let Some(task) = tasks.start_next() {
            shutdown.spawn(run(tasks.clone(), task));
        }
        let next = Instant::now()
            + tasks
                .next_deadline()
                .unwrap_or(LONGEST_WAIT)
                .min(LONGEST_WAIT);
        tokio::select! {
            () = shutdown.drain_started() => return,
            () = tasks.changed() => {}
            () = sleep_until(next.min(prune_at)) => {}
        }
    }
}

/// Deletes ended tasks that are old or too many. Their sessions stay until retention deletes them.
async fn prune(tasks: &Tasks) {
    let pruned = eventlog::prune(
        tasks.log(),
        Table::Task,
        tasks.context().ids.now().before(MAX_AGE),
        MAX_ENDED,
        |record: &TaskRecord| record.task.ended_at,
        TaskRecord::delete,
    );
    if let Err(error) = pruned.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not read old tasks"
        );
    }
}
