//! A conversation in the store: the hashes of its messages, reads and changes, and the removal of old records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use strum::EnumMessage as _;
use tokio::sync::OwnedMutexGuard;

use crate::session::SessionDirectory;
use base::shutdown::lock_or_abort;
use base::types::{AgentName, Principal, PromptId, SessionId, UserId};
use log::eventlog::{
    Closed, EventLog, ReadError, RecordPages, Records, from_json, to_json, user_prefix,
};
use log::store::Table;

/// The turns that a record keeps. The oldest are forgotten first, and then count as left out by the client.
pub(super) const MAX_TURNS: usize = 500;

/// The key of a conversation: the user, the agent, the protocol, and the client's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConversationKey {
    user: UserId,
    hash: [u8; 32],
}

impl ConversationKey {
    pub fn new(by: &Principal, agent: &AgentName, protocol: &str, id: &str) -> Self {
        let tenant = by.user.tenant();
        let mut hash = Sha256::new();
        for part in [
            tenant.as_str(),
            by.user.name(),
            agent.as_str(),
            protocol,
            id,
        ] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self {
            user: by.user.clone(),
            hash: hash.finalize().into(),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        [&user_prefix(&self.user)[..], &self.hash].concat()
    }

    /// An idempotency key for the turn after the turn `before`, so that a repeated request finds a turn whose record was
    /// lost.
    pub fn turn_key(&self, session: SessionId, before: u32) -> String {
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(session.as_bytes());
        hash.update(before.to_be_bytes());
        URL_SAFE_NO_PAD.encode(hash.finalize())
    }
}

/// A message that the client should show, because the session differs from what the client displays, or because the request
/// had two meanings.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::EnumMessage,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Notice {
    /// The turn is the first one of a new session, which received the history as text.
    #[strum(
        message = "This conversation began elsewhere. The agent received it as text in a new session."
    )]
    Seeded,
    /// The history was changed. The turn is the first one of a new session.
    #[strum(
        message = "The history was changed, so the agent continues in a new session. Files that it changed before stay changed."
    )]
    Branched,
    /// The history was changed. The turn continues the same session, and the agent remembers both.
    #[strum(
        message = "The history was changed. The agent still remembers the earlier messages, and files that it changed stay changed."
    )]
    Appended,
    /// The prompt contains several messages, because the client did not send each of them on its own.
    #[strum(message = "The agent received several messages in one prompt.")]
    Joined,
    /// The request continues the same session, and may have been an edit: it has no earlier messages, or they fit two places.
    #[strum(
        message = "The message continues the conversation, although it may be an edit. The agent remembers all earlier messages."
    )]
    Continued,
    /// The turn repeats a message whose first turn has no answer.
    #[strum(message = "The message had no answer, so the agent received it again.")]
    Again,
    /// The request is a repetition by its count and its text only. The response is the newest turn that fits.
    #[strum(
        message = "The request is a repetition. This is the newest answer to the same message."
    )]
    Repeated,
    /// An earlier message has a file that the agent does not support. The agent received its name.
    #[strum(
        message = "The agent does not support a file of an earlier message. It received the name of the file."
    )]
    Omitted,
    /// The earlier messages were too long for the prompt. The agent did not receive the beginning.
    #[strum(
        message = "The conversation is too long for one prompt. The agent did not receive its beginning."
    )]
    Shortened,
    /// The session of the conversation was deleted, and the request has no earlier messages.
    #[strum(
        message = "The session of this conversation was deleted. The agent does not know the earlier messages."
    )]
    Forgotten,
    /// The system message had no effect. It counts with the first prompt of a session only.
    #[strum(
        message = "The system message had no effect. An agent receives it with the first message of a session only."
    )]
    Instructions,
}

impl Notice {
    /// The message for the client.
    pub fn text(self) -> &'static str {
        self.get_message().unwrap_or_default()
    }
}

/// A turn that a message of the client became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub message: Digest,
    pub prompt: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Digest>,
    /// The id that clients get for the message if they ask for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_id: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Digest>,
}

impl Turn {
    pub const fn new(message: UserMessage, prompt: u32) -> Self {
        Self {
            message: message.content,
            prompt,
            notices: Vec::new(),
            id: message.id,
            own_id: None,
            run: None,
        }
    }

    pub fn has_id(&self, id: Digest) -> bool {
        self.id == Some(id) || self.own_id == Some(id)
    }

    pub const fn prompt_id(&self) -> PromptId {
        PromptId::new(self.prompt)
    }
}

/// The session of a conversation, and its turns that came from the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub session: SessionId,
    pub turns: Vec<Turn>,
    /// The hash of the newest system message of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Digest>,
    /// The last request had no messages before its last one, although the conversation has turns.
    #[serde(default)]
    pub sends_newest_only: bool,
}

impl Conversation {
    pub const fn new(session: SessionId) -> Self {
        Self {
            session,
            turns: Vec::new(),
            system: None,
            sends_newest_only: false,
        }
    }

