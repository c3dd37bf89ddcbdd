//! A turn of a conversation, and the newest one.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value};

use super::abandon::CancelOnDisconnect;
use super::message::Message;
use super::past_turn::{PastTurn, turns_of};
use crate::acp::TraceContext;
use crate::api::{CreateSession, Problem, ProblemCode};
use crate::conversation::{Conversation, ConversationKey, Notice, Turn, UserMessage};
use crate::eventlog::{Item, Start};
use crate::session::{PromptRange, SessionError, SessionHandle};
use crate::stream::{Feed, Source, StreamGuard, TurnFilter};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::{AgentName, Principal, PromptId, SessionId};

/// The session of a request or a response.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("x-acp-session-id");
/// How long a response that is not streamed waits for its turn before it sends the status. Clients and proxies close a connection
/// without a byte after half a minute or more.
const STATUS_WAIT: Duration = Duration::from_secs(20);

/// A turn of a conversation.
#[derive(Debug)]
pub(crate) struct ChatTurn {
    pub(crate) session: SessionHandle,
    pub(crate) prompt: PromptId,
    pub(super) first_seq: u64,
    pub(super) last_seq: Option<u64>,
    pub(crate) notices: Vec<Notice>,
    /// Whether the client of this conversation began the turn, so that its disconnect may cancel the turn.
    pub(super) is_own: bool,
    /// Counts the response as a stream.
    pub(super) guard: StreamGuard,
}

impl ChatTurn {
    /// The events of the turn, from its first one.
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
        let watched = (&gateway.shutdown, gateway.chat_watchers());
        CancelOnDisconnect::new((self.session.clone(), self.prompt), self.is_own, watched)
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

    /// A turn that exists already.
    pub(crate) async fn existing(
        gateway: &Gateway,
        by: &Principal,
        session: SessionHandle,
        prompt: PromptId,
        notices: Vec<Notice>,
    ) -> Result<Self, ApiError> {
        let range = session
            .query()
            .prompt_range(prompt)
            .await?
            .ok_or_else(ApiError::not_found)?;
        let guard = gateway.streams().acquire(by)?;
        let (first_seq, last_seq) = (range.first_seq, range.last_seq);
        Ok(Self {
            session,
            prompt,
            first_seq,
            last_seq,
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

/// The key of a conversation that the client gave an id.
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
    Ok(gateway
        .sessions
        .has_session(by, session)
        .await?
        .then_some(session))
}

/// The newest turn of a conversation.
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
        (agent, protocol, id): (&AgentName, &str, &str),
    ) -> Result<Option<Self>, ApiError> {
        if let Some(session) = named_session(gateway, by, id).await? {
            let session = gateway.sessions.open(by, session).await?;
            let newest = session
                .query()
                .prompts(None, 1)
                .await?
                .prompts
                .first()
                .map(|turn| turn.prompt_id);
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
        let conversation = gateway
            .conversations()
            .get(&key)
            .await
            .map_err(ApiError::internal)?;
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
        turns_of(
            &self.session,
            &self.turns[self.turns.len().saturating_sub(max)..],
        )
        .await
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

/// Creates a session in a new folder.
pub(crate) async fn create_session(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    (agent, metadata): (AgentName, Option<Map<String, Value>>),
    trace: Option<TraceContext>,
) -> Result<SessionHandle, ApiError> {
    let request = CreateSession {
        metadata,
        ..CreateSession::of(agent)
    };
    let created = gateway.sessions.create(by, request, None, trace).await?;
    Ok(gateway
        .sessions
        .open(by, created.response.session_id)
        .await?)
}
