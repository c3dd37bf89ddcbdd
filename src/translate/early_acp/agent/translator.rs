//! The state of the translation, and the messages of the client.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::handshake;
use super::prompt::prompt;
use super::streamed::Streamed;
use super::tools::Tools;
use super::variation::{Names, Opening, PromptForm};
use crate::acp::{self, error_code, method};
use crate::jsonrpc::{self, CallId, RpcError};
use crate::translate::early_acp::names;
use crate::translate::members::Members;
use crate::translate::message::{error, response, to_raw};
use crate::translate::object::{LineError, Object};
use crate::translate::protocol::{Outgoing, Output};

/// The ids of the translation's own requests begin here. The calls of the client are counted from 1.
pub(super) const FIRST_OWN_ID: u64 = 1_000_000_000;

/// The maximum size of the params that are kept for another attempt. Larger ones have only one attempt.
const MAX_RETAINED: usize = 1 << 20;

/// Methods that only agents with modern names can have.
const MODERN_METHODS: [&str; 11] = [
    method::AUTHENTICATE,
    method::LOGOUT,
    method::SESSION_LOAD,
    method::SESSION_RESUME,
    method::SESSION_FORK,
    method::SESSION_LIST,
    method::SESSION_CLOSE,
    method::SESSION_DELETE,
    method::SESSION_SET_MODE,
    method::SESSION_SET_MODEL,
    method::SESSION_SET_CONFIG_OPTION,
];

/// Translates between the messages of ACP and the lines of one agent.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) opening: Opening,
    /// The names of methods.
    pub(super) names: Names,
    /// The form of prompts that the agent accepted.
    pub(super) form: Option<PromptForm>,
    /// The open call `initialize`.
    pub(super) initialize: Option<Attempt>,
    pub(super) set_up: Option<SetUp>,
    /// The agent's id of the session.
    pub(super) session: Option<Box<str>>,
    pub(super) turn: Option<Turn>,
    pub(super) tools: Tools,
    pub(super) life: Life,
    /// The number of the translation's own requests.
    own_requests: u64,
}

/// Whether the notification `initialized` is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Notice {
    #[default]
    Unknown,
    /// The translation sends it before its next line.
    Due,
    /// One side has sent it.
    Sent,
}

/// The steps of the connection that have no answer.
#[derive(Debug, Default)]
pub(super) struct Life {
    pub(super) initialized: Notice,
    /// The agent has answered `initialize`.
    pub(super) is_open: bool,
    said_farewell: bool,
}

/// A call with its params, for another attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) call: CallId,
    /// The params of ACP. `None` if there is no further attempt.
    pub(super) params: Option<Box<RawValue>>,
    /// The error of the first attempt.
    pub(super) first_error: Option<RpcError>,
}

impl Attempt {
    fn new(call: CallId, params: &RawValue, may_repeat: bool) -> Self {
        let kept = may_repeat && params.get().len() <= MAX_RETAINED;
        Self {
            call,
            params: kept.then(|| params.to_owned()),
            first_error: None,
        }
    }
}

/// A call that creates or restores the session.
#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) attempt: Attempt,
    /// The session to restore. `None` for a new one.
    pub(super) restores: Option<Box<str>>,
}

/// The running turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) attempt: Attempt,
    pub(super) form: PromptForm,
    pub(super) is_cancelled: bool,
    /// The agent has sent an update.
    pub(super) has_output: bool,
    /// A text of the agent has a lone surrogate, so that it cannot be compared.
    pub(super) has_undecoded: bool,
    pub(super) streamed: Streamed,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateSession<'a> {
    workspace_dir: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionOnly<'a> {
    session_id: &'a str,
}

/// A line for the agent, or the immediate answer to a call.
pub(super) type Step = Result<Bytes, RpcError>;

impl Translator {
    pub(super) fn new(opening: Opening, prefix: String) -> Self {
        Self {
            opening,
            names: Names::Early,
            form: None,
            initialize: None,
            set_up: None,
            session: None,
            turn: None,
            tools: Tools::new(prefix),
            life: Life::default(),
            own_requests: 0,
        }
    }

    /// Translates a message of the client.
    pub(super) fn encode(&mut self, message: &Outgoing<'_>, out: &mut Vec<Output>) {
        let lines = match *message {
            Outgoing::Request { id, method, params } => match self.request(id, method, params) {
                Ok(lines) => lines,
                Err(error) => {
                    out.push(response(id, Err(error)));
                    return;
                }
            },
            Outgoing::Notification {
                method: method::SESSION_CANCEL,
                params,
            } => self.cancel(params),
            Outgoing::Notification { .. } if self.names == Names::Early => Bytes::new(),
            Outgoing::Notification { .. } | Outgoing::Answer { .. } => message.line(),
        };
        if !lines.is_empty() {
            out.push(Output::ToAgent(self.after_initialized(lines)));
        }
    }

    /// Adds the notification `initialized` before the first line after `initialize`.
    fn after_initialized(&mut self, line: Bytes) -> Bytes {
        if self.life.initialized != Notice::Due {
            return line;
        }
        self.life.initialized = Notice::Sent;
        let first = jsonrpc::notification(names::INITIALIZED, &to_raw(&Members::default()));
        [first, line].concat().into()
    }

