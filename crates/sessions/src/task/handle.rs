//! The operations on tasks, and the state of the open ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use super::queue::{Queue, QueuedTask, TaskKey};
use super::record::{self, CancelReason, MAX_CHILDREN, OpenRecord, TaskRecord};

use crate::session::{
    Claim, ClaimError, Context, IdempotencyKey, IdempotencyRecord, Responded, SessionDirectory,
    ToProblem,
};
use crate::webhooks::{self, Webhooks};
use base::shutdown::lock_or_abort;
use base::types::text::{UnsafeCharacter, check_text, one_line};
use base::types::{AgentName, LimitExceeded, Principal, PrincipalLimit, PrincipalLimits, UserId};
use events::api::{
    CreateSession, CreateTask, OnTimeout, Problem, ProblemCode, SessionPolicy, Task, TaskList,
    TaskStatus,
};
use log::eventlog::{
    Closed, EventLog, ReadError, RecordPages, Records, from_json, newest_first_id, to_json,
};
use log::store::Table;

const DEFAULT_PERMISSION_SECONDS: u64 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub struct Filter {
    pub agent: Option<AgentName>,
    pub status: Option<TaskStatus>,
    pub parent: Option<Uuid>,
}

#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    sessions: SessionDirectory,
    webhooks: Webhooks,
    limits: PrincipalLimits,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    queue: Queue,
    open: BTreeMap<TaskKey, OpenTask>,
}

#[derive(Clone, Default)]
pub(super) struct OpenTask {
    /// Cancelled by a client.
    pub(super) cancel: CancellationToken,
    ended: CancellationToken,
    /// The task has a session and a prompt. Before, it may wait for a process of its agent.
    pub(super) has_begun: Arc<AtomicBool>,
}

impl Tasks {
    pub(super) async fn read(
        sessions: SessionDirectory,
        webhooks: Webhooks,
        limits: PrincipalLimits,
    ) -> Result<(Self, Vec<QueuedTask>), OpenError> {
        let log = sessions.context().log.clone();
        let mut queue = Queue::new(sessions.context().limits.task_aging_unit);
        let mut open = BTreeMap::new();
        let mut begun = Vec::new();
        let mut ended = Records::default();
        let mut pages = RecordPages::of(&log, Table::OpenTask);
        while let Some(page) = pages.next::<OpenRecord>().await? {
            for (user, entry) in page {
                let id = entry.task;
                let Some(record) = record::get_open(&log, &user, id).await? else {
                    // A cancel can store its entry again after the end of the task.
                    ended = OpenRecord::delete(&user, id, ended);
                    continue;
                };
                let task = queued(&user, &record);
                let signals = OpenTask::default();
                if entry.cancelled {
                    signals.cancel.cancel();
                }
                open.insert((user, id), signals);
                if record.task.started_at.is_some() {
                    queue.started(&task.agent);
                    begun.push(task);
                } else {
                    queue.push(task);
                }
            }
        }
        if !ended.is_empty() {
            log.write(ended).await?;
        }
        let tasks = Self(Arc::new(Inner {
            sessions,
            webhooks,
            limits,
            state: Mutex::new(State { queue, open }),
            changed: Notify::new(),
        }));
        Ok((tasks, begun))
    }

    /// Stores a task, which begins when a process is free, once for each idempotency key. The operation continues if the caller
    /// is dropped.
    pub async fn create(
        &self,
        by: &Principal,
        request: CreateTask,
        blocks: Box<RawValue>,
        key: Option<IdempotencyKey>,
    ) -> Result<Responded<Task>, CreateError> {
        let tasks = self.clone();
        let user = by.user.clone();
        let replay = async move |previous: IdempotencyRecord| {
            let Some(task) = previous.response().map_err(ClaimError::from)? else {
                return Ok(None);
            };
            Ok(tasks.get(&user, task).await?)
        };
        let tasks = self.clone();
        let owner = by.clone();
        let act = async move |claim| tasks.create_new(&owner, request, blocks, claim).await;
        self.context().once(by, key, replay, act).await
    }

