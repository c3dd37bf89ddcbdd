//! The start of a turn from the messages of a client.
//!
//! [`decide`] says what a request means. This module finds the conversation for it, and does what it says.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName};
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};

use super::chat_turn::{ChatTurn, conversation_key, create_session, may_be_seen, named_session};
use super::message::{Message, PromptContent, have_text};
use super::model_option::ModelOption;
use super::past_turn::message_id;
use super::respond::HISTORY;
use crate::acp::{PromptCapabilities, TraceContext};
use crate::api::{Problem, ProblemCode};
use crate::conversation::{
    Conversation, ConversationKey, Decision, Digest, Evidence, Locked, MAX_OF_HISTORY, Meaning,
    Notice, Turn, TurnState, UserMessage, decide,
};
use crate::session::{ClientCall, IdempotencyKey, PromptRequest, SessionError, SessionHandle};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::{ApiError, trace_context};
use crate::surface::state::Gateway;
use crate::surface::turn::NewTurn;
use crate::types::{AgentName, CancelCause, PromptId, SessionId};

/// A client sends the same key with each repetition of a request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The policy for a changed history. An agent cannot return to an earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HistoryPolicy {
    /// A new session receives the history as text.
    #[default]
    New,
    /// The session continues with the new message.
    Append,
    /// The request fails.
    Reject,
}

impl HistoryPolicy {
    fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        match headers.get(HISTORY).map(http::HeaderValue::as_bytes) {
            None | Some(b"new") => Ok(Self::New),
            Some(b"append") => Ok(Self::Append),
            Some(b"reject") => Ok(Self::Reject),
            Some(_) => Err(ApiError::invalid(
                "",
                "the header X-Acp-History must be new, append or reject",
            )),
        }
    }
}

/// Messages of a client.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) agent: AgentName,
    /// The model that the agent should use, by the value of its option.
    pub(crate) model: Option<String>,
    pub(crate) protocol: &'static str,
    /// The client's id of the conversation.
    pub(crate) conversation: Option<String>,
    /// Conversations that are found by their history belong to this person or program of the client.
    pub(crate) user: Option<String>,
    /// The session that the client names. Its turns may come from other clients, so the history is not compared.
    pub(crate) session: Option<SessionId>,
    pub(crate) messages: Vec<Message>,
    pub(crate) system: Option<String>,
    pub(crate) policy: HistoryPolicy,
    /// The client asks for another answer if it sends the message of a turn again.
    pub(crate) asks_again: bool,
    /// The client says that it repeats a request that failed.
    pub(crate) is_retry: bool,
    /// The client's id of the request. A repeated request gets the turn that it has.
    pub(crate) id: Option<String>,
    /// The turn after which the client sends its message, if it names one.
    pub(crate) follows: Option<PromptId>,
    /// The client must answer open questions before it sends a message.
    pub(crate) answers_first: bool,
    pub(crate) trace: Option<TraceContext>,
}

impl ChatRequest {
    /// A request with these messages. The headers have the policy, the id of the request and the trace context.
    pub(crate) fn new(
        agent: AgentName,
        protocol: &'static str,
        messages: Vec<Message>,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        let id = headers
            .get(IDEMPOTENCY_KEY)
            .and_then(|id| id.to_str().ok())
            .map(ToOwned::to_owned);
        Ok(Self {
            agent,
            model: None,
            protocol,
            conversation: None,
            user: None,
            session: None,
            messages,
            system: None,
            policy: HistoryPolicy::from_headers(headers)?,
            asks_again: false,
            is_retry: false,
            id,
            follows: None,
            answers_first: false,
            trace: trace_context(headers),
        })
    }

