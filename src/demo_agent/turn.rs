//! One turn: the steps that scenes are made of.
//!
//! Every step ends early when the turn is cancelled, and what was sent is in the session's history.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Cost, Error, MessageId, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus,
    SessionId, SessionInfoUpdate, SessionUpdate, TerminalId, ToolCall, ToolCallContent, ToolCallId,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, Usage, UsageUpdate,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::types::Ids;

use super::agent::options_changed;
use super::offer::Offer;
use super::options::{Mode, Options};
use super::peer::Peer;
use super::prompt::Prompt;
use super::session::{Record, Running};
use super::text::{one_line, pieces};

/// The size of the context window that the demo pretends to have.
const CONTEXT: u64 = 128_000;
/// Characters of a title that is made from a prompt.
const TITLE_MAX: usize = 60;

/// Why a scene ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    Cancelled,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) type Step<T = ()> = Result<T, Stop>;

#[derive(Debug)]
pub(super) struct Turn {
    running: Running,
    pub(super) peer: Peer,
    ids: Ids,
    pub(super) offer: Offer,
    /// The message that is being said or thought; another step ends it.
    message: Option<MessageId>,
    /// Tool calls that have not ended.
    open: Vec<ToolCallId>,
    /// Terminals that were not released.
    pub(super) terminals: Vec<TerminalId>,
    /// Tokens of the session up to this turn's prompt, and it.
    read: u64,
    /// What is sent after the turn's answer.
    pub(super) afterword: Vec<SessionUpdate>,
}

impl Turn {
    pub(super) fn new(running: Running, peer: Peer, ids: Ids, offer: Offer) -> Self {
        Self {
            running,
            peer,
            ids,
            offer,
            message: None,
            open: Vec::new(),
            terminals: Vec::new(),
            read: 0,
            afterword: Vec::new(),
        }
    }

    /// Keeps the prompt, so that a killed process has it; gives the number of the turn, from 1.
    pub(super) fn begin(&mut self, prompt: &[ContentBlock]) -> Step<u64> {
        let (turns, tokens) = self.change(|record| {
            record.turns += 1;
            record.history.prompt(prompt);
            (record.turns, record.history.tokens())
        })?;
        self.read = tokens;
        Ok(turns)
    }

    /// The turn's tokens, as a model would count them.
    pub(super) fn usage(&self) -> Usage {
        let all = self.record().history.tokens().max(self.read);
        Usage::new(all, self.read, all - self.read)
    }

    /// Ends what is open, tells what the turn cost, and names a session that has no name.
    pub(super) async fn end(&mut self, prompt: &Prompt) -> Step {
        self.release_terminals().await;
        for call in std::mem::take(&mut self.open) {
            let fields = ToolCallUpdateFields::new()
                .status(ToolCallStatus::Failed)
                .content(vec![ToolCallContent::from("Cancelled.")]);
            self.send(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call, fields))).await;
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

    /// A path in the session's folder; an absolute one stays as it is.
    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.record().place.cwd.join(name)
    }

    /// Waits some beats of the session's pace.
    pub(super) async fn pause(&self, beats: u32) -> Step {
        self.wait(self.options().pace.beat() * beats).await
    }

    pub(super) async fn wait(&self, time: Duration) -> Step {
        tokio::select! {
            biased;
            () = self.running.cancel.cancelled() => Err(Stop::Cancelled),
            () = pass(time) => Ok(()),
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

    /// Streams markdown. Two in a row are one message.
    pub(super) async fn say(&mut self, text: &str) -> Step {
        self.stream(text, SessionUpdate::AgentMessageChunk).await
    }

    /// A block that is not text, as a part of the message.
    pub(super) async fn show(&mut self, block: ContentBlock) -> Step {
        let message = self.message();
        if self.running.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        self.send(SessionUpdate::AgentMessageChunk(ContentChunk::new(block).message_id(message))).await;
        Ok(())
    }

    async fn stream(&mut self, text: &str, kind: fn(ContentChunk) -> SessionUpdate) -> Step {
        for piece in pieces(text) {
            let message = self.message();
            self.pause(1).await?;
            self.send(kind(ContentChunk::new(piece.into()).message_id(message))).await;
        }
        Ok(())
    }

    fn message(&mut self) -> MessageId {
        let session = &self.running.session;
        self.message.get_or_insert_with(|| MessageId::new(format!("m{}", session.record().number()))).clone()
    }

    /// Shows the steps: those before `current` are done, and `current` runs.
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

    /// Announces a tool call; its id.
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
            self.open.retain(|open| open != id);
        }
        self.act(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.clone(), fields))).await
    }

    pub(super) async fn set_options(&mut self, options: Options) -> Step {
        let update = self.change(|record| {
            record.options = options;
            options_changed(record, self.offer)
        })?;
        self.act(update).await
    }

    pub(super) async fn set_mode(&mut self, mode: Mode, update: SessionUpdate) -> Step {
        self.change(|record| record.mode = mode)?;
        self.act(update).await
    }

    /// Asks the client; a cancel ends the wait.
    pub(super) async fn request<P: Serialize, R: DeserializeOwned>(
        &self,
        method: &str,
        params: P,
    ) -> Step<Result<R, Error>> {
        tokio::select! {
            biased;
            () = self.running.cancel.cancelled() => Err(Stop::Cancelled),
            answer = self.peer.request(method, params) => Ok(answer),
        }
    }

    /// A step that is not text: the message before it is over.
    pub(super) async fn act(&mut self, update: SessionUpdate) -> Step {
        self.message = None;
        if self.running.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        self.send(update).await;
        Ok(())
    }

    /// An update of a session that is not the turn's own: a subagent's.
    pub(super) async fn act_as(&self, session: &SessionId, update: SessionUpdate) -> Step {
        self.pause(1).await?;
        self.peer.update(session, update).await;
        Ok(())
    }

    async fn send(&self, update: SessionUpdate) {
        self.record().history.push(&update);
        self.peer.update(&self.running.session.id, update).await;
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> Result<T, Error> {
        let now = self.ids.now();
        self.running.session.change(|record| {
            record.updated_at = now;
            change(record)
        })
    }
}

/// At the instant pace other turns and the reader still get their chance.
async fn pass(time: Duration) {
    if time.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(time).await;
    }
}
