//! The parts that the chat protocols share: errors, messages of clients, the start of a turn, approvals, and frames.
//!
//! A chat client sends its whole history with each message. `search` finds the session of the conversation, and `turn` begins a
//! turn with the new message only. The events of the turn become frames of the protocol in the encoder of each surface.
//!
//! Read in this order:
//! 1. `layers`: admission and errors. `message`: what a client sends, and its messages as content blocks of ACP.
//! 2. `chat_turn`: a turn of a conversation, also an earlier one, and clients that disconnect. `search`: the conversation of a
//!    request. `turn`: the start of a turn. `approval`: answers to permission requests.
//! 3. `turn_encoder`: frames, a turn in the protocol of a client, and the response with it.
//!
//! Rules of the design:
//!
//! - Encoders are functions of the log, without a clock or a counter outside the turn. Frame ids derive from the
//!   session, the turn, the block number and the tool call. A replay after a restart therefore yields the same
//!   frames.
//! - The log contains no frames of a protocol. Stored frames would need a log for each client, and a new protocol
//!   could not show old sessions.
//! - The gateway stores the conversation before the first byte of a response. A client with a partial response can
//!   therefore find its turn after a kill of the gateway.
//! - A changed history begins a new session by default. No agent can return to an earlier state, and `session/fork`
//!   copies a session only at its end.
//! - A disconnect cancels a turn only after a delay, because a lost connection and a stop look the same.

mod approval;
mod chat_turn;
mod layers;
mod message;
mod search;
mod turn;
mod turn_encoder;

pub(super) use approval::{Approval, Continued, QuestionId, answer, open_request, send_answer};
pub(super) use chat_turn::{
    CancelOnDisconnect, ChatTurn, LatestTurn, PastTurn, SESSION_ID, create_session, steps_of,
};
pub(super) use layers::{ErrorFormat, with_layers};
pub(super) use message::{
    ChatRequest, Converted, Message, ModelOption, file_block, media_block, resource_link, text_part,
};
pub(super) use turn_encoder::{
    Member, Members, TurnEncoder, TurnWriter, done, frame, object, respond,
};
