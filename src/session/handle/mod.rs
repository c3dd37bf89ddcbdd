//! `SessionHandle`: sends commands to a session's actor and returns only durable results.
//!
//! `prompt` admits prompts and waits for their ends, `attachments` adds files to a prompt.

mod attachments;
mod prompt;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::acp::TraceContext;
use crate::api::{McpServer, PendingRequest, RequestedContext, Session, SessionPatch};
use crate::eventlog::SessionLog;
use crate::session::agent_requests::answers;
use crate::session::baselines::OpenBaseline;
use crate::session::brought_servers;
use crate::session::command::{Answer, ClientCall, Command, Reply};
use crate::session::context::Context;
use crate::session::durable;
use crate::session::entries::ActorEntries;
use crate::session::entry::ActorEntry;
use crate::session::error::{
    AnswerError, AttachError, CallError, DeleteError, InputError, PartError, PatchError,
    ProcessError, RequestResolved, SessionError, WorkspaceError,
};
use crate::session::query::SessionQuery;
use crate::session::record::RequestRecord;
use crate::session::requirements;
use crate::session::validation::{check_metadata, check_title};
use crate::types::{Author, CancelCause, Principal, PromptId, RequestId, SessionId, TerminalId};
use crate::workspace::Workspace;

pub use self::prompt::AdmittedPrompt;

/// How long an actor may be too busy to accept a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct SessionHandle {
    entries: ActorEntries,
    entry: Arc<ActorEntry>,
}

impl SessionHandle {
    pub(super) fn new(entries: ActorEntries, entry: Arc<ActorEntry>) -> Self {
        Self { entries, entry }
    }

    pub fn id(&self) -> SessionId {
        self.entry.log.session()
    }

    pub fn log(&self) -> &SessionLog {
        &self.entry.log
    }

    fn context(&self) -> &Context {
        self.entries.context()
    }

