//! The history of a session: the updates in the form in which `session/load` of v1 replays them.
//!
//! The chunks of a message are joined. A tool call is stored with its last state, and a turn with its last plan.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::text::excerpt;

/// A larger block of a prompt is replaced by a note about it.
const MAX_BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct History {
    updates: Vec<Value>,
}

impl History {
    pub(super) fn updates(&self) -> &[Value] {
        &self.updates
    }

    /// Adds the prompt, block by block. This begins a turn.
    pub(super) fn prompt(&mut self, prompt: &[Value], message: &str) {
        self.updates.extend(prompt.iter().map(|block| {
            let block = truncate_block(block);
            json!({ "sessionUpdate": "user_message_chunk", "messageId": message, "content": block })
        }));
    }

    /// Adds an update as it was sent. Ignores updates that are not history: usage, titles, modes.
    pub(super) fn push(&mut self, update: &Value) {
        let same = |earlier: &Value, member: &str| earlier[member] == update[member];
        match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk" | "agent_thought_chunk") => {
                let last = self.updates.last_mut();
                let last =
                    last.filter(|last| same(last, "sessionUpdate") && same(last, "messageId"));
                if !last.is_some_and(|last| join(last, update)) {
                    self.updates.push(update.clone());
                }
            }
            Some("tool_call") => self.updates.push(update.clone()),
            Some("tool_call_update") => {
                let mut updates = self.updates.iter_mut();
                let call = updates.rfind(|earlier| same(earlier, "toolCallId"));
                if let (Some(call), Some(changes)) = (call, update.as_object()) {
                    for (member, value) in changes {
                        if member != "sessionUpdate" {
                            call[member.as_str()] = value.clone();
                        }
                    }
                }
            }
            Some("plan") => {
                let turn = self.updates.iter().rposition(is_prompt).unwrap_or(0);
                let mut updates = self.updates[turn..].iter_mut();
                match updates.find(|earlier| same(earlier, "sessionUpdate")) {
                    Some(plan) => *plan = update.clone(),
                    None => self.updates.push(update.clone()),
                }
            }
            _ => {}
        }
    }

    pub(super) fn replace(&mut self, message: &str, text: &str) {
        self.updates.retain(|update| update["messageId"] != message);
        self.push(&json!({
            "sessionUpdate": "agent_message_chunk",
            "messageId": message,
            "content": { "type": "text", "text": text },
        }));
    }

    /// The prompts of the user, last first.
    pub(super) fn prompts(&self) -> impl Iterator<Item = &str> {
        let prompts = self.updates.iter().rev().filter(|update| is_prompt(update));
        prompts.filter_map(text_of)
    }

    /// Drops the oldest turn. Returns false if only one is left.
    pub(super) fn drop_oldest_turn(&mut self) -> bool {
        let answer = self.updates.iter().position(|update| !is_prompt(update));
        let answer = answer.unwrap_or(self.updates.len());
        let next = self.updates[answer..].iter().position(is_prompt);
        if let Some(next) = next {
            self.updates.drain(..answer + next);
        }
        next.is_some()
    }

    /// A rough number of tokens: four bytes each.
    pub(super) fn tokens(&self) -> u64 {
        let bytes: usize = self.updates.iter().filter_map(text_of).map(str::len).sum();
        bytes as u64 / 4
    }
}

fn is_prompt(update: &Value) -> bool {
    update["sessionUpdate"] == "user_message_chunk"
}

fn text_of(update: &Value) -> Option<&str> {
    update.pointer("/content/text").and_then(Value::as_str)
}

/// Appends the text of a chunk to an earlier chunk. Returns false if one of them is not text.
fn join(earlier: &mut Value, chunk: &Value) -> bool {
    let (Some(Value::String(text)), Some(more)) =
        (earlier.pointer_mut("/content/text"), text_of(chunk))
    else {
        return false;
    };
    text.push_str(more);
    true
}

fn truncate_block(block: &Value) -> Value {
    let data = ["/data", "/resource/text", "/resource/blob"];
    let data = data
        .iter()
        .find_map(|pointer| block.pointer(pointer)?.as_str());
    let bytes = data.map_or(0, str::len);
    let text = match (block["text"].as_str(), block["type"].as_str()) {
        (Some(text), _) if text.len() > MAX_BLOCK_BYTES => excerpt(text, MAX_BLOCK_BYTES / 4),
        (None, Some(kind)) if bytes > MAX_BLOCK_BYTES => {
            format!("[{kind} of {bytes} bytes, not kept by the demo]")
        }
        _ => return block.clone(),
    };
    json!({ "type": "text", "text": text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(message: &str, text: &str) -> Value {
        let content = json!({ "type": "text", "text": text });
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": message, "content": content })
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn chunks_of_a_message_join_and_tool_calls_keep_their_last_state() {
        let mut history = History::default();
        history.prompt(&[text("hi")], "u");
        for update in [
            chunk("m1", "a"),
            chunk("m1", "b"),
            json!({ "sessionUpdate": "plan", "entries": [] }),
            json!({ "sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read" }),
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed" }),
            json!({ "sessionUpdate": "plan", "entries": [] }),
            json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2 }),
            chunk("m2", "c"),
        ] {
            history.push(&update);
        }
        let kinds: Vec<_> = history
            .updates()
            .iter()
            .map(|update| &update["sessionUpdate"])
            .collect();
        let message = "agent_message_chunk";
        assert_eq!(
            kinds,
            ["user_message_chunk", message, "plan", "tool_call", message]
        );
        assert_eq!(text_of(&history.updates()[1]), Some("ab"));
        assert_eq!(history.updates()[3]["status"], "completed");
    }

    #[test]
    fn oldest_turn_is_dropped_first_and_the_last_is_kept() {
        let mut history = History::default();
        history.prompt(&[text("one"), text("more")], "u1");
        history.push(&chunk("m1", "first"));
        history.prompt(&[text("two")], "u2");
        history.push(&chunk("m2", "second"));
        assert!(history.drop_oldest_turn());
        assert_eq!(history.updates().len(), 2);
        assert_eq!(text_of(&history.updates()[0]), Some("two"));
        assert!(!history.drop_oldest_turn());
    }

    #[test]
    fn large_blocks_are_replaced_by_notes() {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": "x".repeat(MAX_BLOCK_BYTES + 1) });
        assert_eq!(
            truncate_block(&image)["text"],
            "[image of 65537 bytes, not kept by the demo]"
        );
        let long = truncate_block(&text(&"x".repeat(MAX_BLOCK_BYTES + 1)));
        assert_eq!(
            long["text"].as_str().unwrap().chars().count(),
            MAX_BLOCK_BYTES / 4 + 1
        );
        assert_eq!(truncate_block(&text("short")), text("short"));
    }
}
