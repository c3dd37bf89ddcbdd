//! Events of a turn to steps.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use super::call::{CallStatus, ToolCall};
use super::step::{Block, End, Request, Role, Step};
use crate::transcript::{self, Budget, Description, Null, Plans, array, halves, raw_text};
use base::types::{RequestId, TerminalId, Timestamp};
use events::event::{EventRef, Payload};
use wire::acp::{RawObject, RequestKind, parse_permission, selected_option, stop_reason, update};

/// The tool calls of a turn that the projector follows. Later calls are not shown.
const MAX_CALLS: usize = 10_000;
/// The bytes of the agent's values that the running calls keep. A value that exceeds them is not shown.
const MAX_CALL_BYTES: usize = 16 << 20;
/// The message ids that the projector remembers.
const MAX_MESSAGES: usize = 10_000;
/// The child sessions whose blocks the projector follows. Later ones are not shown.
const MAX_SUBAGENTS: usize = 256;
/// The end of the output that is kept for each terminal.
const MAX_TERMINAL_BYTES: usize = 16 << 10;

#[derive(Debug, Default)]
pub struct TurnProjector {
    begun: bool,
    ended: bool,
    blocks: usize,
    /// The open block of the session (under an empty name) and of each child session.
    open: HashMap<String, OpenBlock>,
    /// The ids of the messages that have a block.
    messages: HashSet<String>,
    calls: Vec<ToolCall>,
    /// The bytes of the values of all calls.
    call_bytes: usize,
    null: Null,
    plans: Plans,
    /// The newest call with each id of the agent. An agent may use an id again after its call has ended.
    places: HashMap<String, usize>,
    /// The ids of all calls, which are unique.
    names: HashSet<String>,
    requests: Vec<OpenRequest>,
    terminals: HashMap<TerminalId, String>,
}

#[derive(Debug, Clone)]
struct OpenBlock {
    role: Role,
    number: usize,
    message: Option<String>,
    /// The first half of a character, whose other half may follow in the next text.
    half: Option<String>,
}

#[derive(Debug)]
struct OpenRequest {
    id: RequestId,
    kind: RequestKind,
    call: Option<usize>,
    /// The ids of the options that permit the call.
    allows: Vec<String>,
}

impl TurnProjector {
    /// Whether a permission request waits for an answer.
    pub fn waits_for_permission(&self) -> bool {
        self.requests
            .iter()
            .any(|open| open.kind == RequestKind::Permission)
    }

