//! Content of messages and tool calls. Early agents send bare texts, single blocks and lists.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::translate::message::to_raw;
use crate::translate::object::Object;

/// A part of the content of a message.
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

/// The parts of the content of a message.
pub(super) fn parts(content: &RawValue) -> Vec<Part<'_>> {
    match content.get().as_bytes().first() {
        Some(b'"') => vec![Part::Text(content)],
        Some(b'[') => {
            let all: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
            // A list within a list is no content.
            all.into_iter()
                .filter(|part| !part.get().starts_with('['))
                .flat_map(parts)
                .collect()
        }
        _ => Object::parse("content", content)
            .ok()
            .and_then(|block| part(content, block))
            .into_iter()
            .collect(),
    }
}

fn part<'a>(raw: &'a RawValue, block: Object<'a>) -> Option<Part<'a>> {
    let kind = block.text("type").map(|kind| snake_case(&kind));
    let string = |member| {
        block
            .get(member)
            .filter(|value| value.get().starts_with('"'))
    };
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
    let texts: Option<Vec<String>> = parts(content)
        .iter()
        .filter_map(|part| match part {
            Part::Text(literal) => Some(serde_json::from_str(literal.get()).ok()),
            _ => None,
        })
        .collect();
    texts
        .filter(|texts| !texts.is_empty())
        .map(|texts| texts.concat())
}

#[derive(Serialize)]
struct ToolContent<'a> {
    r#type: &'static str,
    content: Cow<'a, RawValue>,
}

#[derive(Serialize)]
struct TextBlock<'a> {
    r#type: &'static str,
    text: &'a RawValue,
}

/// Content of a tool call as ACP has it: a list of contents, diffs and terminals. `None` if it has this shape.
pub(super) fn tool_content(content: &RawValue) -> Option<Box<RawValue>> {
    let listed: Option<Vec<&RawValue>> = serde_json::from_str(content.get()).ok();
    if listed.iter().flatten().all(|item| is_tool_content(item)) && listed.is_some() {
        return None;
    }
    let items = listed.unwrap_or_else(|| vec![content]);
    let wrapped: Vec<Cow<'_, RawValue>> = items
        .into_iter()
        .filter(|item| !matches!(item.get().as_bytes().first(), Some(b'[' | b'n')))
        .map(|item| {
            if is_tool_content(item) {
                Cow::Borrowed(item)
            } else {
                Cow::Owned(wrap(item))
            }
        })
        .collect();
    Some(to_raw(&wrapped))
}

fn is_tool_content(item: &RawValue) -> bool {
    let kind = Object::parse("content", item)
        .ok()
        .and_then(|item| item.text("type").map(Cow::into_owned));
    matches!(kind.as_deref(), Some("content" | "diff" | "terminal"))
}

/// A block, a bare text or another value as content of a tool call.
fn wrap(item: &RawValue) -> Box<RawValue> {
    let object = Object::parse("content", item).ok();
    let text = match &object {
        None if item.get().starts_with('"') => Some(Cow::Borrowed(item)),
        None => Some(Cow::Owned(to_raw(&item.get()))),
        Some(block) if block.get("type").is_some() => None,
        // A result of another shape is shown as JSON.
        Some(block) => Some(
            match block.get("text").filter(|text| text.get().starts_with('"')) {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(to_raw(&item.get())),
            },
        ),
    };
    let content = match &text {
        Some(text) => Cow::Owned(to_raw(&TextBlock {
            r#type: "text",
            text,
        })),
        None => Cow::Borrowed(item),
    };
    to_raw(&ToolContent {
        r#type: "content",
        content,
    })
}

/// The content of a tool call with this text.
pub(super) fn text_content(text: &str) -> Box<RawValue> {
    let text = to_raw(&text);
    to_raw(&[wrap(&text)])
}

/// A name in snake case: agents write `agentMessageChunk` and `AgentMessageChunk`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    let mut former_is_lower = false;
    for char in name.chars() {
        if char.is_uppercase() && former_is_lower {
            snake.push('_');
        }
        former_is_lower = char.is_lowercase() || char.is_ascii_digit();
        if matches!(char, '-' | ' ') {
            snake.push('_');
        } else {
            snake.extend(char.to_lowercase());
        }
    }
    snake
}

#[cfg(test)]
mod tests {
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
