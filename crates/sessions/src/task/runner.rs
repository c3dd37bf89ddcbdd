//! Runs each task: its session, its prompt, and its end. Starts queued tasks and deletes old ones.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, sleep_until};

use super::handle::{OpenError, OpenTask, Tasks, session_request};
use super::queue::{QueuedTask, TaskKey};
use super::record::{self, CancelReason, Outcome, TaskRecord, Usage};

use crate::session::{IdempotencyKey, PromptRequest, SessionHandle, SessionRegistry, ToProblem};
use crate::webhooks::Webhooks;
use base::types::{Principal, PrincipalLimits, PromptId, Timestamp};
use events::api::{Problem, ProblemCode};
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

    async fn begin_until_cancelled(&mut self) -> Result<Begun, Stopped> {
        loop {
            // A prompt may exist already. Then the turn is cancelled, so that the task has the end of its turn.
            if self.record.session.is_none()
                && let Some(reason) = self.cancelled()
            {
                return Ok(Begun::Ended(Outcome::cancelled(reason, self.now())));
            }
            let problem = match self.begin().await {
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
    async fn begin(&mut self) -> Result<(SessionHandle, PromptId), Box<Problem>> {
        let sessions = self.tasks.sessions();
        if let (Some(session), Some(prompt)) = (self.record.session, self.record.prompt) {
            let session = sessions
                .open(&self.by, session)
                .await
                .map_err(|error| problem_of(&error))?;
            return Ok((session, prompt));
        }
        let context = self.tasks.context();
        if !context.may_prompt.allows(&self.by.tenant, &self.by.id) {
            let detail = "the key of the task no longer has the scope `prompt`";
            return Err(Box::new(Problem::new(ProblemCode::KeyRevoked, detail)));
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
                .map_err(|error| problem_of(&error))?
                .response
                .session_id
        };
        let prompt_key = key("prompt");
        self.record.session = Some(session);
        self.save().await.map_err(|Closed| draining())?;
        let session = sessions
            .open(&self.by, session)
            .await
            .map_err(|error| problem_of(&error))?;
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
            .map_err(|error| problem_of(&error))?;
        self.record.prompt = Some(admitted.prompt.prompt_id);
        self.save().await.map_err(|Closed| draining())?;
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

/// The problem of a task that the next start continues.
fn draining() -> Box<Problem> {
    Box::new(Problem::new(ProblemCode::Draining, "the log is closed"))
}

fn problem_of(error: &impl ToProblem) -> Box<Problem> {
    Box::new(error.problem())
}

/// How often old tasks are deleted, their age, and their number for one tenant.
const PRUNE_INTERVAL: Duration = Duration::from_hours(1);
const MAX_AGE: Duration = Duration::from_hours(30 * 24);
const MAX_ENDED: usize = 10_000;
const RETRY: Duration = Duration::from_secs(5);
/// A wall clock that jumps delays a deadline by this time at most.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// Reads the open tasks, continues those that have begun, and starts queued ones when a process is free.
pub async fn start(
    sessions: SessionRegistry,
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
            let id = task.id;
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
        |task: &TaskRecord| task.outcome.as_ref().map(|outcome| outcome.ended_at),
        TaskRecord::delete,
    );
    if let Err(error) = pruned.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "could not read old tasks"
        );
    }
}
