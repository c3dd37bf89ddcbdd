//! The steps of a turn as the frames of a response, or as the response itself.

use std::collections::HashMap;

use bytes::{BufMut, BytesMut};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::object::{Head, Status, message, reasoning, response, text_part};
use crate::acp::{RawObject, stop_reason};
use crate::event::{ControlFrame, EventRef};
use crate::projection::{
    Asked, Block, CallStatus, End, Request, Role, Step, ToolCall, TurnProjector, failure_text, output_text,
};
use crate::stream::Encoder;
use crate::surface::chat::{CancelOnDisconnect, data, interruption};
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
}

#[derive(Debug)]
pub(super) struct ResponseStream {
    projector: TurnProjector,
    /// The number of the response that the events belong to.
    current: u32,
    writer: Writer,
    connected: Option<CancelOnDisconnect>,
}

#[derive(Debug)]
struct Writer {
    head: Head,
    form: Form,
    sequence: u64,
    output: Vec<Value>,
    output_bytes: usize,
    /// The open text or reasoning: its index and its text.
    open: Option<(usize, String)>,
    /// The indexes of the calls that run.
    calls: HashMap<String, usize>,
    begun: bool,
    complete: bool,
}

impl ResponseStream {
    pub(super) fn new(head: Head, form: Form, connected: Option<CancelOnDisconnect>) -> Self {
        let writer = Writer {
            head,
            form,
            sequence: 0,
            output: Vec::new(),
            output_bytes: 0,
            open: None,
            calls: HashMap::new(),
            begun: false,
            complete: false,
        };
        Self { projector: TurnProjector::default(), current: 1, writer, connected }
    }
}

impl Encoder for ResponseStream {
    fn media_type(&self) -> &'static str {
        if matches!(self.writer.form, Form::Stream { .. }) { "text/event-stream" } else { "application/json" }
    }

    fn uses_stored_frames(&self) -> bool {
        false
    }

    fn event(&mut self, out: &mut BytesMut, _: &str, event: &EventRef<'_>) {
        let Self { projector, current, writer, .. } = self;
        let number = writer.head.id.number;
        if writer.head.created == 0 {
            let time = event.head().and_then(|head| head.time());
            writer.head.created = time.map_or(0, |time| time.as_millis() / 1000);
        }
        projector.event(event, &mut |step| {
            if writer.complete {
                return;
            }
            if *current == number {
                writer.begin(out);
                writer.step(out, &step);
            }
            if matches!(&step, Step::Requested(request) if request.asked == Asked::Permission) {
                *current += 1;
            }
            if matches!(step, Step::Ended(_)) && *current < number {
                writer.fail(out, "not_found", "this response does not exist");
            }
        });
        self.acknowledge();
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        if self.writer.complete {
            return;
        }
        if frame.kind() == "end" && self.writer.form == Form::Now {
            self.writer.object(out, &Status::InProgress, None);
            self.writer.complete = true;
        } else if let Some(interrupted) = interruption(frame) {
            self.writer.interrupted(out, &interrupted.code, &interrupted.message);
        } else if frame.kind() == "position" {
            out.extend_from_slice(self.keep_alive());
        }
        self.acknowledge();
    }

    fn retry(&mut self, _: &mut BytesMut, _: u64) {}

    fn keep_alive(&self) -> &'static [u8] {
        if matches!(self.writer.form, Form::Stream { .. }) { b":\n" } else { b" " }
    }

    fn is_complete(&self) -> bool {
        self.writer.complete
    }
}

impl ResponseStream {
    fn acknowledge(&self) {
        if let Some(connected) = self.connected.as_ref().filter(|_| self.writer.complete) {
            connected.completed();
        }
    }
}

