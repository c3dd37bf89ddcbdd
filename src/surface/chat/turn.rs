//! The start of a turn from the messages of a client.
//!
//! `search` finds the conversation, [`decide`] decides what the request means for it, and this module does it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::chat_turn::{ChatTurn, create_session, message_id, named_session};
use super::message::{
    ChatRequest, HistoryPolicy, Message, ModelOption, PromptContent, transcribed,
};
use super::search::{Later, Match, Reference, Search, later_turns};
use crate::surface::http::{ApiError, AppState, Authorized, CanPrompt, NewTurn, Result};
use base::types::{PromptId, SessionId};
use events::api::{CancelCause, Problem, ProblemCode};
use events::event::ActorKind;
use sessions::conversation::{
    Conversation, ConversationKey, Decision, Digest, Evidence, Locked, Meaning, Notice, Turn,
    UserMessage, decide,
};
use sessions::session::{ClientCall, IdempotencyKey, PromptRequest, SessionHandle};
use wire::acp::{PromptCapabilities, to_raw};

impl ChatRequest {
    pub(crate) async fn begin(
        mut self,
        app: &AppState,
        by: &Authorized<CanPrompt>,
    ) -> Result<ChatTurn> {
        if let (None, Some(id)) = (self.session, &self.conversation) {
            self.session = named_session(app, by, id).await?;
        }
        let messages = self.messages.iter();
        let instructions = messages.filter(|message| message.is_instruction());
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
        let newest = &self.messages[last];
        if let Some((at, reason)) = newest.unreadable {
            return Err(ApiError::invalid(
                format!("{}/{at}", newest.pointer),
                reason,
            ));
        }
        if newest.blocks.is_empty() {
            let detail = "the last message must have a text or a file";
            return Err(ApiError::invalid(&*newest.pointer, detail));
        }
        let users = self.messages.iter().filter(|message| message.is_user());
        let users: Vec<&Message> = users.collect();
        let digests: Vec<UserMessage> = users.iter().map(|message| message.digest()).collect();
        let search = Search {
            app,
            by,
            request: &self,
            before: &self.messages[..last],
            evidence: Evidence {
                messages: &digests,
                request: Digest::of_id(self.id.as_deref()),
                is_retry: self.is_retry,
                asks_again: self.asks_again,
                in_session: self.session.map(|_| self.new_messages),
            },
        };
        let users = &users;
        TurnStart { users, search }.run().await
    }
}

struct TurnStart<'a> {
    users: &'a [&'a Message],
    search: Search<'a>,
}

struct NewPrompt<'a> {
    known: Option<Match>,
    /// The earlier messages that the session does not know.
    earlier: &'a [Message],
    first_new: usize,
    notices: Vec<Notice>,
    /// The turn without an answer that the prompt replaces.
    replaces: Option<u32>,
}

impl<'a> TurnStart<'a> {
    async fn run(self) -> Result<ChatTurn> {
        let reference = self.search.reference();
        let conversations = &self.search.app.conversations;
        let locked = conversations.lock(reference.locked().clone()).await;
        if let Some((known, notices)) = self.search.repeated(&reference).await? {
            let turn = self.carry_out(&locked, &reference, known, notices, None);
            return turn.await;
        }
        let (known, mut notices) = self.search.known(&reference).await?;
        let Some(known) = known else {
            let mut first = self.first();
            if first.notices.is_empty() {
                first.notices = notices;
            }
            return self.prompt(&locked, &reference, first).await;
        };
        let mut failed = None;
        // Only a history without an id can be a copy that was continued. Some clients leave out a message that failed.
        if matches!(reference, Reference::ByHistory { .. }) {
            match later_turns(&known).await? {
                Later::None => {}
                Later::Failed(newest) => {
                    notices = vec![Notice::Continued];
                    failed = Some(newest);
                }
                Later::Answered => {
                    let changed = self.changed(known, self.users.len() - 1).await?;
                    return self.prompt(&locked, &reference, changed).await;
                }
            }
        }
        let turn = self.carry_out(&locked, &reference, known, notices, failed);
        turn.await
    }

