//! `SessionHandle`: sends commands to a session's actor and returns only durable results.

mod reads;

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument;

use super::agent_requests::answers;
use super::attachments;
use super::command::{Answer, ClientCall, Command, PromptRequest, Reply};
use super::entry::ActorEntry;
use super::idempotency;
use super::metadata;
use super::record::{self, PromptRecord, RequestRecord, SessionRecord};
use super::refusal::Refusal;
use super::registry::{SessionRegistry, check_title};
use super::stored::read_record;
use crate::acp::{self, CancelTarget, TraceContext};
use crate::api::{Prompt, PromptList, Session, SessionPatch, Transcript};
use crate::eventlog::SessionLog;
use crate::store::{Run, Table};
use crate::transcript::TurnFold;
use crate::types::{Principal, PromptId, RequestId, SessionId, TerminalId};
use crate::workspace::Workspace;

/// How long a commit may take.
const COMMIT_TIMEOUT: Duration = Duration::from_mins(1);
/// How long an actor may be too busy to accept a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct SessionHandle {
    registry: SessionRegistry,
    id: SessionId,
    entry: Arc<ActorEntry>,
}

/// A turn that was accepted and is durable.
#[derive(Debug)]
pub struct AdmittedPrompt {
    pub prompt: Prompt,
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
    /// Whether the turn belongs to an earlier request with the same idempotency key.
    pub replayed: bool,
}

/// The position of a turn in the log, without its text.
#[derive(Debug, Clone, Copy)]
pub struct PromptRange {
    pub first_seq: u64,
    /// The sequence number of the end of the turn, if it has ended.
    pub last_seq: Option<u64>,
}

/// A turn folded from the log.
struct FoldedTurn {
    turn: TurnFold,
    /// The sequence number up to which the fold is exact.
    seq: u64,
    /// The number of log bytes read for the fold.
    read_bytes: usize,
}

impl SessionHandle {
    pub(super) fn new(registry: SessionRegistry, id: SessionId, slot: Arc<ActorEntry>) -> Self {
        Self { registry, id, entry: slot }
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    pub fn log(&self) -> &SessionLog {
        &self.entry.log
    }

    /// Sends a command to the actor and returns its reply. Loads the session again if its actor has stopped.
    async fn request<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        let mut commands = self.entry.commands.clone();
        loop {
            match tokio::time::timeout(COMMAND_TIMEOUT, commands.clone().reserve_owned()).await {
                Ok(Ok(place)) => {
                    place.send(command(reply));
                    break;
                }
                Ok(Err(_)) => commands = self.registry.entry(self.id).await?.1.commands.clone(),
                Err(_) => {
                    return Err(Refusal::PoolFull("the session is too busy".to_owned(), COMMAND_TIMEOUT));
                }
            }
        }
        match answer.await {
            Ok(outcome) => outcome,
            // The actor has erased the session or has panicked.
            Err(_) => self.registry.entry(self.id).await.and(Err(Refusal::Internal)),
        }
    }

    async fn wait_durable(&self, seq: u64) -> Result<(), Refusal> {
        let mut waited = Duration::ZERO;
        loop {
            match tokio::time::timeout(COMMAND_TIMEOUT, self.entry.log.wait(seq)).await {
                Ok(outcome) => return outcome.map_err(|error| Refusal::internal(&error)),
                Err(_) if self.registry.context().log.alarm().is_some() => return Err(Refusal::StorageFull),
                Err(_) if waited > COMMIT_TIMEOUT => return Err(Refusal::Internal),
                Err(_) => waited += COMMAND_TIMEOUT,
            }
        }
    }

    /// Changes the session if its `ETag` is one of `if_match`. Fails with `PreconditionFailed` or `Invalid`.
    pub async fn patch(
        &self,
        by: &Principal,
        patch: SessionPatch,
        if_match: Option<Vec<String>>,
    ) -> Result<Session, Refusal> {
        check_title(patch.title.as_ref().and_then(Option::as_deref))?;
        if let Some(Some(metadata)) = &patch.metadata {
            metadata::check(metadata)?;
        }
        let by = by.clone();
        let (session, seq) = self.request(|reply| Command::Patch { by, patch, if_match, reply }).await?;
        self.wait_durable(seq).await?;
        Ok(session)
    }

    /// Attaches a process to the session. Reopens a closed session.
    pub async fn attach(&self, trace: Option<TraceContext>) -> Result<Session, Refusal> {
        let seq = self.request(|reply| Command::Attach { trace, reply }).await?;
        self.wait_durable(seq).await?;
        self.snapshot().await
    }

