//! The steps of a turn as the chunks of one message.

use std::collections::HashMap;

use bytes::BytesMut;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::chunk::{Chunk, Descriptor, Output};
use crate::acp::{RawObject, stop_reason, to_raw, update};
use crate::conversation::Notice;
use crate::event::write_json;
use crate::projection::{
    Asked, Block, CallStatus, End, Request, Role, Step, TerminalTails, ToolCall, TurnProjector,
    failure_text, input_text,
};
use crate::surface::chat::{Interrupted, QuestionId, TurnWriter, done};
use crate::types::{CancelCause, PromptId, SessionId};

/// How a client learns about permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Approvals {
    /// As approvals of the AI SDK, from version 6 on. The response ends, and the next request has the answer.
    #[default]
    Parts,
    /// As data parts. The application answers with a request to the API.
    Data,
}

/// The place of the message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
    pub(super) notices: Vec<Notice>,
}

/// Writes the message of a turn.
#[derive(Debug)]
pub(super) struct UiMessageWriter {
    message: Message,
    approvals: Approvals,
    in_step: bool,
    /// The step has an approval. What follows the answer is in a new step.
    step_has_approval: bool,
    terminals: TerminalTails,
    complete: bool,
}

impl TurnWriter for UiMessageWriter {
    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::Begun { .. } => self.start(out),
            Step::BlockBegun(block) => {
                self.enter_step(out);
                block_frame(
                    out,
                    block,
                    by_role(block, "text-start", "reasoning-start"),
                    None,
                );
            }
            Step::Text(block, text) => {
                block_frame(
                    out,
                    block,
                    by_role(block, "text-delta", "reasoning-delta"),
                    Some(text),
                );
            }
            Step::BlockEnded(block) => {
                block_frame(
                    out,
                    block,
                    by_role(block, "text-end", "reasoning-end"),
                    None,
                );
            }
            Step::Content { content, .. } => self.content(out, content),
            Step::CallBegun(call) => {
                self.enter_step(out);
                tool(out, "tool-input-start", call, |chunk| Chunk {
                    title: call.title.as_deref(),
                    ..chunk
                });
                input(out, call);
            }
            // In a later step, this would be another part.
            Step::CallDescribed(call) => {
                if self.in_step && !self.step_has_approval {
                    input(out, call);
                }
            }
            Step::CallProgressed(call) => output(out, call, call.status.as_str(), Some(true)),
            Step::CallEnded(call) => Self::end_call(out, call),
            Step::Plan(plan) => part(out, "data-plan", "plan", plan, None),
            Step::Usage(usage) => metadata(out, &json_object("contextUsage", usage)),
            Step::State { kind, update } => {
                let name = match *kind {
                    update::CURRENT_MODE => "data-mode",
                    update::CONFIG_OPTION => "data-options",
                    update::SESSION_INFO => "data-title",
                    _ => "data-commands",
                };
                part(out, name, name, update, Some(true));
            }
            Step::Subagent(subagent) => {
                let id = RawObject::parse(subagent).and_then(|update| update.text("sessionId"));
                part(
                    out,
                    "data-subagent",
                    id.as_deref().unwrap_or("subagent"),
                    subagent,
                    None,
                );
            }
            Step::TerminalOutput { terminal, data } => {
                let output = self.terminals.append(*terminal, data);
                let value = json!({ "terminalId": terminal, "output": output });
                own_part(out, "data-terminal", &terminal.to_string(), &value);
            }
            Step::Requested(request) => self.requested(out, request),
            Step::Resolved {
                id,
                asked,
                resolution,
                allowed,
                ..
            } => {
                if *asked == Asked::Elicitation || self.approvals == Approvals::Data {
                    let name = if *asked == Asked::Elicitation {
                        "data-elicitation"
                    } else {
                        "data-permission"
                    };
                    let resolved =
                        json!({ "requestId": id, "resolution": resolution, "allowed": allowed });
                    own_part(out, name, &id.to_string(), &resolved);
                }
            }
            Step::Ended(end) => self.end(out, end),
        }
    }

    fn resume(&mut self, out: &mut BytesMut) {
        self.start(out);
    }

    fn pause(&mut self, out: &mut BytesMut, projector: &TurnProjector) {
        if self.approvals == Approvals::Parts && projector.waits_for_permission() {
            // Clients send no answer while another call of the step has no final output.
            for call in projector.running_calls() {
                output(out, call, CallStatus::Running.as_str(), None);
            }
            self.finish(out, "tool-calls");
        }
    }

    fn interrupted(&mut self, out: &mut BytesMut, interrupted: &Interrupted) {
        self.fail(out, &interrupted.message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl UiMessageWriter {
    pub(super) fn new(message: Message, approvals: Approvals) -> Self {
        let (in_step, step_has_approval, complete) = (false, false, false);
        Self {
            message,
            approvals,
            in_step,
            step_has_approval,
            terminals: TerminalTails::default(),
            complete,
        }
    }

    /// The first frame. In a later response, it names the same message.
    fn start(&mut self, out: &mut BytesMut) {
        let Message {
            session,
            prompt,
            notices,
        } = &self.message;
        let id = super::request::message_id(*session, *prompt);
        let meta = to_raw(&json!({ "sessionId": session, "promptId": prompt }));
        write_json(
            out,
            &Chunk {
                kind: "start",
                message_id: Some(&id),
                message_metadata: Some(&meta),
                ..Chunk::default()
            },
        );
        for notice in notices {
            own_part(
                out,
                "data-notice",
                notice.as_str(),
                &json!({ "code": notice.as_str(), "text": notice.text() }),
            );
        }
        (self.in_step, self.step_has_approval) = (false, false);
    }

    fn enter_step(&mut self, out: &mut BytesMut) {
        if self.in_step && self.step_has_approval {
            write_json(
                out,
                &Chunk {
                    kind: "finish-step",
                    ..Chunk::default()
                },
            );
            self.in_step = false;
        }
        if !self.in_step {
            write_json(
                out,
                &Chunk {
                    kind: "start-step",
                    ..Chunk::default()
                },
            );
            (self.in_step, self.step_has_approval) = (true, false);
        }
    }

    fn finish(&mut self, out: &mut BytesMut, reason: &str) {
        if self.in_step {
            write_json(
                out,
                &Chunk {
                    kind: "finish-step",
                    ..Chunk::default()
                },
            );
        }
        write_json(
            out,
            &Chunk {
                kind: "finish",
                finish_reason: Some(reason),
                ..Chunk::default()
            },
        );
        done(out);
        self.complete = true;
    }

    /// An image or audio as a file, and a link as a source.
    fn content(&mut self, out: &mut BytesMut, content: &RawValue) {
        let Some(block) = RawObject::parse(content) else {
            return;
        };
        let (kind, text) = (block.text("type"), |key| block.text(key));
        match kind.as_deref() {
            Some("image" | "audio") => {
                let (Some(media_type), Some(base64)) = (text("mimeType"), text("data")) else {
                    return;
                };
                self.enter_step(out);
                let url = format!("data:{media_type};base64,{base64}");
                write_json(
                    out,
                    &Chunk {
                        kind: "file",
                        url: Some(&url),
                        media_type: Some(&media_type),
                        ..Chunk::default()
                    },
                );
            }
            Some("resource_link") => {
                let Some(uri) = text("uri") else { return };
                self.enter_step(out);
                let title = block
                    .get("title")
                    .or_else(|| block.get("name"))
                    .filter(|raw| raw.get() != "null");
                let chunk = Chunk {
                    kind: "source-url",
                    source_id: Some(&uri),
                    url: Some(&uri),
                    title,
                    ..Chunk::default()
                };
                write_json(out, &chunk);
            }
            _ => {}
        }
    }

    fn end_call(out: &mut BytesMut, call: &ToolCall) {
        if call.status == CallStatus::Completed {
            output(out, call, call.status.as_str(), None);
            for diff in call
                .content
                .iter()
                .filter_map(|item| RawObject::parse(item))
            {
                if diff.text("type").as_deref() == Some("diff")
                    && let Some(path) = diff.text("path")
                {
                    part(
                        out,
                        "data-diff",
                        &format!("{}:{path}", call.id),
                        &to_raw(&DiffPart(&diff)),
                        None,
                    );
                }
            }
            return;
        }
        let text = failure_text(call);
        tool(out, "tool-output-error", call, |chunk| Chunk {
            error_text: Some(&text),
            ..chunk
        });
    }

    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let id = request.id.to_string();
        match (request.asked, request.call) {
            (Asked::Permission, Some(call)) if self.approvals == Approvals::Parts => {
                let options =
                    RawObject::parse(request.params).and_then(|params| params.get("options"));
                let deadline = request.deadline.map(|at| at.to_string());
                if !self.in_step {
                    self.enter_step(out);
                }
                let question = QuestionId {
                    session: self.message.session,
                    prompt: self.message.prompt,
                    request: request.id,
                };
                let id = question.to_string();
                // The person approves this input, also if the call was described otherwise before. In a later step, the part
                // is another one.
                input(out, call);
                let chunk = Chunk {
                    kind: "tool-approval-request",
                    approval_id: Some(&id),
                    tool_call_id: Some(&call.id),
                    approval_descriptor: Some(Descriptor { options, deadline }),
                    ..Chunk::default()
                };
                write_json(out, &chunk);
                self.step_has_approval = true;
            }
            (Asked::Permission, _) => {
                part(
                    out,
                    "data-permission",
                    &id,
                    &to_raw(&RequestPart {
                        request_id: &id,
                        params: request.params,
                    }),
                    None,
                );
            }
            (Asked::Elicitation, _) => {
                part(
                    out,
                    "data-elicitation",
                    &id,
                    &to_raw(&RequestPart {
                        request_id: &id,
                        params: request.params,
                    }),
                    None,
                );
            }
            (Asked::Other, _) => {}
        }
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        match end {
            End::Completed {
                stop_reason,
                cancel_cause,
                usage,
            } => {
                if let Some(usage) = usage {
                    metadata(out, &json_object("usage", usage));
                }
                match *stop_reason {
                    stop_reason::CANCELLED => {
                        write_json(
                            out,
                            &Chunk {
                                kind: "abort",
                                reason: Some(cancel_cause.map_or("cancelled", CancelCause::words)),
                                ..Chunk::default()
                            },
                        );
                        done(out);
                        self.complete = true;
                    }
                    "max_tokens" | "max_turn_requests" => self.finish(out, "length"),
                    "refusal" => self.finish(out, "content-filter"),
                    _ => self.finish(out, "stop"),
                }
            }
            End::Failed { detail, .. } => self.fail(out, detail),
        }
    }

    fn fail(&mut self, out: &mut BytesMut, text: &str) {
        write_json(
            out,
            &Chunk {
                kind: "error",
                error_text: Some(text),
                ..Chunk::default()
            },
        );
        done(out);
        self.complete = true;
    }
}

fn by_role<'a>(block: &Block<'_>, message: &'a str, thought: &'a str) -> &'a str {
    match block.role {
        Role::Message => message,
        Role::Thought => thought,
    }
}

