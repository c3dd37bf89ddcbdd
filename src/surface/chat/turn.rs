//! The start of a turn from the messages of a client.
//!
//! [`decide`] says what a request means. This module finds the conversation for it, and does what it says.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName};
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};

use super::chat_turn::{
    ChatTurn, conversation_key, create_session, given_id, may_be_seen, named_session,
};
use super::message::{Message, PromptContent, have_text};
use super::model_option::ModelOption;
use super::past_turn::message_id;
use super::respond::HISTORY;
use crate::acp::{PromptCapabilities, TraceContext};
use crate::api::{Problem, ProblemCode};
use crate::conversation::{
    Conversation, ConversationKey, Decision, Digest, Evidence, Locked, MAX_OF_HISTORY, Meaning,
    NewMessages, Notice, Turn, TurnState, UserMessage, decide,
};
use crate::session::{ClientCall, IdempotencyKey, PromptRequest, SessionError, SessionHandle};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::{ApiError, trace_context};
use crate::surface::state::Gateway;
use crate::surface::turn::NewTurn;
use crate::types::{AgentName, CancelCause, PromptId, SessionId};

/// The messages without an answer after which a history names no conversation.
const MAX_UNANSWERED: usize = 8;
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
    /// The session with the last answer in the history, if the answer has an id of the gateway.
    pub(crate) answered_in: Option<SessionId>,
    /// The messages that are new in this session.
    pub(crate) new_messages: NewMessages,
    pub(crate) messages: Vec<Message>,
    /// The instructions. Those of the messages are added.
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
            answered_in: None,
            new_messages: NewMessages::Last,
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
        let instructions = self
            .messages
            .iter()
            .filter(|message| message.is_instruction());
        let texts = instructions.map(|message| &*message.text);
        let texts: Vec<&str> = self.system.as_deref().into_iter().chain(texts).collect();
        let texts = texts.join("\n\n");
        self.system = (!texts.trim().is_empty()).then_some(texts);
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
            in_session: self.session.map(|_| self.new_messages),
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
    /// With the history alone: the keys of all its messages, and of those without the last ones, the longest first. More than one
    /// message may be new if those before the last one have no answer.
    ByHistory {
        whole: ConversationKey,
        before: Vec<ConversationKey>,
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
            Self::ByHistory { whole, before } => before.first().unwrap_or(whole),
        }
    }
}

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
    /// The turn without an answer that the prompt replaces.
    replaces: Option<u32>,
}

/// Whether the last answer in a request is that of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Other,
    /// The request or the turn has no text.
    Unknown,
    Part,
    Same,
}

impl<'a> TurnStart<'a> {
    async fn run(self) -> Result<ChatTurn, ApiError> {
        let reference = self.reference();
        let conversations = self.gateway.conversations();
        let locked = conversations.lock(reference.locked().clone()).await;
        if let Some((known, notices)) = self.repeated(&reference).await? {
            return self
                .carry_out(&locked, &reference, known, notices, None)
                .await;
        }
        let (known, notices) = self.known(&reference).await?;
        let Some(known) = known else {
            let mut first = self.first();
            if first.notices.is_empty() {
                first.notices = notices;
            }
            return self.prompt(&locked, &reference, first).await;
        };
        // Only a history without an id can be a copy that was continued. Some clients leave out a message that failed.
        if matches!(reference, Reference::ByHistory { .. }) {
            return match later_turns(&known).await? {
                Later::None => {
                    self.carry_out(&locked, &reference, known, notices, None)
                        .await
                }
                Later::Failed(newest) => {
                    let notices = vec![Notice::Continued];
                    self.carry_out(&locked, &reference, known, notices, Some(newest))
                        .await
                }
                Later::Answered => {
                    let changed = self.changed(known, self.users.len() - 1).await?;
                    self.prompt(&locked, &reference, changed).await
                }
            };
        }
        self.carry_out(&locked, &reference, known, notices, None)
            .await
    }