    async fn create_new(
        &self,
        by: &Principal,
        request: CreateTask,
        blocks: Box<RawValue>,
        claim: Option<Claim>,
    ) -> Result<Task, CreateError> {
        let depth = self.depth(&by.user, request.parent_task).await?;
        if let Some(url) = &request.callback_url {
            self.0
                .webhooks
                .check_callback(url)
                .map_err(CreateError::Callback)?;
        }
        let description = request
            .description
            .as_deref()
            .map_or(1, |text| text.chars().count());
        if !(1..=MAX_DESCRIPTION_CHARS).contains(&description) {
            return Err(CreateError::Description);
        }
        check_text(request.description.as_deref().unwrap_or_default())?;
        let now = self.context().ids.now();
        if request.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(CreateError::Deadline);
        }
        let record = self.record(by, request, blocks, depth);
        let session = session_request(&record);
        self.0.sessions.check_request(&session)?;
        self.0.sessions.check_folders(by, &session).await?;
        self.insert(by, &record, claim).await?;
        Ok(Task {
            children: Some(Vec::new()),
            ..record.task
        })
    }

    async fn depth(&self, user: &UserId, parent: Option<Uuid>) -> Result<u8, CreateError> {
        let Some(parent) = parent else { return Ok(0) };
        let parent = record::get(self.log(), user, parent)
            .await?
            .ok_or(CreateError::NoSuchParent)?;
        if parent.task.status.has_ended() {
            return Err(CreateError::ParentEnded);
        }
        if parent.depth + 1 >= MAX_LEVELS {
            return Err(CreateError::TooDeep);
        }
        Ok(parent.depth + 1)
    }

    fn record(
        &self,
        by: &Principal,
        request: CreateTask,
        blocks: Box<RawValue>,
        depth: u8,
    ) -> TaskRecord {
        let ids = &self.context().ids;
        let mut permissions = request.permissions.unwrap_or_default();
        let on_timeout = *permissions.on_timeout.get_or_insert(OnTimeout::Reject);
        if on_timeout == OnTimeout::Reject {
            permissions
                .timeout_seconds
                .get_or_insert(DEFAULT_PERMISSION_SECONDS);
        }
        let task = Task {
            task_id: ids.uuid(),
            agent: request.agent,
            description: request.description,
            priority: request.priority,
            status: TaskStatus::Queued,
            parent_task: request.parent_task,
            children: None,
            session_id: None,
            prompt_id: None,
            token_budget: request.token_budget,
            budget_enforced: None,
            metadata: request.metadata.unwrap_or_default(),
            deadline: request.deadline,
            callback_url: request.callback_url.as_deref().map(record::origin),
            permissions,
            by: by.user.name().to_owned(),
            created_at: ids.now(),
            started_at: None,
            ended_at: None,
            result: None,
        };
        TaskRecord {
            task,
            blocks,
            depth,
            callback_url: request.callback_url,
            cwd: request.cwd,
            scopes: by.scopes,
            folders: by.folders.clone(),
        }
    }

    async fn insert(
        &self,
        by: &Principal,
        record: &TaskRecord,
        claim: Option<Claim>,
    ) -> Result<(), CreateError> {
        let limit = PrincipalLimit::QueuedTaskBytes;
        let user = &by.user;
        let limits = self.0.limits.effective(by);
        let task = queued(user, record);
        {
            let mut state = self.state();
            if state.queue.len_of(user) >= MAX_QUEUED {
                return Err(CreateError::QueueFull);
            }
            if state
                .queue
                .bytes_of(&by.user.clone())
                .saturating_add(task.bytes)
                > limits.max(limit)
            {
                return Err(limits.exceeded(limit, RETRY_AFTER).into());
            }
            state.queue.reserve(&task);
            state.open.insert(task.key.clone(), OpenTask::default());
        }
        let mut records = record.put_new(user);
        if let Some(claim) = claim {
            let id = to_raw_value(&record.task.task_id).expect("an id serializes");
            claim.put_response(id, &mut records);
        }
        let stored = self.log().write(records).await;
        let mut state = self.state();
        state.queue.release(&task);
        if let Err(error) = stored {
            state.open.remove(&task.key);
            return Err(error.into());
        }
        state.queue.push(task);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }

    /// The numbers of waiting tasks and of those with a turn, over all users.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state();
        let open = state.open.values();
        let begun = open.filter(|task| task.has_begun.load(Ordering::Relaxed));
        let begun = begun.count();
        (state.open.len() - begun, begun)
    }

    pub async fn get(&self, user: &UserId, id: Uuid) -> Result<Option<Task>, ReadError> {
        let Some(record) = record::get(self.log(), user, id).await? else {
            return Ok(None);
        };
        let children = record::children(self.log(), user, id)
            .select(MAX_CHILDREN, |value| Ok::<_, ReadError>(from_json(value)))
            .await?;
        Ok(Some(Task {
            children: Some(children.entries),
            ..record.task
        }))
    }

    /// A page of tasks, newest first. It can end early and has a cursor then.
    pub async fn list(
        &self,
        user: &UserId,
        filter: &Filter,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<TaskList, ReadError> {
        let found = record::older(self.log(), user, before)
            .select(limit, |value| {
                let task = from_json::<TaskRecord>(value).map(|record| record.task);
                Ok::<_, ReadError>(task.filter(|task| filter.matches(task)))
            })
            .await?;
        let next = found.next.as_deref().and_then(newest_first_id);
        Ok(TaskList {
            tasks: found.entries,
            next_cursor: next.map(|id| id.to_string()),
        })
    }

    /// Cancels a task and the tasks below it. Returns the task after the request, or `None` if there is no such task. A
    /// running task ends later. The operation continues if the caller is dropped.
    pub async fn cancel(&self, user: &UserId, id: Uuid) -> Result<Option<Task>, ChangeError> {
        let tasks = self.clone();
        let of = user.clone();
        let cancelled = async move { tasks.cancel_all(&of, id).await }.in_current_span();
        self.context()
            .shutdown
            .spawn_isolated(cancelled)
            .await
            .map_err(|_| ChangeError::Internal)??;
        Ok(self.get(user, id).await?)
    }

    async fn cancel_all(&self, user: &UserId, id: Uuid) -> Result<(), ChangeError> {
        let mut below = vec![id];
        let mut next = 0;
        while let Some(parent) = below.get(next).copied() {
            next += 1;
            let mut pages = record::children(self.log(), user, parent);
            while let Some(page) = pages.next_raw().await? {
                below.extend(page.iter().filter_map(|(key, _)| newest_first_id(key)));
            }
        }
        // The children end first, so that none of them begins when its parent has ended.
        for task in below.into_iter().rev() {
            self.cancel_one(&(user.clone(), task)).await?;
        }
        Ok(())
    }

    async fn cancel_one(&self, key: &TaskKey) -> Result<(), ChangeError> {
        let (queued, open) = {
            let mut state = self.state();
            (state.queue.remove(key), state.open.get(key).cloned())
        };
        if let Some(task) = queued {
            return self.end_queued(task, CancelReason::Client).await;
        }
        if let Some(open) = open {
            // A restart must not forget the cancel of a task that has begun.
            let stored = OpenRecord {
                task: key.1,
                cancelled: true,
            }
            .put(&key.0, Records::default());
            self.log().write(stored).await?;
            open.cancel.cancel();
        }
        Ok(())
    }

    pub async fn wait_ended(&self, user: &UserId, id: Uuid, limit: Duration) {
        if let Some(open) = self.open_task(&(user.clone(), id)) {
            let _ = tokio::time::timeout(limit, open.ended.cancelled()).await;
        }
    }

    /// Ends a task that was removed from the queue. If this fails, the task is queued again.
    pub(super) async fn end_queued(
        &self,
        task: QueuedTask,
        reason: CancelReason,
    ) -> Result<(), ChangeError> {
        let ended = self.end_with(&task, reason).await;
        if ended.is_err() {
            self.state().queue.push(task);
        }
        ended
    }

    async fn end_with(&self, task: &QueuedTask, reason: CancelReason) -> Result<(), ChangeError> {
        let (user, id) = &task.key;
        if let Some(mut record) = record::get(self.log(), user, *id).await? {
            record.cancel(reason, self.context().ids.now());
            self.end(user, &record).await?;
        }
        Ok(())
    }

    pub(super) async fn end(&self, user: &UserId, record: &TaskRecord) -> Result<(), Closed> {
        let records = record.put(user, Records::default());
        let callback = record.callback_url.as_deref();
        self.0
            .webhooks
            .commit_task_end(user, &record.task, callback, records)
            .await?;
        let key = (user.clone(), record.task.task_id);
        if let Some(open) = self.state().open.remove(&key) {
            open.ended.cancel();
        }
        Ok(())
    }

    pub(super) fn start_next(&self) -> Option<QueuedTask> {
        let catalogue = &self.context().catalogue;
        // A task of an agent that is no longer configured begins and fails.
        let slots = |agent: &AgentName| {
            catalogue
                .agent(agent)
                .map_or(1, |spec| spec.settings.pool.task_slots())
        };
        self.state().queue.start_next(slots)
    }

    pub(super) fn expire(&self) -> Vec<QueuedTask> {
        let now = self.context().ids.now();
        self.state().queue.expire(now)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let deadline = self.state().queue.next_deadline()?;
        Some(deadline.since(self.context().ids.now()))
    }

    pub(super) fn free_slot(&self, agent: &AgentName) {
        self.state().queue.ended(agent);
        self.0.changed.notify_one();
    }

    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    pub(super) fn open_task(&self, key: &TaskKey) -> Option<OpenTask> {
        self.state().open.get(key).cloned()
    }

    pub(super) fn sessions(&self) -> &SessionDirectory {
        &self.0.sessions
    }

    pub(super) fn context(&self) -> &Context {
        self.0.sessions.context()
    }

    pub(super) fn log(&self) -> &EventLog {
        &self.context().log
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.0.state.lock())
    }
}

