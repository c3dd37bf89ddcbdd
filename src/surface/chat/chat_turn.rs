//! A turn of a conversation, the newest one, and earlier ones, and clients that disconnect. In protocols without a route for a
//! stop, a disconnect is the only sign of a stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode};
use serde_json::{Map, Value};

use super::message::Message;
use crate::stream::StreamGuard;
use crate::surface::http::{
    ApiError, AppState, Authorized, CanPrompt, Result, ascii, record_session,
};
use base::shutdown::Shutdown;
use base::types::{AgentName, KeyedCounts, KeyedGuard, Principal, PromptId, SessionId};
use events::api::{CancelCause, CreateSession, Problem, ProblemCode};
use events::event::EventRef;
use log::eventlog::{Item, Start};
use sessions::conversation::{Conversation, ConversationKey, Notice, Turn, UserMessage};
use sessions::projection::{Step, TurnProjector};
use sessions::session::{PromptRange, SessionError, SessionHandle};
use wire::acp::TraceContext;

/// The session of a request or a response.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("x-acp-session-id");
/// How long a response that is not streamed waits for its turn before it sends the status. Clients and proxies close a connection
/// without a byte after half a minute or more.
const STATUS_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct ChatTurn {
    pub(crate) session: SessionHandle,
    pub(crate) prompt: PromptId,
    pub(super) first_seq: u64,
    pub(super) last_seq: Option<u64>,
    pub(crate) notices: Vec<Notice>,
    /// Whether the client of this conversation began the turn, so that its disconnect may cancel the turn.
    pub(super) is_own: bool,
    pub(super) guard: StreamGuard,
}

impl ChatTurn {
    /// Cancels the turn if its client disconnects. If the client did not begin the turn, its disconnect cancels nothing.
    pub(crate) fn cancel_on_disconnect(&self, app: &AppState) -> CancelOnDisconnect {
        let watchers = app.chat_watchers.clone();
        CancelOnDisconnect {
            watched: watchers.acquire((self.session.id(), self.prompt), usize::MAX),
            watchers,
            session: self.session.clone(),
            prompt: self.prompt,
            shutdown: app.shutdown.clone(),
            complete: AtomicBool::new(!self.is_own),
        }
    }

    /// Waits for the end of a turn whose response is not streamed, and returns the response of a turn that fails meanwhile. After
    /// the wait, the status is sent before the end is known.
    pub(crate) async fn failed_early(&self, app: &AppState) -> Result<Option<Response>> {
        let ended = self.session.wait_ended(self.prompt, STATUS_WAIT).await?;
        let mut problem = match ended {
            Some(ended) => {
                let Some(error) = ended.error else {
                    return Ok(None);
                };
                serde_json::from_str(error.get()).unwrap_or_else(|_| Problem::internal())
            }
            None if app.shutdown.is_draining() => Problem::new(
                ProblemCode::Draining,
                "the gateway is shutting down, and cancels the turn after timeouts.drain_timeout",
            ),
            None => return Ok(None),
        };
        let range = self.session.query().prompt_range(self.prompt).await?;
        let range = range.ok_or_else(ApiError::not_found)?;
        let repeats = matches!(problem.status, 408 | 409 | 429 | 500..);
        if repeats && may_be_seen(&self.session, self.prompt, range).await? {
            // The libraries repeat requests with these statuses, and the agent would act twice.
            problem.status = StatusCode::FAILED_DEPENDENCY.as_u16();
            problem.retryable = false;
        }
        let session = [(SESSION_ID, ascii(self.session.id().to_string()))];
        Ok(Some((session, ApiError::from(problem)).into_response()))
    }

    /// The same turn for a client that may not have begun it. Its disconnect cancels nothing.
    #[must_use]
    pub(crate) fn of_others(mut self) -> Self {
        self.is_own = false;
        self
    }

    pub(crate) async fn existing(
        app: &AppState,
        by: &Principal,
        session: SessionHandle,
        prompt: PromptId,
        notices: Vec<Notice>,
    ) -> Result<Self> {
        record_session(session.id());
        let range = session.query().prompt_range(prompt).await?;
        let range = range.ok_or_else(ApiError::not_found)?;
        Ok(Self {
            session,
            prompt,
            first_seq: range.first_seq,
            last_seq: range.last_seq,
            notices,
            is_own: true,
            guard: app.streams.acquire(by, "chat")?,
        })
    }
}

