//! The steps of a turn as the events of a run.

use std::collections::HashSet;

use bytes::BytesMut;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::surface::chat::{QuestionId, TurnWriter, frame, object};
use base::types::{PromptId, RequestId, SessionId};
use events::event::write_json;
use sessions::conversation::Notice;
use sessions::projection::{Block, End, Request, Role, Step, ToolCall, TurnProjector, Usage};
use wire::acp::{RawObject, RequestKind, stop_reason, to_raw, update};

#[derive(Debug)]
pub(super) struct Run {
    pub(super) thread: String,
    pub(super) id: String,
    pub(super) knows_cancelled: bool,
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    pub(super) notices: Vec<Notice>,
    /// The earlier messages, for a client that has none.
    pub(super) history: Vec<Value>,
}

pub(super) fn message_id(session: SessionId, prompt: PromptId, block: usize) -> String {
    format!("{session}_{prompt}-{block}")
}

/// The id of a call. Agents may use an id in several turns.
pub(super) fn call_id(prompt: PromptId, call: &ToolCall) -> String {
    format!("{prompt}:{}", call.id)
}

pub(super) fn result_id(call: &str) -> String {
    format!("{call}-r")
}

#[derive(Debug)]
pub(super) struct RunWriter {
    run: Run,
    /// The calls whose arguments have not ended.
    open_arguments: HashSet<String>,
    interrupts: Vec<(RequestId, Box<RawValue>)>,
    /// The id of the message of the open block.
    message: String,
    complete: bool,
}

