//! Creates sessions, once for each idempotency key.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

use super::{SessionDirectory, adopt, new_session};
use crate::session::actor::{Actor, Command};
use crate::session::command::CreateWaiter;
use crate::session::error::{CreateError, ProcessError, SessionError};
use crate::session::idempotency::{Claim, IdempotencyKey, Responded};
use crate::session::record::{IdempotencyRecord, SessionRecord};
use crate::session::validation::Origin;
use agents::agent::AgentSpec;
use agents::pool::AcquireError;
use base::types::{Access, Principal};
use events::api::{CreateSession, Session};
use wire::acp::{self, McpServer, TraceContext};

/// How long the session of a task waits for a process while all processes are busy.
const TASK_WAIT: Duration = Duration::from_secs(1);

/// A new session, or the session that an earlier request with the same idempotency key created.
pub type Created = Responded<Session>;

impl SessionDirectory {
    /// Creates a session. `task`: the task to which the session belongs; lists omit such a session by default. On failure nothing
    /// of it remains. The operation continues if the caller is dropped, because its idempotency key must stay reserved until
    /// the session is durable.
    pub async fn create(
        &self,
        by: &Principal,
        request: CreateSession,
        task: Option<Uuid>,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, CreateError> {
        let directory = self.clone();
        let owner = by.clone();
        let create = async move |claim| {
            directory
                .create_new(&owner, request, task, trace, claim)
                .await
        };
        self.create_once(by, key, create).await
    }

    fn spec_of(&self, request: &CreateSession) -> Result<Arc<AgentSpec>, ProcessError> {
        let spec = self.context().catalogue.agent(&request.agent);
        spec.ok_or(ProcessError::Acquire(AcquireError::NoSuchAgent))
    }

    /// Checks the members of a request that need neither a process nor a file.
    pub fn check_request(&self, request: &CreateSession) -> Result<(), CreateError> {
        let spec = self.spec_of(request)?;
        Ok(new_session::check_request(request, &spec)?)
    }

    /// Checks that the user may create a session in the folders that a request names.
    pub async fn check_folders(
        &self,
        by: &Principal,
        request: &CreateSession,
    ) -> Result<(), CreateError> {
        let spec = self.spec_of(request)?;
        new_session::check_folders(self.context(), by, request, &spec).await
    }

    /// Runs `create`, or returns the session that an earlier request with the same key created. The operation
    /// continues if the caller is dropped.
    pub(super) async fn create_once<F>(
        &self,
        by: &Principal,
        key: Option<IdempotencyKey>,
        create: impl FnOnce(Option<Claim>) -> F + Send + 'static,
    ) -> Result<Created, CreateError>
    where
        F: Future<Output = Result<Session, CreateError>> + Send,
    {
        let directory = self.clone();
        let owner = by.clone();
        let replay = async move |previous: IdempotencyRecord| {
            let Some(session) = previous.session else {
                return Ok(None);
            };
            match directory.open(&owner, session).await {
                Ok(session) => Ok(Some(session.snapshot().await?)),
                // That session was deleted since, so the client gets a new one.
                Err(SessionError::NoSuchSession) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        self.context().once(by, key, replay, create).await
    }

    async fn create_new(
        &self,
        by: &Principal,
        mut request: CreateSession,
        task: Option<Uuid>,
        trace: Option<TraceContext>,
        claim: Option<Claim>,
    ) -> Result<Session, CreateError> {
        let context = self.context();
        if context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        let spec = self.spec_of(&request)?;
        let id = context.log.new_session_id();
        let adopted = adopt::adopted_session(by, &request)?.map(str::to_owned);
        let mut _adoption = None;
        if let Some(adopted) = &adopted {
            let begun =
                adopt::begin_adoption(context, &self.adoptions, by, &request.agent, adopted).await;
            _adoption = Some(begun?);
            if request.cwd.is_none() {
                let listed =
                    adopt::find_listed_folder(context, by, &spec, adopted, trace.as_ref()).await;
                request.cwd = Some(listed?);
            }
        }
        let trace = trace.or_else(|| acp::split_meta(request.meta.as_deref()?).1);
        let origin = if adopted.is_some() {
            Origin::Adopted
        } else {
            Origin::New
        };
        let (mut record, servers) = new_session::record(context, by, id, request, &spec).await?;
        record.task = task;
        self.start_actor(record, servers, origin, claim, trace)
            .await
    }

    /// Runs the actor of a new session until the agent has the session. `servers`: the MCP servers that the client brings. On
    /// failure nothing of it remains.
    pub(super) async fn start_actor(
        &self,
        record: SessionRecord,
        servers: Vec<McpServer>,
        origin: Origin,
        claim: Option<Claim>,
        trace: Option<TraceContext>,
    ) -> Result<Session, CreateError> {
        let context = self.context();
        let id = record.session_id;
        let own_folder = record.own_folder && origin == Origin::New;
        let log = context.log.session(&record.owner, id).await?;
        // A task asks again later, so it does not wait in front of people, and a cancel ends it soon.
        let wait = if record.task.is_some() {
            TASK_WAIT
        } else {
            context.limits.settings_queue_timeout
        };
        let (actor, entry) = Actor::new(context, log, record, origin);
        let (reply, created) = oneshot::channel();
        let creating = CreateWaiter {
            origin,
            servers,
            claim,
            trace,
            reply,
            deadline: Instant::now() + wait,
        };
        let create: Command = Box::new(move |actor| actor.create(creating));
        let _ = entry.commands.try_send(create);
        // Other clients can find the session only after its creation succeeded.
        entry.visible.store(false, Ordering::Release);
        let entry = self.entries.install(actor, entry);
        match created
            .await
            .unwrap_or_else(|error| Err(SessionError::internal(&error).into()))
        {
            Ok((session, seq)) => {
                entry.log.wait(seq).await?;
                entry.visible.store(true, Ordering::Release);
                context.begin_baseline(id);
                Ok(Session {
                    owner: Some(entry.log.owner().name().to_owned()),
                    access: Some(Access::Own),
                    ..session
                })
            }
            Err(error) => {
                if own_folder {
                    let workspaces = context.workspaces.clone();
                    let erase = move || workspaces.remove_directory(&id.to_string());
                    if !matches!(context.shutdown.spawn_blocking(erase).await, Ok(Ok(()))) {
                        tracing::warn!(session = %id, "could not remove the folder of a session that could not be created");
                    }
                }
                Err(error)
            }
        }
    }
}
