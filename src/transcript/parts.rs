//! Growing parts of an agent's work: the content of a tool call and the output of a terminal.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use super::Budget;
use super::members::Members;
use crate::acp::RawObject;

/// Items appended after the last complete `content` of a tool call.
#[derive(Debug, Default)]
pub(super) struct Chunks(Vec<Box<RawValue>>);

impl Chunks {
    pub(super) fn push(&mut self, item: &RawValue, budget: &mut Budget) {
        if budget.reserve(item.get().len() + 1) {
            self.0.push(item.to_owned());
        }
    }

    /// Discards the items: a complete `content` replaces them.
    pub(super) fn clear(&mut self, budget: &mut Budget) {
        for item in self.0.drain(..) {
            budget.release(item.get().len() + 1);
        }
    }

    /// Appends the items to `content`.
    pub(super) fn into_members(self, members: &mut Members) {
        if self.0.is_empty() {
            return;
        }
        let before = members
            .get("content")
            .and_then(|raw| serde_json::from_str(raw.get()).ok());
        let mut all: Vec<Box<RawValue>> = before.unwrap_or_default();
        all.extend(self.0);
        members.set_uncounted("content", to_raw_value(&all).expect("raw values serialize"));
    }
}

/// The output bytes of an agent's terminal.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// `None`: the agent has reported no output.
    bytes: Option<Vec<u8>>,
}

impl Output {
    /// Folds the member `output` of a `terminal_update`: null clears the output, an object replaces it.
    pub(super) fn replace(&mut self, output: &RawValue, budget: &mut Budget) {
        let Some(object) = RawObject::parse(output) else {
            if output.get() == "null" {
                self.clear(budget);
            }
            return;
        };
        let Some(bytes) = object.get("data").and_then(decode) else {
            return;
        };
        self.clear(budget);
        self.bytes = Some(Vec::new());
        self.append(&bytes, budget);
    }

    /// Folds the member `data` of a `terminal_output_chunk`.
    pub(super) fn push(&mut self, data: &RawValue, budget: &mut Budget) {
        if let Some(bytes) = decode(data) {
            self.append(&bytes, budget);
        }
    }

    fn append(&mut self, bytes: &[u8], budget: &mut Budget) {
        if budget.reserve(bytes.len()) {
            self.bytes.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    fn clear(&mut self, budget: &mut Budget) {
        if let Some(bytes) = self.bytes.take() {
            budget.release(bytes.len());
        }
    }

    pub(super) fn into_members(self, members: &mut Members) {
        let Some(bytes) = self.bytes else { return };
        let output = serde_json::json!({ "data": STANDARD.encode(bytes) });
        members.set_uncounted(
            "output",
            to_raw_value(&output).expect("a JSON value serializes"),
        );
    }
}

fn decode(data: &RawValue) -> Option<Vec<u8>> {
    STANDARD.decode(super::content::decode(data.get())?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn finished(output: Output) -> String {
        let mut members = Members::default();
        output.into_members(&mut members);
        members.finish().get().to_owned()
    }

    #[test]
    fn output_is_replaced_and_appended_as_bytes() {
        let (mut output, mut budget) = (Output::default(), Budget::new(8));
        output.push(raw("\"YQ==\""), &mut budget);
        output.replace(raw(r#"{"data":"4oI="}"#), &mut budget);
        // A chunk may split a character, so output is bytes and not text.
        output.push(raw("\"rA==\""), &mut budget);
        for odd in ["1", "\"?\"", "null"] {
            output.push(raw(odd), &mut budget);
        }
        output.replace(raw(r#"{"data":7}"#), &mut budget);
        assert!(!budget.exceeded);
        output.push(raw("\"YWFhYWFh\""), &mut budget);
        assert!(budget.exceeded);
        assert_eq!(finished(output), r#"{"output":{"data":"4oKs"}}"#);
        let mut output = Output::default();
        output.push(raw("\"YQ==\""), &mut budget);
        output.replace(raw("null"), &mut budget);
        assert_eq!(finished(output), "{}");
    }

    #[test]
    fn chunks_follow_last_complete_content() {
        let (mut chunks, mut members, mut budget) =
            (Chunks::default(), Members::default(), Budget::new(100));
        chunks.push(raw("1"), &mut budget);
        chunks.clear(&mut budget);
        members.set_uncounted("content", raw("[2]").to_owned());
        chunks.push(raw("1.10"), &mut budget);
        chunks.into_members(&mut members);
        assert_eq!(members.finish().get(), r#"{"content":[2,1.10]}"#);
    }
}
