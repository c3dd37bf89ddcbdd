//! Conversations of chat clients, which send their whole history with each message.
//!
//! A chat client knows its own id of a conversation, or only the history. This module stores which session belongs to a
//! conversation, and which messages of the client became which turns. It decides for all chat protocols whether a request is
//! the next turn, a repetition, or a change of the history. It stores hashes of the messages, never the messages.
//!
//! The module must not know protocols or HTTP.
//!
//! Read in this order:
//! 1. `message`: a message of a client, as its hash. `record`: a conversation in the store.
//! 2. `identity`: the rules that decide what a request means.
//! 3. `handle`: reads and changes under a lock for each conversation, and the removal of old records.

mod handle;
mod identity;
mod message;
mod record;

pub use handle::{Conversations, Locked, MAX_OF_HISTORY, start};
pub use identity::{Decision, Evidence, Meaning, NewMessages, TurnState, decide};
pub use message::{Digest, UserMessage};
pub use record::{Conversation, ConversationKey, Notice, Turn};
