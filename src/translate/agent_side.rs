//! The half of a translation that drives the agent: ids of calls, and the session for which a process starts.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use crate::acp::{self, RawObject, error_code, method};
use crate::agent::{
    Decoded, Dialect, Line, Outgoing, StandaloneSession, standalone_dialect,
    standalone_initialize_result,
};
use crate::jsonrpc::{CallId, Message, PendingTables, RpcError};
use crate::served::input::MAX_DEPTH;
use crate::types::AgentDialect;

/// The maximum number of calls without an answer.
const MAX_CALLS: usize = 1024;
/// The maximum number of messages that wait for the start of the process.
const MAX_WAITING: usize = 64;
/// The maximum number of invalid lines without a valid one between them.
const MAX_INVALID_LINES: u32 = 1000;

/// The effects of a message or a line.
#[derive(Debug, Default)]
pub(super) struct AgentStep {
    /// Lines for the agent, each with its newline.
    pub(super) lines: Vec<Bytes>,
    /// Messages for the client.
    pub(super) messages: Vec<Message>,
    /// Start the process for this session.
    pub(super) launch: Option<StandaloneSession>,
}

/// The start of a process for one session.
#[derive(Debug)]
enum Start {
    /// The process runs, or needs no session.
    Done,
    /// The client has created no session. `initialize`: its params.
    Idle { initialize: Option<Box<RawValue>> },
    /// `request` is the request that creates or restores the session.
    Launching {
        initialize: Option<Box<RawValue>>,
        request: Message,
    },
    Handshake {
        call: CallId,
        initialize: Option<Box<RawValue>>,
        request: Message,
    },
}

/// The state of one connection to an agent.
#[derive(Debug)]
pub(super) struct AgentSide {
    kind: AgentDialect,
    dialect: Option<Box<dyn Dialect>>,
    start: Start,
    tables: PendingTables,
    /// The ids of the client's requests.
    calls: HashMap<CallId, Box<RawValue>>,
    /// The messages of the client that wait for the process.
    waiting: Vec<Message>,
    invalid_lines: u32,
}

fn rpc_error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError {
        code,
        message: message.into(),
        data: None,
    }
}

fn raw(value: &impl serde::Serialize) -> Box<RawValue> {
    to_raw_value(value).expect("errors and texts serialize")
}

fn failure(id: Box<RawValue>, error: RpcError) -> Message {
    Message::Response {
        id,
        outcome: Err(error),
    }
}

impl AgentSide {
    pub(super) fn new(kind: AgentDialect) -> Self {
        let (dialect, start) = if standalone_initialize_result(kind).is_some() {
            (None, Start::Idle { initialize: None })
        } else {
            (Some(standalone_dialect(kind, None).0), Start::Done)
        };
        let (tables, calls) = (PendingTables::default(), HashMap::new());
        Self {
            kind,
            dialect,
            start,
            tables,
            calls,
            waiting: Vec::new(),
            invalid_lines: 0,
        }
    }

    /// Whether a process runs or starts. Without one, the end of a process is expected.
    pub(super) fn needs_process(&self) -> bool {
        !matches!(self.start, Start::Idle { .. })
    }

    /// The lines before the end of the process.
    pub(super) fn farewell(&self) -> Bytes {
        self.dialect
            .as_ref()
            .map_or_else(Bytes::new, |dialect| dialect.farewell())
    }

    /// Whether the agent wrote too many lines that are not messages.
    pub(super) fn has_failed(&self) -> bool {
        self.invalid_lines > MAX_INVALID_LINES
    }

    /// Handles a message of the client.
    pub(super) fn message(&mut self, message: Message, step: &mut AgentStep) {
        match &self.start {
            Start::Done => self.send(message, step),
            Start::Idle { .. } => self.before_session(message, step),
            Start::Launching { .. } | Start::Handshake { .. }
                if self.waiting.len() < MAX_WAITING =>
            {
                self.waiting.push(message);
            }
            Start::Launching { .. } | Start::Handshake { .. } => {
                if let Message::Request { id, .. } = message {
                    let error =
                        rpc_error(error_code::INTERNAL, "too many requests wait for the agent");
                    step.messages.push(failure(id, error));
                }
            }
        }
    }

