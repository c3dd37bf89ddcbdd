//! The steps of a turn as the events of a run.

use std::collections::{HashMap, HashSet};

use bytes::BytesMut;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::frame::{Frame, activity, custom, reasoning_end, reasoning_start, state_delta, to_raw, usage_of};
use crate::acp::{RawObject, stop_reason};
use crate::conversation::Notice;
use crate::event::{ControlFrame, EventRef};
use crate::projection::{
    Asked, Block, CallStatus, End, Request, Role, Step, ToolCall, TurnProjector, failure_text, output_text,
};
use crate::stream::Encoder;
use crate::surface::chat::{CancelOnDisconnect, data, interruption};
use crate::types::{PromptId, RequestId, SessionId, TerminalId};

/// The end of a terminal's output that an activity shows.
const TERMINAL_TAIL_BYTES: usize = 16 << 10;

/// The run, as the client names it, and the turn.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) thread: String,
    pub(super) id: String,
    pub(super) knows_cancelled: bool,
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    pub(super) notice: Option<Notice>,
}

#[derive(Debug)]
pub(super) struct RunStream {
    projector: TurnProjector,
    /// The events are older than the request.
    replays: bool,
    /// The former runs of the turn have the events up to this request.
    received_until: Option<RequestId>,
    writer: Writer,
    connected: CancelOnDisconnect,
}

#[derive(Debug)]
struct Writer {
    run: Run,
    /// The calls whose arguments have not ended.
    open_arguments: HashSet<String>,
    terminals: HashMap<TerminalId, String>,
    /// The interrupts of the requests that wait.
    interrupts: Vec<(RequestId, Box<RawValue>)>,
    complete: bool,
}

impl RunStream {
    pub(super) fn new(run: Run, received_until: Option<RequestId>, connected: CancelOnDisconnect) -> Self {
        let (open_arguments, terminals, interrupts) = (HashSet::new(), HashMap::new(), Vec::new());
        let writer = Writer { run, open_arguments, terminals, interrupts, complete: false };
        Self { projector: TurnProjector::default(), replays: true, received_until, writer, connected }
    }

    /// Ends the run if the turn waits for an answer.
    fn pause(&mut self, out: &mut BytesMut) {
        let pauses = !self.replays && self.received_until.is_none() && !self.writer.complete;
        if pauses && !self.writer.interrupts.is_empty() {
            self.writer.interrupt(out);
            self.connected.completed();
        }
    }
}

impl Encoder for RunStream {
    fn media_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn uses_stored_frames(&self) -> bool {
        false
    }

    fn event(&mut self, out: &mut BytesMut, _: &str, event: &EventRef<'_>) {
        let Self { projector, received_until, writer, .. } = self;
        let mut reached = false;
        let silent = received_until.is_some();
        projector.event(event, &mut |step| {
            if let (Step::Requested(request), Some(until)) = (&step, &*received_until) {
                reached |= request.id == *until;
            }
            writer.track(&step);
            if !silent {
                writer.step(out, &step);
            }
        });
        if reached {
            self.received_until = None;
            self.writer.open_arguments.clear();
            self.writer.start(out);
            return;
        }
        if self.writer.complete {
            self.connected.completed();
        }
        self.pause(out);
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        if frame.kind() == "ready" {
            self.replays = false;
            self.pause(out);
        } else if let Some(interrupted) = interruption(frame).filter(|_| !self.writer.complete) {
            data(
                out,
                &json!({ "type": "RUN_ERROR", "message": interrupted.message, "code": interrupted.code }),
            );
            self.writer.complete = true;
            self.connected.completed();
        } else if frame.kind() == "position" {
            out.extend_from_slice(self.keep_alive());
        }
    }

    fn retry(&mut self, _: &mut BytesMut, _: u64) {}

    fn keep_alive(&self) -> &'static [u8] {
        b":\n"
    }

    fn is_complete(&self) -> bool {
        self.writer.complete
    }
}

