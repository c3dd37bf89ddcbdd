//! Earlier turns: their steps up to now, and the messages of the user.

use serde_json::Value;

use super::message::Message;
use crate::conversation::Turn;
use crate::eventlog::{Item, Start};
use crate::projection::{Step, TurnProjector};
use crate::session::{PromptRange, SessionHandle};
use crate::surface::rest::ApiError;
use crate::types::{PromptId, SessionId};

/// The blocks of a prompt before the message: the instructions, and the history of the client as text.
const MAX_LEADING: usize = 2;

/// Calls `each` for the steps of a turn: to its end, or to the last event that exists.
pub(crate) async fn steps_of(
    session: &SessionHandle,
    (prompt, range): (PromptId, PromptRange),
    mut each: impl FnMut(Step<'_>),
) -> Result<(), ApiError> {
    let mut projector = TurnProjector::default();
    let mut reader = session.log().reader(Start::After(range.first_seq - 1));
    let last = range.last_seq.unwrap_or(u64::MAX);
    loop {
        match reader.next().await? {
            Item::Run(run) => {
                let events = run
                    .events()
                    .filter(|event| event.seq() <= last && event.is_of(prompt));
                events.for_each(|event| projector.event(&event, &mut each));
                if run.last_seq >= last {
                    return Ok(());
                }
            }
            Item::Ready { .. } => return Ok(()),
            Item::Reset { .. } | Item::End => return Err(ApiError::not_found()),
        }
    }
}

/// An earlier turn with the message of the user.
#[derive(Debug)]
pub(crate) struct PastTurn<'a> {
    pub(crate) session: &'a SessionHandle,
    pub(crate) prompt: PromptId,
    pub(crate) range: PromptRange,
    pub(crate) text: String,
}

impl PastTurn<'_> {
    pub(crate) fn message_id(&self) -> String {
        message_id(self.session.id(), self.prompt)
    }
}

/// The id of the message of the user in a turn, for a client that asks for the history.
pub(super) fn message_id(session: SessionId, prompt: PromptId) -> String {
    format!("{session}_{prompt}-0")
}

/// The newest turns of a conversation: those after the last one whose message a client could not send again as it was, because it
/// has files, or was joined with another one.
pub(super) async fn turns_of<'a>(
    session: &'a SessionHandle,
    turns: &[Turn],
) -> Result<Vec<PastTurn<'a>>, ApiError> {
    let mut past = Vec::new();
    for turn in turns {
        let prompt = turn.prompt_id();
        // The client sends its own text again, also if another client edited it in the queue.
        let (Some(range), Some(blocks)) = (
            session.query().prompt_range(prompt).await?,
            session.query().first_blocks(prompt).await?,
        ) else {
            past.clear();
            continue;
        };
        let blocks: Vec<Value> = serde_json::from_str(blocks.get()).unwrap_or_default();
        let messages = (0..=MAX_LEADING.min(blocks.len()))
            .map(|leading| Message::new("user", blocks[leading..].to_vec()));
        let same = |message: &Message| message.digest().content == turn.message;
        let message = messages.into_iter().find(same);
        let message = message.filter(|message| {
            let mut blocks = message.blocks.iter();
            blocks.len() > 0 && blocks.all(|block| block["type"] == "text")
        });
        let Some(message) = message else {
            past.clear();
            continue;
        };
        past.push(PastTurn {
            session,
            prompt,
            range,
            text: message.text,
        });
    }
    Ok(past)
}
