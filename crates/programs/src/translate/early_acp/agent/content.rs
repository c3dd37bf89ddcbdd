//! The content of messages of an early agent, and the text that the updates of a turn have delivered.

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::translate::message::{Object, text_block};
use wire::acp::{object, to_raw};

#[derive(Debug)]
pub(super) enum Part<'a> {
    /// A string, which is not decoded.
    Text(&'a RawValue),
    Thought(&'a RawValue),
    ToolUse(Object<'a>),
    ToolResult(Object<'a>),
    /// A block of another type.
    Block(&'a RawValue),
}

pub(super) fn parts(content: &RawValue) -> Vec<Part<'_>> {
    match content.get().as_bytes().first() {
        Some(b'"') => vec![Part::Text(content)],
        Some(b'[') => {
            let all: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
            // A list within a list is no content.
            let all = all.into_iter().filter(|part| !part.get().starts_with('['));
            all.flat_map(parts).collect()
        }
        _ => {
            let block = Object::parse("content", content).ok();
            Vec::from_iter(block.and_then(|block| part(content, block)))
        }
    }
}

fn part<'a>(raw: &'a RawValue, block: Object<'a>) -> Option<Part<'a>> {
    let kind = block.text("type").map(|kind| snake_case(&kind));
    let string = |member| block.get(member).filter(|value| is_string(value));
    Some(match kind.as_deref() {
        None | Some("text" | "text_delta") => Part::Text(string("text")?),
        Some("thinking" | "thinking_delta" | "thought") => {
            Part::Thought(string("thinking").or_else(|| string("text"))?)
        }
        Some("tool_use") => Part::ToolUse(block),
        Some("tool_result") => Part::ToolResult(block),
        Some(_) => Part::Block(raw),
    })
}

/// The text of the content, decoded. `None` if the content has no text, or a lone surrogate.
pub(super) fn text_of(content: &RawValue) -> Option<String> {
    let mut texts: Option<String> = None;
    for part in parts(content) {
        if let Part::Text(literal) = part {
            let text: String = serde_json::from_str(literal.get()).ok()?;
            texts.get_or_insert_default().push_str(&text);
        }
    }
    texts
}

fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// Content of a tool call as ACP has it: a list of contents, diffs and terminals. `None` if it has this shape.
pub(super) fn tool_content(content: &RawValue) -> Option<Box<RawValue>> {
    let items = match serde_json::from_str::<Vec<&RawValue>>(content.get()) {
        Ok(items) if items.iter().all(|item| is_tool_content(item)) => return None,
        Ok(items) => items,
        Err(_) => vec![content],
    };
    let mut wrapped = Vec::new();
    for item in items {
        if is_tool_content(item) {
            wrapped.push(item.to_owned());
        } else if !item.get().starts_with(['[', 'n']) {
            wrapped.push(wrap(item));
        }
    }
    Some(to_raw(&wrapped))
}

fn is_tool_content(item: &RawValue) -> bool {
    let item = Object::parse("content", item).ok();
    let kind = item.and_then(|item| item.text("type"));
    matches!(kind.as_deref(), Some("content" | "diff" | "terminal"))
}

/// A block, a bare text or another value as content of a tool call.
fn wrap(item: &RawValue) -> Box<RawValue> {
    let block = Object::parse("content", item).ok();
    let text = block.as_ref().and_then(|block| block.get("text"));
    let content = match (&block, text) {
        (Some(block), _) if block.get("type").is_some() => item.to_owned(),
        (Some(_), Some(text)) if is_string(text) => text_block(text),
        (None, _) if is_string(item) => text_block(item),
        // A result of another shape is shown as JSON.
        _ => text_block(&to_raw(item.get())),
    };
    object(&[("type", to_raw("content")), ("content", content)])
}

pub(super) fn text_content(text: &str) -> Box<RawValue> {
    to_raw(&[wrap(&to_raw(text))])
}

/// A name in snake case: agents write `agentMessageChunk` and `AgentMessageChunk`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for char in name.chars() {
        if char.is_uppercase() && after_lower {
            snake.push('_');
        }
        after_lower = char.is_lowercase() || char.is_ascii_digit();
        if matches!(char, '-' | ' ') {
            snake.push('_');
        } else {
            snake.extend(char.to_lowercase());
        }
    }
    snake
}

/// A text that updates have already delivered, without white space, because agents join and trim their updates. Only its
/// digest is kept, so the size of a turn does not matter.
#[derive(Debug, Clone, Default)]
struct Text {
    hash: Sha256,
    chars: usize,
}

impl Text {
    fn add(&mut self, text: &str) {
        for part in text.split_whitespace() {
            self.hash.update(part);
            self.chars += part.chars().count();
        }
    }

    /// The rest of `whole` after this text. `None` if `whole` does not begin with it.
    fn rest<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let chars = whole.char_indices();
        let mut shown = chars.filter(|(_, char)| !char.is_whitespace());
        let end = match self.chars.checked_sub(1) {
            None => 0,
            Some(last) => shown.nth(last).map(|(at, char)| at + char.len_utf8())?,
        };
        let mut prefix = Self::default();
        prefix.add(&whole[..end]);
        (prefix.hash.finalize() == self.hash.clone().finalize()).then(|| &whole[end..])
    }
}

