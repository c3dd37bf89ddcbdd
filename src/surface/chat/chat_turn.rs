//! A turn of a conversation, the newest one, and earlier ones.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};

use super::abandon::CancelOnDisconnect;
use super::message::Message;
use crate::stream::{Feed, Source, StreamGuard, TurnFilter};
use crate::surface::http::{ApiError, Authorized, CanPrompt, Gateway};
use base::types::{AgentName, Principal, PromptId, SessionId};
use events::api::{CreateSession, Problem, ProblemCode};
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
    pub(super) fn feed(&self, gateway: &Gateway) -> Feed {
        let reader = self.session.log().reader(Start::After(self.first_seq - 1));
        let turn = TurnFilter {
            prompt: self.prompt,
            last_seq: self.last_seq,
        };
        Feed {
            turn: Some(turn),
            ..gateway.feed(Source::session(reader, self.session.clone()))
        }
    }

    /// Cancels the turn if its client disconnects.
    pub(crate) fn cancel_on_disconnect(&self, gateway: &Gateway) -> CancelOnDisconnect {
        let shutdown = gateway.shutdown.clone();
        let watchers = gateway.chat_watchers().clone();
        let session = self.session.clone();
        CancelOnDisconnect::new(shutdown, watchers, session, self.prompt, self.is_own)
    }

    /// Waits for the end of a turn whose response is not streamed, and returns the response of a turn that fails meanwhile. After
    /// the wait, the status is sent before the end is known.
    pub(crate) async fn failed_early(
        &self,
        gateway: &Gateway,
    ) -> Result<Option<Response>, ApiError> {
        let ended = self.session.wait_ended(self.prompt, STATUS_WAIT).await?;
        let mut problem = match ended {
            Some(ended) => match ended.error {
                Some(error) => {
                    serde_json::from_str(error.get()).unwrap_or_else(|_| Problem::internal())
                }
                None => return Ok(None),
            },
            None if gateway.shutdown.is_draining() => Problem::new(
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
        let mut response = ApiError::from(problem).into_response();
        response
            .headers_mut()
            .insert(SESSION_ID, session_header(self.session.id()));
        Ok(Some(response))
    }

    /// The same turn for a client that may not have begun it. Its disconnect cancels nothing.
    #[must_use]
    pub(crate) fn of_others(self) -> Self {
        Self {
            is_own: false,
            ..self
        }
    }

    pub(crate) async fn existing(
        gateway: &Gateway,
        by: &Principal,
        session: SessionHandle,
        prompt: PromptId,
        notices: Vec<Notice>,
    ) -> Result<Self, ApiError> {
        let range = session.query().prompt_range(prompt).await?;
        let range = range.ok_or_else(ApiError::not_found)?;
        let guard = gateway.streams().acquire(by)?;
        Ok(Self {
            session,
            prompt,
            first_seq: range.first_seq,
            last_seq: range.last_seq,
            notices,
            is_own: true,
            guard,
        })
    }
}

/// Whether the agent may have seen the prompt of a turn.
pub(super) async fn may_be_seen(
    session: &SessionHandle,
    prompt: PromptId,
    range: PromptRange,
) -> Result<bool, ApiError> {
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                let started = run
                    .events()
                    .any(|event| event.kind() == "prompt.started" && event.is_of(prompt));
                if started || run.last_seq >= last {
                    return Ok(started);
                }
            }
            Item::Ready { .. } => return Ok(false),
            // Without its events, nothing says that the agent has not seen it.
            Item::Reset { .. } | Item::End => return Ok(true),
        }
    }
}

pub(super) fn session_header(session: SessionId) -> HeaderValue {
    HeaderValue::try_from(session.to_string()).expect("an id is plain ASCII")
}

/// The id that a client has for its conversation. A template that the client did not fill in is no id.
pub(super) fn given_id(id: &str) -> Option<&str> {
    let id = id.trim();
    (!id.is_empty() && id != "new" && !id.contains("{{")).then_some(id)
}

pub(super) fn conversation_key(
    by: &Principal,
    agent: &AgentName,
    protocol: &str,
    id: &str,
) -> ConversationKey {
    ConversationKey::new(by, agent, protocol, &format!("id:{id}"))
}

/// The session of the gateway that a client's id of a conversation names. Clients also have UUIDs of their own.
pub(super) async fn named_session(
    gateway: &Gateway,
    by: &Principal,
    id: &str,
) -> Result<Option<SessionId>, ApiError> {
    let Ok(session) = id.parse::<SessionId>() else {
        return Ok(None);
    };
    let exists = gateway.sessions.has_session(by, session).await?;
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
    pub(crate) async fn find(
        gateway: &Gateway,
        by: &Principal,
        agent: &AgentName,
        protocol: &str,
        id: &str,
    ) -> Result<Option<Self>, ApiError> {
        if let Some(session) = named_session(gateway, by, id).await? {
            let session = gateway.sessions.open(by, session).await?;
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
        let key = conversation_key(by, agent, protocol, id);
        let conversation = gateway.conversations().get(&key).await;
        let conversation = conversation.map_err(ApiError::internal)?;
        let Some(Conversation { session, turns, .. }) = conversation.into_iter().next_back() else {
            return Ok(None);
        };
        let Some(newest) = turns.last() else {
            return Ok(None);
        };
        let prompt = newest.prompt_id();
        let notices = newest.notices.clone();
        match gateway.sessions.open(by, session).await {
            Ok(session) => Ok(Some(Self {
                session,
                prompt,
                notices,
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
    pub(crate) async fn history(&self, max: usize) -> Result<Vec<PastTurn<'_>>, ApiError> {
        let first = self.turns.len().saturating_sub(max);
        turns_of(&self.session, &self.turns[first..]).await
    }

    pub(crate) async fn attach(
        self,
        gateway: &Gateway,
        by: &Principal,
    ) -> Result<ChatTurn, ApiError> {
        let turn = ChatTurn::existing(gateway, by, self.session, self.prompt, self.notices).await?;
        Ok(ChatTurn {
            is_own: self.is_own,
            ..turn
        })
    }
}

pub(crate) async fn create_session(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    agent: AgentName,
    metadata: Option<Map<String, Value>>,
    trace: Option<TraceContext>,
) -> Result<SessionHandle, ApiError> {
    let request = CreateSession {
        metadata,
        ..CreateSession::of(agent)
    };
    let created = gateway.sessions.create(by, request, None, trace).await?;
    let session = created.response.session_id;
    Ok(gateway.sessions.open(by, session).await?)
}

/// The blocks of a prompt before the message: the instructions, and the history of the client as text.
const MAX_LEADING: usize = 2;

/// Calls `each` for the steps of a turn: to its end, or to the last event that exists.
pub(crate) async fn steps_of(
    session: &SessionHandle,
    (prompt, range): (PromptId, PromptRange),
    mut each: impl FnMut(Step<'_>),
) -> Result<(), ApiError> {
    let mut projector = TurnProjector::default();
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                let events = run
                    .events()
                    .filter(|event| event.seq() <= last && event.is_of(prompt));
                events.for_each(|event| projector.event(&event, &mut each));
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
) -> Result<Vec<PastTurn<'a>>, ApiError> {
    let mut past = Vec::new();
    for turn in turns {
        let prompt = turn.prompt_id();
        // The client sends its own text again, also if another client edited it in the queue.
        let (Some(range), Some(blocks)) = (
            session.query().prompt_range(prompt).await?,
            session.query().first_blocks(prompt).await?,
        ) else {
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
