//! The start of a turn from the whole history of a client.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use serde_json::value::to_raw_value;
use sha2::{Digest as _, Sha256};

use super::chat_turn::{ChatTurn, conversation_key, create_session, named_session};
use super::message::{Message, prompt_blocks};
use super::model_option::ModelOption;
use super::respond::HISTORY;
use crate::acp::TraceContext;
use crate::api::{Problem, ProblemCode};
use crate::conversation::{
    Conversation, ConversationKey, Digest, Finding, Locked, Notice, Turn, compare,
};
use crate::session::{ClientCall, IdempotencyKey, PromptRequest, SessionError, SessionHandle};
use crate::surface::authorized::{Authorized, CanPrompt};
use crate::surface::rest::{ApiError, trace_context};
use crate::surface::state::Gateway;
use crate::surface::turn::NewTurn;
use crate::types::{AgentName, CancelCause, SessionId};

/// How long a repeated request gets the result of a turn that has ended, instead of a new turn.
const REPEAT_WITHIN_MS: i64 = 60_000;

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

/// A message of a client with its history.
#[derive(Debug)]
pub(crate) struct ChatRequest {
    pub(crate) agent: AgentName,
    /// The model that the agent should use, by the value of its option.
    pub(crate) model: Option<String>,
    pub(crate) protocol: &'static str,
    /// The client's id of the conversation.
    pub(crate) conversation: Option<String>,
    /// The session that the client names. Its turns may come from other clients, so the history is not compared.
    pub(crate) session: Option<SessionId>,
    pub(crate) messages: Vec<Message>,
    pub(crate) system: Option<String>,
    pub(crate) policy: HistoryPolicy,
    /// The client asks for another answer to the same message.
    pub(crate) regenerates: bool,
    /// The client repeats a request that failed.
    pub(crate) is_retry: bool,
    /// The client's id of the run. A repeated run gets the turn that it has.
    pub(crate) run: Option<String>,
    pub(crate) trace: Option<TraceContext>,
}

impl ChatRequest {
    /// A request with these messages. The headers have the policy and the trace context.
    pub(crate) fn new(
        agent: AgentName,
        protocol: &'static str,
        messages: Vec<Message>,
        headers: &HeaderMap,
    ) -> Result<Self, ApiError> {
        Ok(Self {
            agent,
            model: None,
            protocol,
            conversation: None,
            session: None,
            messages,
            system: None,
            policy: HistoryPolicy::from_headers(headers)?,
            regenerates: false,
            is_retry: false,
            run: None,
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
        let users: Vec<&Message> = self
            .messages
            .iter()
            .filter(|message| message.is_user())
            .collect();
        if users.is_empty() || users.iter().any(|message| message.blocks.is_empty()) {
            let detail = "expected at least one message of the user, each with text or a file";
            return Err(ApiError::invalid("/messages", detail));
        }
        let digests: Vec<Digest> = users.iter().map(|message| message.digest()).collect();
        let turn = Begin {
            gateway,
            by,
            request: &self,
            users: &users,
            digests: &digests,
        };
        turn.run().await
    }
}

/// How a client names its conversation.
enum Named {
    /// With an id of the client, or of a session.
    ById(ConversationKey),
    /// With the history alone: the keys of all its messages, and of all but the last one.
    ByHistory {
        whole: ConversationKey,
        before: Option<ConversationKey>,
    },
}

struct Begin<'a> {
    gateway: &'a Gateway,
    by: &'a Authorized<CanPrompt>,
    request: &'a ChatRequest,
    users: &'a [&'a Message],
    digests: &'a [Digest],
}

/// A conversation whose session exists.
struct Known {
    conversation: Conversation,
    session: SessionHandle,
}

/// The prompt that a request becomes.
struct NewPrompt<'a> {
    known: Option<Known>,
    /// The earlier messages that the session does not know.
    earlier: &'a [Message],
    first_new: usize,
    notice: Option<Notice>,
}

