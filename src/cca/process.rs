//! One channel: a process that speaks ACP, made of tasks of the member.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::message::{Response, TaskResult, ToMember, request};
use crate::jsonrpc::{self, Message};
use crate::types::random_uuid;

/// The number of sessions of one process. Beyond it, `session/new` fails.
const MAX_SESSIONS: usize = 256;
/// The number of open requests of one process. Beyond it, a further request fails.
const MAX_REQUESTS: usize = 64;
/// The depth of the JSON of the gateway.
const MAX_DEPTH: usize = 128;

const INVALID_PARAMS: i64 = -32602;
const METHOD_NOT_FOUND: i64 = -32601;
const INTERNAL_ERROR: i64 = -32603;

/// The state of the process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// The working folders of the sessions.
    sessions: HashMap<String, String>,
    tasks: HashMap<String, Task>,
    /// The requests of clients, by their number at the member.
    requests: HashMap<u64, Box<RawValue>>,
    /// Lines for the gateway.
    lines: BytesMut,
    /// Messages for the member.
    messages: Vec<String>,
}

/// A task without a result.
#[derive(Debug)]
struct Task {
    /// The id of `session/prompt`.
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
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
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
            return self.error(id, INVALID_PARAMS, "the session needs cwd");
        };
        if self.sessions.len() >= MAX_SESSIONS {
            return self.error(id, INTERNAL_ERROR, "the process has too many sessions");
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
            return self.error(id, INVALID_PARAMS, "unknown session");
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
        let is_acp = method.contains('/');
        let Some(message) = request(method, *next_request, params).filter(|_| !is_acp) else {
            return self.error(id, METHOD_NOT_FOUND, "the member does not have this method");
        };
        if self.requests.len() >= MAX_REQUESTS {
            return self.error(id, INTERNAL_ERROR, "too many requests wait for the member");
        }
        self.requests.insert(*next_request, id.to_owned());
        *next_request += 1;
        self.messages.push(message);
    }

    /// A part of the output of a task. Returns false if the process has no such task.
    pub(super) fn progress(&mut self, task: &str, output: &str) -> bool {
        let Some(Task { session, .. }) = self.tasks.get(task) else {
            return false;
        };
        let session = session.clone();
        self.chunk(&session, output);
        true
    }

    /// The end of a task. Returns false if the process has no such task.
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
            self.error(&task.call, INTERNAL_ERROR, text);
        }
        true
    }

    /// The answer to a request. Returns false if the process has no such request.
    pub(super) fn answered(&mut self, response: &Response) -> bool {
        let Some(id) = self.requests.remove(&response.reply_to) else {
            return false;
        };
        match (&response.error, &response.result) {
            (Some(error), _) => self.error(&id, INTERNAL_ERROR, error),
            (None, Some(result)) => {
                // The parts of a message are one line.
                let result: Value = serde_json::from_str(result.get()).unwrap_or_default();
                self.result(&id, &result);
            }
            (None, None) => self.result(&id, &Value::Null),
        }
        true
    }

    /// Ends the tasks for which `is_lost` is true with an error.
    pub(super) fn lose_tasks(&mut self, is_lost: impl Fn(&str) -> bool) {
        let lost: Vec<_> = self.tasks.extract_if(|id, _| is_lost(id)).collect();
        for (_, task) in lost {
            self.error(
                &task.call,
                INTERNAL_ERROR,
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

    /// The lines for the gateway.
    pub(super) fn take_lines(&mut self) -> Bytes {
        self.lines.split().freeze()
    }

    /// The messages for the member.
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
