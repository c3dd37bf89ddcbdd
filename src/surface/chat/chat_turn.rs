//! A turn of a conversation, and the newest one.

use serde_json::{Map, Value};

use super::abandon::CancelOnDisconnect;
use super::past_turn::{PastTurn, turns_of};
use crate::acp::TraceContext;
use crate::api::CreateSession;
use crate::conversation::{Conversation, ConversationKey, Notice, Turn};
use crate::eventlog::{Item, Start};
use crate::session::{PromptRange, SessionError, SessionHandle};
use crate::stream::{Feed, Source, StreamGuard, TurnFilter};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::{AgentName, Principal, PromptId, SessionId};

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

    /// Whether the agent may have seen the prompt.
    pub(crate) async fn may_be_seen(&self) -> Result<bool, ApiError> {
        let range = self.session.query().prompt_range(self.prompt).await?;
        let range = range.ok_or_else(ApiError::not_found)?;
        may_be_seen(&self.session, self.prompt, range).await
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
        .open(by, created.session.session_id)
        .await?)
}