impl TurnWriter for RunWriter {
    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        self.follow_requests(step);
        match step {
            Step::Begun { .. } => self.start(out),
            Step::BlockBegun(block) if block.subagent.is_none() => self.begin_block(out, block),
            Step::Text(block, text) if block.subagent.is_none() => self.text(out, block, text),
            Step::BlockEnded(block) if block.subagent.is_none() => {
                end_message(out, block.role, &self.message);
            }
            Step::Content { content, .. } => {
                let id = format!("{}-content", self.run.prompt);
                activity(out, &id, "CONTENT", content);
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
                frame!(out, "CUSTOM", "name": "acp.subagent", "value": *subagent);
            }
            Step::TerminalOutput { terminal, output } => {
                let content = to_raw(&json!({ "terminalId": terminal, "output": output }));
                activity(out, &format!("terminal-{terminal}"), "TERMINAL", &content);
            }
            Step::Ended(end) => self.end(out, end),
            _ => {}
        }
    }

    fn skip(&mut self, step: &Step<'_>) {
        self.follow_requests(step);
    }

    fn resume(&mut self, out: &mut BytesMut) {
        self.start(out);
    }

    fn pause(&mut self, out: &mut BytesMut, _: &TurnProjector) {
        if !self.interrupts.is_empty() {
            self.interrupt(out);
        }
    }

    fn interrupted(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        self.fail(out, code, message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl RunWriter {
    pub(super) fn new(run: Run) -> Self {
        Self {
            run,
            open_arguments: HashSet::new(),
            interrupts: Vec::new(),
            message: String::new(),
            complete: false,
        }
    }

    fn follow_requests(&mut self, step: &Step<'_>) {
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

    fn start(&mut self, out: &mut BytesMut) {
        let run = &self.run;
        let started = json!({ "type": "RUN_STARTED", "threadId": run.thread, "runId": run.id });
        write_json(out, &started);
        let state = json!({ "sessionId": run.session, "promptId": run.prompt });
        write_json(out, &json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
        if !run.history.is_empty() {
            let messages = json!({ "type": "MESSAGES_SNAPSHOT", "messages": run.history });
            write_json(out, &messages);
        }
        for notice in &run.notices {
            let value = to_raw(&json!({ "code": notice.into_str(), "text": notice.text() }));
            frame!(out, "CUSTOM", "name": "acp.notice", "value": &*value);
            let message = format!("{}-{}", run.prompt, notice.into_str());
            start_message(out, Role::Thought, &message);
            frame!(out, "REASONING_MESSAGE_CONTENT", "messageId": &*message, "delta": notice.text());
            end_message(out, Role::Thought, &message);
        }
    }

    fn begin_block(&mut self, out: &mut BytesMut, block: &Block<'_>) {
        self.message = message_id(self.run.session, self.run.prompt, block.number);
        start_message(out, block.role, &self.message);
    }

    fn text(&self, out: &mut BytesMut, block: &Block<'_>, text: &RawValue) {
        let kind = match block.role {
            Role::Message => "TEXT_MESSAGE_CONTENT",
            Role::Thought => "REASONING_MESSAGE_CONTENT",
        };
        frame!(out, kind, "messageId": &*self.message, "delta": text);
    }

    fn begin_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        frame!(out, "TOOL_CALL_START", "toolCallId": &*id, "toolCallName": &*call.kind());
        self.open_arguments.insert(id);
        self.arguments(out, call);
        self.call_activity(out, call);
    }

    /// The arguments of a call, once. Clients join several of them.
    fn arguments(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        if call.input().is_some() && self.open_arguments.contains(&id) {
            frame!(out, "TOOL_CALL_ARGS", "delta": &*call.input_text(), "toolCallId": &*id);
            self.end_arguments(out, &id);
        }
    }

    fn end_arguments(&mut self, out: &mut BytesMut, id: &str) {
        if self.open_arguments.remove(id) {
            frame!(out, "TOOL_CALL_END", "toolCallId": id);
        }
    }

    fn call_activity(&self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        let content = call.content();
        let content = (!content.is_empty()).then(|| to_raw(&content));
        let shown = object!(
            "toolCallId": &*id, "kind": &*call.kind(), "status": call.status.into_str(), "title": call.title(),
            "content": content.as_deref(), "locations": call.locations(),
        );
        activity(out, &format!("tool-{id}"), "TOOL", &shown);
    }

    fn end_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        self.arguments(out, call);
        self.end_arguments(out, &id);
        self.call_activity(out, call);
        for (diff, item) in call.diffs() {
            activity(out, &format!("{id}:{}", diff.path()), "DIFF", item);
        }
        frame!(
            out, "TOOL_CALL_RESULT", "messageId": &*result_id(&id), "role": "tool", "toolCallId": &*id,
            "content": &*call.result_text(),
        );
    }

    /// A request as an interrupt. `None` if a client cannot answer it.
    fn interrupt_of(&self, request: &Request<'_>) -> Option<Box<RawValue>> {
        let params = RawObject::parse(request.params);
        let member = |key: &str| params.as_ref().and_then(|params| params.get(key));
        let id = QuestionId {
            session: self.run.session,
            prompt: self.run.prompt,
            request: request.id,
        };
        let id = id.to_string();
        let mut interrupt = match (request.kind, request.call) {
            (RequestKind::Permission, Some(call)) => {
                let options =
                    member("options").and_then(|raw| serde_json::from_str(raw.get()).ok());
                let options: Vec<Value> = options.unwrap_or_default();
                let input: Value = serde_json::from_str(&call.input_text()).unwrap_or_default();
                let ids: Vec<&Value> = options.iter().map(|option| &option["optionId"]).collect();
                json!({
                    "id": id,
                    "reason": "tool_call",
                    "message": call.title_text().as_deref().unwrap_or("The agent asks for permission."),
                    "toolCallId": call_id(self.run.prompt, call),
                    "responseSchema": {
                        "type": "object",
                        "required": ["approved"],
                        "properties": {
                            "approved": { "type": "boolean" },
                            "reason": { "type": "string" },
                            "optionId": { "type": "string", "enum": ids },
                        },
                    },
                    "metadata": { "options": options, "input": input },
                })
            }
            (RequestKind::Elicitation, _) => {
                let value =
                    |key: &str| member(key).and_then(|raw| serde_json::from_str(raw.get()).ok());
                let schema: Value = value("requestedSchema")?;
                let message: Value =
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
        self.close_arguments(out);
        let interrupts = self.interrupts.iter().map(|(_, interrupt)| interrupt);
        let interrupts = to_raw(&interrupts.collect::<Vec<_>>());
        let outcome = object!("type": "interrupt", "interrupts": &*interrupts);
        self.finish(out, Some(&outcome), None, None);
    }

    fn finish(
        &mut self,
        out: &mut BytesMut,
        outcome: Option<&RawValue>,
        result: Option<&RawValue>,
        usage: Option<&RawValue>,
    ) {
        frame!(
            out, "RUN_FINISHED", "threadId": &*self.run.thread, "runId": &*self.run.id, "outcome": outcome,
            "result": result, "usage": usage,
        );
        self.complete = true;
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        self.close_arguments(out);
        match end {
            End::Completed {
                stop_reason,
                cancel_cause,
                usage,
            } => {
                let mut result = json!({ "stopReason": stop_reason });
                if let Some(cause) = cancel_cause {
                    result["cancelCause"] = json!(cause);
                }
                let cancelled = *stop_reason == stop_reason::CANCELLED;
                let outcome = match (cancelled, self.run.knows_cancelled) {
                    (false, _) => Some(object!("type": "success")),
                    (true, true) => Some(object!("type": "cancelled")),
                    (true, false) => None,
                };
                let usage = Usage::of(*usage).map(|usage| {
                    to_raw(&json!([{ "inputTokens": usage.input, "outputTokens": usage.output }]))
                });
                let result = to_raw(&result);
                self.finish(out, outcome.as_deref(), Some(&result), usage.as_deref());
            }
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        let error = json!({ "type": "RUN_ERROR", "message": message, "code": code });
        write_json(out, &error);
        self.complete = true;
    }
}

fn start_message(out: &mut BytesMut, role: Role, id: &str) {
    match role {
        Role::Message => frame!(out, "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"),
        Role::Thought => {
            frame!(out, "REASONING_START", "messageId": id);
            frame!(out, "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning");
        }
    }
}

fn end_message(out: &mut BytesMut, role: Role, id: &str) {
    match role {
        Role::Message => frame!(out, "TEXT_MESSAGE_END", "messageId": id),
        Role::Thought => {
            frame!(out, "REASONING_MESSAGE_END", "messageId": id);
            frame!(out, "REASONING_END", "messageId": id);
        }
    }
}

/// An activity. One with the same id replaces it.
fn activity(out: &mut BytesMut, id: &str, kind: &str, content: &RawValue) {
    frame!(
        out, "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": kind, "content": content, "replace": true,
    );
}

/// A change of the state: a JSON Patch.
fn state_delta(out: &mut BytesMut, kind: &str, update: &RawValue) {
    let (path, member) = match kind {
        update::CURRENT_MODE => ("/mode", "currentModeId"),
        update::CONFIG_OPTION => ("/options", "configOptions"),
        update::SESSION_INFO => ("/title", "title"),
        _ => ("/commands", "availableCommands"),
    };
    if let Some(value) = RawObject::parse(update).and_then(|update| update.get(member)) {
        let change = object!("op": "add", "path": path, "value": value);
        frame!(out, "STATE_DELTA", "delta": &*to_raw(&[change]));
    }
}