impl Writer {
    /// Follows the requests that wait, also while nothing is written.
    fn track(&mut self, step: &Step<'_>) {
        match step {
            Step::Requested(request) => {
                if let Some(interrupt) = self.interrupt_of(request) {
                    self.interrupts.push((request.id, interrupt));
                }
            }
            Step::Resolved { id, .. } => self.interrupts.retain(|(open, _)| open != id),
            _ => {}
        }
    }

    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::Begun => self.start(out),
            Step::BlockBegun(block) if block.subagent.is_none() => self.begin_block(out, block),
            Step::Text(block, text) if block.subagent.is_none() => self.text(out, block, text),
            Step::BlockEnded(block) if block.subagent.is_none() => self.end_block(out, block),
            Step::Content { content, .. } => {
                activity(out, &format!("{}-content", self.run.prompt), "CONTENT", content);
            }
            Step::CallBegun(call) => self.begin_call(out, call),
            Step::CallDescribed(call) | Step::CallProgressed(call) => {
                self.arguments(out, call);
                self.call_activity(out, call);
            }
            Step::CallEnded(call) => self.end_call(out, call),
            Step::Plan(plan) => activity(out, "plan", "PLAN", plan),
            Step::State { kind, update } => state_delta(out, kind, update),
            Step::Subagent(subagent) => {
                custom(out, "acp.subagent", subagent);
            }
            Step::TerminalOutput { terminal, data } => self.terminal(out, *terminal, data),
            Step::Ended(end) => self.end(out, end),
            _ => {}
        }
    }

    fn start(&mut self, out: &mut BytesMut) {
        let Run { thread, id, session, prompt, notice, .. } = &self.run;
        data(out, &json!({ "type": "RUN_STARTED", "threadId": thread, "runId": id }));
        let state = json!({ "sessionId": session, "promptId": prompt });
        data(out, &json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
        if let Some(notice) = notice {
            let value = json!({ "code": notice.as_str(), "text": notice.text() });
            custom(out, "acp.notice", &to_raw(&value));
            let (message, text) = (format!("{prompt}-notice"), to_raw(&notice.text()));
            reasoning_start(out, &message);
            data(
                out,
                &Frame {
                    kind: "REASONING_MESSAGE_CONTENT",
                    message_id: Some(&message),
                    delta: Some(&text),
                    ..Frame::default()
                },
            );
            reasoning_end(out, &message);
        }
    }

    fn message_id(&self, block: &Block<'_>) -> String {
        format!("{}_{}-{}", self.run.session, self.run.prompt, block.number)
    }

    fn begin_block(&self, out: &mut BytesMut, block: &Block<'_>) {
        let id = self.message_id(block);
        match block.role {
            Role::Message => {
                let (kind, message_id) = ("TEXT_MESSAGE_START", Some(&*id));
                data(out, &Frame { kind, message_id, role: Some("assistant"), ..Frame::default() });
            }
            Role::Thought => reasoning_start(out, &id),
        }
    }

    fn text(&self, out: &mut BytesMut, block: &Block<'_>, text: &RawValue) {
        let kind = match block.role {
            Role::Message => "TEXT_MESSAGE_CONTENT",
            Role::Thought => "REASONING_MESSAGE_CONTENT",
        };
        let id = self.message_id(block);
        data(out, &Frame { kind, message_id: Some(&id), delta: Some(text), ..Frame::default() });
    }

    fn end_block(&self, out: &mut BytesMut, block: &Block<'_>) {
        let id = self.message_id(block);
        match block.role {
            Role::Message => {
                data(out, &Frame { kind: "TEXT_MESSAGE_END", message_id: Some(&id), ..Frame::default() });
            }
            Role::Thought => reasoning_end(out, &id),
        }
    }

    /// The id of a call. Agents may use an id in several turns.
    fn call_id(&self, call: &ToolCall) -> String {
        format!("{}:{}", self.run.prompt, call.id)
    }

    fn begin_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = self.call_id(call);
        let (kind, tool_call_id, tool_call_name) = ("TOOL_CALL_START", Some(&*id), Some(&*call.kind));
        data(out, &Frame { kind, tool_call_id, tool_call_name, ..Frame::default() });
        self.open_arguments.insert(id);
        self.arguments(out, call);
        self.call_activity(out, call);
    }

    /// The arguments of a call, once. Clients join several of them.
    fn arguments(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = self.call_id(call);
        if let Some(input) = &call.input
            && self.open_arguments.remove(&id)
        {
            let delta = to_raw(&input.get());
            data(
                out,
                &Frame {
                    kind: "TOOL_CALL_ARGS",
                    tool_call_id: Some(&id),
                    delta: Some(&delta),
                    ..Frame::default()
                },
            );
            data(out, &Frame { kind: "TOOL_CALL_END", tool_call_id: Some(&id), ..Frame::default() });
        }
    }

    fn end_arguments(&mut self, out: &mut BytesMut, id: &str) {
        if self.open_arguments.remove(id) {
            data(out, &Frame { kind: "TOOL_CALL_END", tool_call_id: Some(id), ..Frame::default() });
        }
    }

    fn call_activity(&self, out: &mut BytesMut, call: &ToolCall) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shown<'a> {
            tool_call_id: &'a str,
            kind: &'a str,
            status: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            title: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            content: &'a [Box<RawValue>],
            #[serde(skip_serializing_if = "Option::is_none")]
            locations: Option<&'a RawValue>,
        }
        let id = self.call_id(call);
        let shown = Shown {
            tool_call_id: &id,
            kind: &call.kind,
            status: call.status.as_str(),
            title: call.title.as_deref(),
            content: &call.content,
            locations: call.locations.as_deref(),
        };
        activity(out, &format!("tool-{id}"), "TOOL", &to_raw(&shown));
    }

    fn end_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = self.call_id(call);
        self.arguments(out, call);
        self.end_arguments(out, &id);
        self.call_activity(out, call);
        for diff in call.content.iter().filter(|item| {
            RawObject::parse(item).is_some_and(|item| item.text("type").as_deref() == Some("diff"))
        }) {
            let path = RawObject::parse(diff).and_then(|diff| diff.text("path").map(Into::<String>::into));
            activity(out, &format!("{id}:{}", path.unwrap_or_default()), "DIFF", diff);
        }
        let text = match call.status {
            CallStatus::Completed => output_text(call),
            _ => failure_text(call),
        };
        let (message, content) = (format!("{id}-r"), to_raw(&text));
        let frame = Frame {
            kind: "TOOL_CALL_RESULT",
            message_id: Some(&message),
            tool_call_id: Some(&id),
            role: Some("tool"),
            content: Some(&content),
            ..Frame::default()
        };
        data(out, &frame);
    }

    fn terminal(&mut self, out: &mut BytesMut, terminal: TerminalId, data: &str) {
        let tail = self.terminals.entry(terminal).or_default();
        tail.push_str(data);
        let start = tail.ceil_char_boundary(tail.len().saturating_sub(TERMINAL_TAIL_BYTES));
        tail.drain(..start);
        let content = to_raw(&json!({ "terminalId": terminal, "output": tail }));
        activity(out, &format!("terminal-{terminal}"), "TERMINAL", &content);
    }

    /// A request as an interrupt. `None` if a client cannot answer it.
    fn interrupt_of(&self, request: &Request<'_>) -> Option<Box<RawValue>> {
        let params = RawObject::parse(request.params);
        let member = |key: &str| params.as_ref().and_then(|params| params.get(key));
        let id = request.id.to_string();
        let mut interrupt = match (request.asked, request.call) {
            (Asked::Permission, Some(call)) => {
                let options: Vec<serde_json::Value> = member("options")
                    .and_then(|raw| serde_json::from_str(raw.get()).ok())
                    .unwrap_or_default();
                let ids: Vec<&serde_json::Value> = options.iter().map(|option| &option["optionId"]).collect();
                json!({
                    "id": id,
                    "reason": "tool_call",
                    "message": call.title_text().as_deref().unwrap_or("The agent asks for permission."),
                    "toolCallId": self.call_id(call),
                    "responseSchema": {
                        "type": "object",
                        "required": ["approved"],
                        "properties": {
                            "approved": { "type": "boolean" },
                            "reason": { "type": "string" },
                            "optionId": { "type": "string", "enum": ids },
                        },
                    },
                    "metadata": { "options": options },
                })
            }
            (Asked::Elicitation, _) => {
                let value = |key: &str| member(key).and_then(|raw| serde_json::from_str(raw.get()).ok());
                let schema: serde_json::Value = value("requestedSchema")?;
                let message: serde_json::Value =
                    value("message").unwrap_or_else(|| "The agent asks a question.".into());
                json!({ "id": id, "reason": "input_required", "message": message, "responseSchema": schema })
            }
            _ => return None,
        };
        if let Some(deadline) = request.deadline {
            interrupt["expiresAt"] = json!(deadline);
        }
        Some(to_raw(&interrupt))
    }

    fn close_arguments(&mut self, out: &mut BytesMut) {
        let mut open: Vec<String> = self.open_arguments.iter().cloned().collect();
        open.sort();
        for id in open {
            self.end_arguments(out, &id);
        }
    }

    fn interrupt(&mut self, out: &mut BytesMut) {
        #[derive(Serialize)]
        struct Outcome<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            interrupts: Vec<&'a RawValue>,
        }
        self.close_arguments(out);
        let interrupts = self.interrupts.iter().map(|(_, interrupt)| &**interrupt).collect();
        let outcome = to_raw(&Outcome { kind: "interrupt", interrupts });
        self.finish(out, Some(&outcome), None, None);
    }

    fn finish(
        &mut self,
        out: &mut BytesMut,
        outcome: Option<&RawValue>,
        result: Option<&RawValue>,
        usage: Option<&RawValue>,
    ) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Finished<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            thread_id: &'a str,
            run_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            outcome: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            result: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage: Option<&'a RawValue>,
        }
        let Run { thread, id, .. } = &self.run;
        data(out, &Finished { kind: "RUN_FINISHED", thread_id: thread, run_id: id, outcome, result, usage });
        self.complete = true;
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        self.close_arguments(out);
        match end {
            End::Completed { stop_reason, usage } => {
                let result = to_raw(&json!({ "stopReason": stop_reason }));
                let cancelled = *stop_reason == stop_reason::CANCELLED;
                let outcome = match (cancelled, self.run.knows_cancelled) {
                    (false, _) => Some(json!({ "type": "success" })),
                    (true, true) => Some(json!({ "type": "cancelled" })),
                    (true, false) => None,
                };
                let usage = usage.and_then(usage_of);
                self.finish(
                    out,
                    outcome.map(|outcome| to_raw(&outcome)).as_deref(),
                    Some(&result),
                    usage.as_deref(),
                );
            }
            End::Failed { problem } => {
                let problem = RawObject::parse(problem);
                let text = |key| problem.as_ref().and_then(|problem| problem.text(key));
                let message = text("detail").unwrap_or_else(|| "the turn failed".into());
                let code = text("code").unwrap_or_else(|| "internal".into());
                data(out, &json!({ "type": "RUN_ERROR", "message": message, "code": code }));
                self.complete = true;
            }
        }
    }
}