    pub async fn close(&self, by: &Principal, trace: Option<TraceContext>) -> Result<Session, Refusal> {
        let by = by.clone();
        let seq = self.request(|reply| Command::Close { by, trace, reply }).await?;
        self.wait_durable(seq).await?;
        self.snapshot().await
    }

    /// Erases the session. Returns false if the disk is full: the session is then no longer visible, and its
    /// data is erased when there is space.
    pub async fn delete(&self, by: &Principal, trace: Option<TraceContext>) -> Result<bool, Refusal> {
        let by = by.clone();
        let seq = self.request(|reply| Command::Delete { by, trace, reply }).await?;
        let durable = self.wait_durable_or_full(seq).await?;
        if durable {
            self.registry.remove(self.id);
        } else {
            self.registry.remove_after_commit(self.entry.log.clone(), seq);
        }
        Ok(durable)
    }

    /// Begins or queues a turn. The operation continues if the caller is dropped, because its idempotency key
    /// must not be released before the turn is durable.
    pub async fn prompt(&self, by: &Principal, request: PromptRequest) -> Result<AdmittedPrompt, Refusal> {
        let (handle, by) = (self.clone(), by.clone());
        let begun = async move { handle.prompt_once(&by, request).await }.in_current_span();
        let context = self.registry.context();
        context.shutdown.spawn_isolated(begun).await.map_err(|error| Refusal::internal(&error))?
    }

    async fn prompt_once(&self, by: &Principal, request: PromptRequest) -> Result<AdmittedPrompt, Refusal> {
        let context = self.registry.context();
        let claimed = match &request.key {
            Some(key) => Some(idempotency::claim(context, by, key).await?),
            None => None,
        };
        if let Some(prompt) = claimed.as_ref().and_then(|claimed| claimed.previous.as_ref()?.prompt) {
            let committed = self.entry.log.committed();
            let record = self.prompt_record(prompt).await?.ok_or(Refusal::NotFound("turn"))?;
            let (prompt, _) = self.prompt_with_text(&record, committed).await?;
            let (first_seq, last_seq) = (record.first_seq, record.last_seq);
            return Ok(AdmittedPrompt { prompt, first_seq, last_seq, replayed: true });
        }
        let (flight, claim) = claimed.map(|claimed| (claimed.flight, claimed.claim)).unzip();
        let PromptRequest { blocks, attachments, queue, trace, .. } = request;
        let blocks = attachments::append_attachments(context, self.id, blocks, attachments).await?;
        let by = by.clone();
        let asked =
            self.request(|reply| Command::Prompt { by, blocks, queue, trace, key: claim, reply }).await;
        let (prompt, first_seq) = asked?;
        self.wait_durable(first_seq).await?;
        drop(flight);
        Ok(AdmittedPrompt { prompt, first_seq, last_seq: None, replayed: false })
    }

    /// Opens the session's folders. This also works for a closed session.
    pub async fn workspace(&self) -> Result<Workspace, Refusal> {
        let context = self.registry.context();
        let record: Option<SessionRecord> =
            read_record(context, Table::Session, record::session_key(self.id)).await?;
        context.open_workspace(&record.ok_or(Refusal::NoSuchSession)?).await
    }

    /// A page of turns, newest first, before the turn `before`. It ends early if it needs many log reads.
    pub async fn prompts(&self, before: Option<PromptId>, limit: usize) -> Result<PromptList, Refusal> {
        let (mut prompts, mut next_cursor) = (Vec::new(), None);
        let (mut read, enough) = (0, 4 * self.registry.context().limits.max_page_bytes);
        for number in self.turns_before(before).await? {
            if prompts.len() == limit || read >= enough {
                next_cursor = prompts.last().map(|prompt: &Prompt| prompt.prompt_id.to_string());
                break;
            }
            let committed = self.entry.log.committed();
            if let Some(record) = self.prompt_record(PromptId::new(number)).await? {
                let (prompt, bytes) = self.prompt_with_text(&record, committed).await?;
                prompts.push(prompt);
                read += bytes;
            }
        }
        Ok(PromptList { prompts, next_cursor })
    }

    /// The numbers of the turns, newest first.
    async fn turns_before(
        &self,
        before: Option<PromptId>,
    ) -> Result<impl Iterator<Item = u32> + use<>, Refusal> {
        let key = record::session_key(self.id);
        let record: Option<SessionRecord> = read_record(self.registry.context(), Table::Session, key).await?;
        let last = record.ok_or(Refusal::NoSuchSession)?.last_prompt;
        let newest = before.map_or(last, |before| before.number().saturating_sub(1).min(last));
        Ok((1..=newest).rev())
    }

    async fn prompt_record(&self, prompt: PromptId) -> Result<Option<PromptRecord>, Refusal> {
        read_record(self.registry.context(), Table::Prompt, record::prompt_key(self.id, prompt)).await
    }