impl<'a> Begin<'a> {
    async fn run(self) -> Result<ChatTurn, ApiError> {
        let named = self.named();
        let key = match &named {
            Named::ById(key) | Named::ByHistory { whole: key, .. } => key.clone(),
        };
        let locked = self.gateway.conversations().lock(key).await;
        let known = self.known(&locked, &named).await?;
        let Some(known) = known else {
            return self.prompt(&locked, self.first()).await;
        };
        let (last, finding) = (
            self.users.len() - 1,
            compare(&known.conversation.messages(), self.digests),
        );
        let mut finding = finding;
        if finding == Finding::Repeated {
            let turn = *known
                .conversation
                .turns
                .last()
                .expect("a repeated message has a turn");
            if self.is_another_message(&known, &turn).await? {
                finding = Finding::Next { first_new: last };
            } else if self.attaches(&known.session, &turn).await? {
                let Known { session, .. } = known;
                return ChatTurn::existing(
                    self.gateway,
                    self.by,
                    session,
                    turn.prompt_id(),
                    turn.notice,
                )
                .await;
            }
        }
        let prompt = match finding {
            Finding::Next { first_new } if self.is_newest(&known, &named).await? => {
                let notice = (first_new < last).then_some(Notice::Joined);
                NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new,
                    notice,
                }
            }
            _ if self.request.session.is_some() => NewPrompt {
                known: Some(known),
                earlier: &[],
                first_new: last,
                notice: None,
            },
            _ => self.changed(known)?,
        };
        self.prompt(&locked, prompt).await
    }

    fn named(&self) -> Named {
        let ChatRequest {
            agent,
            protocol,
            conversation,
            session,
            ..
        } = self.request;
        let key = |id: &str| ConversationKey::new(self.by, agent, protocol, id);
        if let Some(session) = session {
            return Named::ById(key(&format!("session:{session}")));
        }
        // A template that a client did not fill in is no id.
        let given = conversation.as_deref().map(str::trim);
        if let Some(id) = given.filter(|id| !id.is_empty() && *id != "new" && !id.contains("{{")) {
            return Named::ById(conversation_key(self.by, agent, protocol, id));
        }
        let chain = |digests: &[Digest]| {
            let mut hash = Sha256::new();
            for digest in digests {
                hash.update(digest.bytes());
            }
            key(&format!(
                "history:{}",
                URL_SAFE_NO_PAD.encode(hash.finalize())
            ))
        };
        let before =
            (self.digests.len() > 1).then(|| chain(&self.digests[..self.digests.len() - 1]));
        Named::ByHistory {
            whole: chain(self.digests),
            before,
        }
    }

    /// The conversation with its session, if both exist.
    async fn known(&self, locked: &Locked, named: &Named) -> Result<Option<Known>, ApiError> {
        let conversations = self.gateway.conversations();
        let stored = match named {
            Named::ById(_) => locked.get().await,
            Named::ByHistory { before, .. } => match before {
                _ if self.request.is_retry => locked.get().await,
                Some(before) => conversations.get(before).await,
                None => Ok(None),
            },
        };
        let mut conversation = stored.map_err(ApiError::internal)?;
        if let Some(session) = self.request.session {
            conversation = Some(conversation.unwrap_or(Conversation::new(session)));
        }
        let Some(conversation) = conversation else {
            return Ok(None);
        };
        match self
            .gateway
            .sessions
            .open(self.by, conversation.session)
            .await
        {
            Ok(session) => Ok(Some(Known {
                conversation,
                session,
            })),
            Err(SessionError::NoSuchSession) if self.request.session.is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the session has no turn after the known ones. Only a history without an id can be a copy that was continued.
    async fn is_newest(&self, known: &Known, named: &Named) -> Result<bool, ApiError> {
        let (Named::ByHistory { .. }, Some(turn)) = (named, known.conversation.turns.last()) else {
            return Ok(true);
        };
        Ok(known
            .session
            .query()
            .prompt_range(turn.prompt_id().next())
            .await?
            .is_none())
    }

    /// Whether a repeated message gets the turn that it has: while the turn runs, and shortly afterwards.
    async fn attaches(&self, session: &SessionHandle, turn: &Turn) -> Result<bool, ApiError> {
        let prompt = turn.prompt_id();
        if self.is_same_run(turn) {
            return Ok(true);
        }
        let Some(range) = session.query().prompt_range(prompt).await? else {
            return Ok(false);
        };
        if range.last_seq.is_none() {
            return Ok(true);
        }
        if self.request.regenerates {
            return Ok(false);
        }
        let ended = session
            .query()
            .prompt_state(prompt)
            .await?
            .and_then(|turn| turn.ended_at);
        let age = ended.map(|at| self.gateway.ids.now().as_millis() - at.as_millis());
        Ok(self.request.is_retry || age.is_some_and(|age| age < REPEAT_WITHIN_MS))
    }

    /// Whether a person sent the same text once more.
    async fn is_another_message(&self, known: &Known, turn: &Turn) -> Result<bool, ApiError> {
        if self.request.regenerates || self.request.is_retry || self.is_same_run(turn) {
            return Ok(false);
        }
        let id = self.users.last().and_then(|message| message.id.as_deref());
        if let (Some(id), Some(known)) = (id.map(|id| Digest::of(id, [])), turn.id) {
            return Ok(id != known);
        }
        // A client that names the session, or sends its newest message only, has no history that shows a repetition.
        let is_alone = self.digests.len() == 1 && known.conversation.turns.len() > 1;
        if self.request.session.is_some() || is_alone {
            let range = known.session.query().prompt_range(turn.prompt_id()).await?;
            return Ok(self.request.session.is_some()
                || range.is_none_or(|range| range.last_seq.is_some()));
        }
        Ok(false)
    }

    fn is_same_run(&self, turn: &Turn) -> bool {
        turn.run.is_some() && turn.run == self.run_digest()
    }

    /// The hash of the client's id of the run.
    fn run_digest(&self) -> Option<Digest> {
        self.request.run.as_deref().map(|run| Digest::of(run, []))
    }

    /// The messages before the last one of the user.
    fn before_last(&self) -> &'a [Message] {
        let at = self
            .request
            .messages
            .iter()
            .rposition(Message::is_user)
            .unwrap_or_default();
        &self.request.messages[..at]
    }

    /// The first prompt of a conversation.
    fn first(&self) -> NewPrompt<'a> {
        let last = self.users.len() - 1;
        let earlier = if last > 0 { self.before_last() } else { &[] };
        NewPrompt {
            known: None,
            earlier,
            first_new: last,
            notice: (last > 0).then_some(Notice::Seeded),
        }
    }

    fn changed(&self, mut known: Known) -> Result<NewPrompt<'a>, ApiError> {
        let last = self.users.len() - 1;
        match self.request.policy {
            HistoryPolicy::New => Ok(NewPrompt {
                notice: Some(Notice::Branched),
                ..self.first()
            }),
            HistoryPolicy::Append => {
                // From now on, the turns are those of the client's history.
                known.conversation.turns.truncate(last);
                Ok(NewPrompt {
                    known: Some(known),
                    earlier: &[],
                    first_new: last,
                    notice: Some(Notice::Appended),
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
    async fn prompt(&self, locked: &Locked, new: NewPrompt<'_>) -> Result<ChatTurn, ApiError> {
        let NewPrompt {
            known,
            earlier,
            first_new,
            mut notice,
        } = new;
        let has_turns = known
            .as_ref()
            .is_some_and(|known| !known.conversation.turns.is_empty());
        let is_first = !has_turns && self.request.session.is_none();
        let system = self.request.system.as_deref().filter(|_| is_first);
        let blocks =
            prompt_blocks(system, earlier, &self.users[first_new..]).map_err(ApiError::internal)?;
        if blocks.get().len() > self.gateway.limits.max_prompt_bytes {
            let detail = format!(
                "the new message exceeds {} bytes",
                self.gateway.limits.max_prompt_bytes
            );
            return Err(ApiError::new(ProblemCode::TooLarge, detail));
        }
        let (session, mut conversation) = if let Some(Known {
            conversation,
            session,
        }) = known
        {
            self.end_open_question(&session, &conversation).await?;
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
        let system = self
            .request
            .system
            .as_deref()
            .map(|text| Digest::of(text, []));
        if !is_first && system.is_some() && system != conversation.system {
            notice = notice.or(Some(Notice::Instructions));
        }
        conversation.system = system.or(conversation.system);
        let before = conversation.turns.last().map_or(0, |turn| turn.prompt);
        let last = self.digests[self.digests.len() - 1];
        let key = self.key(locked.key(), (session.id(), before), last, notice);
        let prompt = PromptRequest {
            blocks,
            attachments: Vec::new(),
            queue: true,
            key,
            trace: self.request.trace.clone(),
            acp_request: None,
            broadcast: None,
            serving: None,
        };
        let turn =
            NewTurn::begin::<ApiError>(self.gateway, self.by, &session, prompt, true).await?;
        let (admitted, guard) = (turn.admitted, turn.guard.expect("a held turn has a guard"));
        let prompt = admitted.prompt.prompt_id;
        let id = |message: &Message| message.id.as_deref().map(|id| Digest::of(id, []));
        let number = prompt.number();
        for (at, (digest, message)) in self.digests.iter().zip(self.users).enumerate() {
            let turn = Turn {
                message: *digest,
                prompt: number,
                notice: None,
                id: id(message),
                run: None,
            };
            if at >= first_new {
                conversation.push(Turn {
                    notice,
                    run: self.run_digest(),
                    ..turn
                });
            } else if !has_turns {
                // The session received this message as text.
                conversation.push(turn);
            }
        }
        // The client can find the turn again, also if it receives a single byte and the gateway is killed.
        locked
            .put(&conversation)
            .await
            .map_err(|_| ApiError::draining())?;
        let (first_seq, last_seq) = (admitted.first_seq, admitted.last_seq);
        Ok(ChatTurn {
            session,
            prompt,
            first_seq,
            last_seq,
            notice,
            is_own: true,
            guard,
        })
    }

    /// The key by which a repeated request finds the turn if the gateway was killed before it stored the conversation.
    fn key(
        &self,
        conversation: &ConversationKey,
        (session, before): (SessionId, u32),
        message: Digest,
        notice: Option<Notice>,
    ) -> Option<IdempotencyKey> {
        // A client that names no conversation, or repeats a message deliberately, means a new turn.
        if self.request.session.is_some() || notice == Some(Notice::Appended) {
            return None;
        }
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
    /// runs gets an error, because it must answer its interrupts.
    async fn end_open_question(
        &self,
        session: &SessionHandle,
        conversation: &Conversation,
    ) -> Result<(), ApiError> {
        let Some(turn) = conversation.turns.last() else {
            return Ok(());
        };
        let waits = session
            .snapshot()
            .await?
            .requests
            .iter()
            .any(|open| open.prompt_id == Some(turn.prompt_id()));
        if waits && self.request.run.is_some() {
            let detail = "the agent waits for an answer to its interrupts; send them in `resume`";
            return Err(ApiError::new(ProblemCode::TurnRunning, detail));
        }
        if waits {
            session
                .cancel(Some(turn.prompt_id()), CancelCause::Person, None)
                .await?;
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