/// The delivered text of a turn. The result of a prompt repeats it: all of it, or the text after the last tool call.
#[derive(Debug, Default)]
pub(super) struct Streamed {
    all: Text,
    /// The text since the last update of another kind.
    last: Text,
}

impl Streamed {
    pub(super) fn add(&mut self, text: &str) {
        self.all.add(text);
        self.last.add(text);
    }

    /// An update of another kind separates two texts.
    pub(super) fn separate(&mut self) {
        self.last = Text::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.chars == 0
    }

    /// The part of the result that was not delivered. Empty if all of it was.
    pub(super) fn remainder<'a>(&self, result: &'a str) -> &'a str {
        let last = Some(&self.last).filter(|last| last.chars > 0);
        let rest = self.all.rest(result).or_else(|| last?.rest(result));
        let rest = rest.unwrap_or(result);
        if rest.trim().is_empty() { "" } else { rest }
    }
}

#[cfg(test)]
mod content_tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn every_spelling_of_a_text_is_a_text() {
        for content in [
            r#""a b""#,
            r#"{"type":"text","text":"a b"}"#,
            r#"{"text":"a b"}"#,
            r#"[{"type":"text","text":"a "},{"text":"b"}]"#,
            r#"["a ","b"]"#,
            r#"{"type":"text_delta","text":"a b"}"#,
        ] {
            assert_eq!(text_of(&raw(content)).as_deref(), Some("a b"), "{content}");
        }
        for none in [
            "null",
            "7",
            "[]",
            "{}",
            r#"{"type":"image","data":""}"#,
            r#"{"type":"text","text":7}"#,
            r#"[["a"]]"#,
        ] {
            assert_eq!(text_of(&raw(none)), None, "{none}");
        }
        assert_eq!(
            text_of(&raw(r#""\ud83d""#)),
            None,
            "a lone surrogate passes undecoded"
        );
    }

    #[test]
    fn parts_of_a_message_are_recognised_by_their_type() {
        let content = raw(concat!(
            r#"[{"type":"thinking","thinking":"t"},{"type":"toolUse","id":"1"},{"type":"tool_result"},"#,
            r#"{"type":"image","data":"x"}]"#
        ));
        let [
            Part::Thought(_),
            Part::ToolUse(_),
            Part::ToolResult(_),
            Part::Block(block),
        ] = parts(&content)[..]
        else {
            panic!("{:?}", parts(&content));
        };
        assert_eq!(block.get(), r#"{"type":"image","data":"x"}"#);
    }

    #[test]
    fn content_of_a_tool_is_a_list_of_contents() {
        let text = r#"[{"type":"content","content":{"type":"text","text":"out"}}]"#;
        for content in [
            r#""out""#,
            r#"["out"]"#,
            r#"[{"type":"text","text":"out"}]"#,
            r#"{"text":"out"}"#,
        ] {
            assert_eq!(
                tool_content(&raw(content)).unwrap().get(),
                text,
                "{content}"
            );
        }
        for kept in ["[]", text, r#"[{"type":"diff","path":"/a","newText":"b"}]"#] {
            assert!(tool_content(&raw(kept)).is_none(), "{kept}");
        }
        let shown = |content| tool_content(&raw(content)).unwrap().get().to_owned();
        assert_eq!(
            shown("7"),
            r#"[{"type":"content","content":{"type":"text","text":"7"}}]"#
        );
        assert_eq!(
            shown(r#"{"n":1}"#),
            r#"[{"type":"content","content":{"type":"text","text":"{\"n\":1}"}}]"#
        );
        assert_eq!(shown("null"), "[]");
    }

    #[test]
    fn names_become_snake_case() {
        for (name, snake) in [
            ("agentMessageChunk", "agent_message_chunk"),
            ("AgentMessageChunk", "agent_message_chunk"),
            ("message_delta", "message_delta"),
            ("allow-once", "allow_once"),
            ("Allow Once", "allow_once"),
            ("toolUse", "tool_use"),
        ] {
            assert_eq!(snake_case(name), snake);
        }
    }
}

#[cfg(test)]
mod streamed_tests {
    use super::*;

    #[test]
    fn result_adds_only_the_text_that_was_not_streamed() {
        for (updates, result, rest) in [
            (&["Hel", "lo"][..], "Hello", ""),
            (&["Hello "], "Hello world", " world"),
            (&["line 1", "line 2"], "line 1\nline 2\n", ""),
            (&["Grüße ", "€"], "Grüße €uro", "uro"),
            (&[], "Hello", "Hello"),
            (&[], " \n", ""),
            (&["Hello"], "Other", "Other"),
            (&["Hello"], "Hell", "Hell"),
            (&["I look.", "|", "Done", "."], "Done.", ""),
            (&["I look.", "|", "Done"], "Done, all of it", ", all of it"),
            (&["I look.", "|", "Done"], "I look.\nDone", ""),
            (&["I look.", "|"], "Done.", "Done."),
            (&["a", "|"], "a", ""),
        ] {
            let mut streamed = Streamed::default();
            for update in updates {
                if *update == "|" {
                    streamed.separate();
                } else {
                    streamed.add(update);
                }
            }
            assert_eq!(streamed.remainder(result), rest, "{updates:?} {result:?}");
            assert_eq!(streamed.is_empty(), updates.is_empty());
        }
    }
}