    /// Answers `initialize`, and starts the process with the first session.
    fn before_session(&mut self, message: Message, step: &mut AgentStep) {
        let Message::Request { id, method, params } = message else {
            return;
        };
        let Start::Idle { initialize } = &mut self.start else {
            return;
        };
        let error = match &*method {
            method::INITIALIZE => {
                *initialize = Some(params);
                let result = standalone_initialize_result(self.kind)
                    .unwrap_or_else(|| RawValue::NULL.to_owned());
                step.messages.push(Message::Response {
                    id,
                    outcome: Ok(result),
                });
                return;
            }
            method::SESSION_NEW | method::SESSION_RESUME => match session(&method, &params) {
                Ok(session) => {
                    let initialize = initialize.take();
                    self.start = Start::Launching {
                        initialize,
                        request: Message::Request { id, method, params },
                    };
                    step.launch = Some(session);
                    return;
                }
                Err(error) => error,
            },
            _ => rpc_error(
                error_code::INVALID_REQUEST,
                "Invalid request: create a session first",
            ),
        };
        step.messages.push(failure(id, error));
    }

    /// The process for the session runs.
    pub(super) fn launched(&mut self, dialect: Box<dyn Dialect>, step: &mut AgentStep) {
        let Start::Launching {
            initialize,
            request,
        } = self.take_start()
        else {
            return;
        };
        self.dialect = Some(dialect);
        let call = self.tables.register_call();
        let params = initialize
            .clone()
            .unwrap_or_else(|| RawValue::NULL.to_owned());
        self.start = Start::Handshake {
            call,
            initialize,
            request,
        };
        self.encode(
            &Outgoing::Request {
                id: call,
                method: method::INITIALIZE,
                params: &params,
            },
            step,
        );
    }

    /// The process for the session could not be started.
    pub(super) fn launch_failed(&mut self, reason: &str, step: &mut AgentStep) {
        self.start_failed(
            rpc_error(error_code::INTERNAL, format!("Internal error: {reason}")),
            step,
        );
    }

    fn take_start(&mut self) -> Start {
        std::mem::replace(&mut self.start, Start::Done)
    }

    /// Answers the request for the session. The client can send another one.
    fn start_failed(&mut self, error: RpcError, step: &mut AgentStep) {
        let (initialize, request) = match self.take_start() {
            Start::Launching {
                initialize,
                request,
            }
            | Start::Handshake {
                initialize,
                request,
                ..
            } => (initialize, request),
            other => {
                self.start = other;
                return;
            }
        };
        self.start = Start::Idle { initialize };
        self.dialect = None;
        if let Message::Request { id, .. } = request {
            step.messages.push(failure(id, error));
        }
        for message in std::mem::take(&mut self.waiting) {
            self.message(message, step);
        }
    }

    fn started(&mut self, step: &mut AgentStep) {
        let Start::Handshake { request, .. } = self.take_start() else {
            return;
        };
        self.send(request, step);
        for message in std::mem::take(&mut self.waiting) {
            self.send(message, step);
        }
    }

    fn encode(&mut self, message: &Outgoing<'_>, step: &mut AgentStep) {
        let Some(dialect) = &self.dialect else { return };
        let message = match *message {
            Outgoing::Request { id, method, params } => Outgoing::Request { id, method, params },
            Outgoing::Notification { method, params } => Outgoing::Notification { method, params },
            Outgoing::Answer { id, outcome } => Outgoing::Answer { id, outcome },
        };
        let encoded = dialect.encode(message);
        if !encoded.lines.is_empty() {
            step.lines.push(encoded.lines);
        }
        for reply in encoded.replies {
            self.decoded(reply, step);
        }
    }

