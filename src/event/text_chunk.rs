//! The event of a text chunk, read in one pass.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A chunk of text of the session itself: nearly all events of a turn.
#[derive(Debug)]
pub struct TextChunk<'a> {
    /// The kind of the update, for example `agent_message_chunk`.
    pub kind: Cow<'a, str>,
    pub message_id: Option<Cow<'a, str>>,
    /// A string in JSON, with its quotes.
    pub text: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(rename = "sessionUpdate", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: &'a RawValue,
}

impl<'a> TextChunk<'a> {
    /// `members`: those after the head. `None` unless `update` is the only one and its content is one text.
    pub(super) fn parse(members: &'a [u8]) -> Option<Self> {
        let update = members.strip_prefix(b",\"update\":")?;
        let mut values = serde_json::Deserializer::from_slice(update).into_iter::<Update<'_>>();
        let Update {
            kind,
            message_id,
            content,
        } = values.next()?.ok()?;
        let is_whole = update.get(values.byte_offset()..) == Some(b"}");
        let is_text = content.kind == "text" && content.text.get().starts_with('"');
        (is_whole && is_text).then_some(Self {
            kind,
            message_id,
            text: content.text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(members: &str) -> Option<&str> {
        TextChunk::parse(members.as_bytes()).map(|chunk| chunk.text.get())
    }

    #[test]
    fn only_an_update_with_one_text_is_a_chunk() {
        let update = r#"{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a\ud83d","_meta":{}},"x":[1]}"#;
        assert_eq!(
            text(&format!(r#","update":{update}}}"#)),
            Some(r#""a\ud83d""#)
        );
        for wrong in [
            format!(r#","update":{update},"late":true}}"#),
            format!(r#","update":{update},"subagent":"s"}}"#),
            format!(r#","update":{update}"#),
            format!(r#","by":"k","update":{update}}}"#),
            r#","update":{"sessionUpdate":"plan","content":null}}"#.to_owned(),
            r#","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":7}}}"#
                .to_owned(),
            r#","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"image","text":"a"}}}"#
                .to_owned(),
            r#","update":{"sessionUpdate":"a","sessionUpdate":"b","content":{"type":"text","text":"a"}}}"#
                .to_owned(),
            "}".to_owned(),
        ] {
            assert_eq!(text(&wrong), None, "{wrong}");
        }
    }
}