impl Writer {
    /// Writes a frame with its type and its number.
    fn frame(&mut self, out: &mut BytesMut, kind: &str, mut members: Value) {
        members["type"] = kind.into();
        members["sequence_number"] = self.sequence.into();
        if let Form::Stream { after } = self.form
            && after.is_none_or(|after| self.sequence > after)
        {
            data(out, &members);
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

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::BlockBegun(block) if block.subagent.is_none() => self.begin_block(out, block),
            Step::Text(block, text) if block.subagent.is_none() => self.text(out, block.role, text),
            Step::BlockEnded(block) if block.subagent.is_none() => self.end_block(out, block),
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
        format!("{kind}_{}_{}_{}", self.head.id.session, self.head.id.prompt, block.number)
    }

    fn add(&mut self, out: &mut BytesMut, item: Value) -> usize {
        let index = self.output.len();
        self.frame(out, "response.output_item.added", json!({ "output_index": index, "item": item }));
        self.output.push(item);
        index
    }

    fn done(&mut self, out: &mut BytesMut, index: usize, item: Value) {
        self.frame(out, "response.output_item.done", json!({ "output_index": index, "item": item }));
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
        self.open = Some((index, String::new()));
    }

    /// A frame about a part of an item.
    fn part(&mut self, out: &mut BytesMut, kind: &str, id: &str, index: usize, mut members: Value) {
        members["item_id"] = id.into();
        members["output_index"] = index.into();
        self.frame(out, kind, members);
    }

    fn text(&mut self, out: &mut BytesMut, role: Role, text: &RawValue) {
        let Some((index, mut whole)) = self.open.take() else { return };
        let text = decode(text.get()).unwrap_or_default();
        let id = self.output[index]["id"].as_str().unwrap_or_default().to_owned();
        let (kind, members) = match role {
            Role::Message => {
                ("response.output_text.delta", json!({ "content_index": 0, "delta": text, "logprobs": [] }))
            }
            Role::Thought => {
                ("response.reasoning_summary_text.delta", json!({ "summary_index": 0, "delta": text }))
            }
        };
        self.part(out, kind, &id, index, members);
        if self.output_bytes + whole.len() + text.len() <= MAX_OUTPUT_BYTES {
            whole.push_str(&text);
        }
        self.open = Some((index, whole));
    }

    fn end_block(&mut self, out: &mut BytesMut, block: &Block<'_>) {
        let Some((index, text)) = self.open.take() else { return };
        let id = self.item_id(block);
        match block.role {
            Role::Message => {
                let done = json!({ "content_index": 0, "text": text, "logprobs": [] });
                self.part(out, "response.output_text.done", &id, index, done);
                let part = json!({ "content_index": 0, "part": text_part(&text) });
                self.part(out, "response.content_part.done", &id, index, part);
                self.done(out, index, message(&id, &text, "completed"));
            }
            Role::Thought => {
                let done = json!({ "summary_index": 0, "text": text });
                self.part(out, "response.reasoning_summary_text.done", &id, index, done);
                let part = json!({ "summary_index": 0, "part": { "type": "summary_text", "text": text } });
                self.part(out, "response.reasoning_summary_part.done", &id, index, part);
                self.done(out, index, reasoning(&id, &text, "completed"));
            }
        }
    }

    fn call(&self, call: &ToolCall, status: &str, output: Option<&str>, error: Option<&str>) -> Value {
        let error = error.map(|text| {
            json!({ "type": "mcp_tool_execution_error", "content": [{ "type": "text", "text": text }] })
        });
        json!({
            "id": format!("mcp_{}_{}", self.head.id.prompt, call.id), "type": "mcp_call", "server_label": self.head.agent,
            "name": call.kind, "arguments": arguments(call), "status": status, "output": output, "error": error,
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
        let Some(index) = self.calls.remove(&call.id) else { return };
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
            json!({ "arguments": arguments(call) }),
        );
        let kind =
            if item["error"].is_null() { "response.mcp_call.completed" } else { "response.mcp_call.failed" };
        self.part(out, kind, &id, index, json!({}));
        self.done(out, index, item);
    }

    /// A permission request completes the response. The call that asks is a part of the next one.
    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let (Asked::Permission, Some(call)) = (request.asked, request.call) else { return };
        let item = json!({
            "id": format!("mcpr_{}", request.id), "type": "mcp_approval_request", "server_label": self.head.agent,
            "name": call.kind, "arguments": arguments(call),
        });
        let index = self.add(out, item.clone());
        self.done(out, index, item);
        self.finish(out, &Status::Completed, None);
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        match end {
            End::Completed { stop_reason, usage } => {
                let status = match *stop_reason {
                    stop_reason::CANCELLED => Status::Cancelled,
                    "max_tokens" | "max_turn_requests" => Status::Incomplete("max_output_tokens"),
                    "refusal" => Status::Incomplete("content_filter"),
                    _ => Status::Completed,
                };
                self.finish(out, &status, usage.and_then(usage_of).as_ref());
            }
            End::Failed { problem } => {
                let problem = RawObject::parse(problem);
                let text = |key| problem.as_ref().and_then(|problem| problem.text(key));
                let message = text("detail").unwrap_or_else(|| "the turn failed".into());
                let code = text("code").unwrap_or_else(|| "internal".into());
                self.fail(out, &code, &message);
            }
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let status = Status::Failed { code: code.to_owned(), message: message.to_owned() };
        self.finish(out, &status, None);
    }

    fn finish(&mut self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        if matches!(self.form, Form::Stream { .. }) {
            let whole = response(&self.head, status, &self.output, usage);
            self.frame(out, status.event(), json!({ "response": whole }));
        } else {
            self.object(out, status, usage);
        }
        self.complete = true;
    }

    fn object(&self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        let whole = response(&self.head, status, &self.output, usage);
        serde_json::to_writer(out.writer(), &whole).expect("a buffer in memory grows");
    }

    /// The stream ends before the response. The turn goes on, so the response has not failed.
    fn interrupted(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let error = json!({ "code": code, "message": message, "param": null });
        if matches!(self.form, Form::Stream { .. }) {
            self.frame(out, "error", error);
        } else {
            serde_json::to_writer(out.writer(), &json!({ "error": error }))
                .expect("a buffer in memory grows");
        }
        self.complete = true;
    }
}

fn arguments(call: &ToolCall) -> &str {
    call.input.as_deref().map_or("{}", RawValue::get)
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