    /// The calls that run and have no open request.
    pub fn running_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let asks = |at: usize| self.requests.iter().any(|request| request.call == Some(at));
        self.calls
            .iter()
            .enumerate()
            .filter(move |(at, call)| !call.has_ended() && !asks(*at))
            .map(|(_, call)| call)
    }

    /// Projects the next event of the turn. Events of other turns, and those after the end, yield no step.
    pub fn event(&mut self, event: &EventRef<'_>, emit: &mut dyn FnMut(Step<'_>)) {
        if self.ended {
            return;
        }
        if !self.begun {
            self.begun = true;
            let at = event
                .head()
                .and_then(|head| head.time())
                .unwrap_or(Timestamp::from_millis(0));
            emit(Step::Begun { at });
        }
        if let Some(chunk) = event.text_chunk()
            && let Some(role) = role_of(&chunk.kind)
        {
            return self.text(role, chunk.message_id.as_deref(), chunk.text, None, emit);
        }
        let kind = event.kind();
        let Some(payload) = event.payload() else {
            return;
        };
        match kind {
            "session.update" if !payload.late => {
                if let Some(raw) = payload.update {
                    self.update(raw, payload.subagent.as_deref(), emit);
                }
            }
            "request.created" => self.requested(&payload, emit),
            "request.resolved" => self.resolved(&payload, emit),
            "terminal.output" => {
                if let (Some(terminal), Some(data)) = (payload.terminal_id, payload.data.as_deref())
                {
                    let output = self.terminals.entry(terminal).or_default();
                    output.push_str(data);
                    let excess = output.len().saturating_sub(MAX_TERMINAL_BYTES);
                    output.drain(..output.ceil_char_boundary(excess));
                    emit(Step::TerminalOutput { terminal, output });
                }
            }
            "prompt.completed" => {
                let stop_reason = payload
                    .stop_reason
                    .as_deref()
                    .unwrap_or(stop_reason::END_TURN);
                let unfinished = match stop_reason {
                    stop_reason::CANCELLED => CallStatus::Cancelled,
                    _ => CallStatus::Unfinished,
                };
                self.finish(unfinished, emit);
                emit(Step::Ended(End::Completed {
                    stop_reason,
                    cancel_cause: payload.cancel_cause,
                    usage: payload.usage,
                }));
            }
            "prompt.failed" => {
                self.finish(CallStatus::Unfinished, emit);
                let problem = payload.problem.and_then(RawObject::parse);
                let text = |key| problem.as_ref().and_then(|problem| problem.text(key));
                let code = text("code");
                let detail = text("detail");
                emit(Step::Ended(End::Failed {
                    code: code.as_deref().unwrap_or("internal"),
                    detail: detail.as_deref().unwrap_or("the turn failed"),
                }));
            }
            _ => {}
        }
    }

    fn update(&mut self, raw: &RawValue, subagent: Option<&str>, emit: &mut dyn FnMut(Step<'_>)) {
        let Some(object) = RawObject::parse(raw) else {
            return;
        };
        let Some(kind) = object.text("sessionUpdate") else {
            return;
        };
        if update::is_v2(&kind) {
            self.null = Null::Clears;
        }
        let message = object.text("messageId");
        let content = object.get("content").filter(|raw| raw.get() != "null");
        if let (Some(role), Some(content)) = (role_of(&kind), content) {
            return self.content(role, message.as_deref(), content, subagent, emit);
        }
        if let Some(description) = Description::of(&kind) {
            self.call(description, &object, subagent, emit);
            return;
        }
        match &*kind {
            update::AGENT_MESSAGE | update::AGENT_THOUGHT => {
                // The text of a whole message of ACP v2 is shown if no chunk of the message was.
                let shown = message
                    .as_deref()
                    .is_some_and(|id| self.messages.contains(id));
                let role = match &*kind {
                    update::AGENT_MESSAGE => Role::Message,
                    _ => Role::Thought,
                };
                if let Some(content) = content
                    && !shown
                {
                    for content in array(content) {
                        self.content(role, message.as_deref(), content, subagent, emit);
                    }
                }
            }
            update::SUBAGENT => emit(Step::Subagent(raw)),
            _ if subagent.is_some() => {}
            update::PLAN | update::PLAN_UPDATE | update::PLAN_REMOVED => {
                let before = self.plans.last().map(|plan| plan.get().to_owned());
                self.plans.update(&kind, raw);
                let plan = self.plans.last();
                if plan.map(RawValue::get) != before.as_deref() {
                    emit(Step::Plan(plan.unwrap_or(no_plan())));
                }
            }
            update::USAGE => emit(Step::Usage(raw)),
            update::CURRENT_MODE
            | update::CONFIG_OPTION
            | update::SESSION_INFO
            | update::AVAILABLE_COMMANDS => {
                emit(Step::State {
                    kind: &kind,
                    update: raw,
                });
            }
            _ => {}
        }
    }

    fn content(
        &mut self,
        role: Role,
        message: Option<&str>,
        content: &RawValue,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) {
        if let Some(text) = raw_text(content) {
            self.text(role, message, text, subagent, emit);
        } else {
            self.end_block(subagent, emit);
            if subagent.is_none() {
                emit(Step::Content { role, content });
            }
        }
    }

    fn text(
        &mut self,
        role: Role,
        message: Option<&str>,
        text: &RawValue,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) {
        if text.get() == "\"\"" {
            return;
        }
        let Some(number) = self.block(role, message, subagent, emit) else {
            return;
        };
        let key = subagent.unwrap_or_default();
        let open = self.open.get_mut(key).expect("the block is open");
        let whole = halves::join(&mut open.half, text);
        if whole.get() != "\"\"" {
            let block = Block {
                role,
                number,
                subagent,
            };
            emit(Step::Text(block, &whole));
        }
    }

    /// The number of the open block for this role and message. Ends another open block, and begins a new one.
    fn block(
        &mut self,
        role: Role,
        message: Option<&str>,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) -> Option<usize> {
        let key = subagent.unwrap_or_default();
        if let Some(open) = self.open.get(key) {
            let continues = message.is_none() || open.message.as_deref() == message;
            if open.role == role && continues {
                return Some(open.number);
            }
        } else if self.open.len() > MAX_SUBAGENTS {
            return None;
        }
        self.end_block(subagent, emit);
        self.blocks += 1;
        let number = self.blocks;
        if let Some(message) = message
            && self.messages.len() < MAX_MESSAGES
        {
            self.messages.insert(message.to_owned());
        }
        self.open.insert(
            key.to_owned(),
            OpenBlock {
                role,
                number,
                message: message.map(Into::into),
                half: None,
            },
        );
        emit(Step::BlockBegun(Block {
            role,
            number,
            subagent,
        }));
        Some(number)
    }

    fn end_block(&mut self, subagent: Option<&str>, emit: &mut dyn FnMut(Step<'_>)) {
        if let Some(open) = self.open.remove(subagent.unwrap_or_default()) {
            open.end(subagent, emit);
        }
    }

    fn end_blocks(&mut self, emit: &mut dyn FnMut(Step<'_>)) {
        let mut open: Vec<(String, OpenBlock)> = self.open.drain().collect();
        open.sort_by_key(|(_, block)| block.number);
        for (subagent, open) in open {
            let subagent = Some(subagent.as_str()).filter(|name| !name.is_empty());
            open.end(subagent, emit);
        }
    }

    /// The place of the call with this id, and whether the call is new. `begins`: an ended call with this id is another one.
    fn place(&mut self, id: &str, subagent: Option<&str>, begins: bool) -> Option<(usize, bool)> {
        let id = match subagent {
            Some(child) => format!("{child}:{id}"),
            None => id.to_owned(),
        };
        if let Some(at) = self.places.get(&id)
            && !(begins && self.calls[*at].has_ended())
        {
            return Some((*at, false));
        }
        let at = self.calls.len();
        if at >= MAX_CALLS {
            return None;
        }
        let mut name = id.clone();
        while !self.names.insert(name.clone()) {
            name = format!("{name}~{at}");
        }
        self.places.insert(id, at);
        self.calls.push(ToolCall::new(name));
        Some((at, true))
    }

    /// Merges the description of a call. An update after the end of its call is not shown.
    fn call(
        &mut self,
        description: Description,
        object: &RawObject<'_>,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) -> Option<usize> {
        let id = object.text("toolCallId")?;
        let (at, is_new) = self.place(&id, subagent, description.begins())?;
        if is_new {
            self.end_block(subagent, emit);
        }
        let call = &mut self.calls[at];
        if call.has_ended() {
            return Some(at);
        }
        let mut changes = call.changes(object, self.null);
        let mut budget = Budget::new(MAX_CALL_BYTES - self.call_bytes);
        call.values
            .describe(description, object, self.null, &mut budget);
        let call_bytes = MAX_CALL_BYTES - budget.left;
        call.bytes = call.bytes + call_bytes - self.call_bytes;
        self.call_bytes = call_bytes;
        call.status = call.reported_status();
        if is_new {
            emit(Step::CallBegun(call));
            changes.description = false;
        }
        if changes.description {
            emit(Step::CallDescribed(call));
        }
        if call.has_ended() {
            self.end_call(at, emit);
        } else if changes.result {
            emit(Step::CallProgressed(call));
        }
        Some(at)
    }

    fn end_call(&mut self, at: usize, emit: &mut dyn FnMut(Step<'_>)) {
        let call = &mut self.calls[at];
        emit(Step::CallEnded(call));
        self.call_bytes -= std::mem::take(&mut call.bytes);
        call.values = transcript::ToolCall::default();
    }

    fn requested(&mut self, payload: &Payload<'_>, emit: &mut dyn FnMut(Step<'_>)) {
        let (Some(id), Some(params), Some(method)) = (
            payload.request_id,
            payload.params,
            payload.method.as_deref(),
        ) else {
            return;
        };
        // Only one ACP client can answer. The others are not asked.
        if payload.acp_client.is_some() {
            return;
        }
        self.end_blocks(emit);
        let kind = RequestKind::from_method(method);
        let mut call = None;
        let mut allows = Vec::new();
        if kind == RequestKind::Permission {
            if let Ok(view) = parse_permission(params) {
                let described = view.tool_call.and_then(RawObject::parse);
                call = described.and_then(|object| {
                    let subagent = payload.subagent.as_deref();
                    self.call(Description::Requested, &object, subagent, emit)
                });
                let options = view.options.iter();
                allows = options
                    .filter(|option| option.kind.starts_with("allow"))
                    .map(|option| option.option_id.to_string())
                    .collect();
            }
            if call.is_none() {
                call = self.unnamed_call(id, params, emit);
            }
        }
        emit(Step::Requested(Request {
            id,
            kind,
            params,
            call: call.map(|at| &self.calls[at]),
            deadline: payload.deadline,
        }));
        self.requests.push(OpenRequest {
            id,
            kind,
            call,
            allows,
        });
    }

    /// The call of a request that names no call. The call contains the input, so that a person can see what the request
    /// permits: in v2, the command is in the subject.
    fn unnamed_call(
        &mut self,
        id: RequestId,
        params: &RawValue,
        emit: &mut dyn FnMut(Step<'_>),
    ) -> Option<usize> {
        let (at, _) = self.place(&format!("request-{id}"), None, true)?;
        let params = RawObject::parse(params);
        let call = &mut self.calls[at];
        let mut budget = Budget::new(MAX_CALL_BYTES - self.call_bytes);
        for (key, member) in [("title", "title"), ("rawInput", "subject")] {
            let value = params.as_ref().and_then(|params| params.get(member));
            if let Some(value) = value.filter(|value| value.get() != "null") {
                call.values.set(key, value, &mut budget);
            }
        }
        call.bytes = MAX_CALL_BYTES - budget.left - self.call_bytes;
        self.call_bytes += call.bytes;
        emit(Step::CallBegun(call));
        Some(at)
    }

    fn resolved(&mut self, payload: &Payload<'_>, emit: &mut dyn FnMut(Step<'_>)) {
        let Some(at) = self
            .requests
            .iter()
            .position(|open| Some(open.id) == payload.request_id)
        else {
            return;
        };
        let OpenRequest {
            id,
            kind,
            call,
            allows,
        } = self.requests.remove(at);
        let Some(resolution) = payload.resolution else {
            return;
        };
        let chosen = payload.result.and_then(selected_option);
        let allowed = chosen.is_some_and(|chosen| allows.iter().any(|id| *id == *chosen));
        if let Some(at) = call {
            self.calls[at].rejected = !allowed;
        }
        emit(Step::Resolved {
            id,
            kind,
            resolution,
            allowed,
        });
        // Agents do not report on a call that the gateway named.
        if let Some(at) = call
            && self.calls[at].id == format!("request-{id}")
        {
            self.calls[at].status = if allowed {
                CallStatus::Completed
            } else {
                CallStatus::Failed
            };
            self.end_call(at, emit);
        }
    }

    fn finish(&mut self, unfinished: CallStatus, emit: &mut dyn FnMut(Step<'_>)) {
        self.ended = true;
        self.requests.clear();
        self.end_blocks(emit);
        for at in 0..self.calls.len() {
            if !self.calls[at].has_ended() {
                self.calls[at].status = unfinished;
                self.end_call(at, emit);
            }
        }
    }
}

impl OpenBlock {
    /// Ends the block. The other half of a character did not follow.
    fn end(self, subagent: Option<&str>, emit: &mut dyn FnMut(Step<'_>)) {
        let block = Block {
            role: self.role,
            number: self.number,
            subagent,
        };
        if let Some(half) = self.half {
            emit(Step::Text(block, &halves::string(&half)));
        }
        emit(Step::BlockEnded(block));
    }
}

fn role_of(update: &str) -> Option<Role> {
    match update {
        update::AGENT_MESSAGE_CHUNK => Some(Role::Message),
        update::AGENT_THOUGHT_CHUNK => Some(Role::Thought),
        _ => None,
    }
}

/// In place of a plan that the agent has removed.
fn no_plan() -> &'static RawValue {
    serde_json::from_str(r#"{"entries":[]}"#).expect("it is JSON")
}

#[cfg(test)]
mod tests;