    /// The current state of a turn. `None` if there is no such turn.
    pub async fn prompt_state(&self, prompt: PromptId) -> Result<Option<Prompt>, Refusal> {
        let committed = self.entry.log.committed();
        let Some(record) = self.prompt_record(prompt).await? else { return Ok(None) };
        Ok(Some(self.prompt_with_text(&record, committed).await?.0))
    }

    /// The position of a turn in the log, read from its record alone. `None` if there is no such turn.
    pub async fn prompt_range(&self, prompt: PromptId) -> Result<Option<PromptRange>, Refusal> {
        let record = self.prompt_record(prompt).await?;
        Ok(record.map(|PromptRecord { first_seq, last_seq, .. }| PromptRange { first_seq, last_seq }))
    }

    /// The turn with its text, and the number of log bytes read for it. `committed` is the committed position
    /// before the record was read, so the text of a running turn never extends past the end in the record.
    async fn prompt_with_text(
        &self,
        record: &PromptRecord,
        committed: u64,
    ) -> Result<(Prompt, usize), Refusal> {
        let last = record.last_seq.unwrap_or(committed);
        self.wait_durable(last).await?;
        let FoldedTurn { turn, seq, read_bytes: read } = self.fold_turn(record, last).await?;
        let mut shown = record.to_prompt(self.id, self.entry.log.id(seq));
        (shown.text, shown.truncated) = turn.text();
        Ok((shown, read))
    }

    /// Folds the events of a turn up to `last`.
    async fn fold_turn(&self, record: &PromptRecord, last: u64) -> Result<FoldedTurn, Refusal> {
        let page = self.registry.context().limits.store_page_bytes;
        let (mut turn, mut seq, mut read) = (TurnFold::new(), record.first_seq - 1, 0);
        while seq < last {
            let runs = self.entry.log.read(seq, page).await.map_err(|error| Refusal::internal(&error))?;
            let Some(end) = runs.last().map(|run| run.last_seq) else { break };
            read += runs.iter().map(|run| run.frames.len()).sum::<usize>();
            for event in runs
                .iter()
                .filter_map(|run| run.through(last))
                .collect::<Vec<Run>>()
                .iter()
                .flat_map(Run::events)
            {
                if event.is_of(record.prompt_id) {
                    turn.event(&event);
                }
            }
            seq = end.min(last);
        }
        Ok(FoldedTurn { turn, seq: seq.max(record.first_seq), read_bytes: read })
    }

    /// Waits until the turn ends. `None` if it does not end within `limit`.
    pub async fn wait_ended(&self, prompt: PromptId, limit: Duration) -> Result<Option<Prompt>, Refusal> {
        let deadline = Instant::now() + limit;
        let mut slot = Arc::clone(&self.entry);
        loop {
            let mut ends = slot.turn_ends.clone();
            let seq = *ends.borrow_and_update();
            self.wait_durable(seq.min(slot.log.appended())).await?;
            let record = self.prompt_record(prompt).await?.ok_or(Refusal::NotFound("turn"))?;
            if record.status.has_ended() {
                return Ok(Some(self.prompt_with_text(&record, self.entry.log.committed()).await?.0));
            }
            match tokio::time::timeout_at(deadline, ends.changed()).await {
                Ok(Ok(())) => {}
                // A drain keeps the prompt for the next start.
                Ok(Err(_)) if self.registry.context().shutdown.is_draining() => return Ok(None),
                Ok(Err(_)) => (_, slot) = self.registry.entry(self.id).await?,
                Err(_) => return Ok(None),
            }
        }
    }

    /// Cancels one turn, or all turns if `prompt` is `None`. Returns the cancelled turns, both running and
    /// queued. The agent receives the cancel even if the disk is full.
    pub async fn cancel(
        &self,
        prompt: Option<PromptId>,
        trace: Option<TraceContext>,
    ) -> Result<Vec<PromptId>, Refusal> {
        let (cancelled, seq) = self.request(|reply| Command::Cancel { prompt, trace, reply }).await?;
        self.wait_durable_or_full(seq).await?;
        Ok(cancelled)
    }