/// A frame of a text or of reasoning.
fn block_frame(out: &mut BytesMut, block: &Block<'_>, kind: &str, delta: Option<&RawValue>) {
    let id = match block.subagent {
        Some(child) => format!("{child}:{}", block.number),
        None => block.number.to_string(),
    };
    write_json(
        out,
        &Chunk {
            kind,
            id: Some(&id),
            delta,
            ..Chunk::default()
        },
    );
}

fn tool<'a>(
    out: &mut BytesMut,
    kind: &'a str,
    call: &'a ToolCall,
    with: impl FnOnce(Chunk<'a>) -> Chunk<'a>,
) {
    let (dynamic, provider_executed) = (Some(true), Some(true));
    let chunk = Chunk {
        kind,
        tool_call_id: Some(&call.id),
        dynamic,
        provider_executed,
        ..Chunk::default()
    };
    let named = kind.starts_with("tool-input");
    let chunk = if named {
        Chunk {
            tool_name: Some(&call.kind),
            ..chunk
        }
    } else {
        chunk
    };
    write_json(out, &with(chunk));
}

/// The output of a call so far, or its result.
fn output(out: &mut BytesMut, call: &ToolCall, status: &str, preliminary: Option<bool>) {
    let (raw, locations) = (call.output.as_deref(), call.locations.as_deref());
    let output = Output {
        status,
        content: &call.content,
        raw,
        locations,
    };
    tool(out, "tool-output-available", call, |chunk| Chunk {
        output: Some(output),
        preliminary,
        ..chunk
    });
}