/// Whether the agent may have seen the prompt of a turn.
pub(super) async fn may_be_seen(
    session: &SessionHandle,
    prompt: PromptId,
    range: PromptRange,
) -> Result<bool> {
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                let starts =
                    |event: EventRef<'_>| event.kind() == "prompt.started" && event.is_of(prompt);
                let started = run.events().any(starts);
                if started || run.last_seq >= last {
                    return Ok(started);
                }
            }
            Item::Ready { .. } => return Ok(false),
            // Without the events of the turn, assume that the agent has seen the prompt.
            Item::Reset { .. } | Item::End => return Ok(true),
        }
    }
}

/// The id that a client has for its conversation. A template that the client did not fill in is no id.
pub(super) fn given_id(id: &str) -> Option<&str> {
    let id = id.trim();
    (!id.is_empty() && id != "new" && !id.contains("{{")).then_some(id)
}

/// The session of the gateway that a client's id of a conversation names. Clients also have UUIDs of their own.
pub(super) async fn named_session(
    app: &AppState,
    by: &Principal,
    id: &str,
) -> Result<Option<SessionId>> {
    let Ok(session) = id.parse::<SessionId>() else {
        return Ok(None);
    };
    let exists = app.sessions.can_open(by, session).await?;
    Ok(exists.then_some(session))
}

#[derive(Debug)]
pub(crate) struct LatestTurn {
    pub(crate) session: SessionHandle,
    pub(crate) prompt: PromptId,
    notices: Vec<Notice>,
    is_own: bool,
    /// The turns of the conversation. Empty if the client named a session.
    turns: Vec<Turn>,
}

