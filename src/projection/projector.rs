//! Events of a turn to steps.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::call::{CallStatus, Changes, ToolCall};
use super::halves;
use super::step::{Asked, Block, End, Request, Role, Step};
use crate::acp::{RawObject, method, parse_permission, stop_reason, update};
use crate::event::{EventRef, Payload};
use crate::types::{RequestId, Timestamp};

/// The tool calls of a turn that the projector follows. Later calls are not shown.
const MAX_CALLS: usize = 10_000;
/// The bytes of the agent's values that the running calls keep. A call that exceeds them loses its values.
const MAX_CALL_BYTES: usize = 16 << 20;
/// The message ids that the projector remembers.
const MAX_MESSAGES: usize = 10_000;
/// The child sessions whose blocks the projector follows. Later ones are not shown.
const MAX_SUBAGENTS: usize = 256;

/// The state of the projection of one turn.
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
    /// The newest call with each id of the agent. An agent may use an id again after its call has ended.
    places: HashMap<String, usize>,
    /// The ids of all calls, which are unique.
    names: HashSet<String>,
    requests: Vec<OpenRequest>,
}

/// Which event describes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Described {
    /// A `tool_call`: the call begins.
    Begun,
    /// A `tool_call_update`.
    Updated,
    /// A `tool_call_content_chunk` of ACP v2.
    Appended,
    /// A permission request, whose call is not permitted yet.
    Requested,
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
    asked: Asked,
    call: Option<usize>,
    /// The options of a permission request: their ids, and whether they permit the call.
    options: Vec<(String, bool)>,
}

/// The members of a chunk.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    session_update: Cow<'a, str>,
    #[serde(borrow, default)]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TextContent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
}

impl TurnProjector {
    /// Whether a permission request waits for an answer.
    pub fn waits_for_permission(&self) -> bool {
        self.requests
            .iter()
            .any(|open| open.asked == Asked::Permission)
    }