    /// Does what the request means for the conversation. `failed`: the newest turn of the session, if the client left it out.
    async fn carry_out(
        &self,
        locked: &Locked,
        reference: &Reference,
        known: Match,
        mut notices: Vec<Notice>,
        failed: Option<u32>,
    ) -> Result<ChatTurn> {
        let decision = match decide(&known.conversation, &self.search.evidence) {
            Meaning::Decided(decision) => decision,
            Meaning::SentAgain(again) => {
                let turn = &known.conversation.turns[again.turn];
                again.in_state(self.search.state(&known.session, turn).await?)
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
                let Search { app, by, .. } = self.search;
                return ChatTurn::existing(app, by, known.session, prompt, notices).await;
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
        let earlier = replaced.notices.into_iter();
        let earlier = earlier.filter(|notice| *notice != Notice::Again);
        let notices = [Notice::Again].into_iter().chain(earlier).collect();
        let messages = self.search.evidence.messages;
        let pairs = replaced_turns.iter().rev().zip(messages.iter().rev());
        let equal = pairs.take_while(|(turn, message)| turn.message == message.content);
        let equal = equal.count();
        // Other clients may have turns in the session.
        let is_first = turns.is_empty() && replaced.prompt == 1;
        let last = messages.len() - 1;
        NewPrompt {
            earlier: if is_first { self.search.before } else { &[] },
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

    fn first(&self) -> NewPrompt<'a> {
        // Some programs show a greeting as the first message of the assistant.
        let is_seeded = transcribed(self.search.before).next().is_some();
        NewPrompt {
            known: None,
            earlier: self.search.before,
            first_new: self.users.len() - 1,
            notices: is_seeded.then_some(Notice::Seeded).into_iter().collect(),
            replaces: None,
        }
    }

    async fn changed(&self, mut known: Match, kept: usize) -> Result<NewPrompt<'a>> {
        match self.search.request.policy {
            HistoryPolicy::New => {
                self.end_open_question(&known.session, known.newest, false)
                    .await?;
                Ok(NewPrompt {
                    notices: vec![Notice::Branched],
                    ..self.first()
                })
            }
            HistoryPolicy::Append => {
                // Remove the turns that the client's history does not contain. The agent still remembers them.
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

    async fn prompt(
        &self,
        locked: &Locked,
        reference: &Reference,
        new: NewPrompt<'_>,
    ) -> Result<ChatTurn> {
        let known = new.known;
        let mut notices = new.notices;
        let turns = known.as_ref().map(|known| &known.conversation.turns);
        let has_turns = turns.is_some_and(|turns| !turns.is_empty());
        let is_first = match &known {
            Some(known) if !has_turns => {
                let newest = known.session.query().prompts(None, 1).await?;
                new.replaces == Some(1) || newest.prompts.is_empty()
            }
            known => known.is_none(),
        };
        let limit = self.search.app.limits.sessions.max_prompt_bytes;
        let system = self.search.request.system.as_deref();
        let last = self.users.len() - 1;
        let mut content = PromptContent {
            system: if is_first { system } else { None },
            earlier: new.earlier,
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
            let ChatRequest { agent, trace, .. } = self.search.request;
            let Search { app, by, .. } = self.search;
            let session = create_session(app, by, agent.clone(), None, trace.clone()).await?;
            if let Err(error) = self.select_model(&session).await {
                // Nothing of a rejected request remains.
                let _ = session
                    .delete(self.search.by, ActorKind::Gateway, None, None)
                    .await;
                return Err(error);
            }
            (session.clone(), Conversation::new(session.id()))
        };
        let takes = session.snapshot().await?.prompt_capabilities;
        let takes = takes.as_deref().map(PromptCapabilities::parse_any_version);
        content.joined = &self.users[new.first_new..last];
        let (blocks, lacks) = content.blocks(takes.unwrap_or_default(), limit)?;
        for notice in lacks {
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        }
        if !is_new {
            self.end_open_question(&session, newest, true).await?;
        }
        let system = system.map(|text| Digest::of(text, []));
        if !is_first && system.is_some() && system != conversation.system {
            notices.push(Notice::Instructions);
        }
        conversation.system = system.or(conversation.system);
        conversation.sends_newest_only = has_turns && self.users.len() == 1;
        let before = conversation.turns.last().map_or(0, |turn| turn.prompt);
        let before = new.replaces.unwrap_or(before);
        let key = if notices.contains(&Notice::Appended) {
            None
        } else {
            self.key(reference.stored(), session.id(), before)
        };
        let prompt = PromptRequest {
            queue: true,
            key,
            trace: self.search.request.trace.clone(),
            ..PromptRequest::new(blocks)
        };
        let Search { app, by, .. } = self.search;
        let turn = NewTurn::begin::<ApiError>(app, by, &session, prompt, true).await;
        if turn.is_err() && is_new {
            let _ = session.delete(by, ActorKind::Gateway, None, None).await;
        }
        let turn = turn?;
        let admitted = turn.admitted;
        let guard = turn.guard.expect("a held turn has a guard");
        let prompt = admitted.prompt.prompt_id;
        for notice in &notices {
            tracing::info!(
                prompt = %prompt, history = notice.into_str(),
                "the messages of a chat client are not simply the next turn"
            );
        }
        // A new session received the earlier messages as text.
        let first = if has_turns { new.first_new } else { 0 };
        let own_id = Digest::of(&message_id(session.id(), prompt), []);
        let messages = self.search.evidence.messages.iter().enumerate().skip(first);
        conversation.extend(messages.map(|(at, message)| {
            let mut turn = Turn::new(*message, prompt.number());
            turn.own_id = Some(own_id);
            if at >= new.first_new {
                turn.notices.clone_from(&notices);
                turn.run = self.search.evidence.request;
            }
            turn
        }));
        // The client can find the turn again, also if it receives a single byte and the gateway is killed.
        let max = reference.max_conversations();
        let stored = locked.put(reference.stored(), conversation, max).await;
        stored.map_err(|_| ApiError::draining())?;
        Ok(ChatTurn {
            session,
            prompt,
            first_seq: admitted.first_seq,
            last_seq: admitted.last_seq,
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
        if self.search.evidence.in_session.is_some() {
            return None;
        }
        let message = self.search.evidence.messages.last()?.content;
        let mut body_hash = [0; 32];
        body_hash[..16].copy_from_slice(&message.bytes());
        let text = URL_SAFE_NO_PAD.encode(message.bytes());
        Some(IdempotencyKey {
            key: format!("{}-{text}", conversation.turn_key(session, before)),
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
    ) -> Result<()> {
        let open = session.snapshot().await?.requests;
        let waiting = open.iter().find_map(|open| open.prompt_id);
        let is_own = waiting.is_some() && waiting == newest;
        if self.search.request.answers_first && (is_own || stays && !open.is_empty()) {
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
    async fn select_model(&self, session: &SessionHandle) -> Result<()> {
        let Some(model) = &self.search.request.model else {
            return Ok(());
        };
        let options = session.snapshot().await?.config_options;
        let Some(option) = ModelOption::of(options.as_deref()) else {
            let detail = "this agent has no option for its model";
            return Err(ApiError::new(ProblemCode::NotFound, detail));
        };
        if option.current.as_ref() == Some(model) {
            return Ok(());
        }
        if !option.values.contains(model) {
            let detail = "the agent does not offer this model";
            return Err(ApiError::new(ProblemCode::NotFound, detail));
        }
        let call = ClientCall::Config {
            option: option.id,
            value: to_raw(model),
        };
        session.call(self.search.by, call, None).await?;
        Ok(())
    }
}