    pub fn extend(&mut self, turns: impl Iterator<Item = Turn>) {
        self.turns.extend(turns);
        let excess = self.turns.len().saturating_sub(MAX_TURNS);
        self.turns.drain(..excess);
    }
}

/// The hash of a message of the user, of an id, or of another text of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(u128);

impl Digest {
    /// The hash of a text and of the content blocks that are not text. White space at both ends of the text is ignored.
    pub fn of<'a>(text: &str, attachments: impl IntoIterator<Item = &'a str>) -> Self {
        let mut hash = Sha256::new();
        hash.update(text.trim().as_bytes());
        for content in attachments {
            hash.update([0]);
            hash.update((content.len() as u64).to_be_bytes());
            hash.update(content);
        }
        let hash = hash.finalize();
        let bytes = hash.first_chunk().expect("a hash has 32 bytes");
        Self(u128::from_be_bytes(*bytes))
    }

    /// The hash of an id. An empty id names nothing.
    pub fn of_id(id: Option<&str>) -> Option<Self> {
        id.filter(|id| !id.is_empty()).map(|id| Self::of(id, []))
    }

    pub const fn bytes(&self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserMessage {
    pub content: Digest,
    pub id: Option<Digest>,
}

/// The time between two removals of records whose session no longer exists.
const SWEEP_INTERVAL: Duration = Duration::from_hours(6);
/// The conversations with the same history under one key. Beyond them, the oldest is forgotten.
pub const MAX_OF_HISTORY: usize = 8;

#[derive(Debug, Clone)]
pub struct Conversations {
    log: EventLog,
    locks: Arc<Mutex<HashMap<ConversationKey, Weak<tokio::sync::Mutex<()>>>>>,
}

/// The right to change the conversations of a key. Only one request has it at a time.
#[derive(Debug)]
pub struct Locked {
    conversations: Conversations,
    _guard: OwnedMutexGuard<()>,
}

impl Conversations {
    pub async fn lock(&self, key: ConversationKey) -> Locked {
        let lock = {
            let mut locks = lock_or_abort(self.locks.lock());
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(&key).and_then(Weak::upgrade);
            let lock = known.unwrap_or_default();
            locks.insert(key, Arc::downgrade(&lock));
            lock
        };
        Locked {
            conversations: self.clone(),
            _guard: lock.lock_owned().await,
        }
    }

    /// The conversations under a key, the newest one last: one under an id, and several under a history that they have in common.
    pub async fn get(&self, key: &ConversationKey) -> Result<Vec<Conversation>, ReadError> {
        let value = self.log.get(Table::Conversation, key.bytes()).await?;
        Ok(value
            .and_then(|value| from_json(&value))
            .unwrap_or_default())
    }

    async fn sweep(&self, sessions: &SessionDirectory) -> Result<(), ReadError> {
        let mut pages = RecordPages::of(&self.log, Table::Conversation);
        while let Some(page) = pages.next_raw().await? {
            let mut records = Records::default();
            for (key, value) in &page {
                let mut exists = false;
                for conversation in from_json::<Vec<Conversation>>(value).unwrap_or_default() {
                    exists |= sessions.exists(conversation.session).await?;
                }
                if !exists {
                    records = records.delete(Table::Conversation, key.clone());
                }
            }
            if !records.is_empty() && self.log.write(records).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PutError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl Locked {
    /// Stores a conversation under a key that only holders of this lock write, beside at most `max - 1` others. It replaces
    /// the one of the same session.
    pub async fn put(
        &self,
        key: &ConversationKey,
        conversation: Conversation,
        max: usize,
    ) -> Result<(), PutError> {
        let mut all = self.conversations.get(key).await?;
        all.retain(|other| other.session != conversation.session);
        all.push(conversation);
        let excess = all.len().saturating_sub(max);
        all.drain(..excess);
        let records = Records::default().put(Table::Conversation, key.bytes(), to_json(&all));
        Ok(self.conversations.log.write(records).await?)
    }
}

pub fn start(sessions: &SessionDirectory) -> Conversations {
    let context = sessions.context();
    let conversations = Conversations {
        log: context.log.clone(),
        locks: Arc::default(),
    };
    let sweeper = conversations.clone();
    let sessions = sessions.clone();
    context.shutdown.spawn_until_drain(async move {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            if let Err(error) = sweeper.sweep(&sessions).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "could not remove old conversations"
                );
            }
        }
    });
    conversations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_attachments_distinguishes_messages() {
        let of = |text, attachments: &[&'static str]| Digest::of(text, attachments.iter().copied());
        assert_eq!(of(" a\n", &[]), of("a", &[]));
        let all = [
            of("a", &[]),
            of("a", &["x"]),
            of("a", &["y"]),
            of("a", &["x", "y"]),
            of("a", &["y", "x"]),
            of("a", &["xy"]),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
            let stored = serde_json::to_string(one).expect("JSON");
            assert_eq!(
                serde_json::from_str::<Digest>(&stored).expect("a digest"),
                *one
            );
        }
    }
}
