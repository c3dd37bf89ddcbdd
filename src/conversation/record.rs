//! A conversation in the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::message::{Digest, UserMessage};
use crate::eventlog::tenant_prefix;
use crate::types::{AgentName, Principal, PromptId, SessionId, Tenant};

/// The turns that a record keeps. The oldest are forgotten first, and then count as left out by the client.
pub(super) const MAX_TURNS: usize = 500;

/// The key of a conversation: the principal, the agent, the protocol, and the client's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConversationKey {
    tenant: Tenant,
    hash: [u8; 32],
}

impl ConversationKey {
    pub fn new(by: &Principal, agent: &AgentName, protocol: &str, id: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [&*by.id, agent.as_str(), protocol, id] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self {
            tenant: by.tenant.clone(),
            hash: hash.finalize().into(),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        [&tenant_prefix(&self.tenant)[..], &self.hash].concat()
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The turn is the first one of a new session, which received the history as text.
    Seeded,
    /// The history was changed. The turn is the first one of a new session.
    Branched,
    /// The history was changed. The turn continues the same session, and the agent remembers both.
    Appended,
    /// The prompt contains several messages, because the client did not send each of them on its own.
    Joined,
    /// The request continues the same session, and may have been an edit: it has no earlier messages, or they fit two places.
    Continued,
    /// The turn repeats a message whose first turn has no answer.
    Again,
    /// The request is a repetition by its count and its text only. The response is the newest turn that fits.
    Repeated,
    /// An earlier message has a file that the agent does not support. The agent received its name.
    Omitted,
    /// The earlier messages were too long for the prompt. The agent did not receive the beginning.
    Shortened,
    /// The session of the conversation was deleted, and the request has no earlier messages.
    Forgotten,
    /// The system message had no effect. It counts with the first prompt of a session only.
    Instructions,
}

impl Notice {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Seeded => "seeded",
            Self::Branched => "branched",
            Self::Appended => "appended",
            Self::Joined => "joined",
            Self::Continued => "continued",
            Self::Again => "again",
            Self::Repeated => "repeated",
            Self::Omitted => "omitted",
            Self::Shortened => "shortened",
            Self::Forgotten => "forgotten",
            Self::Instructions => "instructions",
        }
    }

    pub const fn text(self) -> &'static str {
        match self {
            Self::Seeded => {
                "This conversation began elsewhere. The agent received it as text in a new session."
            }
            Self::Branched => {
                "The history was changed, so the agent continues in a new session. Files that it changed before stay changed."
            }
            Self::Appended => {
                "The history was changed. The agent still remembers the earlier messages, and files that it changed stay changed."
            }
            Self::Joined => "The agent received several messages in one prompt.",
            Self::Continued => {
                "The message continues the conversation, although it may be an edit. The agent remembers all earlier messages."
            }
            Self::Again => "The message had no answer, so the agent received it again.",
            Self::Repeated => {
                "The request is a repetition. This is the newest answer to the same message."
            }
            Self::Omitted => {
                "The agent does not support a file of an earlier message. It received the name of the file."
            }
            Self::Shortened => {
                "The conversation is too long for one prompt. The agent did not receive its beginning."
            }
            Self::Forgotten => {
                "The session of this conversation was deleted. The agent does not know the earlier messages."
            }
            Self::Instructions => {
                "The system message had no effect. An agent receives it with the first message of a session only."
            }
        }
    }
}

/// A turn that a message of the client became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    pub message: Digest,
    pub prompt: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// The hash of the client's id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Digest>,
    /// The id that clients get for the message if they ask for the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_id: Option<Digest>,
    /// The hash of the client's id of the request.
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

    /// Adds turns. The oldest are forgotten.
    pub fn extend(&mut self, turns: impl Iterator<Item = Turn>) {
        self.turns.extend(turns);
        let excess = self.turns.len().saturating_sub(MAX_TURNS);
        self.turns.drain(..excess);
    }
}
