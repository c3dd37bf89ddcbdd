//! The steps of a turn as the events of a run.

use std::collections::HashSet;

use bytes::BytesMut;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::frame::{
    Frame, activity, custom, reasoning_end, reasoning_start, state_delta, usage_of,
};
use crate::acp::{RawObject, stop_reason, to_raw};
use crate::conversation::Notice;
use crate::event::write_json;
use crate::projection::{
    Asked, Block, CallStatus, End, Request, Role, Step, TerminalTails, ToolCall, TurnProjector,
    failure_text, input_text, output_text,
};
use crate::surface::chat::{Interrupted, QuestionId, TurnWriter};
use crate::types::{PromptId, RequestId, SessionId};

/// The run, as the client names it, and the turn.
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

/// The id of a message of the agent.
pub(super) fn message_id(session: SessionId, prompt: PromptId, block: usize) -> String {
    format!("{session}_{prompt}-{block}")
}

/// The id of a call. Agents may use an id in several turns.
pub(super) fn call_id(prompt: PromptId, call: &ToolCall) -> String {
    format!("{prompt}:{}", call.id)
}

/// The id of the message with the result of a call.
pub(super) fn result_id(call: &str) -> String {
    format!("{call}-r")
}

/// Writes the events of a run.
#[derive(Debug)]
pub(super) struct RunWriter {
    run: Run,
    /// The calls whose arguments have not ended.
    open_arguments: HashSet<String>,
    terminals: TerminalTails,
    /// The interrupts of the requests that wait.
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
            Step::BlockEnded(block) if block.subagent.is_none() => self.end_block(out, block),
            Step::Content { content, .. } => {
                activity(
                    out,
                    &format!("{}-content", self.run.prompt),
                    "CONTENT",
                    content,
                );
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
            Step::TerminalOutput { terminal, data } => {
                let output = self.terminals.append(*terminal, data);
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

    fn interrupted(&mut self, out: &mut BytesMut, Interrupted { code, message }: &Interrupted) {
        self.fail(out, code, message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl RunWriter {
    pub(super) fn new(run: Run) -> Self {
        let (open_arguments, terminals, interrupts) =
            (HashSet::new(), TerminalTails::default(), Vec::new());
        Self {
            run,
            open_arguments,
            terminals,
            interrupts,
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
        let Run {
            thread,
            id,
            session,
            prompt,
            notices,
            history,
            ..
        } = &self.run;
        write_json(
            out,
            &json!({ "type": "RUN_STARTED", "threadId": thread, "runId": id }),
        );
        let state = json!({ "sessionId": session, "promptId": prompt });
        write_json(out, &json!({ "type": "STATE_SNAPSHOT", "snapshot": state }));
        if !history.is_empty() {
            write_json(
                out,
                &json!({ "type": "MESSAGES_SNAPSHOT", "messages": history }),
            );
        }
        for notice in notices {
            let value = json!({ "code": notice.as_str(), "text": notice.text() });
            custom(out, "acp.notice", &to_raw(&value));
            let message = format!("{prompt}-{}", notice.as_str());
            let text = to_raw(&notice.text());
            reasoning_start(out, &message);
            write_json(
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

    fn begin_block(&mut self, out: &mut BytesMut, block: &Block<'_>) {
        self.message = message_id(self.run.session, self.run.prompt, block.number);
        match block.role {
            Role::Message => {
                let (kind, message_id) = ("TEXT_MESSAGE_START", Some(&*self.message));
                write_json(
                    out,
                    &Frame {
                        kind,
                        message_id,
                        role: Some("assistant"),
                        ..Frame::default()
                    },
                );
            }
            Role::Thought => reasoning_start(out, &self.message),
        }
    }

    fn text(&self, out: &mut BytesMut, block: &Block<'_>, text: &RawValue) {
        let kind = match block.role {
            Role::Message => "TEXT_MESSAGE_CONTENT",
            Role::Thought => "REASONING_MESSAGE_CONTENT",
        };
        write_json(
            out,
            &Frame {
                kind,
                message_id: Some(&self.message),
                delta: Some(text),
                ..Frame::default()
            },
        );
    }

    fn end_block(&self, out: &mut BytesMut, block: &Block<'_>) {
        match block.role {
            Role::Message => {
                let (kind, message_id) = ("TEXT_MESSAGE_END", Some(&*self.message));
                write_json(
                    out,
                    &Frame {
                        kind,
                        message_id,
                        ..Frame::default()
                    },
                );
            }
            Role::Thought => reasoning_end(out, &self.message),
        }
    }

    fn begin_call(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        let (kind, tool_call_id, tool_call_name) =
            ("TOOL_CALL_START", Some(&*id), Some(&*call.kind));
        write_json(
            out,
            &Frame {
                kind,
                tool_call_id,
                tool_call_name,
                ..Frame::default()
            },
        );
        self.open_arguments.insert(id);
        self.arguments(out, call);
        self.call_activity(out, call);
    }

    /// The arguments of a call, once. Clients join several of them.
    fn arguments(&mut self, out: &mut BytesMut, call: &ToolCall) {
        let id = call_id(self.run.prompt, call);
        if call.input.is_some() && self.open_arguments.remove(&id) {
            let delta = to_raw(&input_text(call));
            write_json(
                out,
                &Frame {
                    kind: "TOOL_CALL_ARGS",
                    tool_call_id: Some(&id),
                    delta: Some(&delta),
                    ..Frame::default()
                },
            );
            write_json(
                out,
                &Frame {
                    kind: "TOOL_CALL_END",
                    tool_call_id: Some(&id),
                    ..Frame::default()
                },
            );
        }
    }

    fn end_arguments(&mut self, out: &mut BytesMut, id: &str) {
        if self.open_arguments.remove(id) {
            write_json(
                out,
                &Frame {
                    kind: "TOOL_CALL_END",
                    tool_call_id: Some(id),
                    ..Frame::default()
                },
            );
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
        let id = call_id(self.run.prompt, call);
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
        let id = call_id(self.run.prompt, call);
        self.arguments(out, call);
        self.end_arguments(out, &id);
        self.call_activity(out, call);
        for diff in call.content.iter().filter(|item| {
            RawObject::parse(item).is_some_and(|item| item.text("type").as_deref() == Some("diff"))
        }) {
            let path =
                RawObject::parse(diff).and_then(|diff| diff.text("path").map(Into::<String>::into));
            activity(
                out,
                &format!("{id}:{}", path.unwrap_or_default()),
                "DIFF",
                diff,
            );
        }
        let text = match call.status {
            CallStatus::Completed => output_text(call),
            _ => failure_text(call),
        };
        let (message, content) = (result_id(&id), to_raw(&text));
        let frame = Frame {
            kind: "TOOL_CALL_RESULT",
            message_id: Some(&message),
            tool_call_id: Some(&id),
            role: Some("tool"),
            content: Some(&content),
            ..Frame::default()
        };
        write_json(out, &frame);
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
        let mut interrupt = match (request.asked, request.call) {
            (Asked::Permission, Some(call)) => {
                let options: Vec<Value> = member("options")
                    .and_then(|raw| serde_json::from_str(raw.get()).ok())
                    .unwrap_or_default();
                let input: Value = serde_json::from_str(&input_text(call)).unwrap_or_default();
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
            (Asked::Elicitation, _) => {
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
        #[derive(Serialize)]
        struct Outcome<'a> {
            #[serde(rename = "type")]
            kind: &'a str,
            interrupts: Vec<&'a RawValue>,
        }
        self.close_arguments(out);
        let interrupts = self
            .interrupts
            .iter()
            .map(|(_, interrupt)| &**interrupt)
            .collect();
        let outcome = to_raw(&Outcome {
            kind: "interrupt",
            interrupts,
        });
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
        write_json(
            out,
            &Finished {
                kind: "RUN_FINISHED",
                thread_id: thread,
                run_id: id,
                outcome,
                result,
                usage,
            },
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
                let result = to_raw(&result);
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
            End::Failed { code, detail } => self.fail(out, code, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, code: &str, message: &str) {
        write_json(
            out,
            &json!({ "type": "RUN_ERROR", "message": message, "code": code }),
        );
        self.complete = true;
    }
}