    /// Does what the request means for the conversation. `failed`: the newest turn of the session, if the client left it out.
    async fn carry_out(
        &self,
        locked: &Locked,
        reference: &Reference,
        known: Match,
        mut notices: Vec<Notice>,
        failed: Option<u32>,
    ) -> Result<ChatTurn, ApiError> {
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
                if first_new < self.users.len() - 1 {
                    notices.push(Notice::Joined);
                }
                if !certain && !notices.contains(&Notice::Continued) {
                    notices.push(Notice::Continued);
                }
                NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new,
                    notices,
                    replaces: failed,
                }
            }
            Decision::Again => self.again(known),
            Decision::Changed { kept } => self.changed(known, kept).await?,
        };
        self.prompt(locked, reference, prompt).await
    }

    /// The prompt in place of the newest turn, which has no answer: with all that its prompt contained.
    fn again(&self, mut known: Match) -> NewPrompt<'a> {
        let turns = &mut known.conversation.turns;
        let replaced = turns.last().expect("there is a newest turn").clone();
        let first = turns.iter().position(|turn| turn.prompt == replaced.prompt);
        let replaced_turns = turns.split_off(first.expect("it is the newest one"));
        let mut notices = vec![Notice::Again];
        notices.extend(
            replaced
                .notices
                .into_iter()
                .filter(|notice| *notice != Notice::Again),
        );
        let messages = self.evidence.messages;
        let pairs = replaced_turns.iter().rev().zip(messages.iter().rev());
        let equal = pairs
            .take_while(|(turn, message)| turn.message == message.content)
            .count();
        // Other clients may have turns in the session.
        let is_first = turns.is_empty() && replaced.prompt == 1;
        let last = messages.len() - 1;
        NewPrompt {
            earlier: if is_first { self.before } else { &[] },
            first_new: if is_first {
                last
            } else {
                messages.len() - equal.max(1)
            },
            known: Some(known),
            notices,
            replaces: Some(replaced.prompt),
        }
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
        if let Some(id) = conversation.as_deref().and_then(given_id) {
            return Reference::ById(conversation_key(self.by, agent, protocol, id));
        }
        let mut hash = Sha256::new();
        hash.update(user.as_deref().unwrap_or_default());
        let messages = self.evidence.messages;
        let first_key = (messages.len() - 1).saturating_sub(self.unanswered() + 1);
        let mut keys = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            hash.update([0]);
            hash.update(message.content.bytes());
            if at >= first_key {
                let hash = URL_SAFE_NO_PAD.encode(hash.clone().finalize());
                keys.push(key(&format!("history:{hash}")));
            }
        }
        let whole = keys.pop().expect("there is a message");
        keys.reverse();
        Reference::ByHistory {
            whole,
            before: keys,
        }
    }

    /// The number of messages of the user before the last one that have no answer in the request.
    fn unanswered(&self) -> usize {
        let before = self.before.iter().rev();
        let after_answer = before.take_while(|message| message.role != "assistant");
        let users = after_answer.filter(|message| message.is_user());
        users.count().min(MAX_UNANSWERED)
    }

    /// The conversations under a key whose sessions exist, and whether there were others.
    async fn stored(&self, key: &ConversationKey) -> Result<(Vec<Match>, bool), ApiError> {
        let stored = self.gateway.conversations().get(key).await;
        let mut all = Vec::new();
        let mut are_missing = false;
        for conversation in stored.map_err(ApiError::internal)? {
            let session = self.gateway.sessions.open(self.by, conversation.session);
            match session.await {
                Ok(session) => all.push(Match {
                    newest: conversation.turns.last().map(Turn::prompt_id),
                    conversation,
                    session,
                }),
                Err(SessionError::NoSuchSession) => are_missing = true,
                Err(error) => return Err(error.into()),
            }
        }
        Ok((all, are_missing))
    }

    /// The conversation without an id whose last turn has the whole history of this request, if the request repeats this turn:
    /// by its id, by a count of repetitions, or because the turn has not ended. Other chats may have the same messages of the
    /// user, so the last answer must be the same, too.
    async fn repeated(
        &self,
        reference: &Reference,
    ) -> Result<Option<(Match, Vec<Notice>)>, ApiError> {
        let Reference::ByHistory { whole, .. } = reference else {
            return Ok(None);
        };
        let is_first = self.users.len() == 1;
        // The same first words are those of many conversations.
        if is_first && !self.evidence.is_retry && self.evidence.request.is_none() {
            return Ok(None);
        }
        let mut likely = Vec::new();
        for known in self.stored(whole).await?.0 {
            let Some((newest, before)) = known.conversation.turns.split_last() else {
                continue;
            };
            if newest.run.is_some() && newest.run == self.evidence.request {
                return Ok(Some((known, Vec::new())));
            }
            let likeness = self.likeness(&known, before.len(), self.unanswered());
            let likeness = likeness.await?;
            if likeness > Likeness::Other {
                likely.push((known, likeness));
            }
        }
        if is_first && !self.evidence.is_retry {
            return Ok(None);
        }
        let is_certain = likely.len() == 1 && likely[0].1 > Likeness::Unknown;
        while let Some((known, likeness)) = likely.pop() {
            let newest = known.conversation.turns.last();
            let state = self
                .state(&known.session, newest.expect("it has a turn"))
                .await?;
            // A running turn whose response nobody reads lost its client.
            let is_open = match state {
                TurnState::Running { is_read } => !is_read || likeness > Likeness::Unknown,
                TurnState::Abandoned => true,
                TurnState::Ended => false,
            };
            if is_open || self.evidence.is_retry {
                let is_lost = state == TurnState::Running { is_read: false };
                let notices = if is_certain || is_lost || state == TurnState::Abandoned {
                    Vec::new()
                } else {
                    vec![Notice::Repeated]
                };
                return Ok(Some((known, notices)));
            }
        }
        Ok(None)
    }

    /// The conversation that the request continues, if it exists, and what the client should know about it.
    async fn known(&self, reference: &Reference) -> Result<(Option<Match>, Vec<Notice>), ApiError> {
        match reference {
            Reference::ById(key) => {
                let (mut stored, are_missing) = self.stored(key).await?;
                if let (None, Some(id)) = (stored.last(), self.request.session) {
                    stored.push(Match {
                        session: self.gateway.sessions.open(self.by, id).await?,
                        conversation: Conversation::new(id),
                        newest: self.request.follows,
                    });
                }
                let known = stored.pop();
                let is_forgotten = known.is_none() && are_missing;
                let notices = is_forgotten.then_some(Notice::Forgotten);
                Ok((known, notices.into_iter().collect()))
            }
            Reference::ByHistory { before, .. } => {
                for (more, key) in before.iter().enumerate() {
                    let all = self.stored(key).await?.0;
                    if !all.is_empty() {
                        return self.of_answer(all, self.unanswered() - more).await;
                    }
                }
                Ok((None, Vec::new()))
            }
        }
    }

    /// Of several conversations with the same messages of the user, the one whose last answer is that of the request. Without
    /// such an answer, none of them is certain. A single one with another answer is continued, and the client is told.
    async fn of_answer(
        &self,
        mut all: Vec<Match>,
        unanswered: usize,
    ) -> Result<(Option<Match>, Vec<Notice>), ApiError> {
        let is_only = all.len() == 1;
        let mut best = None;
        for (at, known) in all.iter().enumerate() {
            let turns = known.conversation.turns.len();
            let likeness = self.likeness(known, turns, unanswered).await?;
            let rank = (likeness, later_turns(known).await? != Later::Answered);
            // Of equal ones, the newest.
            if best.is_none_or(|(other, _)| rank >= other) {
                best = Some((rank, at));
            }
        }
        let Some(((likeness, _), at)) = best else {
            return Ok((None, Vec::new()));
        };
        match likeness {
            Likeness::Same | Likeness::Part => Ok((Some(all.swap_remove(at)), Vec::new())),
            Likeness::Unknown if is_only => Ok((all.pop(), Vec::new())),
            Likeness::Other if is_only && self.request.answered_in.is_none() => {
                Ok((all.pop(), vec![Notice::Continued]))
            }
            Likeness::Unknown | Likeness::Other => Ok((None, Vec::new())),
        }
    }

    /// Whether the last answer in the request is that of the first `turns` turns without the last `unanswered` ones. Clients change
    /// answers: they cut reasoning and add sources.
    async fn likeness(
        &self,
        known: &Match,
        turns: usize,
        unanswered: usize,
    ) -> Result<Likeness, ApiError> {
        let Match {
            conversation,
            session,
            ..
        } = known;
        if let Some(answered_in) = self.request.answered_in {
            return Ok(if answered_in == session.id() {
                Likeness::Same
            } else {
                Likeness::Other
            });
        }
        let mut before = self.before.iter();
        let answer = before.rfind(|message| message.role == "assistant");
        let turn = turns.checked_sub(1 + unanswered);
        let (Some(answer), Some(at)) = (answer, turn) else {
            return Ok(Likeness::Unknown);
        };
        let turn = &conversation.turns[at];
        // A message that was sent together with the one after it has no answer of its own.
        let mut after = conversation.turns[at + 1..].iter();
        if after
            .next()
            .is_some_and(|after| after.prompt == turn.prompt)
        {
            return Ok(Likeness::Unknown);
        }
        let answer = without_space(&answer.text);
        let own = session.query().prompt_state(turn.prompt_id()).await?;
        let own = own
            .map(|turn| without_space(&turn.text))
            .unwrap_or_default();
        Ok(if answer.is_empty() || own.is_empty() {
            Likeness::Unknown
        } else if own == answer {
            Likeness::Same
        } else if own.contains(&answer) || answer.contains(&own) {
            Likeness::Part
        } else {
            Likeness::Other
        })
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
            replaces: None,
        }
    }

    async fn changed(&self, mut known: Match, kept: usize) -> Result<NewPrompt<'a>, ApiError> {
        match self.request.policy {
            HistoryPolicy::New => {
                self.end_open_question(&known.session, known.newest, false)
                    .await?;
                Ok(NewPrompt {
                    notices: vec![Notice::Branched],
                    ..self.first()
                })
            }
            HistoryPolicy::Append => {
                // From now on, the turns are those of the client's history.
                known.conversation.turns.truncate(kept);
                Ok(NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new: self.users.len() - 1,
                    notices: vec![Notice::Appended],
                    replaces: None,
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
            replaces,
        } = new;
        let has_turns = known
            .as_ref()
            .is_some_and(|known| !known.conversation.turns.is_empty());
        let is_first = match &known {
            Some(known) if !has_turns => {
                replaces == Some(1)
                    || known
                        .session
                        .query()
                        .prompts(None, 1)
                        .await?
                        .prompts
                        .is_empty()
            }
            known => known.is_none(),
        };
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
        let newest = known.as_ref().and_then(|known| known.newest);
        let (session, mut conversation) = if let Some(known) = known {
            self.select_model(&known.session).await?;
            (known.session, known.conversation)
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
        let (blocks, lacks) = content.blocks(takes.unwrap_or_default(), limit)?;
        for notice in lacks {
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        }
        if !is_new {
            self.end_open_question(&session, newest, true).await?;
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
        let before = replaces.unwrap_or(before);
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
        // A new session received the earlier messages as text.
        let first = if has_turns { first_new } else { 0 };
        let own_id = Digest::of(&message_id(session.id(), prompt), []);
        let messages = self.evidence.messages.iter().enumerate().skip(first);
        conversation.extend(messages.map(|(at, message)| {
            let mut turn = Turn::new(*message, prompt.number());
            turn.own_id = Some(own_id);
            if at >= first_new {
                turn.notices.clone_from(&notices);
                turn.run = self.evidence.request;
            }
            turn
        }));
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
        if self.evidence.in_session.is_some() {
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
    /// runs gets an error, because it must answer its interrupts. `stays`: the message is for this session. Then a client that
    /// did not begin the turn gets an error, because its message would wait without an end.
    async fn end_open_question(
        &self,
        session: &SessionHandle,
        newest: Option<PromptId>,
        stays: bool,
    ) -> Result<(), ApiError> {
        let open = session.snapshot().await?.requests;
        let waiting = open.iter().find_map(|open| open.prompt_id);
        let is_own = waiting.is_some() && waiting == newest;
        if self.request.answers_first && (is_own || stays && !open.is_empty()) {
            let detail = "the agent waits for an answer to its interrupts; send them in `resume`";
            return Err(ApiError::new(ProblemCode::TurnRunning, detail));
        }
        if is_own {
            session.cancel(newest, CancelCause::Person, None).await?;
        } else if waiting.is_some() && stays {
            let detail = "the agent waits for an answer in a turn of another client; answer it, or cancel this turn";
            let problem = Problem {
                retryable: false,
                ..Problem::new(ProblemCode::TurnRunning, detail)
            };
            return Err(problem.into());
        }
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

/// The turns of a session after those of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Later {
    None,
    /// All of them failed without a text. The newest one has this number.
    Failed(u32),
    Answered,
}

async fn later_turns(known: &Match) -> Result<Later, ApiError> {
    let Some(turn) = known.conversation.turns.last() else {
        return Ok(Later::None);
    };
    let mut later = Later::None;
    let mut prompt = turn.prompt_id();
    for _ in 0..MAX_UNANSWERED {
        prompt = prompt.next();
        let Some(turn) = known.session.query().prompt_state(prompt).await? else {
            return Ok(later);
        };
        if turn.error.is_none() || !turn.text.is_empty() {
            return Ok(Later::Answered);
        }
        later = Later::Failed(prompt.number());
    }
    Ok(Later::Answered)
}

fn without_space(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_whitespace())
        .collect()
}
