//! One turn: the steps of the scenes.
//!
//! Every step fails after a cancel. Every sent update is in the session's history.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Cost, Error, MessageId, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionId, SessionInfoUpdate, SessionUpdate, TerminalId, ToolCall, ToolCallId, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, Usage, UsageUpdate,
};
use agent_client_protocol_schema::v2;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::types::Ids;

use super::client_support::ClientSupport;
use super::options::{Mode, Options};
use super::peer::Peer;
use super::prompt::Prompt;
use super::record::Record;
use super::session::{Running, Session};
use super::text::{one_line, pieces};
use super::version::Version;

/// The size of the simulated context window.
const CONTEXT: u64 = 128_000;
/// The maximum number of characters of a title made from a prompt.
const TITLE_MAX: usize = 60;

/// Why a scene ends early.
#[derive(Debug)]
pub(super) enum StepError {
    Cancelled,
    Failed(Error),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) type Step<T = ()> = Result<T, StepError>;

#[derive(Debug)]
pub(super) struct Turn {
    running: Running,
    pub(super) peer: Peer,
    ids: Ids,
    pub(super) offer: ClientSupport,
    /// The current message or thought. Any other step ends it.
    message: Option<MessageId>,
    /// Tool calls that have not ended.
    open: Vec<ToolCallId>,
    /// Terminals that were not released.
    pub(super) terminals: Vec<TerminalId>,
    /// The tokens of the session up to and including this turn's prompt.
    read: u64,
    /// Displayed terminals that have not ended.
    pub(super) displays: Vec<TerminalId>,
    pub(super) afterword: AfterTurn,
}

/// The work after the end of a turn.
#[derive(Debug, Default)]
pub(super) struct AfterTurn {
    pub(super) updates: Vec<SessionUpdate>,
    /// The delay before the agent works without a prompt.
    pub(super) background_work_after: Option<Duration>,
}

impl Turn {
    pub(super) fn new(running: Running, peer: Peer, ids: Ids, offer: ClientSupport) -> Self {
        Self {
            running,
            peer,
            ids,
            offer,
            message: None,
            open: Vec::new(),
            terminals: Vec::new(),
            read: 0,
            displays: Vec::new(),
            afterword: AfterTurn::default(),
        }
    }

    /// The error for a prompt during a running turn.
    pub(super) fn already_running() -> Error {
        Error::invalid_request().data("a turn is already running in this session")
    }

    /// Stores the prompt before the work starts, so that it survives a kill of the process. Returns the
    /// number of the turn, from 1, and the id of the prompt's message.
    pub(super) fn begin(&mut self, prompt: &[ContentBlock]) -> Result<(u64, MessageId), Error> {
        let (turns, message, tokens) = self.change(|record| {
            record.turns += 1;
            let message = MessageId::new(format!("m{}", record.number()));
            record.history.prompt(prompt, &message);
            (record.turns, message, record.history.tokens())
        })?;
        self.read = tokens;
        Ok((turns, message))
    }

    /// Ends the turn, so the session accepts the next prompt. Returns the updates to send afterwards.
    pub(super) fn finish(self) -> AfterTurn {
        self.afterword
    }

    pub(super) fn version(&self) -> Version {
        self.peer.version()
    }

    /// The turn's tokens.
    pub(super) fn usage(&self) -> Usage {
        let all = self.record().history.tokens().max(self.read);
        Usage::new(all, self.read, all - self.read)
    }

    /// Ends open steps, reports the usage, and sets a title if the session has none.
    pub(super) async fn end(&mut self, prompt: &Prompt) -> Step {
        self.release_terminals().await;
        for terminal in std::mem::take(&mut self.displays) {
            self.end_display(&terminal, Err("SIGTERM")).await;
        }
        for call in std::mem::take(&mut self.open) {
            self.call_cancelled(&call).await;
        }
        let (used, title, time) = self.change(|record| {
            let name = one_line(&prompt.text, TITLE_MAX);
            if record.title.is_none() && !name.is_empty() {
                record.title = Some(name);
            }
            (record.history.tokens(), record.title.clone(), record.updated_at)
        })?;
        let usage = UsageUpdate::new(used.min(CONTEXT), CONTEXT).cost(Cost::new(0.0, "USD"));
        self.send(SessionUpdate::UsageUpdate(usage)).await;
        let info = SessionInfoUpdate::new().updated_at(time.to_string());
        let info = if let Some(title) = title { info.title(title) } else { info };
        self.send(SessionUpdate::SessionInfoUpdate(info)).await;
        Ok(())
    }