impl LatestTurn {
    /// `id`: the client's id of the conversation, or the id of a session. `None` if it has no turn.
    pub(crate) async fn find<S>(
        app: &AppState,
        by: &Authorized<S>,
        agent: &AgentName,
        protocol: &str,
        id: &str,
    ) -> Result<Option<Self>> {
        if let Some(session) = named_session(app, by, id).await? {
            let session = app.open_one_session(by, session).await?;
            let newest = session.query().prompts(None, 1).await?;
            let newest = newest.prompts.first().map(|turn| turn.prompt_id);
            return Ok(newest.map(|prompt| Self {
                session,
                prompt,
                notices: Vec::new(),
                is_own: false,
                turns: Vec::new(),
            }));
        }
        let Some(id) = given_id(id) else {
            return Ok(None);
        };
        let key = ConversationKey::new(by, agent, protocol, &format!("id:{id}"));
        let conversation = app.conversations.get(&key).await;
        let conversation = conversation.map_err(ApiError::internal)?;
        let Some(Conversation { session, turns, .. }) = conversation.into_iter().next_back() else {
            return Ok(None);
        };
        let Some(newest) = turns.last() else {
            return Ok(None);
        };
        match app.open_one_session(by, session).await {
            Ok(session) => Ok(Some(Self {
                session,
                prompt: newest.prompt_id(),
                notices: newest.notices.clone(),
                is_own: true,
                turns,
            })),
            Err(SessionError::NoSuchSession) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a message of the user may be one of the conversation. Those of a session that the client named are not known.
    pub(crate) fn may_have(&self, message: &Message) -> bool {
        let UserMessage { content, id } = message.digest();
        let mut turns = self.turns.iter();
        turns.len() == 0
            || turns.any(|turn| turn.message == content || id.is_some_and(|id| turn.has_id(id)))
    }

    /// The newest turns of the conversation, at most `max`, for a client that has no messages.
    pub(crate) async fn history(&self, max: usize) -> Result<Vec<PastTurn<'_>>> {
        let first = self.turns.len().saturating_sub(max);
        turns_of(&self.session, &self.turns[first..]).await
    }

    pub(crate) async fn attach(self, app: &AppState, by: &Principal) -> Result<ChatTurn> {
        let turn = ChatTurn::existing(app, by, self.session, self.prompt, self.notices).await?;
        let is_own = self.is_own;
        Ok(ChatTurn { is_own, ..turn })
    }
}

pub(crate) async fn create_session(
    app: &AppState,
    by: &Authorized<CanPrompt>,
    agent: AgentName,
    metadata: Option<Map<String, Value>>,
    trace: Option<TraceContext>,
) -> Result<SessionHandle> {
    let request = CreateSession {
        metadata,
        ..CreateSession::of(agent)
    };
    let sessions = &app.sessions;
    let created = sessions.create(by, request, None, None, trace).await?;
    Ok(app.open_session(by, created.response.session_id).await?)
}

/// The blocks of a prompt before the message: the instructions, and the history of the client as text.
const MAX_LEADING: usize = 2;

/// Calls `each` for the steps of a turn: to its end, or to the last event that exists.
pub(crate) async fn steps_of(
    session: &SessionHandle,
    prompt: PromptId,
    range: PromptRange,
    mut each: impl FnMut(Step<'_>),
) -> Result<()> {
    let mut projector = TurnProjector::default();
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                for event in run.events() {
                    if event.seq() <= last && event.is_of(prompt) {
                        projector.event(&event, &mut each);
                    }
                }
                if run.last_seq >= last {
                    return Ok(());
                }
            }
            Item::Ready { .. } => return Ok(()),
            Item::Reset { .. } | Item::End => return Err(ApiError::not_found()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct PastTurn<'a> {
    pub(crate) session: &'a SessionHandle,
    pub(crate) prompt: PromptId,
    pub(crate) range: PromptRange,
    pub(crate) text: String,
}

impl PastTurn<'_> {
    pub(crate) fn message_id(&self) -> String {
        message_id(self.session.id(), self.prompt)
    }
}

/// The id of the message of the user in a turn, for a client that asks for the history.
pub(super) fn message_id(session: SessionId, prompt: PromptId) -> String {
    format!("{session}_{prompt}-0")
}

/// The newest turns of a conversation: those after the last one whose message a client could not send again as it was, because it
/// has files, or was joined with another one.
pub(super) async fn turns_of<'a>(
    session: &'a SessionHandle,
    turns: &[Turn],
) -> Result<Vec<PastTurn<'a>>> {
    let mut past = Vec::new();
    for turn in turns {
        let prompt = turn.prompt_id();
        let range = session.query().prompt_range(prompt).await?;
        // The client sends its own text again, also if another client edited it in the queue.
        let blocks = session.query().first_blocks(prompt).await?;
        let (Some(range), Some(blocks)) = (range, blocks) else {
            past.clear();
            continue;
        };
        let blocks: Vec<Value> = serde_json::from_str(blocks.get()).unwrap_or_default();
        let messages = (0..=MAX_LEADING.min(blocks.len()))
            .map(|leading| Message::new("user", blocks[leading..].to_vec()));
        let same = |message: &Message| message.digest().content == turn.message;
        let message = messages.into_iter().find(same);
        let message = message.filter(|message| {
            let mut blocks = message.blocks.iter();
            blocks.len() > 0 && blocks.all(|block| block["type"] == "text")
        });
        let Some(message) = message else {
            past.clear();
            continue;
        };
        past.push(PastTurn {
            session,
            prompt,
            range,
            text: message.text,
        });
    }
    Ok(past)
}

const GRACE: Duration = Duration::from_secs(5);

/// Cancels a turn some seconds after its last client has disconnected. A turn that waits for an answer goes on.
#[derive(Debug)]
pub(crate) struct CancelOnDisconnect {
    session: SessionHandle,
    prompt: PromptId,
    shutdown: Shutdown,
    watchers: KeyedCounts<(SessionId, PromptId)>,
    watched: Option<KeyedGuard<(SessionId, PromptId)>>,
    complete: AtomicBool,
}

impl CancelOnDisconnect {
    pub(super) fn completed(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }
}

impl Drop for CancelOnDisconnect {
    fn drop(&mut self) {
        let _ = self.watched.take();
        if self.complete.load(Ordering::Relaxed) || self.shutdown.is_draining() {
            return;
        }
        let session = self.session.clone();
        let prompt = self.prompt;
        let watchers = self.watchers.clone();
        let drained = self.shutdown.clone();
        self.shutdown.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(GRACE) => {}
                () = drained.drain_started() => return,
            }
            if watchers.count(&(session.id(), prompt)) > 0 {
                return;
            }
            let now = session.snapshot().await;
            if now.is_ok_and(|now| !now.requests.is_empty()) {
                return;
            }
            let cancelled = session.cancel(Some(prompt), CancelCause::Disconnect, None);
            if let Err(error) = cancelled.await {
                let error = &error as &dyn std::error::Error;
                let session = session.id();
                tracing::debug!(%session, %prompt, error, "could not cancel the turn of a client that left");
            }
        });
    }
}