    fn request(&mut self, id: CallId, method: &str, params: &RawValue) -> Step {
        match method {
            method::INITIALIZE => {
                self.initialize = Some(Attempt::new(id, params, true));
                self.send_initialize(id, params)
            }
            method::SESSION_NEW => self.set_up(id, params),
            method::SESSION_LOAD | method::SESSION_RESUME if self.names == Names::Modern => {
                let restores = acp::session_id_of(params).ok().flatten().map(Into::into);
                self.set_up = Some(SetUp {
                    attempt: Attempt::new(id, params, false),
                    restores,
                });
                Ok(jsonrpc::request(id, method, params))
            }
            method::SESSION_PROMPT => self.prompt(id, params),
            _ if self.names == Names::Early && MODERN_METHODS.contains(&method) => {
                Err(unsupported(method))
            }
            _ => Ok(jsonrpc::request(id, method, params)),
        }
    }

    pub(super) fn send_initialize(&self, id: CallId, params: &RawValue) -> Step {
        let params =
            handshake::initialize(self.opening, params).map_err(|error| invalid_params(&error))?;
        Ok(jsonrpc::request(id, method::INITIALIZE, &params))
    }

    fn set_up(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.session.is_some() {
            let detail = "Invalid request: a process of this agent serves one session";
            return Err(error(error_code::INVALID_REQUEST, detail));
        }
        let line = self.send_set_up(id, params)?;
        self.set_up = Some(SetUp {
            attempt: Attempt::new(id, params, true),
            restores: None,
        });
        Ok(line)
    }

    pub(super) fn send_set_up(&self, id: CallId, params: &RawValue) -> Step {
        if self.names == Names::Modern {
            return Ok(jsonrpc::request(id, method::SESSION_NEW, params));
        }
        let object = Object::parse("params", params).map_err(|error| invalid_params(&error))?;
        if object
            .array("mcpServers")
            .is_some_and(|servers| !servers.is_empty())
        {
            let detail = "Invalid params: the early protocol of this agent has no MCP servers; remove `mcpServers`";
            return Err(error(error_code::INVALID_PARAMS, detail));
        }
        let cwd = object
            .required_text("cwd")
            .map_err(|error| invalid_params(&error))?;
        let params = to_raw(&CreateSession {
            workspace_dir: &cwd,
        });
        Ok(jsonrpc::request(id, names::CREATE_SESSION, &params))
    }

    fn prompt(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.turn.is_some() {
            let detail = "Invalid request: a turn of this session is running";
            return Err(error(error_code::INVALID_REQUEST, detail));
        }
        let form = self.form.unwrap_or_else(|| PromptForm::first(self.names));
        let line = self.send_prompt(form, id, params)?;
        self.turn = Some(Turn {
            attempt: Attempt::new(id, params, self.form.is_none()),
            form,
            is_cancelled: false,
            has_output: false,
            has_undecoded: false,
            streamed: Streamed::default(),
        });
        Ok(line)
    }

    pub(super) fn send_prompt(&self, form: PromptForm, id: CallId, params: &RawValue) -> Step {
        let named = acp::session_id_of(params).ok().flatten();
        let session = named
            .as_deref()
            .or(self.session.as_deref())
            .unwrap_or_default();
        let params = prompt(form, session, params).map_err(|error| invalid_params(&error))?;
        Ok(jsonrpc::request(id, form.method(), &params))
    }

    /// The line that cancels the turn. Agents with early names answer it; some read it only after the turn.
    fn cancel(&mut self, params: &RawValue) -> Bytes {
        let names = self.turn.as_mut().map(|turn| {
            turn.is_cancelled = true;
            // The agent must not begin again.
            turn.attempt.params = None;
            turn.form.names()
        });
        match names {
            Some(Names::Early) => {
                let session = self.session.as_deref().unwrap_or_default();
                let params = to_raw(&SessionOnly {
                    session_id: session,
                });
                self.own_request(names::CANCEL_SESSION, &params)
            }
            None if self.names == Names::Early => Bytes::new(),
            _ => jsonrpc::notification(method::SESSION_CANCEL, params),
        }
    }

    fn own_request(&mut self, method: &'static str, params: &RawValue) -> Bytes {
        let id = FIRST_OWN_ID + self.own_requests;
        self.own_requests += 1;
        jsonrpc::request(id, method, params)
    }

    /// The request `shutdown`, once.
    pub(super) fn farewell(&mut self) -> Bytes {
        let is_known = self.life.is_open && self.names == Names::Early;
        if !is_known || std::mem::replace(&mut self.life.said_farewell, true) {
            return Bytes::new();
        }
        self.own_request(names::SHUTDOWN, &to_raw(&Members::default()))
    }

    /// The result of a step after a line of the agent.
    pub(super) fn send(call: CallId, step: Step, out: &mut Vec<Output>) {
        out.push(match step {
            Ok(line) => Output::ToAgent(line),
            Err(error) => response(call, Err(error)),
        });
    }
}

fn unsupported(method: &str) -> RpcError {
    let detail = format!(
        "\"Method not found\": {method}: the early protocol of this agent does not have it"
    );
    error(error_code::METHOD_NOT_FOUND, detail)
}

fn invalid_params(detail: &LineError) -> RpcError {
    error(
        error_code::INVALID_PARAMS,
        format!("Invalid params: {detail}"),
    )
}
