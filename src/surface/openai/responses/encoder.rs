//! The steps of a turn as the frames of a response, or as the response itself.

use std::collections::HashMap;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::object::{Head, Status, TextDelta, message, reasoning, response, text_part};
use crate::acp::{RawObject, stop_reason};
use crate::event::write_json;
use crate::projection::{
    Asked, Block, CallStatus, End, Request, Role, Step, ToolCall, failure_text, input_text,
    output_text,
};
use crate::surface::chat::{Interrupted, TurnWriter};
use crate::transcript::decode;

/// The text of all items. The rest is left out of the last frame.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Frames after this sequence number.
    Stream { after: Option<u64> },
    /// The response at its end.
    Whole,
    /// The response as it is now.
    Now,
    /// The items of the response, for [`ResponseWriter::into_output`]. Nothing is written.
    Items,
}

/// Writes a response.
#[derive(Debug)]
pub(super) struct ResponseWriter {
    head: Head,
    form: Form,
    /// The number of the response that the steps belong to.
    current: u32,
    sequence: u64,
    output: Vec<Value>,
    output_bytes: usize,
    open: Option<OpenBlock>,
    /// The indexes of the calls that run.
    calls: HashMap<String, usize>,
    begun: bool,
    complete: bool,
}

/// The text or the reasoning that arrives.
#[derive(Debug)]
struct OpenBlock {
    /// The id of its item.
    id: String,
    index: usize,
    /// The inner part of a string in JSON. An agent may split a character into two chunks.
    text: String,
}