    /// Sends a message of the client to the agent.
    fn send(&mut self, message: Message, step: &mut AgentStep) {
        match message {
            Message::Request { id, .. } if self.calls.len() >= MAX_CALLS => {
                let error = rpc_error(error_code::INTERNAL, "too many requests have no answer");
                step.messages.push(failure(id, error));
            }
            Message::Request { id, method, params } => {
                let call = self.tables.register_call();
                self.calls.insert(call, id);
                self.encode(
                    &Outgoing::Request {
                        id: call,
                        method: &method,
                        params: &params,
                    },
                    step,
                );
            }
            Message::Notification { method, params } if &*method == method::CANCEL_REQUEST => {
                let wanted = RawObject::parse(&params).and_then(|params| params.get("requestId"));
                let call = self
                    .calls
                    .iter()
                    .find(|(_, id)| wanted.is_some_and(|wanted| wanted.get() == id.get()));
                if let Some((call, _)) = call {
                    let params = raw(&serde_json::json!({ "requestId": call.number() }));
                    self.encode(
                        &Outgoing::Notification {
                            method: &method,
                            params: &params,
                        },
                        step,
                    );
                }
            }
            Message::Notification { method, params } => {
                self.encode(
                    &Outgoing::Notification {
                        method: &method,
                        params: &params,
                    },
                    step,
                );
            }
            Message::Response { id, outcome } => {
                let error = outcome.as_ref().err().map(raw);
                let outcome = match (&outcome, &error) {
                    (_, Some(error)) => Err(&**error),
                    (Ok(result), _) => Ok(&**result),
                    (Err(_), None) => return,
                };
                self.encode(&Outgoing::Answer { id: &id, outcome }, step);
            }
        }
    }

    /// Handles a line of the agent.
    pub(super) fn line(&mut self, line: &[u8], step: &mut AgentStep) {
        let Some(dialect) = &self.dialect else { return };
        let mut messages = Vec::new();
        // Without the mark of UTF-8 text, every message is parsed: the ranges of an update are of no use here.
        let range = 0..line.len();
        dialect.decode(
            Line {
                block: line,
                range,
                is_utf8: false,
                max_json_depth: MAX_DEPTH,
            },
            &mut messages,
        );
        if !messages
            .iter()
            .any(|message| matches!(message, Decoded::Invalid))
        {
            self.invalid_lines = 0;
        }
        for message in messages {
            self.decoded(message, step);
        }
    }

    /// Counts a line that is no message.
    pub(super) fn invalid_line(&mut self) {
        self.invalid_lines += 1;
        if self.invalid_lines == 1 {
            tracing::warn!("skipped a line of the agent that is not a message");
        }
    }

    fn decoded(&mut self, message: Decoded, step: &mut AgentStep) {
        let message = match message {
            Decoded::Message(message) => message,
            Decoded::Send(line) => return step.lines.push(line),
            Decoded::Update(_) | Decoded::Invalid => return self.invalid_line(),
        };
        let Message::Response { id, outcome } = message else {
            return step.messages.push(message);
        };
        let Some(call) = self.tables.resolve_call(&id) else {
            return self.invalid_line();
        };
        if let Some(id) = self.calls.remove(&call) {
            return step.messages.push(Message::Response { id, outcome });
        }
        if matches!(&self.start, Start::Handshake { call: handshake, .. } if *handshake == call) {
            match outcome {
                Ok(_) => self.started(step),
                Err(error) => self.start_failed(error, step),
            }
        }
    }

    /// The process has ended: answers all requests of the client.
    pub(super) fn ended(&mut self, reason: &str, step: &mut AgentStep) {
        let error = || rpc_error(error_code::INTERNAL, format!("Internal error: {reason}"));
        self.start_failed(error(), step);
        let mut calls: Vec<_> = self.calls.drain().collect();
        calls.sort_by_key(|(call, _)| *call);
        step.messages
            .extend(calls.into_iter().map(|(_, id)| failure(id, error())));
    }
}

/// The session that a request creates or restores.
fn session(method: &str, params: &RawValue) -> Result<StandaloneSession, RpcError> {
    let invalid = |detail: &str| {
        rpc_error(
            error_code::INVALID_PARAMS,
            format!("Invalid params: {detail}"),
        )
    };
    let cwd = RawObject::parse(params).and_then(|params| params.text("cwd"));
    let cwd = PathBuf::from(
        cwd.ok_or_else(|| invalid("cwd must be a text"))?
            .into_owned(),
    );
    if !cwd.is_absolute() {
        return Err(invalid("cwd must be an absolute path"));
    }
    if method == method::SESSION_NEW {
        return Ok(StandaloneSession { cwd, restore: None });
    }
    let id = acp::session_id_of(params)
        .ok()
        .flatten()
        .unwrap_or_default();
    // The id becomes an argument of the command.
    let restore = Uuid::try_parse(&id).map_err(|_| {
        rpc_error(
            error_code::RESOURCE_NOT_FOUND,
            format!("Session not found: {id}"),
        )
    })?;
    Ok(StandaloneSession {
        cwd,
        restore: Some(restore.to_string()),
    })
}
