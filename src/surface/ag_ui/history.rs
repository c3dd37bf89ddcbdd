//! The earlier messages of a thread, for a client that has none: a page that was loaded again.

use serde_json::{Value, json};

use super::encoder::{call_id, message_id, result_id};
use crate::projection::{CallStatus, Role, Step, ToolCall, failure_text, input_text, output_text};
use crate::surface::chat::{PastTurn, steps_of};
use crate::surface::rest::ApiError;
use crate::transcript::decode;
use crate::types::{PromptId, SessionId};

/// The turns that a snapshot has. Older messages are left out, and the gateway accepts a history without them.
pub(super) const MAX_TURNS: usize = 100;
/// The bytes of the messages of a snapshot.
const MAX_BYTES: usize = 4 << 20;

/// The messages of these turns, and of the user in the last one. Its other messages are the events of the run.
pub(super) async fn messages(turns: &[PastTurn<'_>]) -> Result<Vec<Value>, ApiError> {
    let (mut newest_first, mut bytes) = (Vec::new(), 0);
    for (at, turn) in turns.iter().enumerate().rev() {
        let mut messages =
            vec![json!({ "id": turn.message_id(), "role": "user", "content": turn.text })];
        if at + 1 < turns.len() {
            messages.extend(answers(turn).await?);
        }
        bytes += messages
            .iter()
            .map(|message| message.to_string().len())
            .sum::<usize>();
        if bytes > MAX_BYTES {
            break;
        }
        newest_first.push(messages);
    }
    Ok(newest_first.into_iter().rev().flatten().collect())
}

/// The messages of the agent in a turn, with the ids that its events had.
async fn answers(turn: &PastTurn<'_>) -> Result<Vec<Value>, ApiError> {
    let (session, prompt) = (turn.session.id(), turn.prompt);
    let mut messages = Messages {
        session,
        prompt,
        all: Vec::new(),
        text: String::new(),
    };
    steps_of(turn.session, (prompt, turn.range), |step| {
        messages.step(&step);
    })
    .await?;
    Ok(messages.all)
}

struct Messages {
    session: SessionId,
    prompt: PromptId,
    all: Vec<Value>,
    /// The inner part of the open text, a string in JSON.
    text: String,
}

impl Messages {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Text(block, text) if block.subagent.is_none() => {
                self.text.push_str(&text.get()[1..text.get().len() - 1]);
            }
            Step::BlockEnded(block) if block.subagent.is_none() => {
                let text = decode(&format!("\"{}\"", self.text)).unwrap_or_default();
                self.text.clear();
                let role = match block.role {
                    Role::Message => "assistant",
                    Role::Thought => "reasoning",
                };
                let id = message_id(self.session, self.prompt, block.number);
                self.all
                    .push(json!({ "id": id, "role": role, "content": text }));
            }
            Step::CallEnded(call) => self.call(call),
            _ => {}
        }
    }

    fn call(&mut self, call: &ToolCall) {
        let id = call_id(self.prompt, call);
        let function = json!({ "name": call.kind, "arguments": input_text(call) });
        let calls = json!([{ "id": id, "type": "function", "function": function }]);
        self.all
            .push(json!({ "id": id, "role": "assistant", "toolCalls": calls }));
        let text = if call.status == CallStatus::Completed {
            output_text(call)
        } else {
            failure_text(call)
        };
        self.all.push(
            json!({ "id": result_id(&id), "role": "tool", "toolCallId": id, "content": text }),
        );
    }
}
