//! The search for the conversation of a request: by an id, or by the history and its last answer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::chat_turn::{given_id, may_be_seen};
use super::message::{ChatRequest, Message};
use crate::surface::http::{ApiError, AppState, Authorized, CanPrompt, Result};
use base::types::PromptId;
use events::api::CancelCause;
use sessions::conversation::{
    Conversation, ConversationKey, Evidence, MAX_OF_HISTORY, Notice, Turn, TurnState,
};
use sessions::session::{SessionError, SessionHandle};

/// The messages without an answer after which a history names no conversation.
const MAX_UNANSWERED: usize = 8;
pub(super) enum Reference {
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
    pub(super) fn stored(&self) -> &ConversationKey {
        match self {
            Self::ById(key) | Self::ByHistory { whole: key, .. } => key,
        }
    }

    /// How many conversations one key has: several have the same history.
    pub(super) fn max_conversations(&self) -> usize {
        match self {
            Self::ById(_) => 1,
            Self::ByHistory { .. } => MAX_OF_HISTORY,
        }
    }

    /// The key under which requests wait for each other. Histories that continue the same one write their own keys.
    pub(super) fn locked(&self) -> &ConversationKey {
        match self {
            Self::ById(key) => key,
            Self::ByHistory { whole, before } => before.first().unwrap_or(whole),
        }
    }
}

pub(super) struct Match {
    pub(super) conversation: Conversation,
    pub(super) session: SessionHandle,
    pub(super) newest: Option<PromptId>,
}

/// How well the last answer in a request matches the answer of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Likeness {
    Other,
    /// The request or the turn has no text.
    Unknown,
    Part,
    Same,
}

pub(super) struct Search<'a> {
    pub(super) app: &'a AppState,
    pub(super) by: &'a Authorized<CanPrompt>,
    pub(super) request: &'a ChatRequest,
    /// The messages before the last one of the user.
    pub(super) before: &'a [Message],
    pub(super) evidence: Evidence<'a>,
}

impl Search<'_> {
    pub(super) fn reference(&self) -> Reference {
        let request = self.request;
        let key = |id: &str| ConversationKey::new(self.by, &request.agent, request.protocol, id);
        if let Some(session) = request.session {
            return Reference::ById(key(&format!("session:{session}")));
        }
        if let Some(id) = request.conversation.as_deref().and_then(given_id) {
            return Reference::ById(key(&format!("id:{id}")));
        }
        let mut hash = Sha256::new();
        hash.update(request.user.as_deref().unwrap_or_default());
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
    async fn stored(&self, key: &ConversationKey) -> Result<(Vec<Match>, bool)> {
        let stored = self.app.conversations.get(key).await;
        let mut all = Vec::new();
        let mut are_missing = false;
        for conversation in stored.map_err(ApiError::internal)? {
            let session = self.app.open_one_session(self.by, conversation.session);
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
    pub(super) async fn repeated(
        &self,
        reference: &Reference,
    ) -> Result<Option<(Match, Vec<Notice>)>> {
        let Reference::ByHistory { whole, .. } = reference else {
            return Ok(None);
        };
        let is_first = self.evidence.messages.len() == 1;
        // Many conversations begin with the same first message, so one message does not identify a conversation.
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
            let likeness = self
                .likeness(&known, before.len(), self.unanswered())
                .await?;
            if likeness > Likeness::Other {
                likely.push((known, likeness));
            }
        }
        if is_first && !self.evidence.is_retry {
            return Ok(None);
        }
        let is_certain = likely.len() == 1 && likely[0].1 > Likeness::Unknown;
        while let Some((known, likeness)) = likely.pop() {
            let newest = known.conversation.turns.last().expect("it has a turn");
            let state = self.state(&known.session, newest).await?;
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
    pub(super) async fn known(
        &self,
        reference: &Reference,
    ) -> Result<(Option<Match>, Vec<Notice>)> {
        match reference {
            Reference::ById(key) => {
                let (mut stored, are_missing) = self.stored(key).await?;
                if let (None, Some(id)) = (stored.last(), self.request.session) {
                    stored.push(Match {
                        session: self.app.open_one_session(self.by, id).await?,
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

    /// Selects, from conversations with the same messages of the user, the one whose last answer matches the request.
    /// If no answer matches, selects nothing, unless there is only one conversation. That one is continued, and if its
    /// last answer differs, the client gets a notice.
    async fn of_answer(
        &self,
        mut all: Vec<Match>,
        unanswered: usize,
    ) -> Result<(Option<Match>, Vec<Notice>)> {
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

    /// Compares the last answer in the request with the first `turns` turns, without the last `unanswered` of them. The
    /// comparison is not exact, because clients change answers: they cut reasoning and add sources.
    async fn likeness(&self, known: &Match, turns: usize, unanswered: usize) -> Result<Likeness> {
        let conversation = &known.conversation;
        if let Some(answered_in) = self.request.answered_in {
            return Ok(if answered_in == known.session.id() {
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
        let after = conversation.turns.get(at + 1);
        if after.is_some_and(|after| after.prompt == turn.prompt) {
            return Ok(Likeness::Unknown);
        }
        let answer = without_space(&answer.text);
        let query = known.session.query();
        let own = query.prompt_state(turn.prompt_id()).await?;
        let own = own.map_or_else(String::new, |turn| without_space(&turn.text));
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
    pub(super) async fn state(&self, session: &SessionHandle, turn: &Turn) -> Result<TurnState> {
        let prompt = turn.prompt_id();
        let Some(range) = session.query().prompt_range(prompt).await? else {
            return Ok(TurnState::Ended);
        };
        if range.last_seq.is_none() {
            let readers = self.app.chat_watchers.count(&(session.id(), prompt));
            let is_read = readers > 0;
            return Ok(TurnState::Running { is_read });
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
}

/// The turns of a session after those of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Later {
    None,
    /// All of them failed without a text. The newest one has this number.
    Failed(u32),
    Answered,
}

pub(super) async fn later_turns(known: &Match) -> Result<Later> {
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
    text.split_whitespace().collect()
}