    /// Reads of the session that need no actor.
    pub fn query(&self) -> SessionQuery<'_> {
        SessionQuery::new(self.context(), self.log())
    }

    /// Sends a command to the actor and returns its reply. Loads the session again if its actor has stopped.
    async fn request<T, E: From<SessionError>>(
        &self,
        command: impl FnOnce(Reply<T, E>) -> Command,
    ) -> Result<T, E> {
        let (reply, answer) = oneshot::channel();
        let mut commands = self.entry.commands.clone();
        loop {
            match tokio::time::timeout(COMMAND_TIMEOUT, commands.clone().reserve_owned()).await {
                Ok(Ok(permit)) => {
                    permit.send(command(reply));
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
        match answer.await {
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
        durable::wait(self.context(), self.log(), seq).await
    }

    /// Waits for a commit. Returns false if the disk accepts no commits.
    async fn wait_durable_or_full(&self, seq: u64) -> Result<bool, SessionError> {
        durable::wait_or_full(self.context(), self.log(), seq).await
    }

    /// The current snapshot. While the disk accepts no commits: the snapshot as of the last commit.
    pub async fn snapshot(&self) -> Result<Session, SessionError> {
        let (session, seq) = self.request(|reply| Command::Snapshot { reply }).await?;
        if self.wait_durable_or_full(seq).await? {
            Ok(session)
        } else {
            self.query().snapshot().await
        }
    }

    /// Opens the session's folders. This also works for a closed session.
    pub async fn workspace(&self) -> Result<Workspace, WorkspaceError> {
        self.context()
            .open_workspace(&self.query().record().await?)
            .await
    }

    /// Opens the files at the start of the session, for a comparison with its folder.
    pub async fn baseline(&self) -> Result<OpenBaseline, WorkspaceError> {
        self.context().open_baseline(self.id()).await
    }

    /// Changes the session if the tag of its revision is one of `if_match`.
    pub async fn patch(
        &self,
        by: &Principal,
        patch: SessionPatch,
        if_match: Option<Vec<String>>,
    ) -> Result<Session, PatchError> {
        check_title(patch.title.as_ref().and_then(Option::as_deref))?;
        if let Some(Some(metadata)) = &patch.metadata {
            check_metadata(metadata)?;
        }
        let by = by.clone();
        let (session, seq) = self
            .request(|reply| Command::Patch {
                by,
                patch,
                if_match,
                reply,
            })
            .await?;
        self.wait_durable(seq).await?;
        Ok(session)
    }

    /// Attaches a process to the session. Reopens a closed session. With a new context, the agent begins a conversation without
    /// the earlier turns; this fails while the agent runs a turn.
    pub async fn attach(
        &self,
        context: RequestedContext,
        trace: Option<TraceContext>,
    ) -> Result<Session, AttachError> {
        let seq = self
            .request(|reply| Command::Attach {
                context,
                trace,
                reply,
            })
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
        let servers = brought_servers::parse(by, servers).map_err(ProcessError::from)?;
        if servers.is_empty() {
            return Ok(());
        }
        let (context, record) = (self.context(), self.query().record().await?);
        let stats = context.pool.agent_stats(&record.agent, &by.tenant);
        let spec = context.catalogue.agent(&record.agent);
        if let (Some(spec), Some(initialized)) =
            (spec, stats.and_then(|(_, initialized)| initialized))
        {
            requirements::check(&spec, (&[], &servers), &[], &initialized.capabilities)?;
        }
        Ok(self
            .request(|reply| Command::BringServers { servers, reply })
            .await?)
    }

    pub async fn close(
        &self,
        by: &Principal,
        trace: Option<TraceContext>,
    ) -> Result<Session, SessionError> {
        let by = by.clone();
        let seq = self
            .request(|reply| Command::Close { by, trace, reply })
            .await?;
        self.wait_durable(seq).await?;
        self.snapshot().await
    }

    /// Erases the session, or waits until another request has erased it. Returns false if the disk is full: the
    /// session is then no longer visible, and its data is erased when there is space.
    ///
    /// With `if_match`, fails if none of these tags is that of the session's revision.
    pub async fn delete(
        &self,
        by: &Principal,
        if_match: Option<Vec<String>>,
        trace: Option<TraceContext>,
    ) -> Result<bool, DeleteError> {
        let by = by.clone();
        let deleted = self
            .request(|reply| Command::Delete {
                by,
                if_match,
                trace,
                reply,
            })
            .await;
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
        let (cancelled, seq) = self
            .request(|reply| Command::Cancel {
                prompt,
                cause,
                trace,
                reply,
            })
            .await?;
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
        match self.answer_once(by.clone(), client, request, answer).await {
            Ok(seq) => Ok(self.wait_durable(seq).await?),
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

    /// A request of the agent that waits for an answer.
    pub async fn pending(&self, request: RequestId) -> Result<Arc<PendingRequest>, AnswerError> {
        self.request(|reply| Command::Pending { request, reply })
            .await
    }

    async fn answer_once(
        &self,
        by: Author,
        client: Option<&str>,
        request: RequestId,
        answer: Answer,
    ) -> Result<u64, AnswerError> {
        let asked = self.pending(request).await?;
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
        self.request(|reply| Command::Answer {
            by,
            request,
            outcome,
            reply,
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
        let by = by.clone();
        let (result, seq) = self
            .request(|reply| Command::Call {
                by,
                call,
                trace,
                reply,
            })
            .await?;
        self.wait_durable(seq).await?;
        Ok(result)
    }

    /// Kills the command of a terminal. Does nothing if the command has ended.
    pub async fn kill_terminal(&self, terminal: TerminalId) -> Result<(), PartError> {
        let seq = self
            .request(|reply| Command::KillTerminal { terminal, reply })
            .await?;
        Ok(self.wait_durable(seq).await?)
    }

    /// The tail of the stderr of the session's process. Empty if no process is attached.
    pub async fn stderr(&self) -> Result<String, SessionError> {
        self.request(|reply| Command::Stderr { reply }).await
    }
}
