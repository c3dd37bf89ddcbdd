//! The lines for the client: messages of the model API, in parts and as a whole.
//!
//! The CLI with partial messages writes a text as deltas and then the whole block. ACP has only the parts, so the writer
//! collects them until the block ends.

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;

use crate::served::message::{line, object, raw};
use crate::types::random_uuid;

/// The size of a block's text above which the block ends.
const MAX_BLOCK_BYTES: usize = 4 << 20;

/// The kind of a text block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Text,
    Thinking,
}

impl TextKind {
    /// The name of the block, and of its member.
    const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
        }
    }

    const fn delta(self) -> &'static str {
        match self {
            Self::Text => "text_delta",
            Self::Thinking => "thinking_delta",
        }
    }

    fn block(self, text: Box<RawValue>) -> Box<RawValue> {
        let mut members = vec![("type", raw(self.name())), (self.name(), text)];
        if self == Self::Thinking {
            members.push(("signature", raw("")));
        }
        object(&members)
    }
}

/// The message that is being written.
#[derive(Debug)]
struct OpenMessage {
    id: String,
    /// The tool call of the subagent that writes the message.
    lane: Option<String>,
    next_index: u64,
    block: Option<Block>,
}

/// The text block that is being written.
#[derive(Debug)]
struct Block {
    kind: TextKind,
    /// The text as the inner part of a JSON string.
    text: String,
}

/// Writes the lines of one session.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) session: String,
    pub(super) model: String,
    message: Option<OpenMessage>,
    /// The number of messages of the session whose id the agent does not name.
    unnamed: u64,
    /// The number of messages of the turn.
    messages: u64,
    /// The last text of the turn, as the inner part of a JSON string.
    last_text: String,
}

/// A line that belongs to no session.
pub(super) fn bare(value: Box<RawValue>) -> Bytes {
    line(value)
}

impl Writer {
    /// A line of this type.
    pub(super) fn event(&self, kind: &str, members: &[(&str, Box<RawValue>)]) -> Bytes {
        let first = [("type", raw(kind))];
        let last = [
            ("session_id", raw(&self.session)),
            ("uuid", raw(&random_uuid())),
        ];
        line(object(&[&first[..], members, &last[..]].concat()))
    }

