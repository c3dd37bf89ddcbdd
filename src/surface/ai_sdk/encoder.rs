//! The steps of a turn as the chunks of one message.

use bytes::BytesMut;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::surface::chat::{ChatTurn, QuestionId, TurnWriter, done, frame, object};
use base::types::{PromptId, SessionId};
use events::api::CancelCause;
use sessions::conversation::Notice;
use sessions::projection::{Block, CallStatus, End, Request, Role, Step, ToolCall, TurnProjector};
use wire::acp::{RawObject, RequestKind, stop_reason, to_raw, update};

/// How a client learns about permission requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Approvals {
    /// As approvals of the AI SDK, from version 6 on. The response ends, and the next request has the answer.
    #[default]
    Parts,
    /// As data parts. The application answers with a request to the API.
    Data,
}

#[derive(Debug)]
pub(super) struct UiMessageWriter {
    session: SessionId,
    prompt: PromptId,
    notices: Vec<Notice>,
    approvals: Approvals,
    in_step: bool,
    /// The step has an approval. What follows the answer is in a new step.
    step_has_approval: bool,
    complete: bool,
}

impl TurnWriter for UiMessageWriter {
    fn step(&mut self, out: &mut BytesMut, step: &Step<'_>) {
        match step {
            Step::Begun { .. } => self.start(out),
            Step::BlockBegun(block) => {
                self.enter_step(out);
                block_frame(out, block, "text-start", "reasoning-start", None);
            }
            Step::Text(block, text) => {
                block_frame(out, block, "text-delta", "reasoning-delta", Some(text));
            }
            Step::BlockEnded(block) => block_frame(out, block, "text-end", "reasoning-end", None),
            Step::Content { content, .. } => self.content(out, content),
            Step::CallBegun(call) => {
                self.enter_step(out);
                frame!(
                    out, "tool-input-start", "toolCallId": &*call.id, "toolName": &*call.kind(),
                    "dynamic": true, "providerExecuted": true, "title": call.title(),
                );
                input(out, call);
            }
            // In a later step, this would be another part.
            Step::CallDescribed(call) => {
                if self.in_step && !self.step_has_approval {
                    input(out, call);
                }
            }
            Step::CallProgressed(call) => output(out, call, Some(true)),
            Step::CallEnded(call) => end_call(out, call),
            Step::Plan(plan) => part(out, "data-plan", "plan", plan),
            Step::Usage(usage) => metadata(out, &object!("contextUsage": *usage)),
            Step::State { kind, update } => {
                let name = match *kind {
                    update::CURRENT_MODE => "data-mode",
                    update::CONFIG_OPTION => "data-options",
                    update::SESSION_INFO => "data-title",
                    _ => "data-commands",
                };
                frame!(out, name, "id": name, "data": *update, "transient": true);
            }
            Step::Subagent(subagent) => {
                let id = RawObject::parse(subagent).and_then(|update| update.text("sessionId"));
                let id = id.as_deref().unwrap_or("subagent");
                part(out, "data-subagent", id, subagent);
            }
            Step::TerminalOutput { terminal, output } => {
                let value = json!({ "terminalId": terminal, "output": output });
                own_part(out, "data-terminal", &terminal.to_string(), &value);
            }
            Step::Requested(request) => self.requested(out, request),
            Step::Resolved {
                id,
                kind,
                resolution,
                allowed,
            } => {
                let is_elicitation = *kind == RequestKind::Elicitation;
                if is_elicitation || self.approvals == Approvals::Data {
                    let name = if is_elicitation {
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
                output(out, call, None);
            }
            self.finish(out, "tool-calls");
        }
    }

    fn interrupted(&mut self, out: &mut BytesMut, _: &str, message: &str) {
        self.fail(out, message);
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl UiMessageWriter {
    pub(super) fn new(turn: &ChatTurn, approvals: Approvals) -> Self {
        Self {
            session: turn.session.id(),
            prompt: turn.prompt,
            notices: turn.notices.clone(),
            approvals,
            in_step: false,
            step_has_approval: false,
            complete: false,
        }
    }

    /// The first frame. In a later response, it names the same message.
    fn start(&mut self, out: &mut BytesMut) {
        let session = self.session;
        let prompt = self.prompt;
        let id = format!("{session}_{prompt}");
        let meta = to_raw(&json!({ "sessionId": session, "promptId": prompt }));
        frame!(out, "start", "messageId": &*id, "messageMetadata": &*meta);
        for notice in &self.notices {
            let code = notice.into_str();
            let value = json!({ "code": code, "text": notice.text() });
            own_part(out, "data-notice", code, &value);
        }
        self.in_step = false;
        self.step_has_approval = false;
    }

    fn enter_step(&mut self, out: &mut BytesMut) {
        if self.in_step && self.step_has_approval {
            frame!(out, "finish-step");
            self.in_step = false;
        }
        if !self.in_step {
            frame!(out, "start-step");
            self.in_step = true;
            self.step_has_approval = false;
        }
    }

    fn finish(&mut self, out: &mut BytesMut, reason: &str) {
        if self.in_step {
            frame!(out, "finish-step");
        }
        frame!(out, "finish", "finishReason": reason);
        self.done(out);
    }

    fn done(&mut self, out: &mut BytesMut) {
        done(out);
        self.complete = true;
    }

    /// An image or audio as a file, and a link as a source.
    fn content(&mut self, out: &mut BytesMut, content: &RawValue) {
        let Some(block) = RawObject::parse(content) else {
            return;
        };
        match block.text("type").as_deref() {
            Some("image" | "audio") => {
                let (Some(media_type), Some(base64)) = (block.text("mimeType"), block.text("data"))
                else {
                    return;
                };
                self.enter_step(out);
                let url = format!("data:{media_type};base64,{base64}");
                frame!(out, "file", "url": &*url, "mediaType": &*media_type);
            }
            Some("resource_link") => {
                let Some(uri) = block.text("uri") else { return };
                self.enter_step(out);
                let title = block.get("title").or_else(|| block.get("name"));
                let title = title.filter(|raw| raw.get() != "null");
                frame!(out, "source-url", "title": title, "url": &*uri, "sourceId": &*uri);
            }
            _ => {}
        }
    }

    fn requested(&mut self, out: &mut BytesMut, request: &Request<'_>) {
        let name = match (request.kind, request.call) {
            (RequestKind::Permission, Some(call)) if self.approvals == Approvals::Parts => {
                return self.approval(out, request, call);
            }
            (RequestKind::Permission, _) => "data-permission",
            (RequestKind::Elicitation, _) => "data-elicitation",
            _ => return,
        };
        let id = request.id.to_string();
        let value = object!("requestId": &*id, "params": request.params);
        part(out, name, &id, &value);
    }

    fn approval(&mut self, out: &mut BytesMut, request: &Request<'_>, call: &ToolCall) {
        let options = RawObject::parse(request.params).and_then(|params| params.get("options"));
        let deadline = request.deadline.map(|at| at.to_string());
        if !self.in_step {
            self.enter_step(out);
        }
        let question = QuestionId {
            session: self.session,
            prompt: self.prompt,
            request: request.id,
        };
        // The person approves this input, also if the call was described otherwise before. In a later step, the part
        // is another one.
        input(out, call);
        let descriptor = object!("options": options, "deadline": deadline.as_deref());
        frame!(
            out, "tool-approval-request", "approvalId": &*question.to_string(),
            "toolCallId": &*call.id, "approvalDescriptor": &*descriptor,
        );
        self.step_has_approval = true;
    }

    fn end(&mut self, out: &mut BytesMut, end: &End<'_>) {
        match end {
            End::Completed {
                stop_reason,
                cancel_cause,
                usage,
            } => {
                if let Some(usage) = usage {
                    metadata(out, &object!("usage": *usage));
                }
                match *stop_reason {
                    stop_reason::CANCELLED => {
                        let cause = cancel_cause.map_or("cancelled", CancelCause::words);
                        frame!(out, "abort", "reason": cause);
                        self.done(out);
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
        frame!(out, "error", "errorText": text);
        self.done(out);
    }
}

fn block_frame(
    out: &mut BytesMut,
    block: &Block<'_>,
    message: &str,
    thought: &str,
    delta: Option<&RawValue>,
) {
    let kind = match block.role {
        Role::Message => message,
        Role::Thought => thought,
    };
    let id = match block.subagent {
        Some(child) => format!("{child}:{}", block.number),
        None => block.number.to_string(),
    };
    frame!(out, kind, "id": &*id, "delta": delta);
}

fn end_call(out: &mut BytesMut, call: &ToolCall) {
    if call.status == CallStatus::Completed {
        output(out, call, None);
        for (diff, item) in call.diffs() {
            let id = format!("{}:{}", call.id, diff.path());
            part(out, "data-diff", &id, item);
        }
        return;
    }
    frame!(
        out, "tool-output-error", "toolCallId": &*call.id, "errorText": &*call.result_text(),
        "dynamic": true, "providerExecuted": true,
    );
}

/// The output of a call so far, or its result: the content of ACP and its status.
fn output(out: &mut BytesMut, call: &ToolCall, preliminary: Option<bool>) {
    let content = call.content();
    let content = (!content.is_empty()).then(|| to_raw(&content));
    let output = object!(
        "status": call.status.into_str(), "content": content.as_deref(), "rawOutput": call.output(),
        "locations": call.locations(),
    );
    frame!(
        out, "tool-output-available", "toolCallId": &*call.id, "output": &*output,
        "dynamic": true, "providerExecuted": true, "preliminary": preliminary,
    );
}

fn input(out: &mut BytesMut, call: &ToolCall) {
    let described = call.input_text();
    let input: &RawValue = serde_json::from_str(&described).expect("an input is JSON");
    frame!(
        out, "tool-input-available", "toolCallId": &*call.id, "toolName": &*call.kind(),
        "input": input, "dynamic": true, "providerExecuted": true, "title": call.title(),
    );
}

/// A data part. A part with the same id replaces it.
fn part(out: &mut BytesMut, kind: &str, id: &str, value: &RawValue) {
    frame!(out, kind, "id": id, "data": value);
}

fn own_part(out: &mut BytesMut, kind: &str, id: &str, value: &impl Serialize) {
    part(out, kind, id, &to_raw(value));
}

fn metadata(out: &mut BytesMut, value: &RawValue) {
    frame!(out, "message-metadata", "messageMetadata": value);
}