impl Filter {
    fn matches(&self, task: &Task) -> bool {
        self.agent.as_ref().is_none_or(|agent| *agent == task.agent)
            && self.status.is_none_or(|status| status == task.status)
            && self
                .parent
                .is_none_or(|parent| task.parent_task == Some(parent))
    }
}

pub(super) fn session_request(record: &TaskRecord) -> CreateSession {
    let task = &record.task;
    let first_line = task
        .description
        .as_ref()
        .and_then(|text| text.lines().next());
    let title = first_line.map(|line| one_line(line).chars().take(80).collect::<String>());
    CreateSession {
        cwd: record.cwd.clone(),
        title: title.filter(|title| !title.is_empty()),
        metadata: Some(task.metadata.clone()),
        policy: Some(SessionPolicy {
            permissions: Some(task.permissions.clone()),
            files: None,
            terminals: None,
        }),
        ..CreateSession::of(task.agent.clone())
    }
}

fn queued(user: &UserId, record: &TaskRecord) -> QueuedTask {
    let task = &record.task;
    QueuedTask {
        key: (user.clone(), task.task_id),
        agent: task.agent.clone(),
        priority: task.priority,
        created_at: task.created_at,
        deadline: task.deadline,
        bytes: to_json(record).len(),
    }
}

pub(super) const MAX_QUEUED: usize = 10_000;
pub(super) const MAX_LEVELS: u8 = 4;
pub(super) const MAX_DESCRIPTION_CHARS: usize = 65_536;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("could not read the tasks")]
    Records(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error(transparent)]
    Session(Box<crate::session::CreateError>),
    #[error("expected 1 to {MAX_DESCRIPTION_CHARS} characters")]
    Description,
    #[error(transparent)]
    UnsafeDescription(#[from] UnsafeCharacter),
    #[error("no such task, or a task of another user")]
    NoSuchParent,
    #[error("the parent has ended")]
    ParentEnded,
    #[error("a chain of tasks has at most {MAX_LEVELS} levels")]
    TooDeep,
    #[error(transparent)]
    Callback(webhooks::CreateError),
    #[error("too many queued tasks (limit {MAX_QUEUED}); retry later")]
    QueueFull,
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error("must be in the future")]
    Deadline,
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl From<ReadError> for CreateError {
    fn from(error: ReadError) -> Self {
        Self::Change(error.into())
    }
}