    pub(super) fn begin_turn(&mut self) {
        self.messages = 0;
        self.last_text.clear();
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// The last text of the turn.
    pub(super) fn last_text(&self) -> Box<RawValue> {
        literal(&self.last_text)
    }

    fn stream_event(&self, event: Box<RawValue>, lane: Option<&str>) -> Bytes {
        self.event(
            "stream_event",
            &[("event", event), ("parent_tool_use_id", raw(&lane))],
        )
    }

    /// Continues the open message, or begins another one. `id`: the id of the message, if the agent names it.
    fn open(&mut self, lane: Option<&str>, id: Option<&str>, out: &mut Vec<Bytes>) {
        let continues =
            |open: &OpenMessage| open.lane.as_deref() == lane && id.is_none_or(|id| open.id == id);
        if self.message.as_ref().is_some_and(continues) {
            return;
        }
        self.close(out);
        let id = id.map_or_else(
            || {
                self.unnamed += 1;
                format!("msg_{}", self.unnamed)
            },
            str::to_owned,
        );
        self.messages += 1;
        let message = self.whole_message(&id, raw(&json!([])), 0);
        out.push(self.stream_event(
            object(&[("type", raw("message_start")), ("message", message)]),
            lane,
        ));
        let lane = lane.map(str::to_owned);
        self.message = Some(OpenMessage {
            id,
            lane,
            next_index: 0,
            block: None,
        });
    }

    fn whole_message(&self, id: &str, content: Box<RawValue>, used: u64) -> Box<RawValue> {
        let usage = json!({
            "input_tokens": used, "output_tokens": 0, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        });
        object(&[
            ("id", raw(id)),
            ("type", raw("message")),
            ("role", raw("assistant")),
            ("model", raw(&self.model)),
            ("content", content),
            ("stop_reason", RawValue::NULL.to_owned()),
            ("stop_sequence", RawValue::NULL.to_owned()),
            ("usage", raw(&usage)),
        ])
    }

    /// Writes the line `assistant` of the open message.
    fn assistant(&self, content: &[Box<RawValue>], used: u64, out: &mut Vec<Bytes>) {
        let Some(OpenMessage { id, lane, .. }) = &self.message else {
            return;
        };
        let message = self.whole_message(id, raw(content), used);
        out.push(self.event(
            "assistant",
            &[("message", message), ("parent_tool_use_id", raw(lane))],
        ));
    }

    /// Writes a part of a text. `text` is a JSON string.
    pub(super) fn text(
        &mut self,
        lane: Option<&str>,
        kind: TextKind,
        text: &RawValue,
        message: Option<&str>,
        out: &mut Vec<Bytes>,
    ) {
        let inner = text.get().trim_matches(|c: char| c.is_ascii_whitespace());
        let Some(inner) = inner
            .strip_prefix('"')
            .and_then(|inner| inner.strip_suffix('"'))
        else {
            return;
        };
        self.open(lane, message, out);
        let is_open = |block: &Block| block.kind == kind && block.text.len() < MAX_BLOCK_BYTES;
        let open = self.message.as_ref().and_then(|open| open.block.as_ref());
        if !open.is_some_and(is_open) {
            self.close_block(0, out);
            let block = kind.block(raw(""));
            self.begin_block(block, out);
            if let Some(open) = &mut self.message {
                open.block = Some(Block {
                    kind,
                    text: String::new(),
                });
            }
        }
        let Some(open) = &mut self.message else {
            return;
        };
        if let Some(block) = &mut open.block {
            block.text.push_str(inner);
        }
        let index = open.next_index.saturating_sub(1);
        let delta = object(&[("type", raw(kind.delta())), (kind.name(), text.to_owned())]);
        let event = object(&[
            ("type", raw("content_block_delta")),
            ("index", raw(&index)),
            ("delta", delta),
        ]);
        out.push(self.stream_event(event, lane));
    }

    fn begin_block(&mut self, block: Box<RawValue>, out: &mut Vec<Bytes>) {
        let Some(open) = &mut self.message else {
            return;
        };
        let index = open.next_index;
        open.next_index += 1;
        let lane = open.lane.clone();
        let event = object(&[
            ("type", raw("content_block_start")),
            ("index", raw(&index)),
            ("content_block", block),
        ]);
        out.push(self.stream_event(event, lane.as_deref()));
    }

    /// Writes the start of a tool call whose input is not known yet.
    pub(super) fn tool_begun(
        &mut self,
        lane: Option<&str>,
        id: &str,
        name: &str,
        out: &mut Vec<Bytes>,
    ) {
        self.open(lane, None, out);
        self.close_block(0, out);
        self.begin_block(
            raw(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} })),
            out,
        );
    }

    /// Writes a whole block.
    pub(super) fn block(&mut self, lane: Option<&str>, block: Box<RawValue>, out: &mut Vec<Bytes>) {
        self.open(lane, None, out);
        self.close_block(0, out);
        self.assistant(&[block], 0, out);
    }

    /// Writes the whole text block that is open. `used`: the size of the context.
    fn close_block(&mut self, used: u64, out: &mut Vec<Bytes>) {
        let block = self
            .message
            .as_mut()
            .and_then(|open| Some((open.block.take()?, open.next_index)));
        let Some((Block { kind, text }, next_index)) = block else {
            return;
        };
        self.assistant(&[kind.block(literal(&text))], used, out);
        let event = json!({ "type": "content_block_stop", "index": next_index.saturating_sub(1) });
        let lane = self.message.as_ref().and_then(|open| open.lane.clone());
        out.push(self.stream_event(raw(&event), lane.as_deref()));
        if kind == TextKind::Text && lane.is_none() {
            self.last_text = text;
        }
    }

    /// Ends the open message.
    pub(super) fn close(&mut self, out: &mut Vec<Bytes>) {
        self.close_block(0, out);
        let Some(open) = self.message.take() else {
            return;
        };
        out.push(self.stream_event(
            raw(&json!({ "type": "message_stop" })),
            open.lane.as_deref(),
        ));
    }

    /// Ends the messages of the turn. The last message reports the size of the context.
    pub(super) fn end_turn(&mut self, used: Option<u64>, out: &mut Vec<Bytes>) {
        if let Some(used) = used {
            self.open(None, None, out);
            if self
                .message
                .as_ref()
                .is_some_and(|open| open.block.is_some())
            {
                self.close_block(used, out);
            } else {
                self.assistant(&[], used, out);
            }
        }
        self.close(out);
    }

    /// Writes a message of the user.
    pub(super) fn user(
        &mut self,
        lane: Option<&str>,
        content: Box<RawValue>,
        out: &mut Vec<Bytes>,
    ) {
        self.close(out);
        let message = object(&[("role", raw("user")), ("content", content)]);
        out.push(self.event(
            "user",
            &[("message", message), ("parent_tool_use_id", raw(&lane))],
        ));
    }
}

/// A JSON string from its inner part.
fn literal(inner: &str) -> Box<RawValue> {
    RawValue::from_string(format!("\"{inner}\"")).expect("the parts of strings form a string")
}
