//! Recognizes the prompt of the open turn in messages of the user that the agent sends. Some agents send the prompt back, whole or
//! in chunks.

use serde_json::Value;
use serde_json::value::RawValue;

/// The content of the open prompt, and how much of it the agent has sent back.
pub(super) struct Echo {
    /// The texts of the prompt without white space, because agents join blocks and trim texts in different ways.
    text: String,
    others: Vec<Value>,
    sent: usize,
    /// The agent has sent another message of the user. Its next chunks could look like the prompt.
    has_other: bool,
}

impl Echo {
    pub(super) fn of(blocks: &RawValue) -> Self {
        let blocks: Vec<Value> = serde_json::from_str(blocks.get()).unwrap_or_default();
        let text = blocks.iter().filter_map(text_of).map(dense).collect();
        let others = blocks
            .into_iter()
            .filter(|block| text_of(block).is_none())
            .collect();
        Self {
            text,
            others,
            sent: 0,
            has_other: false,
        }
    }

    /// Whether the content of this update is the next part of the prompt. After any other content, nothing is.
    pub(super) fn repeats(&mut self, update: &RawValue) -> bool {
        let Ok(mut update) = serde_json::from_str::<Value>(update.get()) else {
            return false;
        };
        // A chunk has one block. A whole message of ACP v2 has a list.
        let blocks = match update["content"].take() {
            Value::Array(blocks) => blocks,
            Value::Object(block) => vec![Value::Object(block)],
            _ => return false,
        };
        if blocks.is_empty() || self.has_other {
            return false;
        }
        if blocks.iter().all(|block| self.repeats_block(block)) {
            return true;
        }
        self.sent = 0;
        let begins_again = blocks.iter().all(|block| self.repeats_block(block));
        self.has_other = !begins_again;
        begins_again
    }

    fn repeats_block(&mut self, block: &Value) -> bool {
        let Some(text) = text_of(block) else {
            return self.others.contains(block);
        };
        let text = dense(text);
        if text.is_empty() {
            return self.sent > 0;
        }
        if self.sent == self.text.len() {
            self.sent = 0;
        }
        let is_next = self.text[self.sent..].starts_with(&text);
        if is_next {
            self.sent += text.len();
        }
        is_next
    }
}

fn text_of(block: &Value) -> Option<&str> {
    (block["type"] == "text").then(|| block["text"].as_str())?
}

fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn echo() -> Echo {
        Echo::of(&raw(
            r#"[{"type":"text","text":"Fix the bug"},{"type":"resource_link","name":"a","uri":"file:///a"},{"type":"text","text":"now"}]"#,
        ))
    }

    fn repeats(echo: &mut Echo, text: &str) -> bool {
        let update = serde_json::json!({ "content": { "type": "text", "text": text } });
        echo.repeats(&raw(&update.to_string()))
    }

    #[test]
    fn the_prompt_is_an_echo_whole_and_in_chunks() {
        let mut echo = echo();
        // The echo can repeat.
        for part in [
            "Fix the bug now",
            "Fix the ",
            "bug",
            "\n",
            "now",
            "Fix the bug\n",
            "now",
        ] {
            assert!(repeats(&mut echo, part), "{part}");
        }
        let link = r#"{"content":{"type":"resource_link","uri":"file:///a","name":"a"}}"#;
        assert!(echo.repeats(&raw(link)));
        let list =
            r#"{"content":[{"type":"text","text":"Fix the bug"},{"type":"text","text":"now"}]}"#;
        assert!(echo.repeats(&raw(list)));
    }

    #[test]
    fn other_content_is_no_echo() {
        for other in ["Fix the bug now, please", "bug", "Something else", " "] {
            assert!(!repeats(&mut echo(), other), "{other}");
        }
        let mut other = echo();
        for chunk in ["Also", " ", "Fix the bug", " now"] {
            assert!(!repeats(&mut other, chunk), "{chunk}");
        }
        for other in [
            r#"{"content":{"type":"resource_link","uri":"file:///b","name":"a"}}"#,
            r#"{"content":[]}"#,
            r#"{"content":null}"#,
            "{}",
        ] {
            assert!(!echo().repeats(&raw(other)), "{other}");
        }
    }
}