    /// Begins the turn of the last message, or finds it if the request is repeated.
    pub(crate) async fn begin(
        mut self,
        gateway: &Gateway,
        by: &Authorized<CanPrompt>,
    ) -> Result<ChatTurn, ApiError> {
        if let (None, Some(id)) = (self.session, &self.conversation) {
            self.session = named_session(gateway, by, id).await?;
        }
        let last = self.messages.iter().rposition(Message::is_spoken);
        let Some(last) = last.filter(|at| self.messages[*at].is_user()) else {
            let detail =
                "the last message must be one of the user: an agent cannot continue another one";
            return Err(ApiError::invalid("", detail));
        };
        let Message {
            blocks,
            pointer,
            unreadable,
            ..
        } = &self.messages[last];
        if let Some((at, reason)) = unreadable {
            return Err(ApiError::invalid(format!("{pointer}/{at}"), *reason));
        }
        if blocks.is_empty() {
            let detail = "the last message must have a text or a file";
            return Err(ApiError::invalid(pointer.clone(), detail));
        }
        let users = self.messages.iter().filter(|message| message.is_user());
        let users: Vec<&Message> = users.collect();
        let digests: Vec<UserMessage> = users.iter().map(|message| message.digest()).collect();
        let evidence = Evidence {
            messages: &digests,
            request: Digest::of_id(self.id.as_deref()),
            is_retry: self.is_retry,
            asks_again: self.asks_again,
            names_session: self.session.is_some(),
        };
        let start = TurnStart {
            gateway,
            by,
            request: &self,
            users: &users,
            before: &self.messages[..last],
            evidence,
        };
        start.run().await
    }
}

/// How a client names its conversation.
enum Reference {
    /// With an id of the client, or of a session.
    ById(ConversationKey),
    /// With the history alone: the keys of all its messages, and of all but the last one.
    ByHistory {
        whole: ConversationKey,
        before: Option<ConversationKey>,
    },
}

impl Reference {
    /// The key under which the conversation is stored with the new turn.
    fn stored(&self) -> &ConversationKey {
        match self {
            Self::ById(key) | Self::ByHistory { whole: key, .. } => key,
        }
    }

    /// How many conversations one key has: several have the same history.
    fn max_conversations(&self) -> usize {
        match self {
            Self::ById(_) => 1,
            Self::ByHistory { .. } => MAX_OF_HISTORY,
        }
    }

    /// The key under which requests wait for each other. Histories that continue the same one write their own keys.
    fn locked(&self) -> &ConversationKey {
        match self {
            Self::ById(key) => key,
            Self::ByHistory { whole, before } => before.as_ref().unwrap_or(whole),
        }
    }
}

/// What the start of a turn needs: the request, and what it is evidence of.
struct TurnStart<'a> {
    gateway: &'a Gateway,
    by: &'a Authorized<CanPrompt>,
    request: &'a ChatRequest,
    /// The messages of the user.
    users: &'a [&'a Message],
    /// The messages before the last one of the user.
    before: &'a [Message],
    evidence: Evidence<'a>,
}

/// A conversation whose session exists.
struct Match {
    conversation: Conversation,
    session: SessionHandle,
    /// The newest turn that the client knows.
    newest: Option<PromptId>,
}

/// The prompt that a request becomes.
struct NewPrompt<'a> {
    known: Option<Match>,
    /// The earlier messages that the session does not know.
    earlier: &'a [Message],
    first_new: usize,
    notices: Vec<Notice>,
}

impl<'a> TurnStart<'a> {
    async fn run(self) -> Result<ChatTurn, ApiError> {
        let reference = self.reference();
        let conversations = self.gateway.conversations();
        let locked = conversations.lock(reference.locked().clone()).await;
        if let Some((known, notices)) = self.repeated(&reference).await? {
            return self.carry_out(&locked, &reference, known, notices).await;
        }
        let Some(known) = self.known(&reference).await? else {
            return self.prompt(&locked, &reference, self.first()).await;
        };
        // Only a history without an id can be a copy that was continued.
        if matches!(reference, Reference::ByHistory { .. }) && !is_newest(&known).await? {
            let changed = self.changed(known, self.users.len() - 1)?;
            return self.prompt(&locked, &reference, changed).await;
        }
        self.carry_out(&locked, &reference, known, Vec::new()).await
    }

