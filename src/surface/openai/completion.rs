//! The frames and the body of a chat completion.

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::event::write_json;
use crate::transcript::decode;

/// The longest text of one frame. The reader of a common frontend fails at lines of 128 KiB.
const MAX_TEXT_BYTES: usize = 32 << 10;

/// The member of a delta that has the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Content,
    Reasoning,
}

impl Field {
    const fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::Reasoning => "reasoning_content",
        }
    }
}

/// The members that all frames of a completion have.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Head {
    pub(super) id: String,
    pub(super) object: &'static str,
    /// In seconds since 1970.
    pub(super) created: i64,
    pub(super) model: String,
}

/// The tokens of a turn: 0 unless the agent reports them.
#[expect(clippy::struct_field_names, reason = "the protocol names the members")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl Usage {
    pub(super) fn of(raw: &RawValue) -> Option<Self> {
        #[expect(clippy::struct_field_names, reason = "ACP names the members")]
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Reported {
            input_tokens: u64,
            output_tokens: u64,
            #[serde(default)]
            total_tokens: Option<u64>,
        }
        let Reported {
            input_tokens,
            output_tokens,
            total_tokens,
        } = serde_json::from_str(raw.get()).ok()?;
        let total_tokens = total_tokens.unwrap_or(input_tokens + output_tokens);
        Some(Self {
            prompt_tokens: input_tokens,
            completion_tokens: output_tokens,
            total_tokens,
        })
    }
}

#[derive(Serialize)]
struct Frame<'a, D> {
    id: &'a str,
    object: &'a str,
    created: i64,
    model: &'a str,
    choices: [Choice<D>; 1],
}

#[derive(Serialize)]
struct Choice<D> {
    index: u8,
    delta: D,
    finish_reason: Option<&'static str>,
}

/// A delta with one text.
struct TextDelta<'a> {
    field: Field,
    text: &'a RawValue,
}

impl Serialize for TextDelta<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.field.name(), self.text)])
    }
}

/// A frame with this delta.
pub(super) fn delta(
    out: &mut BytesMut,
    head: &Head,
    delta: &impl Serialize,
    finish_reason: Option<&'static str>,
) {
    let Head {
        id,
        object,
        created,
        model,
    } = head;
    let choices = [Choice {
        index: 0,
        delta,
        finish_reason,
    }];
    write_json(
        out,
        &Frame {
            id,
            object,
            created: *created,
            model,
            choices,
        },
    );
}

/// Frames with a text of the agent: a string in JSON, copied as it is unless it is too long for one frame.
pub(super) fn text_delta(out: &mut BytesMut, head: &Head, field: Field, text: &RawValue) {
    if text.get().len() <= MAX_TEXT_BYTES {
        return delta(out, head, &TextDelta { field, text }, None);
    }
    let text = decode(text.get()).unwrap_or_default();
    let mut rest = &*text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.ceil_char_boundary(MAX_TEXT_BYTES.min(rest.len())));
        own_delta(out, head, field, part);
        rest = after;
    }
}

/// A frame with a text of the gateway.
pub(super) fn own_delta(out: &mut BytesMut, head: &Head, field: Field, text: &str) {
    delta(out, head, &json!({ field.name(): text }), None);
}

/// The frame with the usage, which has no choice.
pub(super) fn usage_frame(out: &mut BytesMut, head: &Head, usage: Usage) {
    #[derive(Serialize)]
    struct UsageFrame<'a> {
        #[serde(flatten)]
        head: &'a Head,
        choices: [(); 0],
        usage: Usage,
    }
    write_json(
        out,
        &UsageFrame {
            head,
            choices: [],
            usage,
        },
    );
}

/// The body of a completion that is not streamed.
pub(super) fn body(
    out: &mut BytesMut,
    head: &Head,
    (content, reasoning): (&str, &str),
    finish_reason: &str,
    usage: Usage,
) {
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    let Head {
        id, created, model, ..
    } = head;
    let body = json!({
        "id": id, "object": "chat.completion", "created": created, "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish_reason, "logprobs": null }],
        "usage": usage,
    });
    serde_json::to_writer(out.writer(), &body).expect("a buffer in memory grows");
}

/// The frame of an error in place of the rest of a response.
pub(super) fn error(out: &mut BytesMut, code: &str, message: &str) {
    let error = json!({ "message": message, "type": "server_error", "code": code, "param": null });
    write_json(out, &json!({ "error": error }));
}