    /// Answers a request of the agent. The first answer wins.
    pub async fn answer(&self, by: &Principal, request: RequestId, answer: Answer) -> Result<(), Refusal> {
        match self.answer_once(by.clone(), request, answer).await {
            Ok(seq) => self.wait_durable(seq).await,
            Err(refusal @ Refusal::RequestResolved { .. }) => {
                // A crash could still undo the other answer, so it must be durable before the client sees it.
                self.wait_durable(self.entry.log.appended()).await?;
                Err(refusal)
            }
            Err(Refusal::NotFound(what)) => {
                let key = record::request_key(self.id, request);
                let stored =
                    read_record::<RequestRecord>(self.registry.context(), Table::Request, key).await?;
                let Some(RequestRecord { resolution: Some(resolution), by, .. }) = stored else {
                    return Err(Refusal::NotFound(what));
                };
                Err(Refusal::RequestResolved { id: request, resolution: resolution.into(), by })
            }
            Err(refusal) => Err(refusal),
        }
    }

    async fn answer_once(&self, by: Principal, request: RequestId, answer: Answer) -> Result<u64, Refusal> {
        let asked = self.request(|reply| Command::Pending { request, reply }).await?;
        // The agent defines the schema of the answer, so the check may take long.
        let check =
            self.registry.context().shutdown.spawn_blocking(move || answers::check_answer(&asked, answer));
        let outcome = check.await.map_err(|error| Refusal::internal(&error))??;
        self.request(|reply| Command::Answer { by, request, outcome, reply }).await
    }

    pub async fn set_mode(
        &self,
        by: &Principal,
        mode: String,
        trace: Option<TraceContext>,
    ) -> Result<Box<RawValue>, Refusal> {
        self.client_call(by, ClientCall::Mode(mode), trace).await
    }

    pub async fn set_config(
        &self,
        by: &Principal,
        option: String,
        value: Box<RawValue>,
        trace: Option<TraceContext>,
    ) -> Result<Box<RawValue>, Refusal> {
        self.client_call(by, ClientCall::Config { option, value }, trace).await
    }

    /// Cancels one tool call or one terminal of the agent. Its updates report the result.
    pub async fn cancel_part(
        &self,
        by: &Principal,
        part: CancelTarget,
        trace: Option<TraceContext>,
    ) -> Result<(), Refusal> {
        self.client_call(by, ClientCall::Cancel(part), trace).await.map(drop)
    }

    /// Calls a method of the agent by name. Returns null for a notification.
    pub async fn call(
        &self,
        by: &Principal,
        method: String,
        params: Option<Box<RawValue>>,
        notify: bool,
        trace: Option<TraceContext>,
    ) -> Result<Box<RawValue>, Refusal> {
        let params = params.unwrap_or_else(|| acp::null_to_empty(RawValue::NULL));
        self.client_call(by, ClientCall::Rpc { method, params, notify }, trace).await
    }

    /// Sends a call to the agent and returns the agent's result when it is durable.
    pub(super) async fn client_call(
        &self,
        by: &Principal,
        client_call: ClientCall,
        trace: Option<TraceContext>,
    ) -> Result<Box<RawValue>, Refusal> {
        let by = by.clone();
        let (now, seq) = self.request(|reply| Command::Call { by, call: client_call, trace, reply }).await?;
        self.wait_durable(seq).await?;
        Ok(now)
    }

    /// Kills the command of a terminal. Does nothing if the command has ended.
    pub async fn kill_terminal(&self, terminal: TerminalId) -> Result<(), Refusal> {
        let seq = self.request(|reply| Command::KillTerminal { terminal, reply }).await?;
        self.wait_durable(seq).await
    }

    /// The tail of the stderr of the session's process. Empty if no process is attached.
    pub async fn stderr(&self) -> Result<String, Refusal> {
        self.request(|reply| Command::Stderr { reply }).await
    }

    /// A page of folded turns, newest first, exact at its `lastEventId`.
    pub async fn transcript(&self, before: Option<PromptId>, limit: usize) -> Result<Transcript, Refusal> {
        let session = self.snapshot().await?;
        let last = session.last_event_id.seq;
        let (mut turns, mut next_cursor) = (Vec::new(), None);
        let mut oldest = None;
        for number in self.turns_before(before).await? {
            if turns.len() == limit {
                next_cursor = oldest.map(|prompt: PromptId| prompt.to_string());
                break;
            }
            let Some(record) = self.prompt_record(PromptId::new(number)).await? else { continue };
            if record.first_seq > last {
                continue;
            }
            // Late updates belong to the turn too, so it is folded to the start of the next turn.
            let next_turn = self.prompt_record(PromptId::new(number + 1)).await?;
            let until =
                next_turn.filter(|_| record.last_seq.is_some()).map_or(last, |next| next.first_seq - 1);
            let until = until.max(record.last_seq.unwrap_or(last)).min(last);
            let turn = self.fold_turn(&record, until).await?.turn;
            oldest = Some(record.prompt_id);
            turns.extend(turn.finish());
        }
        let last_event_id = session.last_event_id.clone();
        Ok(Transcript { session, turns, next_cursor, last_event_id })
    }
}
