//! The operations on tasks, and the state of the open ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use super::queue::{Queue, QueuedTask, TaskKey};
use super::record::{self, CancelReason, MAX_CHILDREN, OpenRecord, Outcome, TaskOwner, TaskRecord};

use crate::session::{
    Claim, ClaimError, Context, IdempotencyKey, IdempotencyRecord, Responded, SessionRegistry,
    ToProblem,
};
use crate::webhooks;
use crate::webhooks::{TaskReport, Webhooks};
use base::shutdown::lock_or_abort;
use base::types::text::{UnsafeCharacter, check_text, one_line};
use base::types::{
    AgentName, LimitExceeded, OnTimeout, Principal, PrincipalLimit, PrincipalLimits, SessionPolicy,
    Tenant,
};
use events::api::{self, CreateSession, Problem, ProblemCode, Task, TaskList, TaskStatus};
use log::eventlog::{
    Closed, EventLog, ReadError, RecordPages, Records, from_json, newest_first_id, to_json,
};
use log::store::Table;

const DEFAULT_PERMISSION_SECONDS: u64 = 5;
const RETRY_AFTER: Duration = Duration::from_secs(5);

pub struct NewTask {
    pub request: api::CreateTask,
    pub blocks: Box<RawValue>,
    pub key: Option<IdempotencyKey>,
}

#[derive(Clone, Default)]
pub struct Filter {
    pub agent: Option<AgentName>,
    pub status: Option<TaskStatus>,
    pub parent: Option<Uuid>,
}

#[derive(Clone)]
pub struct Tasks(Arc<Inner>);

struct Inner {
    sessions: SessionRegistry,
    webhooks: Webhooks,
    limits: PrincipalLimits,
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    queue: Queue,
    open: BTreeMap<TaskKey, OpenTask>,
}

#[derive(Clone)]
pub(super) struct OpenTask {
    /// Cancelled by a client.
    pub(super) cancel: CancellationToken,
    ended: CancellationToken,
}

impl Tasks {
    pub(super) async fn read(
        sessions: SessionRegistry,
        webhooks: Webhooks,
        limits: PrincipalLimits,
    ) -> Result<(Self, Vec<QueuedTask>), OpenError> {
        let log = sessions.context().log.clone();
        let mut queue = Queue::new(sessions.context().limits.task_aging_unit);
        let (mut open, mut begun) = (BTreeMap::new(), Vec::new());
        let mut pages = RecordPages::of(&log, Table::OpenTask);
        let mut ended: Option<Records> = None;
        while let Some(page) = pages.next::<OpenRecord>().await? {
            for (
                tenant,
                OpenRecord {
                    task: id,
                    cancelled,
                },
            ) in page
            {
                // A cancel can store its entry again after the end of the task.
                let open_record = record::get(&log, &tenant, id)
                    .await?
                    .filter(|task| task.outcome.is_none());
                let Some(record) = open_record else {
                    ended = Some(OpenRecord::delete(&tenant, id, ended.unwrap_or_default()));
                    continue;
                };
                let task = queued(&tenant, &record);
                let signals = OpenTask::new();
                if cancelled {
                    signals.cancel.cancel();
                }
                open.insert((tenant, id), signals);
                if record.started_at.is_some() {
                    queue.started(&task.agent);
                    begun.push(task);
                } else {
                    queue.push(task);
                }
            }
        }
        if let Some(ended) = ended {
            log.write(ended).await?;
        }
        let state = Mutex::new(State { queue, open });
        Ok((
            Self(Arc::new(Inner {
                sessions,
                webhooks,
                limits,
                state,
                changed: Notify::new(),
            })),
            begun,
        ))
    }