impl TurnWriter for ResponseWriter {
    fn media_type(&self) -> &'static str {
        if matches!(self.form, Form::Stream { .. }) {
            "text/event-stream"
        } else {
            "application/json"
        }
    }

    fn keep_alive(&self) -> &'static [u8] {
        if matches!(self.form, Form::Stream { .. }) {
            b":\n"
        } else {
            b" "
        }
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        if let Step::Begun { at } = step {
            self.head.created = at.as_millis() / 1000;
        }
        let number = self.head.id.number;
        if self.current == number {
            self.begin(out);
            self.own_step(out, step);
        }
        match step {
            Step::Requested(request) if request.asked == Asked::Permission => self.current += 1,
            Step::Ended(_) if self.current < number => {
                self.fail(out, "not_found", "this response does not exist");
            }
            _ => {}
        }
    }

    fn caught_up(&mut self, out: &mut BytesMut) {
        self.object(out, &Status::InProgress, None);
        self.complete = true;
    }

    /// The turn continues, so the response has not failed.
    fn interrupted(&mut self, out: &mut BytesMut, Interrupted { code, message }: &Interrupted) {
        let error = json!({ "code": code, "message": message, "param": null });
        if matches!(self.form, Form::Stream { .. }) {
            self.frame(out, "error", error);
        } else {
            serde_json::to_writer(out.writer(), &json!({ "error": error }))
                .expect("a buffer in memory grows");
        }
        self.complete = true;
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl ResponseWriter {
    /// Begins after this number of permission requests, whose steps the writer does not receive.
    #[must_use]
    pub(super) fn after_requests(self, number: u32) -> Self {
        Self {
            current: number + 1,
            ..self
        }
    }

    pub(super) fn into_output(self) -> Vec<Value> {
        self.output
    }

    pub(super) fn new(head: Head, form: Form) -> Self {
        Self {
            head,
            form,
            current: 1,
            sequence: 0,
            output: Vec::new(),
            output_bytes: 0,
            open: None,
            calls: HashMap::new(),
            begun: false,
            complete: false,
        }
    }

    /// Writes a frame with its type and its number.
    fn frame(&mut self, out: &mut BytesMut, kind: &str, mut members: Value) {
        members["type"] = kind.into();
        members["sequence_number"] = self.sequence.into();
        self.numbered(out, &members);
    }

    /// Writes a frame that has the next number, unless the client has it.
    fn numbered(&mut self, out: &mut BytesMut, frame: &impl Serialize) {
        if let Form::Stream { after } = self.form
            && after.is_none_or(|after| self.sequence > after)
        {
            write_json(out, frame);
        }
        self.sequence += 1;
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if !std::mem::replace(&mut self.begun, true) {
            for kind in ["response.created", "response.in_progress"] {
                let begun = response(&self.head, &Status::InProgress, &[], None);
                self.frame(out, kind, json!({ "response": begun }));
            }
        }
    }

    /// A step of this response.
    fn own_step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::BlockBegun(block) if block.subagent.is_none() => self.begin_block(out, block),
            Step::Text(block, text) if block.subagent.is_none() => self.text(out, block.role, text),
            Step::BlockEnded(block) if block.subagent.is_none() => self.end_block(out, block.role),
            Step::CallBegun(call) => self.begin_call(out, call),
            Step::CallEnded(call) => self.end_call(out, call),
            Step::Requested(request) => self.requested(out, request),
            Step::Ended(end) => self.end(out, end),
            _ => {}
        }
    }

    fn item_id(&self, block: &Block<'_>) -> String {
        let kind = match block.role {
            Role::Message => "msg",
            Role::Thought => "rs",
        };
        format!(
            "{kind}_{}_{}_{}",
            self.head.id.session, self.head.id.prompt, block.number
        )
    }

    fn add(&mut self, out: &mut BytesMut, item: Value) -> usize {
        let index = self.output.len();
        self.frame(
            out,
            "response.output_item.added",
            json!({ "output_index": index, "item": item }),
        );
        self.output.push(item);
        index
    }

    fn done(&mut self, out: &mut BytesMut, index: usize, item: Value) {
        self.frame(
            out,
            "response.output_item.done",
            json!({ "output_index": index, "item": item }),
        );
        self.output_bytes += item.to_string().len();
        if self.output_bytes <= MAX_OUTPUT_BYTES {
            self.output[index] = item;
        }
    }

    fn begin_block(&mut self, out: &mut BytesMut, block: &Block<'_>) {
        let id = self.item_id(block);
        let (item, kind, part) = match block.role {
            Role::Message => (
                json!({ "id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": [] }),
                "response.content_part.added",
                json!({ "content_index": 0, "part": text_part("") }),
            ),
            Role::Thought => (
                json!({ "id": id, "type": "reasoning", "summary": [], "status": "in_progress" }),
                "response.reasoning_summary_part.added",
                json!({ "summary_index": 0, "part": { "type": "summary_text", "text": "" } }),
            ),
        };
        let index = self.add(out, item);
        self.part(out, kind, &id, index, part);
        self.open = Some(OpenBlock {
            id,
            index,
            text: String::new(),
        });
    }

    /// A frame about a part of an item.
    fn part(&mut self, out: &mut BytesMut, kind: &str, id: &str, index: usize, mut members: Value) {
        members["item_id"] = id.into();
        members["output_index"] = index.into();
        self.frame(out, kind, members);
    }

    fn text(&mut self, out: &mut BytesMut, role: Role, text: &RawValue) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        self.numbered(
            out,
            &TextDelta::new(role, text, (&open.id, open.index), self.sequence),
        );
        let room = MAX_OUTPUT_BYTES.saturating_sub(self.output_bytes + open.text.len());
        if text.get().len() <= room {
            open.text.push_str(&text.get()[1..text.get().len() - 1]);
        }
        self.open = Some(open);
    }

    fn end_block(&mut self, out: &mut BytesMut, role: Role) {
        let Some(OpenBlock { id, index, text }) = self.open.take() else {
            return;
        };
        let text = decode(&format!("\"{text}\"")).unwrap_or_default();
        match role {
            Role::Message => {
                let done = json!({ "content_index": 0, "text": text, "logprobs": [] });
                self.part(out, "response.output_text.done", &id, index, done);
                let part = json!({ "content_index": 0, "part": text_part(&text) });
                self.part(out, "response.content_part.done", &id, index, part);
                self.done(out, index, message(&id, &text, "completed"));
            }
            Role::Thought => {
                let done = json!({ "summary_index": 0, "text": text });
                self.part(
                    out,
                    "response.reasoning_summary_text.done",
                    &id,
                    index,
                    done,
                );
                let part =
                    json!({ "summary_index": 0, "part": { "type": "summary_text", "text": text } });
                self.part(
                    out,
                    "response.reasoning_summary_part.done",
                    &id,
                    index,
                    part,
                );
                self.done(out, index, reasoning(&id, &text, "completed"));
            }
        }
    }

    fn call(
        &self,
        call: &ToolCall,
        status: &str,
        output: Option<&str>,
        error: Option<&str>,
    ) -> Value {
        let error = error.map(|text| {
            json!({ "type": "mcp_tool_execution_error", "content": [{ "type": "text", "text": text }] })
        });
        json!({
            "id": format!("mcp_{}_{}", self.head.id.prompt, call.id), "type": "mcp_call", "server_label": self.head.agent,
            "name": call.kind, "arguments": input_text(call), "status": status, "output": output, "error": error,
        })
    }

    fn begin_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let item = self.call(call, "in_progress", None, None);
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let index = self.add(out, item);
        self.part(out, "response.mcp_call.in_progress", &id, index, json!({}));
        self.calls.insert(call.id.clone(), index);
    }

    fn end_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        // A call of an earlier response of the turn has an item of its own here.
        if !self.calls.contains_key(&call.id) {
            self.begin_call(out, call);
        }
        let Some(index) = self.calls.remove(&call.id) else {
            return;
        };
        let item = if call.status == CallStatus::Completed {
            self.call(call, "completed", Some(&output_text(call)), None)
        } else {
            self.call(call, "failed", None, Some(&failure_text(call)))
        };
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        self.part(
            out,
            "response.mcp_call_arguments.done",
            &id,
            index,
            json!({ "arguments": input_text(call) }),
        );
        let kind = if item["error"].is_null() {
            "response.mcp_call.completed"
        } else {
            "response.mcp_call.failed"
        };
        self.part(out, kind, &id, index, json!({}));
        self.done(out, index, item);
    }

    /// A permission request completes the response. The call that asks is a part of the next one.
    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let (Asked::Permission, Some(call)) = (request.asked, request.call) else {
            return;
        };
        let question = self.head.id.question(request.id);
        let item = json!({
            "id": format!("mcpr_{question}"), "type": "mcp_approval_request", "server_label": self.head.agent,
            "name": call.kind, "arguments": input_text(call),
        });
        let index = self.add(out, item.clone());
        self.done(out, index, item);
        self.finish(out, &Status::Completed, None);
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        match end {
            End::Completed {
                stop_reason,
                cancel_cause,
                usage,
            } => {
                let status = match *stop_reason {
                    stop_reason::CANCELLED => Status::Cancelled(*cancel_cause),
                    "max_tokens" | "max_turn_requests" => Status::Incomplete("max_output_tokens"),
                    "refusal" => Status::Incomplete("content_filter"),
                    _ => Status::Completed,
                };
                self.finish(out, &status, usage.and_then(usage_of).as_ref());
            }
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let status = Status::Failed {
            code: code.to_owned(),
            message: message.to_owned(),
        };
        self.finish(out, &status, None);
    }

    fn finish(&mut self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        if matches!(self.form, Form::Stream { .. }) {
            let whole = response(&self.head, status, &self.output, usage);
            self.frame(out, status.event(), json!({ "response": whole }));
        } else if self.form != Form::Items {
            self.object(out, status, usage);
        }
        self.complete = true;
    }

    fn object(&self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        let whole = response(&self.head, status, &self.output, usage);
        serde_json::to_writer(out.writer(), &whole).expect("a buffer in memory grows");
    }
}

fn usage_of(raw: &RawValue) -> Option<Value> {
    let usage = RawObject::parse(raw)?;
    let tokens = |key| usage.get(key).and_then(|raw| raw.get().parse::<u64>().ok());
    let (input, output) = (tokens("inputTokens")?, tokens("outputTokens")?);
    let total = tokens("totalTokens").unwrap_or(input + output);
    Some(json!({
        "input_tokens": input, "input_tokens_details": { "cached_tokens": tokens("cachedReadTokens").unwrap_or(0) },
        "output_tokens": output, "output_tokens_details": { "reasoning_tokens": tokens("thoughtTokens").unwrap_or(0) },
        "total_tokens": total,
    }))
}
