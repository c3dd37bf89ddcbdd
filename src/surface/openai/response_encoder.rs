//! A response and its id, and the steps of a turn as its frames or as the response itself.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, BytesMut};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::surface::chat::{QuestionId, TurnWriter};
use base::types::ids::IdError;
use base::types::{PromptId, RequestId, SessionId};
use events::api::CancelCause;
use events::event::write_json;
use sessions::conversation::Notice;
use sessions::projection::{Block, CallStatus, End, Request, Role, Step, ToolCall, Usage};
use sessions::transcript::decode;
use wire::acp::{RequestKind, stop_reason};

/// The text of all items. The rest is left out of the last frame.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

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
    calls: HashMap<String, usize>,
    begun: bool,
    complete: bool,
}

#[derive(Debug)]
struct OpenBlock {
    id: String,
    index: usize,
    /// The inner part of a string in JSON. An agent may split a character into two chunks.
    text: String,
}

impl TurnWriter for ResponseWriter {
    fn is_streamed(&self) -> bool {
        matches!(self.form, Form::Stream { .. })
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
            Step::Requested(request) if request.kind == RequestKind::Permission => {
                self.current += 1;
            }
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
    fn interrupted(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let error = json!({ "code": code, "message": message, "param": null });
        if self.is_streamed() {
            self.frame(out, "error", error);
        } else {
            write_whole(out, &json!({ "error": error }));
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
    pub(super) fn after_requests(mut self, number: u32) -> Self {
        self.current = number + 1;
        self
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
        let ResponseId {
            session, prompt, ..
        } = self.head.id;
        format!("{kind}_{session}_{prompt}_{}", block.number)
    }

    fn add(&mut self, out: &mut BytesMut, item: Value) -> usize {
        let index = self.output.len();
        let added = json!({ "output_index": index, "item": item });
        self.frame(out, "response.output_item.added", added);
        self.output.push(item);
        index
    }

    fn done(&mut self, out: &mut BytesMut, index: usize, item: Value) {
        let done = json!({ "output_index": index, "item": item });
        self.frame(out, "response.output_item.done", done);
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

    fn part(&mut self, out: &mut BytesMut, kind: &str, id: &str, index: usize, mut members: Value) {
        members["item_id"] = id.into();
        members["output_index"] = index.into();
        self.frame(out, kind, members);
    }

    fn text(&mut self, out: &mut BytesMut, role: Role, text: &RawValue) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        let delta = TextDelta::new(role, text, &open.id, open.index, self.sequence);
        self.numbered(out, &delta);
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
        let (kind, done, part_kind, part, item) = match role {
            Role::Message => (
                "response.output_text.done",
                json!({ "content_index": 0, "text": text, "logprobs": [] }),
                "response.content_part.done",
                json!({ "content_index": 0, "part": text_part(&text) }),
                message(&id, &text),
            ),
            Role::Thought => (
                "response.reasoning_summary_text.done",
                json!({ "summary_index": 0, "text": text }),
                "response.reasoning_summary_part.done",
                json!({ "summary_index": 0, "part": { "type": "summary_text", "text": text } }),
                reasoning(&id, &text),
            ),
        };
        self.part(out, kind, &id, index, done);
        self.part(out, part_kind, &id, index, part);
        self.done(out, index, item);
    }

    fn call(&self, call: &ToolCall, result: Option<&str>) -> Value {
        let mut item = json!({
            "id": format!("mcp_{}_{}", self.head.id.prompt, call.id), "type": "mcp_call", "server_label": self.head.agent,
            "name": call.kind(), "arguments": call.input_text(), "status": "in_progress", "output": null, "error": null,
        });
        let Some(text) = result else { return item };
        if call.status == CallStatus::Completed {
            item["status"] = "completed".into();
            item["output"] = text.into();
        } else {
            let content = json!([{ "type": "text", "text": text }]);
            item["status"] = "failed".into();
            item["error"] = json!({ "type": "mcp_tool_execution_error", "content": content });
        }
        item
    }

    fn begin_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let item = self.call(call, None);
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
        let item = self.call(call, Some(&call.result_text()));
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let arguments = json!({ "arguments": call.input_text() });
        let kind = "response.mcp_call_arguments.done";
        self.part(out, kind, &id, index, arguments);
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
        let (RequestKind::Permission, Some(call)) = (request.kind, request.call) else {
            return;
        };
        let question = self.head.id.question(request.id);
        let item = json!({
            "id": format!("mcpr_{question}"), "type": "mcp_approval_request", "server_label": self.head.agent,
            "name": call.kind(), "arguments": call.input_text(),
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
                self.finish(out, &status, Usage::of(*usage).map(tokens).as_ref());
            }
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let code = code.to_owned();
        let message = message.to_owned();
        self.finish(out, &Status::Failed { code, message }, None);
    }

    fn finish(&mut self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        if self.is_streamed() {
            let whole = response(&self.head, status, &self.output, usage);
            self.frame(out, status.event(), json!({ "response": whole }));
        } else if self.form != Form::Items {
            self.object(out, status, usage);
        }
        self.complete = true;
    }

    fn object(&self, out: &mut BytesMut, status: &Status, usage: Option<&Value>) {
        write_whole(out, &response(&self.head, status, &self.output, usage));
    }
}

fn write_whole(out: &mut BytesMut, body: &Value) {
    serde_json::to_writer(out.writer(), body).expect("a buffer in memory grows");
}

fn tokens(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "input_tokens_details": { "cached_tokens": usage.cached() },
        "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": usage.thought() },
        "total_tokens": usage.total(),
    })
}

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub(super) enum Status {
    InProgress,
    Completed,
    /// The agent reached a limit or refused.
    Incomplete(&'static str),
    /// Why the gateway cancelled the turn.
    Cancelled(Option<CancelCause>),
    Failed {
        code: String,
        message: String,
    },
}

impl Status {
    pub(super) const fn event(&self) -> &'static str {
        match self {
            Self::InProgress => "response.in_progress",
            Self::Completed => "response.completed",
            Self::Incomplete(_) | Self::Cancelled(_) => "response.incomplete",
            Self::Failed { .. } => "response.failed",
        }
    }
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) id: ResponseId,
    /// The agent of the session. It is the model of the response.
    pub(super) agent: String,
    /// In seconds since 1970.
    pub(super) created: i64,
    /// The notices of the request that created the response. Empty for a later read of the response.
    pub(super) notices: Vec<Notice>,
}