fn input(out: &mut BytesMut, call: &ToolCall) {
    let described = input_text(call);
    let input: &RawValue = serde_json::from_str(&described).expect("an input is JSON");
    let title = call.title.as_deref();
    let chunk = Chunk {
        kind: "tool-input-available",
        tool_call_id: Some(&call.id),
        tool_name: Some(&call.kind),
        input: Some(input),
        dynamic: Some(true),
        provider_executed: Some(true),
        title,
        ..Chunk::default()
    };
    write_json(out, &chunk);
}

/// A data part. A part with the same id replaces it.
fn part(out: &mut BytesMut, kind: &str, id: &str, value: &RawValue, transient: Option<bool>) {
    write_json(
        out,
        &Chunk {
            kind,
            id: Some(id),
            data: Some(value),
            transient,
            ..Chunk::default()
        },
    );
}

fn own_part(out: &mut BytesMut, kind: &str, id: &str, value: &impl Serialize) {
    part(out, kind, id, &to_raw(value), None);
}

fn metadata(out: &mut BytesMut, value: &RawValue) {
    write_json(
        out,
        &Chunk {
            kind: "message-metadata",
            message_metadata: Some(value),
            ..Chunk::default()
        },
    );
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestPart<'a> {
    request_id: &'a str,
    params: &'a RawValue,
}

/// The members of a diff.
struct DiffPart<'a>(&'a RawObject<'a>);

impl Serialize for DiffPart<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

/// An object with one member.
fn json_object(key: &str, value: &RawValue) -> Box<RawValue> {
    to_raw(&HashMap::from([(key, value)]))
}