    pub fn is_waiting_for(&self, request: RequestId) -> bool {
        self.requests.iter().any(|open| open.id == request)
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
                    emit(Step::TerminalOutput { terminal, data });
                }
            }
            "prompt.completed" => {
                let stop_reason = payload
                    .stop_reason
                    .as_deref()
                    .unwrap_or(stop_reason::END_TURN);
                let cancelled = stop_reason == stop_reason::CANCELLED;
                self.finish(
                    if cancelled {
                        CallStatus::Cancelled
                    } else {
                        CallStatus::Unfinished
                    },
                    emit,
                );
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
                let (code, detail) = (text("code"), text("detail"));
                emit(Step::Ended(End::Failed {
                    code: code.as_deref().unwrap_or("internal"),
                    detail: detail.as_deref().unwrap_or("the turn failed"),
                }));
            }
            _ => {}
        }
    }

    fn update(&mut self, raw: &RawValue, subagent: Option<&str>, emit: &mut dyn FnMut(Step<'_>)) {
        let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(raw.get()) else {
            return;
        };
        let kind = &*chunk.session_update;
        if let Some(role) = role_of(kind) {
            return self.chunk(role, &chunk, subagent, emit);
        }
        match kind {
            update::AGENT_MESSAGE => self.whole_message(Role::Message, &chunk, subagent, emit),
            update::AGENT_THOUGHT => self.whole_message(Role::Thought, &chunk, subagent, emit),
            update::TOOL_CALL | update::TOOL_CALL_UPDATE | update::TOOL_CALL_CONTENT_CHUNK => {
                let described = match kind {
                    update::TOOL_CALL => Described::Begun,
                    update::TOOL_CALL_UPDATE => Described::Updated,
                    _ => Described::Appended,
                };
                if let Some(object) = RawObject::parse(raw) {
                    self.call(&object, subagent, described, emit);
                }
            }
            update::SUBAGENT => emit(Step::Subagent(raw)),
            _ if subagent.is_some() => {}
            update::PLAN => emit(Step::Plan(raw)),
            update::PLAN_UPDATE => {
                if let Some(plan) = RawObject::parse(raw).and_then(|update| update.get("plan")) {
                    emit(Step::Plan(plan));
                }
            }
            update::USAGE => emit(Step::Usage(raw)),
            update::CURRENT_MODE
            | update::CONFIG_OPTION
            | update::SESSION_INFO
            | update::AVAILABLE_COMMANDS => {
                emit(Step::State { kind, update: raw });
            }
            _ => {}
        }
    }

    fn chunk(
        &mut self,
        role: Role,
        chunk: &Chunk<'_>,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) {
        let Some(content) = chunk.content else { return };
        if let Some(text) = text_of(content) {
            self.text(role, chunk.message_id.as_deref(), text, subagent, emit);
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

    /// A whole message of ACP v2. Its text is shown if no chunk of the message was.
    fn whole_message(
        &mut self,
        role: Role,
        message: &Chunk<'_>,
        subagent: Option<&str>,
        emit: &mut dyn FnMut(Step<'_>),
    ) {
        let shown = message
            .message_id
            .as_deref()
            .is_some_and(|id| self.messages.contains(id));
        let blocks = message
            .content
            .and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        for content in blocks.into_iter().flatten().filter(|_| !shown) {
            let (session_update, message_id) = (Cow::Borrowed(""), message.message_id.clone());
            self.chunk(
                role,
                &Chunk {
                    session_update,
                    message_id,
                    content: Some(content),
                },
                subagent,
                emit,
            );
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
        object: &RawObject<'_>,
        subagent: Option<&str>,
        described: Described,
        emit: &mut dyn FnMut(Step<'_>),
    ) -> Option<usize> {
        let begins = matches!(described, Described::Begun | Described::Requested);
        let (at, is_new) = self.place(&object.text("toolCallId")?, subagent, begins)?;
        if is_new {
            self.end_block(subagent, emit);
        }
        let call = &mut self.calls[at];
        if call.has_ended() {
            return Some(at);
        }
        self.call_bytes -= call.size();
        let mut changes = match described {
            Described::Begun | Described::Updated => call.update(object),
            Described::Requested => call.ask(object),
            Described::Appended => {
                if let Some(item) = object.get("content") {
                    call.add(item);
                }
                Changes {
                    result: true,
                    ..Changes::default()
                }
            }
        };
        if self.call_bytes + call.size() > MAX_CALL_BYTES {
            call.release();
        }
        self.call_bytes += call.size();
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
        self.call_bytes -= call.size();
        call.release();
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
        let asked = match method {
            method::SESSION_REQUEST_PERMISSION => Asked::Permission,
            method::ELICITATION_CREATE => Asked::Elicitation,
            _ => Asked::Other,
        };
        let (mut call, mut options) = (None, Vec::new());
        if asked == Asked::Permission {
            if let Ok(view) = parse_permission(params) {
                let described = view.tool_call.and_then(RawObject::parse);
                call = described.and_then(|object| {
                    self.call(
                        &object,
                        payload.subagent.as_deref(),
                        Described::Requested,
                        emit,
                    )
                });
                let permits = |kind: &str| kind.starts_with("allow");
                options = view
                    .options
                    .iter()
                    .map(|option| (option.option_id.to_string(), permits(&option.kind)))
                    .collect();
            }
            if call.is_none()
                && let Some((at, _)) = self.place(&format!("request-{id}"), None, true)
            {
                let unnamed = &mut self.calls[at];
                let params = RawObject::parse(params);
                let member = |key| params.as_ref().and_then(|params| params.get(key));
                unnamed.title = member("title").map(ToOwned::to_owned);
                // A person who approves sees the input: in v2, the subject has the command.
                unnamed.update_input(member("subject"));
                self.call_bytes += unnamed.size();
                emit(Step::CallBegun(unnamed));
                call = Some(at);
            }
        }
        let shown = call.map(|at| &self.calls[at]);
        emit(Step::Requested(Request {
            id,
            asked,
            params,
            call: shown,
            deadline: payload.deadline,
        }));
        self.requests.push(OpenRequest {
            id,
            asked,
            call,
            options,
        });
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
            asked,
            call,
            options,
        } = self.requests.remove(at);
        let Some(resolution) = payload.resolution else {
            return;
        };
        let outcome = payload
            .result
            .and_then(RawObject::parse)
            .and_then(|result| result.object("outcome"));
        let option = outcome.and_then(|outcome| outcome.text("optionId"));
        let allowed = option
            .is_some_and(|chosen| options.iter().any(|(id, allows)| *id == *chosen && *allows));
        if let Some(at) = call
            && asked == Asked::Permission
        {
            self.calls[at].rejected = !allowed;
        }
        emit(Step::Resolved {
            id,
            asked,
            call: call.map(|at| &self.calls[at]),
            resolution,
            allowed,
        });
        // Agents do not report on a call that the gateway named.
        if let Some(at) = call
            && asked == Asked::Permission
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

    /// Ends what the agent left open at the end of the turn.
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

/// The text of a text block, as a string in JSON.
fn text_of(content: &RawValue) -> Option<&RawValue> {
    let block: TextContent<'_> = serde_json::from_str(content.get()).ok()?;
    block
        .text
        .filter(|text| block.kind == "text" && text.get().starts_with('"'))
}

#[cfg(test)]
mod tests;
