//! The input and the result of a tool call as text, for protocols whose tools have texts.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use super::call::{CallStatus, ToolCall};
use super::halves::without_halves;
use crate::acp::RawObject;
use crate::transcript::{decode, diff_lines, text_of};

/// The longest text. The rest is cut, because clients send it back with each further message.
const MAX_BYTES: usize = 48 << 10;

/// The input of a call as JSON. If the agent sent none, the title and the locations, so that a person who is asked for
/// permission knows what the call does.
pub fn input_text(call: &ToolCall) -> Cow<'_, str> {
    #[derive(Serialize)]
    struct Description<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        locations: Option<&'a RawValue>,
    }
    if let Some(input) = &call.input {
        // Some protocols have the input as a string, so that its escapes are not those of the frame.
        return without_halves(input.get());
    }
    let described = Description {
        title: call.title.as_deref(),
        locations: call.locations.as_deref(),
    };
    serde_json::to_string(&described)
        .expect("raw values are JSON")
        .into()
}

/// The texts and the diffs of a call, or its raw output if it has neither.
pub fn output_text(call: &ToolCall) -> String {
    let mut text = String::new();
    for item in call
        .content
        .iter()
        .filter_map(|item| RawObject::parse(item))
    {
        let part = match item.text("type").as_deref() {
            Some("content") => item.get("content").and_then(text_of),
            Some("diff") => diff(&item),
            _ => None,
        };
        if let Some(part) = part.filter(|part| !part.is_empty()) {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&part);
        }
    }
    if text.is_empty()
        && let Some(output) = &call.output
    {
        text = decode(output.get()).unwrap_or_else(|| output.get().to_owned());
    }
    if text.len() > MAX_BYTES {
        let at = text.floor_char_boundary(MAX_BYTES);
        text.truncate(at);
        text.push_str("\n[cut]");
    }
    text
}

/// Why a call has no result.
pub fn failure_text(call: &ToolCall) -> String {
    if call.rejected {
        return "the permission was not granted".to_owned();
    }
    match call.status {
        CallStatus::Cancelled => "the turn was cancelled".to_owned(),
        CallStatus::Unfinished => "the turn ended before this call".to_owned(),
        _ => Some(output_text(call))
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| "the call failed".to_owned()),
    }
}

fn diff(item: &RawObject<'_>) -> Option<String> {
    let text = |key| item.get(key).and_then(|raw| decode(raw.get()));
    let (path, old, new) = (
        text("path")?,
        text("oldText").unwrap_or_default(),
        text("newText")?,
    );
    Some(format!(
        "--- {path}\n+++ {path}\n{}",
        diff_lines(&old, &new)
    ))
}