    /// Stores a task, which begins when a process is free, once for each idempotency key. The operation continues if the caller
    /// is dropped.
    pub async fn create(
        &self,
        by: &Principal,
        new: NewTask,
    ) -> Result<Responded<Task>, CreateError> {
        let tasks = self.clone();
        let tenant = by.tenant.clone();
        let replay = async move |previous: IdempotencyRecord| {
            let Some(task) = previous.response().map_err(ClaimError::from)? else {
                return Ok(None);
            };
            Ok(tasks.get(&tenant, task).await?)
        };
        let tasks = self.clone();
        let owner = by.clone();
        let key = new.key;
        let act = async move |claim| {
            tasks
                .create_new(&owner, new.request, new.blocks, claim)
                .await
        };
        self.context().once(by, key, replay, act).await
    }

    async fn create_new(
        &self,
        by: &Principal,
        request: api::CreateTask,
        blocks: Box<RawValue>,
        claim: Option<Claim>,
    ) -> Result<Task, CreateError> {
        let depth = self.depth(&by.tenant, request.parent_task).await?;
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
        Ok(record.shown(Some(Vec::new())))
    }

    async fn depth(&self, tenant: &Tenant, parent: Option<Uuid>) -> Result<u8, CreateError> {
        let Some(parent) = parent else { return Ok(0) };
        let parent = record::get(self.log(), tenant, parent)
            .await?
            .ok_or(CreateError::NoSuchParent)?;
        if parent.outcome.is_some() {
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
        request: api::CreateTask,
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
        TaskRecord {
            id: ids.uuid(),
            agent: request.agent,
            description: request.description,
            blocks,
            priority: request.priority,
            parent: request.parent_task,
            depth,
            token_budget: request.token_budget,
            metadata: request.metadata.unwrap_or_default(),
            deadline: request.deadline,
            callback_url: request.callback_url,
            permissions,
            cwd: request.cwd,
            by: TaskOwner {
                id: by.id.to_string(),
                scopes: by.scopes,
                folders: by.folders.clone(),
            },
            created_at: ids.now(),
            started_at: None,
            session: None,
            prompt: None,
            usage_seen: false,
            outcome: None,
        }
    }

    async fn insert(
        &self,
        by: &Principal,
        record: &TaskRecord,
        claim: Option<Claim>,
    ) -> Result<(), CreateError> {
        let limit = PrincipalLimit::QueuedTaskBytes;
        let tenant = &by.tenant;
        let key = (tenant.clone(), record.id);
        let limits = self.0.limits.effective(by);
        let task = queued(tenant, record);
        {
            let mut state = self.state();
            if state.queue.len_of(tenant) >= MAX_QUEUED {
                return Err(CreateError::QueueFull);
            }
            if state.queue.bytes_of(&by.key()).saturating_add(task.bytes) > limits.max(limit) {
                return Err(limits.exceeded(limit, RETRY_AFTER).into());
            }
            state.queue.reserve(&task);
            state.open.insert(key.clone(), OpenTask::new());
        }
        let mut records = record.put_new(tenant);
        if let Some(claim) = claim {
            let id = to_raw_value(&record.id).expect("an id serializes");
            claim.put_response(id, &mut records);
        }
        let stored = self.log().write(records).await;
        let mut state = self.state();
        state.queue.release(&task);
        if let Err(error) = stored {
            state.open.remove(&key);
            return Err(error.into());
        }
        state.queue.push(task);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }

    pub async fn get(&self, tenant: &Tenant, id: Uuid) -> Result<Option<Task>, ReadError> {
        let Some(record) = record::get(self.log(), tenant, id).await? else {
            return Ok(None);
        };
        let children = record::children(self.log(), tenant, id)
            .select(MAX_CHILDREN, |value| Ok::<_, ReadError>(from_json(value)))
            .await?;
        Ok(Some(record.shown(Some(children.entries))))
    }

    /// A page of tasks, newest first. It can end early and has a cursor then.
    pub async fn list(
        &self,
        tenant: &Tenant,
        filter: &Filter,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<TaskList, ReadError> {
        let found = record::older(self.log(), tenant, before)
            .select(limit, |value| {
                let record = from_json::<TaskRecord>(value);
                let matching = record.filter(|record| filter.matches(record));
                Ok::<_, ReadError>(matching.map(|record| record.shown(None)))
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
    pub async fn cancel(&self, tenant: &Tenant, id: Uuid) -> Result<Option<Task>, ChangeError> {
        let (tasks, of) = (self.clone(), tenant.clone());
        let cancelled = async move { tasks.cancel_all(&of, id).await }.in_current_span();
        self.context()
            .shutdown
            .spawn_isolated(cancelled)
            .await
            .map_err(|_| ChangeError::Internal)??;
        Ok(self.get(tenant, id).await?)
    }

    async fn cancel_all(&self, tenant: &Tenant, id: Uuid) -> Result<(), ChangeError> {
        let mut below = vec![id];
        let mut next = 0;
        while let Some(parent) = below.get(next).copied() {
            next += 1;
            let mut pages = record::children(self.log(), tenant, parent);
            while let Some(page) = pages.next_raw().await? {
                below.extend(page.iter().filter_map(|(key, _)| newest_first_id(key)));
            }
        }
        // The children end first, so that none of them begins when its parent has ended.
        for task in below.into_iter().rev() {
            self.cancel_one(&(tenant.clone(), task)).await?;
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

    pub async fn wait_ended(&self, tenant: &Tenant, id: Uuid, limit: Duration) {
        let open = self.open_task(&(tenant.clone(), id));
        if let Some(open) = open {
            drop(tokio::time::timeout(limit, open.ended.cancelled()).await);
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
        if let Some(mut record) = record::get(self.log(), &task.tenant, task.id).await? {
            record.outcome = Some(Outcome::cancelled(reason, self.context().ids.now()));
            self.end(&task.tenant, &record).await?;
        }
        Ok(())
    }

    pub(super) async fn end(&self, tenant: &Tenant, record: &TaskRecord) -> Result<(), Closed> {
        let shown = record.shown(None);
        let data = serde_json::to_string(&shown).expect("a task has string keys and serializes");
        let report = TaskReport {
            tenant,
            callback: record.callback_url.as_deref(),
            session: record.session,
            task: record.id,
            data: &data,
        };
        self.0
            .webhooks
            .commit_task_end(report, record.put(tenant, Records::default()))
            .await?;
        if let Some(open) = self.state().open.remove(&(tenant.clone(), record.id)) {
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
        let left = deadline.as_millis() - self.context().ids.now().as_millis();
        Some(Duration::from_millis(
            u64::try_from(left).unwrap_or_default(),
        ))
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

    pub(super) fn sessions(&self) -> &SessionRegistry {
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

impl OpenTask {
    fn new() -> Self {
        Self {
            cancel: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }
}

impl Filter {
    fn matches(&self, record: &TaskRecord) -> bool {
        self.agent
            .as_ref()
            .is_none_or(|agent| *agent == record.agent)
            && self.status.is_none_or(|status| status == record.status())
            && self
                .parent
                .is_none_or(|parent| record.parent == Some(parent))
    }
}

pub(super) fn session_request(record: &TaskRecord) -> CreateSession {
    let first_line = record
        .description
        .as_ref()
        .and_then(|text| text.lines().next());
    let title = first_line.map(|line| one_line(line).chars().take(80).collect::<String>());
    CreateSession {
        cwd: record.cwd.clone(),
        title: title.filter(|title| !title.is_empty()),
        metadata: Some(record.metadata.clone()),
        policy: Some(SessionPolicy {
            permissions: Some(record.permissions.clone()),
            files: None,
            terminals: None,
        }),
        ..CreateSession::of(record.agent.clone())
    }
}

fn queued(tenant: &Tenant, record: &TaskRecord) -> QueuedTask {
    QueuedTask {
        tenant: tenant.clone(),
        id: record.id,
        agent: record.agent.clone(),
        priority: record.priority,
        created_at: record.created_at,
        deadline: record.deadline,
        owner: record.by.id.as_str().into(),
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
    #[error("no such task, or a task of another tenant")]
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

    fn limit(&self) -> Option<&LimitExceeded> {
        match self {
            Self::Session(error) => error.limit(),
            Self::Limit(exceeded) => Some(exceeded),
            Self::Claim(error) => error.limit(),
            _ => None,
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
