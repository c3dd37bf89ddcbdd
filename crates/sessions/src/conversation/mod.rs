//! Conversations of chat clients, which send their whole history with each message.
//!
//! A chat client knows its own id of a conversation, or only the history. This module stores which session belongs to a
//! conversation, and which messages of the client became which turns. It decides for all chat protocols whether a request is
//! the next turn, a repetition, or a change of the history. It stores hashes of the messages, never the messages.
//!
//! The module must not know protocols or HTTP.
//!
//! Read in this order:
//! 1. `record`: a conversation in the store, with the hashes of its messages, its changes under a lock, and the removal of
//!    old records.
//! 2. `identity`: the rules that decide what a request means.

mod identity;
mod record;

pub use identity::{Decision, Evidence, Meaning, NewMessages, TurnState, decide};
pub use record::{
    Conversation, ConversationKey, Conversations, Digest, Locked, MAX_OF_HISTORY, Notice, Turn,
    UserMessage, start,
};
