//! `SessionHandle`: sends commands to a session's actor and returns only durable results.
//!
//! `attachments` adds files to a prompt.

mod attachments;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use self::attachments::append_attachments;
use crate::session::actor::{Actor, ActorEntry, send_reply};
use crate::session::baselines::OpenBaseline;
use crate::session::command::{Answer, ClientCall, PromptRequest, Reply, access_to_answer};
use crate::session::context::Context;
use crate::session::entries::ActorEntries;
use crate::session::error::{
    AnswerError, AttachError, CallError, DeleteError, InputError, NotFound, PartError, PatchError,
    ProcessError, PromptError, QueueError, RequestResolved, SessionError, WorkspaceError,
};
use crate::session::idempotency::Claim;
use crate::session::query::SessionQuery;
use crate::session::record::{IdempotencyRecord, RequestRecord};
use crate::session::requests::answers;
use crate::session::validation::{check_metadata, check_supported, check_title, parse_servers};
use base::types::{
    Access, Author, LimitExceeded, Principal, PromptId, RequestId, SessionId, TerminalId, UserId,
};
use events::api::{
    Attachment, CancelCause, McpServer, PendingRequest, Prompt, RequestedContext, Session,
    SessionPatch,
};
use events::event::{AuditActor, SessionErased};
use log::eventlog::SessionLog;
use wire::acp::{RequestKind, TraceContext};
use workspace::Workspace;

/// How long an actor may be too busy to accept a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct AdmittedPrompt {
    pub prompt: Prompt,
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
    /// Whether the turn belongs to an earlier request with the same idempotency key.
    pub replayed: bool,
}

#[derive(Debug, Clone)]
pub struct SessionHandle {
    entries: ActorEntries,
    entry: Arc<ActorEntry>,
    /// The user of the handle. Each method that changes something checks the access at the time of its call.
    user: UserId,
}

impl SessionHandle {
    pub(super) fn new(entries: ActorEntries, entry: Arc<ActorEntry>, user: UserId) -> Self {
        Self {
            entries,
            entry,
            user,
        }
    }

    /// The same session for its owner.
    pub(super) fn of_owner(&self) -> Self {
        Self {
            user: self.log().owner().clone(),
            ..self.clone()
        }
    }

    pub(super) fn user(&self) -> &UserId {
        &self.user
    }

    pub fn id(&self) -> SessionId {
        self.entry.log.session()
    }

    pub fn log(&self) -> &SessionLog {
        &self.entry.log
    }

    pub(super) fn context(&self) -> &Context {
        self.entries.context()
    }