    /// Does what the request means for the conversation.
    async fn carry_out(
        &self,
        locked: &Locked,
        reference: &Reference,
        known: Match,
        mut notices: Vec<Notice>,
    ) -> Result<ChatTurn, ApiError> {
        let last = self.users.len() - 1;
        let decision = match decide(&known.conversation, &self.evidence) {
            Meaning::Decided(decision) => decision,
            Meaning::SentAgain(again) => {
                let turn = &known.conversation.turns[again.turn];
                again.in_state(self.state(&known.session, turn).await?)
            }
        };
        let prompt = match decision {
            Decision::Existing { turn, certain } => {
                if !certain && notices.is_empty() {
                    notices.push(Notice::Repeated);
                }
                let turn = &known.conversation.turns[turn];
                notices.extend(&turn.notices);
                let prompt = turn.prompt_id();
                return ChatTurn::existing(self.gateway, self.by, known.session, prompt, notices)
                    .await;
            }
            Decision::Next { first_new, certain } => {
                if first_new < last {
                    notices.push(Notice::Joined);
                }
                if !certain {
                    notices.push(Notice::Continued);
                }
                NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new,
                    notices,
                }
            }
            Decision::Again => {
                notices.push(Notice::Again);
                NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new: last,
                    notices,
                }
            }
            Decision::Changed { kept } => self.changed(known, kept)?,
        };
        self.prompt(locked, reference, prompt).await
    }

    fn reference(&self) -> Reference {
        let ChatRequest {
            agent,
            protocol,
            conversation,
            user,
            session,
            ..
        } = self.request;
        let key = |id: &str| ConversationKey::new(self.by, agent, protocol, id);
        if let Some(session) = session {
            return Reference::ById(key(&format!("session:{session}")));
        }
        // A template that a client did not fill in is no id.
        let given = conversation.as_deref().map(str::trim);
        if let Some(id) = given.filter(|id| !id.is_empty() && *id != "new" && !id.contains("{{")) {
            return Reference::ById(conversation_key(self.by, agent, protocol, id));
        }
        let chain = |messages: &[UserMessage]| {
            let mut hash = Sha256::new();
            hash.update(user.as_deref().unwrap_or_default());
            for message in messages {
                hash.update([0]);
                hash.update(message.content.bytes());
            }
            let hash = URL_SAFE_NO_PAD.encode(hash.finalize());
            key(&format!("history:{hash}"))
        };
        let messages = self.evidence.messages;
        let before = (messages.len() > 1).then(|| chain(&messages[..messages.len() - 1]));
        Reference::ByHistory {
            whole: chain(messages),
            before,
        }
    }

    /// The conversations under a key whose sessions exist.
    async fn stored(&self, key: &ConversationKey) -> Result<Vec<Match>, ApiError> {
        let stored = self.gateway.conversations().get(key).await;
        let mut all = Vec::new();
        for conversation in stored.map_err(ApiError::internal)? {
            let session = self.gateway.sessions.open(self.by, conversation.session);
            match session.await {
                Ok(session) => all.push(Match {
                    newest: conversation.turns.last().map(Turn::prompt_id),
                    conversation,
                    session,
                }),
                Err(SessionError::NoSuchSession) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(all)
    }

    /// The conversation without an id whose last turn has the whole history of this request, if the request repeats this turn:
    /// by its id, by a count of repetitions, or because the turn runs.
    async fn repeated(
        &self,
        reference: &Reference,
    ) -> Result<Option<(Match, Vec<Notice>)>, ApiError> {
        let Reference::ByHistory { whole, .. } = reference else {
            return Ok(None);
        };
        let mut all = self.stored(whole).await?;
        let same = |known: &Match| {
            let newest = known.conversation.turns.last();
            newest.is_some_and(|turn| turn.run.is_some() && turn.run == self.evidence.request)
        };
        if let Some(at) = all.iter().position(same) {
            return Ok(Some((all.swap_remove(at), Vec::new())));
        }
        // The same first words are those of many conversations.
        if !self.evidence.is_retry && self.users.len() == 1 {
            return Ok(None);
        }
        for (at, known) in all.iter().enumerate().rev() {
            if let Some(turn) = known.conversation.turns.last()
                && matches!(
                    self.state(&known.session, turn).await?,
                    TurnState::Running { .. }
                )
            {
                return Ok(Some((all.swap_remove(at), Vec::new())));
            }
        }
        if !self.evidence.is_retry {
            return Ok(None);
        }
        let notices = if all.len() > 1 {
            vec![Notice::Repeated]
        } else {
            Vec::new()
        };
        Ok(all.pop().map(|newest| (newest, notices)))
    }

    /// The conversation that the request continues, if it exists.
    async fn known(&self, reference: &Reference) -> Result<Option<Match>, ApiError> {
        match reference {
            Reference::ById(key) => {
                let known = self.stored(key).await?.pop();
                let Some(id) = self.request.session else {
                    return Ok(known);
                };
                if known.is_some() {
                    return Ok(known);
                }
                Ok(Some(Match {
                    session: self.gateway.sessions.open(self.by, id).await?,
                    conversation: Conversation::new(id),
                    newest: self.request.follows,
                }))
            }
            Reference::ByHistory { before: None, .. } => Ok(None),
            Reference::ByHistory {
                before: Some(before),
                ..
            } => self.of_answer(self.stored(before).await?).await,
        }
    }

    /// Of several conversations with the same messages of the user, the one whose last answer is that of the request. Without
    /// such an answer, none of them is certain.
    async fn of_answer(&self, mut all: Vec<Match>) -> Result<Option<Match>, ApiError> {
        if all.len() < 2 {
            return Ok(all.pop());
        }
        let answer = self
            .before
            .iter()
            .rfind(|message| message.role == "assistant");
        let answer = answer.map(|message| without_space(&message.text));
        let Some(answer) = answer.filter(|answer| !answer.is_empty()) else {
            return Ok(None);
        };
        let mut best = None;
        for (at, known) in all.iter().enumerate() {
            let Some(turn) = known.conversation.turns.last() else {
                continue;
            };
            let state = known.session.query().prompt_state(turn.prompt_id()).await?;
            let own = state
                .map(|turn| without_space(&turn.text))
                .unwrap_or_default();
            let similarity = if own == answer {
                2
            } else if !own.is_empty() && (own.contains(&answer) || answer.contains(&own)) {
                1
            } else {
                continue;
            };
            let rank = (similarity, is_newest(known).await?);
            // Of equal ones, the newest.
            if best.is_none_or(|(other, _)| rank >= other) {
                best = Some((rank, at));
            }
        }
        Ok(best.map(|(_, at)| all.swap_remove(at)))
    }

    /// The state of a turn whose message may have been sent again.
    async fn state(&self, session: &SessionHandle, turn: &Turn) -> Result<TurnState, ApiError> {
        let prompt = turn.prompt_id();
        let Some(range) = session.query().prompt_range(prompt).await? else {
            return Ok(TurnState::Ended);
        };
        if range.last_seq.is_none() {
            let readers = self.gateway.chat_watchers().count(&(session.id(), prompt));
            return Ok(TurnState::Running {
                is_read: readers > 0,
            });
        }
        let Some(turn) = session.query().prompt_state(prompt).await? else {
            return Ok(TurnState::Ended);
        };
        let has_no_answer = turn.cancel_cause == Some(CancelCause::Disconnect)
            || turn.error.is_some() && !may_be_seen(session, prompt, range).await?;
        Ok(if has_no_answer {
            TurnState::Abandoned
        } else {
            TurnState::Ended
        })
    }

    /// The first prompt of a conversation.
    fn first(&self) -> NewPrompt<'a> {
        // Some programs show a greeting as the first message of the assistant.
        let is_seeded = have_text(self.before);
        NewPrompt {
            known: None,
            earlier: self.before,
            first_new: self.users.len() - 1,
            notices: is_seeded.then_some(Notice::Seeded).into_iter().collect(),
        }
    }

    fn changed(&self, mut known: Match, kept: usize) -> Result<NewPrompt<'a>, ApiError> {
        match self.request.policy {
            HistoryPolicy::New => Ok(NewPrompt {
                notices: vec![Notice::Branched],
                ..self.first()
            }),
            HistoryPolicy::Append => {
                // From now on, the turns are those of the client's history.
                known.conversation.turns.truncate(kept);
                Ok(NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new: self.users.len() - 1,
                    notices: vec![Notice::Appended],
                })
            }
            HistoryPolicy::Reject => {
                let detail = "the history differs from the session; an agent cannot return to an earlier state";
                let problem = Problem {
                    retryable: false,
                    ..Problem::new(ProblemCode::HistoryDiverged, detail)
                };
                Err(problem.into())
            }
        }
    }

    /// Sends the prompt and stores the turn.
    async fn prompt(
        &self,
        locked: &Locked,
        reference: &Reference,
        new: NewPrompt<'_>,
    ) -> Result<ChatTurn, ApiError> {
        let NewPrompt {
            known,
            earlier,
            first_new,
            mut notices,
        } = new;
        let has_turns = known
            .as_ref()
            .is_some_and(|known| !known.conversation.turns.is_empty());
        let is_first = !has_turns && self.request.session.is_none();
        let limit = self.gateway.limits.max_prompt_bytes;
        let last = self.users.len() - 1;
        let mut content = PromptContent {
            system: self.request.system.as_deref().filter(|_| is_first),
            earlier,
            joined: &[],
            last: self.users[last],
        };
        // Before anything changes.
        content.blocks(PromptCapabilities::default(), limit)?;
        let is_new = known.is_none();
        let (session, mut conversation) = if let Some(Match {
            conversation,
            session,
            newest,
        }) = known
        {
            self.end_open_question(&session, newest).await?;
            self.select_model(&session).await?;
            (session, conversation)
        } else {
            let ChatRequest { agent, trace, .. } = self.request;
            let session =
                create_session(self.gateway, self.by, (agent.clone(), None), trace.clone()).await?;
            if let Err(error) = self.select_model(&session).await {
                // Nothing of a rejected request remains.
                drop(session.delete(self.by, None, None).await);
                return Err(error);
            }
            (session.clone(), Conversation::new(session.id()))
        };
        let takes = session.snapshot().await?.prompt_capabilities;
        let takes = takes.as_deref().map(PromptCapabilities::parse_any_version);
        content.joined = &self.users[first_new..last];
        let (blocks, is_omitted) = content.blocks(takes.unwrap_or_default(), limit)?;
        if is_omitted {
            notices.push(Notice::Omitted);
        }
        let system = self
            .request
            .system
            .as_deref()
            .map(|text| Digest::of(text, []));
        if !is_first && system.is_some() && system != conversation.system {
            notices.push(Notice::Instructions);
        }
        conversation.system = system.or(conversation.system);
        conversation.sends_newest_only = has_turns && self.users.len() == 1;
        let before = conversation.turns.last().map_or(0, |turn| turn.prompt);
        let is_appended = notices.contains(&Notice::Appended);
        let prompt = PromptRequest {
            blocks,
            attachments: Vec::new(),
            queue: true,
            key: (!is_appended)
                .then(|| self.key(reference.stored(), session.id(), before))
                .flatten(),
            trace: self.request.trace.clone(),
            acp_request: None,
            broadcast: None,
            serving: None,
        };
        let turn = NewTurn::begin::<ApiError>(self.gateway, self.by, &session, prompt, true).await;
        let turn = match turn {
            Ok(turn) => turn,
            Err(error) => {
                if is_new {
                    drop(session.delete(self.by, None, None).await);
                }
                return Err(error);
            }
        };
        let (admitted, guard) = (turn.admitted, turn.guard.expect("a held turn has a guard"));
        let prompt = admitted.prompt.prompt_id;
        for notice in &notices {
            tracing::info!(
                session = %session.id(), prompt = %prompt, history = notice.as_str(),
                "the messages of a chat client are not simply the next turn"
            );
        }
        if notices.contains(&Notice::Again) {
            conversation.turns.pop();
        }
        // A new session received the earlier messages as text.
        let first = if has_turns { first_new } else { 0 };
        for (at, message) in self.evidence.messages.iter().enumerate().skip(first) {
            let turn = Turn {
                own_id: Some(Digest::of(&message_id(session.id(), prompt), [])),
                ..Turn::new(*message, prompt.number())
            };
            conversation.push(if at >= first_new {
                Turn {
                    notices: notices.clone(),
                    run: self.evidence.request,
                    ..turn
                }
            } else {
                turn
            });
        }
        // The client can find the turn again, also if it receives a single byte and the gateway is killed.
        locked
            .put(
                reference.stored(),
                conversation,
                reference.max_conversations(),
            )
            .await
            .map_err(|_| ApiError::draining())?;
        let (first_seq, last_seq) = (admitted.first_seq, admitted.last_seq);
        Ok(ChatTurn {
            session,
            prompt,
            first_seq,
            last_seq,
            notices,
            is_own: true,
            guard,
        })
    }

    /// The key by which a repeated request finds the turn if the gateway was killed before it stored the conversation.
    /// `before`: the last turn that the conversation has.
    fn key(
        &self,
        conversation: &ConversationKey,
        session: SessionId,
        before: u32,
    ) -> Option<IdempotencyKey> {
        // A client that names a session means a new turn.
        if self.evidence.names_session {
            return None;
        }
        let message = self.evidence.messages[self.evidence.messages.len() - 1].content;
        let mut body_hash = [0; 32];
        body_hash[..16].copy_from_slice(message.bytes());
        let text = URL_SAFE_NO_PAD.encode(message.bytes());
        let key = format!("{}-{text}", conversation.turn_key(session, before));
        Some(IdempotencyKey {
            key,
            route: "chat".to_owned(),
            body_hash,
        })
    }

    /// Cancels the last turn if the agent waits for an answer in it: the person has sent a new message instead. A client of
    /// runs gets an error, because it must answer its interrupts, and a client that did not begin the turn, because its message
    /// would wait without an end.
    async fn end_open_question(
        &self,
        session: &SessionHandle,
        newest: Option<PromptId>,
    ) -> Result<(), ApiError> {
        let open = session.snapshot().await?.requests;
        if self.request.answers_first && !open.is_empty() {
            let detail = "the agent waits for an answer to its interrupts; send them in `resume`";
            return Err(ApiError::new(ProblemCode::TurnRunning, detail));
        }
        let Some(waiting) = open.iter().find_map(|open| open.prompt_id) else {
            return Ok(());
        };
        if newest != Some(waiting) {
            let detail = "the agent waits for an answer in a turn of another client; answer it, or cancel this turn";
            let problem = Problem {
                retryable: false,
                ..Problem::new(ProblemCode::TurnRunning, detail)
            };
            return Err(problem.into());
        }
        session.cancel(newest, CancelCause::Person, None).await?;
        Ok(())
    }

    /// Sets the option of the agent for its model, if the client named another one.
    async fn select_model(&self, session: &SessionHandle) -> Result<(), ApiError> {
        let Some(model) = &self.request.model else {
            return Ok(());
        };
        let options = session.snapshot().await?.config_options;
        let Some(option) = ModelOption::of(options.as_deref()) else {
            return Err(ApiError::new(
                ProblemCode::NotFound,
                "this agent has no option for its model",
            ));
        };
        if option.current.as_ref() == Some(model) {
            return Ok(());
        }
        if !option.values.contains(model) {
            return Err(ApiError::new(
                ProblemCode::NotFound,
                "the agent does not offer this model",
            ));
        }
        let value = to_raw_value(model).map_err(ApiError::internal)?;
        session
            .call(
                self.by,
                ClientCall::Config {
                    option: option.id,
                    value,
                },
                None,
            )
            .await?;
        Ok(())
    }
}

/// Whether the session has no turn after the known ones.
async fn is_newest(known: &Match) -> Result<bool, ApiError> {
    let Some(turn) = known.conversation.turns.last() else {
        return Ok(true);
    };
    let next = turn.prompt_id().next();
    Ok(known.session.query().prompt_range(next).await?.is_none())
}

fn without_space(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_whitespace())
        .collect()
}