pub(super) fn response(
    head: &Head,
    status: &Status,
    output: &[Value],
    usage: Option<&Value>,
) -> Value {
    let error = match status {
        Status::Failed { code, message } => json!({ "code": code, "message": message }),
        _ => Value::Null,
    };
    let incomplete = match status {
        Status::Incomplete(reason) => json!({ "reason": reason }),
        _ => Value::Null,
    };
    // The only member for facts that the protocol does not know. Its values are texts.
    let mut metadata = json!({});
    if let Status::Cancelled(Some(cause)) = status {
        metadata["cancelCause"] = json!(cause);
    }
    if !head.notices.is_empty() {
        let joined = |text: fn(Notice) -> &'static str, separator: &str| {
            let texts: Vec<&str> = head.notices.iter().copied().map(text).collect();
            texts.join(separator)
        };
        metadata["history"] = joined(|notice| notice.into_str(), ", ").into();
        metadata["notice"] = joined(Notice::text, " ").into();
    }
    let previous = (head.id.number > 1).then(|| ResponseId {
        number: head.id.number - 1,
        ..head.id
    });
    let previous = previous.map(|id| id.to_string());
    json!({
        "id": head.id.to_string(),
        "object": "response",
        "created_at": head.created,
        "status": status.into_str(),
        "model": head.agent,
        "output": output,
        "parallel_tool_calls": true,
        "tool_choice": "auto",
        "tools": [],
        "error": error,
        "incomplete_details": incomplete,
        "metadata": metadata,
        "previous_response_id": previous,
        "conversation": { "id": format!("conv_{}", head.id.session) },
        "usage": usage,
    })
}

pub(super) fn message(id: &str, text: &str) -> Value {
    let content = [text_part(text)];
    json!({ "id": id, "type": "message", "role": "assistant", "status": "completed", "content": content })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

pub(super) fn reasoning(id: &str, text: &str) -> Value {
    json!({ "id": id, "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }], "status": "completed" })
}

/// The frame of a text as it arrives: nearly all frames of a response.
#[derive(Debug, Serialize)]
pub(super) struct TextDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_index: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary_index: Option<u8>,
    /// A string in JSON.
    delta: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<[u8; 0]>,
    item_id: &'a str,
    output_index: usize,
    #[serde(rename = "type")]
    kind: &'static str,
    sequence_number: u64,
}

impl<'a> TextDelta<'a> {
    pub(super) fn new(
        role: Role,
        delta: &'a RawValue,
        item_id: &'a str,
        output_index: usize,
        sequence_number: u64,
    ) -> Self {
        let (kind, content_index, summary_index, logprobs) = match role {
            Role::Message => ("response.output_text.delta", Some(0), None, Some([])),
            Role::Thought => ("response.reasoning_summary_text.delta", None, Some(0), None),
        };
        Self {
            content_index,
            summary_index,
            delta,
            logprobs,
            item_id,
            output_index,
            kind,
            sequence_number,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    /// From 1.
    pub(super) number: u32,
}

impl ResponseId {
    /// The id of a request of the agent in the turn.
    pub(super) const fn question(&self, request: RequestId) -> QuestionId {
        QuestionId {
            session: self.session,
            prompt: self.prompt,
            request,
        }
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "resp_{}_{}", self.session, self.prompt)?;
        if self.number > 1 {
            write!(f, "_{}", self.number)
        } else {
            Ok(())
        }
    }
}

impl FromStr for ResponseId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let mut parts = text.strip_prefix("resp_").ok_or(IdError)?.split('_');
        let session = parts.next().ok_or(IdError)?.parse()?;
        let prompt = parts.next().ok_or(IdError)?.parse()?;
        let number = match parts.next() {
            None => 1,
            Some(number) => match number.parse() {
                Ok(number) if number > 1 => number,
                _ => return Err(IdError),
            },
        };
        if parts.next().is_some() {
            return Err(IdError);
        }
        Ok(Self {
            session,
            prompt,
            number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_has_one_text() {
        let session = "01990000-0000-7000-8000-000000000000";
        for text in [
            format!("resp_{session}_p1"),
            format!("resp_{session}_p12_3"),
        ] {
            assert_eq!(text.parse::<ResponseId>().expect("an id").to_string(), text);
        }
        for wrong in ["", "resp_", "resp_x_p1", "msg_1"] {
            assert!(wrong.parse::<ResponseId>().is_err(), "{wrong}");
        }
        for wrong in ["", "_p0", "_p1_1", "_p1_x", "_p1_2_3"] {
            assert!(
                format!("resp_{session}{wrong}")
                    .parse::<ResponseId>()
                    .is_err(),
                "{wrong}"
            );
        }
    }
}