    pub fn query(&self) -> SessionQuery<'_> {
        SessionQuery::new(self.context(), self.log())
    }

    /// Runs a command in the actor and returns its result.
    async fn run<T, E>(
        &self,
        command: impl FnOnce(&mut Actor) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SessionError> + Send + 'static,
    {
        self.request(|actor, reply| send_reply(reply, command(actor)))
            .await
    }

    /// Like `run`, but returns the result only when all events of the command are durable.
    pub(super) async fn run_durable<T, E>(
        &self,
        command: impl FnOnce(&mut Actor) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SessionError> + Send + 'static,
    {
        let (result, seq) = self
            .run(|actor| Ok::<_, E>((command(actor)?, actor.journal.appended())))
            .await?;
        self.wait_durable(seq).await?;
        Ok(result)
    }

    /// Like `run`, for a command that may reply later. Loads the session again if its actor has stopped.
    async fn request<T, E>(
        &self,
        command: impl FnOnce(&mut Actor, Reply<T, E>) + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<SessionError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let span = Span::current();
        let mut commands = self.entry.commands.clone();
        loop {
            match tokio::time::timeout(COMMAND_TIMEOUT, commands.clone().reserve_owned()).await {
                Ok(Ok(permit)) => {
                    permit.send(Box::new(move |actor| {
                        span.in_scope(|| command(actor, reply));
                    }));
                    break;
                }
                Ok(Err(_)) if self.log().is_erased() => {
                    return Err(self.without_reply().await.into());
                }
                Ok(Err(_)) => commands = self.entries.entry(self.id()).await?.commands.clone(),
                Err(_) => {
                    return Err(SessionError::Busy {
                        retry_after: COMMAND_TIMEOUT,
                    }
                    .into());
                }
            }
        }
        let answered = if self.user == *self.log().owner() {
            answer.await
        } else {
            tokio::select! {
                biased;
                answered = answer => answered,
                () = self.wait_access_ended() => return Err(SessionError::NoSuchSession.into()),
            }
        };
        match answered {
            Ok(outcome) => outcome,
            Err(_) => Err(self.without_reply().await.into()),
        }
    }

    /// Why the actor dropped a command without a reply.
    async fn without_reply(&self) -> SessionError {
        if !self.log().is_erased() {
            tracing::error!(session = %self.id(), "the session's actor stopped and did not reply to a command");
            return SessionError::Internal;
        }
        // A crash could still undo the delete, so it must be durable before the client sees it.
        match self.wait_durable_or_full(self.log().appended()).await {
            Ok(_) => SessionError::NoSuchSession,
            Err(error) => error,
        }
    }

    async fn wait_durable(&self, seq: u64) -> Result<(), SessionError> {
        self.context().wait_durable(self.log(), seq).await
    }

    async fn wait_durable_or_full(&self, seq: u64) -> Result<bool, SessionError> {
        self.context().wait_durable_or_full(self.log(), seq).await
    }

    /// The current snapshot. While the disk accepts no commits: the snapshot as of the last commit.
    pub async fn snapshot(&self) -> Result<Session, SessionError> {
        let (session, seq) = self
            .run(|actor| Ok::<_, SessionError>(actor.snapshot()))
            .await?;
        let session = if self.wait_durable_or_full(seq).await? {
            session
        } else {
            self.query().snapshot().await?
        };
        self.for_user(session)
    }

    /// The snapshot with the owner, and with the access of the user of this handle.
    fn for_user(&self, session: Session) -> Result<Session, SessionError> {
        let access = self.access().ok_or(SessionError::NoSuchSession)?;
        Ok(Session {
            owner: Some(self.log().owner().name().to_owned()),
            access: Some(access),
            ..session
        })
    }

    /// Opens the session's folders. This also works for a closed session.
    pub async fn workspace(&self, needed: Access) -> Result<Workspace, WorkspaceError> {
        self.require(needed)?;
        self.context()
            .open_workspace(&self.query().record().await?)
            .await
    }

    /// Opens the files at the start of the session, for a comparison with its folder.
    pub async fn baseline(&self, needed: Access) -> Result<OpenBaseline, WorkspaceError> {
        self.require(needed)?;
        self.context().open_baseline(self.id()).await
    }

    /// Changes the session if the tag of its revision is one of `if_match`.
    pub async fn patch(
        &self,
        by: &Principal,
        patch: SessionPatch,
        if_match: Option<Vec<String>>,
    ) -> Result<Session, PatchError> {
        self.require(Access::Own)?;
        check_title(patch.title.as_ref().and_then(Option::as_deref))?;
        if let Some(Some(metadata)) = &patch.metadata {
            check_metadata(metadata)?;
        }
        let by = by.clone();
        let patched = self.run_durable(move |actor| actor.patch(&by, &patch, if_match.as_deref()));
        Ok(self.for_user(patched.await?)?)
    }

    /// Attaches a process to the session. Reopens a closed session. With a new context, the agent begins a conversation without
    /// the earlier turns; this fails while the agent runs a turn.
    pub async fn attach(
        &self,
        context: RequestedContext,
        trace: Option<TraceContext>,
    ) -> Result<Session, AttachError> {
        self.require(Access::Prompt)?;
        let seq = self
            .request(move |actor, reply| actor.attach(context, trace, reply))
            .await?;
        self.wait_durable(seq).await?;
        Ok(self.snapshot().await?)
    }

    /// Replaces the MCP servers that clients bring. They stay in memory. An empty list changes nothing.
    pub async fn bring_servers(
        &self,
        by: &Principal,
        servers: &[McpServer],
    ) -> Result<(), AttachError> {
        let servers = parse_servers(by, servers).map_err(ProcessError::from)?;
        if servers.is_empty() {
            return Ok(());
        }
        // The agent starts the commands of the servers with the rights of its owner.
        self.require(Access::Own)?;
        let context = self.context();
        let record = self.query().record().await?;
        if let Some(spec) = context.catalogue.agent(&record.agent)
            && let Some(known) = context.initialized(&record.agent, &by.user)
        {
            check_supported(&spec, &[], &servers, &[], &known.capabilities)?;
        }
        let bring = move |actor: &mut Actor| {
            actor.bring_servers(servers);
            Ok(())
        };
        self.run(bring).await
    }

    pub async fn close(
        &self,
        by: &Principal,
        trace: Option<TraceContext>,
    ) -> Result<Session, SessionError> {
        self.require(Access::Prompt)?;
        let by = by.clone();
        let close = move |actor: &mut Actor| {
            actor.close(&by, trace.as_ref());
            Ok::<_, SessionError>(())
        };
        self.run_durable(close).await?;
        self.snapshot().await
    }

    /// Erases the session, or waits until another request has erased it. Returns false if the disk is full: the
    /// session is then no longer visible, and its data is erased when there is space.
    ///
    /// With `if_match`, fails if none of these tags is that of the session's revision. `author` is for the audit log.
    pub async fn delete(
        &self,
        by: &Principal,
        author: impl Into<AuditActor>,
        if_match: Option<Vec<String>>,
        trace: Option<TraceContext>,
    ) -> Result<bool, DeleteError> {
        self.require(Access::Own)?;
        let by = by.clone();
        let audit = self.context().audit.clone();
        let author = author.into();
        let event = SessionErased {
            session_id: self.id(),
            owner: self.log().owner().to_string(),
        };
        let delete = move |actor: &mut Actor| {
            let seq = actor.delete(&by, if_match.as_deref(), trace)?;
            audit.append(author, event);
            Ok(seq)
        };
        let deleted = self.run(delete).await;
        let seq = match deleted {
            Ok(seq) => seq,
            // Another request has deleted the session since this one found it.
            Err(DeleteError::Session(SessionError::NoSuchSession)) => self.log().appended(),
            Err(error) => return Err(error),
        };
        let durable = self.wait_durable_or_full(seq).await?;
        self.context().remove_baseline(self.id());
        if durable {
            self.entries.remove(self.id());
        } else {
            self.entries
                .remove_after_commit(self.entry.log.clone(), seq);
        }
        Ok(durable)
    }

    /// Cancels one turn, or all turns if `prompt` is `None`. Returns the cancelled turns, both running and
    /// queued. The agent receives the cancel even if the disk is full.
    pub async fn cancel(
        &self,
        prompt: Option<PromptId>,
        cause: CancelCause,
        trace: Option<TraceContext>,
    ) -> Result<Vec<PromptId>, PartError> {
        self.require(Access::Prompt)?;
        let cancel = move |actor: &mut Actor| {
            let cancelled = actor.cancel(prompt, cause, trace.as_ref())?;
            Ok::<_, PartError>((cancelled, actor.journal.appended()))
        };
        let (cancelled, seq) = self.run(cancel).await?;
        self.wait_durable_or_full(seq).await?;
        Ok(cancelled)
    }

    /// Answers a request of the agent. The first answer wins. `client`: the name of the ACP client that answers.
    pub async fn answer(
        &self,
        by: &Author,
        client: Option<&str>,
        request: RequestId,
        answer: Answer,
    ) -> Result<(), AnswerError> {
        self.require(Access::Prompt)?;
        match self.answer_once(by.clone(), client, request, answer).await {
            Ok(()) => Ok(()),
            Err(error @ AnswerError::Resolved(_)) => {
                // A crash could still undo the other answer, so it must be durable before the client sees it.
                self.wait_durable(self.entry.log.appended()).await?;
                Err(error)
            }
            Err(error @ AnswerError::NotFound(_)) => match self.query().request(request).await? {
                Some(RequestRecord {
                    resolution: Some(resolution),
                    by,
                    ..
                }) => Err(RequestResolved {
                    id: request,
                    resolution,
                    by,
                }
                .into()),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    pub async fn pending(&self, request: RequestId) -> Result<Arc<PendingRequest>, AnswerError> {
        self.run(move |actor| actor.requests.get(request)).await
    }

    async fn answer_once(
        &self,
        by: Author,
        client: Option<&str>,
        request: RequestId,
        answer: Answer,
    ) -> Result<(), AnswerError> {
        let asked = self.pending(request).await?;
        let needed = access_to_answer(RequestKind::from_method(&asked.method));
        self.require(needed)?;
        if asked.acp_client.is_some() && asked.acp_client.as_deref() != client {
            let detail = "only the ACP client that started the turn can answer this request";
            return Err(InputError::Forbidden(detail.to_owned()).into());
        }
        // The agent defines the schema of the answer, so the check may take long.
        let check = self
            .context()
            .shutdown
            .spawn_blocking(move || answers::check_answer(&asked, answer));
        let outcome = check.await??;
        let user = self.user.clone();
        self.run_durable(move |actor| {
            actor.require(&user, needed)?;
            actor.answer(&by, request, outcome)
        })
        .await
    }

    /// Sends a call to the agent and returns the agent's result when it is durable.
    pub async fn call(
        &self,
        by: &Principal,
        call: ClientCall,
        trace: Option<TraceContext>,
    ) -> Result<Box<RawValue>, CallError> {
        self.require(call.needed_access())?;
        let by = by.clone();
        let (result, seq) = self
            .request(move |actor, reply| actor.queue_call(by, call, trace, reply))
            .await?;
        self.wait_durable(seq).await?;
        Ok(result)
    }

    /// Kills the command of a terminal. Does nothing if the command has ended.
    pub async fn kill_terminal(&self, terminal: TerminalId) -> Result<(), PartError> {
        self.require(Access::Approve)?;
        self.run_durable(move |actor| actor.kill_terminal(terminal))
            .await
    }

    /// The tail of the stderr of the session's process. Empty if no process is attached.
    pub async fn stderr(&self) -> Result<String, SessionError> {
        self.require(Access::Own)?;
        self.run(|actor| Ok(actor.stderr())).await
    }

    /// Begins or queues a turn. The operation continues if the caller is dropped, because its idempotency key
    /// must not be released before the turn is durable. `count` counts a new turn, or rejects it. It is not called for a
    /// repeated request.
    pub async fn prompt(
        &self,
        by: &Principal,
        request: PromptRequest,
        count: impl FnOnce() -> Result<(), LimitExceeded> + Send + 'static,
    ) -> Result<AdmittedPrompt, PromptError> {
        self.require(Access::Prompt)?;
        let key = request.key.clone();
        let earlier = self.clone();
        let replay = async move |previous: IdempotencyRecord| match previous.prompt {
            Some(prompt) => earlier.earlier_prompt(prompt).await.map(Some),
            None => Ok(None),
        };
        let handle = self.clone();
        let owner = by.clone();
        let act = async move |claim: Option<Claim>| {
            count()?;
            let mut request = request;
            let files = std::mem::take(&mut request.attachments);
            request.blocks =
                append_attachments(handle.context(), handle.query(), request.blocks, files).await?;
            handle.context().take_baseline(handle.id()).await;
            let (prompt, first_seq) = handle
                .run_durable(move |actor| {
                    actor.require(&owner.user, Access::Prompt)?;
                    actor.prompt(&owner, request, claim.as_ref())
                })
                .await?;
            Ok(AdmittedPrompt {
                prompt,
                first_seq,
                last_seq: None,
                replayed: false,
            })
        };
        let admitted = self.context().once(by, key, replay, act).await?;
        Ok(admitted.response)
    }

    async fn earlier_prompt(&self, prompt: PromptId) -> Result<AdmittedPrompt, PromptError> {
        let committed = self.log().committed();
        let record = self
            .query()
            .prompt_record(prompt)
            .await?
            .ok_or(NotFound("turn"))?;
        let (prompt, _) = self.query().prompt_with_text(&record, committed).await?;
        Ok(AdmittedPrompt {
            prompt,
            first_seq: record.first_seq,
            last_seq: record.last_seq,
            replayed: true,
        })
    }

    /// Changes the content and the place of a queued prompt. Returns its state when the change is durable.
    pub async fn change_prompt(
        &self,
        by: &Principal,
        prompt: PromptId,
        edit: Option<(Box<RawValue>, Vec<Attachment>)>,
        before: Option<Option<PromptId>>,
    ) -> Result<Prompt, QueueError> {
        self.require(Access::Prompt)?;
        let blocks = match edit {
            Some((blocks, files)) => {
                Some(append_attachments(self.context(), self.query(), blocks, files).await?)
            }
            None => None,
        };
        let by = by.clone();
        self.run_durable(move |actor| {
            actor.require(&by.user, Access::Prompt)?;
            actor.change_prompt(&by, prompt, blocks, before)
        })
        .await?;
        let state = self.query().prompt_state(prompt).await?;
        Ok(state.ok_or(NotFound("turn"))?)
    }

    /// Waits until the turn ends. `None` if it does not end within `limit`. Fails if the user loses the access.
    pub async fn wait_ended(
        &self,
        prompt: PromptId,
        limit: Duration,
    ) -> Result<Option<Prompt>, PartError> {
        tokio::select! {
            biased;
            () = self.wait_access_ended() => Err(SessionError::NoSuchSession.into()),
            ended = self.wait_turn_ended(prompt, limit) => ended,
        }
    }

    async fn wait_turn_ended(
        &self,
        prompt: PromptId,
        limit: Duration,
    ) -> Result<Option<Prompt>, PartError> {
        let deadline = Instant::now() + limit;
        let mut entry = Arc::clone(&self.entry);
        loop {
            let mut ends = entry.turn_ends.clone();
            let seq = *ends.borrow_and_update();
            self.wait_durable(seq.min(entry.log.appended())).await?;
            let record = self
                .query()
                .prompt_record(prompt)
                .await?
                .ok_or(NotFound("turn"))?;
            if record.status.has_ended() {
                let committed = self.log().committed();
                let (prompt, _) = self.query().prompt_with_text(&record, committed).await?;
                return Ok(Some(prompt));
            }
            match tokio::time::timeout_at(deadline, ends.changed()).await {
                Ok(Ok(())) => {}
                // A drain keeps the prompt for the next start.
                Ok(Err(_)) if self.context().shutdown.is_draining() => return Ok(None),
                Ok(Err(_)) => entry = self.entries.entry(self.id()).await?,
                Err(_) => return Ok(None),
            }
        }
    }
}