    pub(super) fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.running.session.record()
    }

    pub(super) fn options(&self) -> Options {
        self.record().options
    }

    pub(super) fn mode(&self) -> Mode {
        self.record().mode
    }

    /// A path in the session's directory. An absolute path stays unchanged.
    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.record().place.cwd.join(name)
    }

    /// Waits for a number of beats of the session's pace.
    pub(super) async fn pause(&self, beats: u32) -> Step {
        self.wait(self.options().pace.beat() * beats).await
    }

    pub(super) async fn wait(&self, time: Duration) -> Step {
        tokio::select! {
            biased;
            () = self.running.cancel.cancelled() => Err(StepError::Cancelled),
            () = sleep_or_yield(time) => Ok(()),
        }
    }

    pub(super) async fn think(&mut self, text: &str) -> Step {
        if !self.options().thoughts {
            return Ok(());
        }
        self.message = None;
        self.stream(text, SessionUpdate::AgentThoughtChunk).await?;
        self.message = None;
        Ok(())
    }

    /// Streams markdown. Consecutive calls form one message.
    pub(super) async fn say(&mut self, text: &str) -> Step {
        self.stream(text, SessionUpdate::AgentMessageChunk).await
    }

    /// Sends a block that is not text, as a part of the message.
    pub(super) async fn show(&mut self, block: ContentBlock) -> Step {
        let message = self.message();
        self.check()?;
        self.send(SessionUpdate::AgentMessageChunk(ContentChunk::new(block).message_id(message))).await;
        Ok(())
    }

    /// Begins a message and returns its id, for a later replacement.
    pub(super) fn new_message(&mut self) -> MessageId {
        self.message = None;
        self.message()
    }

    async fn stream(&mut self, text: &str, kind: fn(ContentChunk) -> SessionUpdate) -> Step {
        for piece in pieces(text) {
            let message = self.message();
            self.pause(1).await?;
            self.send(kind(ContentChunk::new(piece.into()).message_id(message))).await;
        }
        Ok(())
    }

    pub(super) fn message(&mut self) -> MessageId {
        let session = &self.running.session;
        self.message.get_or_insert_with(|| MessageId::new(format!("m{}", session.record().number()))).clone()
    }

    /// Sends the plan: steps before `current` are completed, and `current` is in progress.
    pub(super) async fn plan(&mut self, steps: &[&str], current: usize) -> Step {
        let entries = steps
            .iter()
            .enumerate()
            .map(|(at, step)| {
                let status = match at.cmp(&current) {
                    std::cmp::Ordering::Less => PlanEntryStatus::Completed,
                    std::cmp::Ordering::Equal => PlanEntryStatus::InProgress,
                    std::cmp::Ordering::Greater => PlanEntryStatus::Pending,
                };
                let priority = if at == 0 { PlanEntryPriority::High } else { PlanEntryPriority::Medium };
                PlanEntry::new(*step, priority, status)
            })
            .collect();
        self.act(SessionUpdate::Plan(Plan::new(entries))).await
    }

    /// Announces a tool call. Returns its id.
    pub(super) async fn call(&mut self, call: ToolCall) -> Step<ToolCallId> {
        let mut call = call;
        let id = ToolCallId::new(format!("call_{}", self.record().number()));
        call.tool_call_id = id.clone();
        self.open.push(id.clone());
        self.act(SessionUpdate::ToolCall(call)).await?;
        Ok(id)
    }

    pub(super) async fn progress(&mut self, id: &ToolCallId, fields: ToolCallUpdateFields) -> Step {
        if matches!(fields.status, Some(ToolCallStatus::Completed | ToolCallStatus::Failed)) {
            self.call_ended(id);
        }
        self.act(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.clone(), fields))).await
    }

    /// Records that the call has ended.
    pub(super) fn call_ended(&mut self, id: &ToolCallId) {
        self.open.retain(|open| open != id);
    }

    pub(super) async fn set_options(&mut self, options: Options) -> Step {
        self.change(|record| record.options = options)?;
        match self.version() {
            Version::V1 => {
                let update = self.options().update(self.offer.booleans);
                self.act(update).await
            }
            Version::V2 => self.send_options().await,
        }
    }

    pub(super) async fn set_mode(&mut self, mode: Mode) -> Step {
        self.change(|record| record.mode = mode)?;
        match self.version() {
            Version::V1 => self.act(mode.update()).await,
            Version::V2 => self.send_options().await,
        }
    }

    /// Sends a request to the client. A cancel ends the wait.
    pub(super) async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: P,
    ) -> Step<Result<R, Error>> {
        self.send_state(true).await;
        let answer = tokio::select! {
            biased;
            () = self.running.cancel.cancelled() => return Err(StepError::Cancelled),
            answer = self.peer.request(method, params) => answer,
        };
        self.send_state(false).await;
        Ok(answer)
    }

    /// Sends an update that is not text, which ends the current message.
    pub(super) async fn act(&mut self, update: SessionUpdate) -> Step {
        self.step()?;
        self.send(update).await;
        Ok(())
    }

    /// Ends the current message. Fails if the turn is cancelled.
    pub(super) fn step(&mut self) -> Step {
        self.message = None;
        self.check()
    }

    /// Sends an update of a subagent's session.
    pub(super) async fn act_as(&self, session: &SessionId, update: SessionUpdate) -> Step {
        self.pause(1).await?;
        self.peer.update(session, update).await;
        Ok(())
    }

    pub(super) async fn send(&self, update: SessionUpdate) {
        self.keep(&update);
        self.peer.update(&self.running.session.id, update).await;
    }

    /// Sends an update that v1 does not have.
    pub(super) async fn send_v2(&self, update: v2::SessionUpdate) {
        self.peer.update_v2(&self.running.session.id, update).await;
    }

    pub(super) fn keep(&self, update: &SessionUpdate) {
        self.record().history.push(update);
    }

    pub(super) fn session(&self) -> &Session {
        &self.running.session
    }

    /// Fails if the turn is cancelled.
    pub(super) fn check(&self) -> Step {
        if self.running.cancel.is_cancelled() { Err(StepError::Cancelled) } else { Ok(()) }
    }

    /// Waits. Returns true if the part was cancelled meanwhile.
    pub(super) async fn wait_for_part(&self, part: &CancellationToken, time: Duration) -> Step<bool> {
        tokio::select! {
            biased;
            () = part.cancelled() => Ok(true),
            waited = self.wait(time) => waited.map(|()| false),
        }
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, Error> {
        let now = self.ids.now();
        self.running.session.change(|record| {
            record.updated_at = now;
            change(record)
        })
    }
}

/// At the instant pace, yields to other turns and to the reader.
async fn sleep_or_yield(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}
