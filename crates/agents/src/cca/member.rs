//! A member and its channels. Each channel looks like a process that speaks ACP, made of tasks of the member.

use std::collections::{HashMap, VecDeque};

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use super::message::{
    self, FromMember, Heartbeat, Response, Status, TaskResult, ToMember, request,
};
use base::types::{AgentName, QueuedLine, random_uuid};
use wire::acp::error_code;
use wire::fleet::{
    ChannelId, Command, CommandReceiver, GatewayFrame, HeldChannel, Hello, MemberFrame, MemberInfo,
    OutputBuffer, PROTOCOL, ProcessEnd, ProtocolError, WINDOW,
};
use wire::jsonrpc::{self, MAX_DEPTH, Message};

const MAX_QUEUED: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum CcaError {
    #[error("a message is not valid JSON of its type: {0}")]
    Message(#[from] serde_json::Error),
    #[error(transparent)]
    Fleet(#[from] ProtocolError),
}

#[derive(Debug, Default)]
pub struct Output {
    pub for_fleet: Vec<(MemberFrame, Bytes)>,
    pub messages: Vec<String>,
}

#[derive(Debug)]
pub struct CcaMember {
    name: AgentName,
    instance: Uuid,
    channels: HashMap<ChannelId, LocalChannel>,
    next_request: u64,
    /// The number of the request for the tasks of the member, after a reconnect.
    status_request: Option<u64>,
    /// Messages of clients that belong to no process.
    pub(super) queued: VecDeque<QueuedLine>,
}

#[derive(Debug)]
struct LocalChannel {
    process: Process,
    buffer: OutputBuffer,
    commands: CommandReceiver,
}

/// The answer of a member to `get_status`. Without `tasks`, the member is assumed to have all of them.
#[derive(Deserialize)]
struct MemberStatus {
    tasks: Option<Vec<String>>,
}

impl CcaMember {
    pub fn new(name: AgentName) -> Self {
        Self {
            name,
            instance: random_uuid(),
            channels: HashMap::new(),
            next_request: 1,
            status_request: None,
            queued: VecDeque::new(),
        }
    }

    pub(super) fn queue(&mut self, message: QueuedLine) -> bool {
        let has_room = self.queued.len() < MAX_QUEUED;
        if has_room {
            self.queued.push_back(message);
        }
        has_room
    }

    pub fn next_queued(&mut self) -> Option<QueuedLine> {
        self.queued.pop_front()
    }

    /// Begins a connection. Returns the frame for the fleet, and the first messages for the member.
    pub fn connect(&mut self, info: MemberInfo) -> (Hello, Vec<String>) {
        for channel in self.channels.values_mut() {
            channel.buffer.pause();
        }
        let held = self.channels.iter().map(|(channel, local)| HeldChannel {
            channel: *channel,
            received: local.commands.last(),
        });
        let channels = held.collect();
        let hello = Hello {
            protocol: PROTOCOL,
            name: self.name.clone(),
            instance: self.instance,
            info,
            channels,
            attempt: 0,
            error: None,
        };
        self.status_request = None;
        let mut messages = Vec::new();
        let mut processes = self.channels.values().map(|local| &local.process);
        if processes.any(|process| process.tasks().next().is_some()) {
            let params = serde_json::from_str("{}").expect("it is JSON");
            messages.extend(message::request("get_status", self.next_request, params));
            self.status_request = Some(self.next_request);
            self.next_request += 1;
        }
        (hello, messages)
    }

    /// Whether messages of the member may be read. False while unacknowledged output fills a window.
    pub fn has_room(&self) -> bool {
        self.channels.values().all(|local| local.buffer.has_room())
    }

    pub fn frame(&mut self, frame: GatewayFrame, payload: &[u8]) -> Result<Output, CcaError> {
        let mut output = Output::default();
        match frame {
            GatewayFrame::Welcome { .. } | GatewayFrame::Pong { .. } => {}
            GatewayFrame::Ping { at } => {
                let heartbeat = ToMember::Heartbeat {
                    id: Some(at),
                    reply_to: None,
                };
                output.messages.push(heartbeat.text());
            }
            GatewayFrame::Resume { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.resume(offset)?;
                }
            }
            GatewayFrame::Durable { channel, offset } => {
                if let Some(local) = self.channels.get_mut(&channel) {
                    local.buffer.durable(offset)?;
                }
            }
            GatewayFrame::Forget { channel } => {
                if let Some(mut local) = self.channels.remove(&channel) {
                    local.process.cancel_all();
                    output.messages.extend(local.process.take_messages());
                }
            }
            GatewayFrame::Command {
                channel,
                number,
                command,
            } => {
                self.command(channel, number, &command, payload)?;
                let received = MemberFrame::Received { channel, number };
                output.for_fleet.push((received, Bytes::new()));
            }
        }
        self.collect(&mut output);
        Ok(output)
    }

    fn command(
        &mut self,
        channel: ChannelId,
        number: u64,
        command: &Command,
        line: &[u8],
    ) -> Result<(), ProtocolError> {
        if *command == Command::Open {
            let opened = || LocalChannel {
                process: Process::default(),
                buffer: OutputBuffer::new(WINDOW),
                commands: CommandReceiver::default(),
            };
            self.channels.entry(channel).or_insert_with(opened);
        }
        let Some(local) = self.channels.get_mut(&channel) else {
            return Ok(());
        };
        if !local.commands.receive(number, command)? {
            return Ok(());
        }
        match command {
            Command::Open => {}
            Command::Line { .. } => local.process.line(line, &mut self.next_request),
            Command::Close => {
                local.process.cancel_all();
                local.buffer.push(local.process.take_lines());
                local.buffer.ended(ProcessEnd {
                    exit_code: Some(0),
                    ..ProcessEnd::default()
                });
            }
        }
        Ok(())
    }

    /// Handles a message of the member. A task, a request or a type that is unknown has no effect.
    pub fn message(&mut self, text: &str) -> Result<Output, CcaError> {
        let mut output = Output::default();
        let mut processes = self.channels.values_mut().map(|local| &mut local.process);
        match message::parse(text)? {
            FromMember::Heartbeat(Heartbeat { id, reply_to }) => {
                if let Some(at) = reply_to {
                    let pong = MemberFrame::Pong { at };
                    output.for_fleet.push((pong, Bytes::new()));
                }
                if let Some(id) = id {
                    let heartbeat = ToMember::Heartbeat {
                        id: None,
                        reply_to: Some(&id),
                    };
                    output.messages.push(heartbeat.text());
                }
            }
            FromMember::Progress(progress) => {
                if !processes.any(|process| process.progress(&progress.task_id, &progress.output)) {
                    tracing::debug!(member = %self.name, "a member sent output of an unknown task");
                }
            }
            FromMember::Result(result) => {
                if !processes.any(|process| process.finished(&result)) {
                    tracing::debug!(member = %self.name, "a member sent the result of an unknown task");
                }
            }
            FromMember::Response(response) if self.status_request == Some(response.reply_to) => {
                self.status_request = None;
                let status = response
                    .result
                    .map(|result| serde_json::from_str::<MemberStatus>(result.get()));
                if let Some(MemberStatus { tasks: Some(tasks) }) = status.transpose()? {
                    let is_lost = |id: &str| !tasks.iter().any(|task| task == id);
                    for process in processes {
                        process.lose_tasks(is_lost);
                    }
                }
            }
            FromMember::Response(response) => {
                if !processes.any(|process| process.answered(&response)) {
                    tracing::debug!(member = %self.name, "a member answered an unknown request");
                }
            }
            FromMember::GetStatus(request) => {
                let tasks = processes
                    .flat_map(|process| process.tasks().map(str::to_owned).collect::<Vec<_>>());
                let status = Status {
                    name: self.name.to_string(),
                    tasks: tasks.collect(),
                };
                let response = ToMember::Response {
                    reply_to: &request.id,
                    result: &status,
                };
                output.messages.push(response.text());
            }
            FromMember::Ignored(kind) => {
                tracing::debug!(member = %self.name, kind, "a message of a member has no effect");
            }
        }
        self.collect(&mut output);
        Ok(output)
    }

    fn collect(&mut self, output: &mut Output) {
        for (channel, local) in &mut self.channels {
            let channel = *channel;
            output.messages.extend(local.process.take_messages());
            local.buffer.push(local.process.take_lines());
            while let Some(frame) = local.buffer.next_frame(channel) {
                output.for_fleet.push(frame);
            }
        }
    }
}

/// The number of sessions of one process. Beyond it, `session/new` fails.
const MAX_SESSIONS: usize = 256;
/// The number of open requests of one process. Beyond it, a further request fails.
const MAX_REQUESTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Process {
    sessions: HashMap<String, String>,
    tasks: HashMap<String, Task>,
    /// The requests of clients, by their number at the member.
    requests: HashMap<u64, Box<RawValue>>,
    lines: BytesMut,
    messages: Vec<String>,
}

#[derive(Debug)]
struct Task {
    call: Box<RawValue>,
    session: String,
    is_cancelled: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionParams {
    session_id: String,
    #[serde(default)]
    prompt: Vec<Block>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenParams {
    cwd: String,
    session_id: Option<String>,
}

/// A content block of a prompt. Only its text is read.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    uri: Option<String>,
}

impl Process {
    /// Handles a line of the gateway. `next_request` numbers the requests to the member.
    pub(super) fn line(&mut self, line: &[u8], next_request: &mut u64) {
        match jsonrpc::parse(line, MAX_DEPTH) {
            Ok(Message::Request { id, method, params }) => {
                self.request(&id, &method, &params, next_request);
            }
            Ok(Message::Notification { method, params }) if &*method == "session/cancel" => {
                self.cancel(&params);
            }
            // The process sends no requests, and other notifications have no effect.
            Ok(Message::Notification { .. } | Message::Response { .. }) | Err(_) => {}
        }
    }

    fn request(&mut self, id: &RawValue, method: &str, params: &RawValue, next_request: &mut u64) {
        match method {
            "initialize" => self.result(
                id,
                &json!({
                    "protocolVersion": 1,
                    "agentCapabilities": { "loadSession": false, "sessionCapabilities": { "resume": {} } },
                    "authMethods": [],
                }),
            ),
            "session/new" | "session/resume" => self.open_session(id, params),
            "session/prompt" => self.prompt(id, params),
            _ => self.forward(id, method, params, next_request),
        }
    }

    /// A session keeps its id on another process: the member has its conversation.
    fn open_session(&mut self, id: &RawValue, params: &RawValue) {
        let Ok(OpenParams { cwd, session_id }) = serde_json::from_str(params.get()) else {
            return self.error(id, error_code::INVALID_PARAMS, "the session needs cwd");
        };
        if self.sessions.len() >= MAX_SESSIONS {
            return self.error(
                id,
                error_code::INTERNAL,
                "the process has too many sessions",
            );
        }
        let session = session_id.unwrap_or_else(|| random_uuid().to_string());
        self.result(id, &json!({ "sessionId": session }));
        self.sessions.insert(session, cwd);
    }

    fn prompt(&mut self, id: &RawValue, params: &RawValue) {
        let params = serde_json::from_str::<SessionParams>(params.get()).ok();
        let known = params.and_then(|params| {
            let cwd = self.sessions.get(&params.session_id)?;
            Some((description(&params.prompt), cwd.clone(), params.session_id))
        });
        let Some((description, cwd, session)) = known else {
            return self.error(id, error_code::INVALID_PARAMS, "unknown session");
        };
        let task_id = random_uuid().to_string();
        let assign = ToMember::TaskAssign {
            task_id: &task_id,
            session_id: &session,
            cwd: &cwd,
            description: &description,
        };
        self.messages.push(assign.text());
        let task = Task {
            call: id.to_owned(),
            session,
            is_cancelled: false,
        };
        self.tasks.insert(task_id, task);
    }

    fn cancel(&mut self, params: &RawValue) {
        let Ok(SessionParams { session_id, .. }) = serde_json::from_str(params.get()) else {
            return;
        };
        let of_session = self
            .tasks
            .iter_mut()
            .filter(|(_, task)| task.session == session_id);
        for (id, task) in of_session.filter(|(_, task)| !task.is_cancelled) {
            task.is_cancelled = true;
            self.messages
                .push(ToMember::TaskCancel { task_id: id }.text());
        }
    }

    fn forward(&mut self, id: &RawValue, method: &str, params: &RawValue, next_request: &mut u64) {
        let message = if method.contains('/') {
            None
        } else {
            request(method, *next_request, params)
        };
        let Some(message) = message else {
            return self.error(
                id,
                error_code::METHOD_NOT_FOUND,
                "the member does not have this method",
            );
        };
        if self.requests.len() >= MAX_REQUESTS {
            return self.error(
                id,
                error_code::INTERNAL,
                "too many requests wait for the member",
            );
        }
        self.requests.insert(*next_request, id.to_owned());
        *next_request += 1;
        self.messages.push(message);
    }

    pub(super) fn progress(&mut self, task: &str, output: &str) -> bool {
        let Some(Task { session, .. }) = self.tasks.get(task) else {
            return false;
        };
        let session = session.clone();
        self.chunk(&session, output);
        true
    }

    pub(super) fn finished(&mut self, result: &TaskResult) -> bool {
        let Some(task) = self.tasks.remove(&result.task_id) else {
            return false;
        };
        if let Some(output) = result.output.as_deref().filter(|output| !output.is_empty()) {
            self.chunk(&task.session, output);
        }
        if task.is_cancelled {
            self.result(&task.call, &json!({ "stopReason": "cancelled" }));
        } else if result.success {
            let mut response = json!({ "stopReason": "end_turn" });
            if let Some(used) = result.tokens_used {
                let total = used.input.saturating_add(used.output);
                response["usage"] = json!({ "inputTokens": used.input, "outputTokens": used.output, "totalTokens": total });
            }
            self.result(&task.call, &response);
        } else {
            let text = result
                .error
                .as_deref()
                .unwrap_or("the member reports that the task failed");
            self.error(&task.call, error_code::INTERNAL, text);
        }
        true
    }

    pub(super) fn answered(&mut self, response: &Response) -> bool {
        let Some(id) = self.requests.remove(&response.reply_to) else {
            return false;
        };
        match (&response.error, &response.result) {
            (Some(error), _) => self.error(&id, error_code::INTERNAL, error),
            (None, Some(result)) => {
                // The parts of a message are one line.
                let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                self.result(&id, &result);
            }
            (None, None) => self.result(&id, &Value::Null),
        }
        true
    }

    pub(super) fn lose_tasks(&mut self, is_lost: impl Fn(&str) -> bool) {
        let lost: Vec<_> = self.tasks.extract_if(|id, _| is_lost(id)).collect();
        for (_, task) in lost {
            self.error(
                &task.call,
                error_code::INTERNAL,
                "the member no longer has the task",
            );
        }
    }

    /// Asks the member to cancel all tasks, because the process ends.
    pub(super) fn cancel_all(&mut self) {
        for id in self.tasks.drain().map(|(id, _)| id) {
            self.messages
                .push(ToMember::TaskCancel { task_id: &id }.text());
        }
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &str> {
        self.tasks.keys().map(String::as_str)
    }

    pub(super) fn take_lines(&mut self) -> Bytes {
        self.lines.split().freeze()
    }

    pub(super) fn take_messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    fn chunk(&mut self, session: &str, text: &str) {
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } });
        let params = raw(&json!({ "sessionId": session, "update": update }));
        self.lines
            .extend_from_slice(&jsonrpc::notification("session/update", &params));
    }

    fn result(&mut self, id: &RawValue, result: &Value) {
        self.lines
            .extend_from_slice(&jsonrpc::result(id, &raw(result)));
    }

    fn error(&mut self, id: &RawValue, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        self.lines.extend_from_slice(&jsonrpc::error(id, &error));
    }
}

/// The text of a prompt. Resources are named by their URI.
fn description(blocks: &[Block]) -> String {
    let parts = blocks.iter().filter_map(|block| match &*block.kind {
        "text" => block.text.clone(),
        "resource_link" => block.uri.clone(),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("\n")
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a value serializes")
}