impl From<Closed> for CreateError {
    fn from(error: Closed) -> Self {
        Self::Change(error.into())
    }
}

impl From<crate::session::CreateError> for CreateError {
    fn from(error: crate::session::CreateError) -> Self {
        Self::Session(Box::new(error))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The operation has panicked. The panic is in the log.
    #[error("internal error")]
    Internal,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl ToProblem for CreateError {
    fn problem(&self) -> Problem {
        let detail = self.to_string();
        match self {
            Self::Session(error) => of_task(error.problem()),
            Self::Description | Self::UnsafeDescription(_) => {
                Problem::invalid("/description", detail)
            }
            Self::NoSuchParent | Self::ParentEnded | Self::TooDeep => {
                Problem::invalid("/parentTask", detail)
            }
            Self::Callback(webhooks::CreateError::Disabled) => {
                Problem::new(ProblemCode::Forbidden, detail)
            }
            Self::Callback(_) => Problem::invalid("/callbackUrl", detail),
            Self::Deadline => Problem::invalid("/deadline", detail),
            Self::Limit(exceeded) => exceeded.problem(),
            Self::QueueFull => Problem::new(ProblemCode::QueueFull, detail),
            Self::Claim(error) => error.problem(),
            Self::Change(error) => error.problem(),
        }
    }
}

/// The problem of a request for a session, with the members of the request for a task.
fn of_task(mut problem: Problem) -> Problem {
    for error in &mut problem.errors {
        if let Some(pointer) = error.pointer.strip_prefix("/policy") {
            error.pointer = pointer.to_owned();
        }
    }
    problem
}

impl ToProblem for ChangeError {
    fn problem(&self) -> Problem {
        match self {
            Self::Read(error) => error.problem(),
            Self::Closed(_) => Problem::draining(),
            Self::Internal => Problem::internal(),
        }
    }
}
