//! The Claude Code CLI (`--input-format stream-json --output-format stream-json`), as an agent of ACP v1.
//!
//! A process of the CLI has one session, which is fixed by its arguments and its working directory. [`StreamJson`] starts
//! the CLI with `initialize`, so that a CLI that does not start fails this request. A request for another session than the
//! expected one starts it again.
//!
//! Reading order: [`translator`] (the state of one process, its set-up, and messages of the client), [`incoming`] (lines of the CLI) with
//! [`turn`], [`conversation`] with [`streamed`] and [`tool`], [`permission`], [`settings`]. [`bounds`] has the limits of the state.

mod bounds;
mod conversation;
mod incoming;
mod permission;
mod settings;
mod streamed;
mod tool;
mod translator;
mod turn;

use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use uuid::Uuid;

use self::translator::{StartedSession, Translator};
use super::message::{LineError, internal, invalid_params, invalid_request, response};
use super::protocol::{AgentProtocol, Launch, Output};
use crate::stdio::MAX_DEPTH;
use base::types::random_uuid;
use wire::acp::{self, RawObject, error_code, method};
use wire::jsonrpc::{CallId, Message, RpcError};

const ARGUMENTS: [&str; 9] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--permission-prompt-tool",
    "stdio",
];

/// The length of a version. The rules of semantic versions have no limit.
const MAX_VERSION: usize = 64;

/// The maximum number of requests that wait for the start of the CLI.
const MAX_WAITING: usize = 64;

fn arguments(session: &StartedSession) -> Vec<String> {
    let option = if session.restores {
        "--resume"
    } else {
        "--session-id"
    };
    let mut arguments = ARGUMENTS.map(str::to_owned).to_vec();
    arguments.push(option.to_owned());
    arguments.push(session.id.clone());
    arguments
}

/// The version in the output of `--version`: `2.1.197 (Claude Code)`.
fn version(output: &str) -> Option<String> {
    let word = output.split_whitespace().next()?;
    let is_version = word.starts_with(|first: char| first.is_ascii_digit())
        && word.len() <= MAX_VERSION
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte));
    is_version.then(|| word.to_owned())
}

#[derive(Debug)]
struct Request {
    id: CallId,
    method: Box<str>,
    params: Box<RawValue>,
}

impl Request {
    fn is_initialize(&self) -> bool {
        &*self.method == method::INITIALIZE
    }
}

#[derive(Debug)]
enum Process {
    /// No process runs. The next request for a session starts one.
    None,
    /// The CLI has not answered `initialize`. The request is that of the client, which waits for the process.
    Starting(Request),
    Running,
}

#[derive(Debug)]
pub(super) struct StreamJson {
    /// The working directory of this program, without symbolic links.
    cwd: PathBuf,
    /// The session that the client is expected to restore.
    resume: Option<String>,
    /// The session that the CLI did not find, with its error.
    missing: Option<(String, RpcError)>,
    version: Option<String>,
    process: Process,
    translator: Translator,
    waiting: Vec<Request>,
}

impl StreamJson {
    pub(super) fn new(cwd: PathBuf, resume: Option<String>) -> Self {
        Self {
            cwd,
            resume,
            missing: None,
            version: None,
            process: Process::None,
            translator: Translator::default(),
            waiting: Vec::new(),
        }
    }

    /// The expected session: the one to restore, or a new one in the working directory.
    fn expected_session(&mut self) -> StartedSession {
        if let Some(id) = self.resume.take() {
            match Uuid::try_parse(&id) {
                Ok(id) => return session(self.cwd.clone(), Some(id)),
                Err(_) => self.missing = Some((id.clone(), session_not_found(&id))),
            }
        }
        session(self.cwd.clone(), None)
    }

    /// The session for which the CLI has to start before it receives the request. `None`: the running process serves it.
    fn session_to_start(
        &self,
        method: &str,
        params: &RawValue,
    ) -> Result<Option<StartedSession>, RpcError> {
        let named = acp::session_id_of(params).ok().flatten();
        let named = named.unwrap_or_default();
        let is_new = method == method::SESSION_NEW;
        if !is_new
            && let Some((missing, error)) = &self.missing
            && **missing == *named
        {
            return Err(error.clone());
        }
        let cwd = RawObject::parse(params).and_then(|params| params.text("cwd"));
        let cwd = cwd.map(|cwd| PathBuf::from(cwd.into_owned()));
        let cwd = cwd.filter(|cwd| cwd.is_absolute());
        let cwd = cwd.ok_or_else(|| invalid_params("cwd must be an absolute path"))?;
        let started = &self.translator.session;
        let id = Uuid::try_parse(&named);
        if matches!(self.process, Process::Running) {
            let has_begun = self.translator.has_begun || self.translator.set_up.is_some();
            let is_started = if is_new {
                !started.restores && !has_begun
            } else {
                started.restores && id.as_ref().is_ok_and(|id| started.id == id.to_string())
            };
            if is_started && is_same_folder(&started.cwd, &cwd) {
                return Ok(None);
            }
            if has_begun {
                return Err(invalid_request(format_args!(
                    "this process serves the session {}; start another one",
                    started.id
                )));
            }
        }
        if is_new {
            return Ok(Some(session(cwd, None)));
        }
        // The id becomes an argument of the command.
        let id = id.map_err(|_| session_not_found(&named))?;
        Ok(Some(session(cwd, Some(id))))
    }

    fn start(&mut self, session: StartedSession, request: Request) {
        let mut out = self.outputs();
        out.push(Output::Launch(Launch {
            cwd: Some(session.cwd.clone()),
            arguments: arguments(&session),
        }));
        self.translator = Translator {
            session,
            version: self.version.clone(),
            out,
            ..Translator::default()
        };
        self.process = Process::Starting(request);
    }

    fn respond(&mut self, request: &Request, outcome: Result<Box<RawValue>, RpcError>) {
        self.translator.out.push(response(request.id, outcome));
    }

    fn call(&mut self, request: &Request) {
        self.translator
            .call(request.id, &request.method, &request.params);
    }

    fn request(&mut self, request: Request) {
        if matches!(self.process, Process::Starting(_)) {
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(request);
            } else {
                let error = internal("too many requests wait for the agent");
                self.respond(&request, Err(error));
            }
            return;
        }
        let is_running = matches!(self.process, Process::Running);
        let session = match &*request.method {
            method::INITIALIZE if !is_running => Ok(Some(self.expected_session())),
            method::SESSION_NEW | method::SESSION_RESUME => {
                self.session_to_start(&request.method, &request.params)
            }
            method::INITIALIZE => Err(invalid_request("the connection is initialized")),
            method::SESSION_PROMPT
            | method::SESSION_SET_MODE
            | method::SESSION_SET_CONFIG_OPTION
                if !self.translator.has_begun =>
            {
                Err(invalid_request("create a session first"))
            }
            _ if is_running || self.translator.has_begun => Ok(None),
            _ => Err(invalid_request("create a session first")),
        };
        match session {
            Ok(Some(session)) => self.start(session, request),
            Ok(None) => self.call(&request),
            Err(error) => self.respond(&request, Err(error)),
        }
    }

    fn deliver_waiting(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            self.request(request);
        }
    }

    /// Handles the answer of the CLI to `initialize` after a start for this request.
    fn started(&mut self, request: Request, outcome: Result<Box<RawValue>, RpcError>) {
        match outcome {
            Ok(_) if !request.is_initialize() => {
                self.process = Process::Running;
                self.call(&request);
            }
            Err(error)
                if error.code == error_code::RESOURCE_NOT_FOUND
                    && self.translator.session.restores =>
            {
                if request.is_initialize() {
                    self.missing = Some((self.translator.session.id.clone(), error));
                    return self.start(session(self.cwd.clone(), None), request);
                }
                // The CLI ends.
                self.process = Process::None;
                self.respond(&request, Err(error));
            }
            outcome => {
                self.process = Process::Running;
                self.respond(&request, outcome);
            }
        }
        self.deliver_waiting();
    }
}

impl AgentProtocol for StreamJson {
    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.translator.out)
    }

    /// The CLI starts with `initialize`.
    fn open(&mut self) -> Vec<Output> {
        Vec::new()
    }

    fn version_argument(&self) -> Option<&'static str> {
        Some("--version")
    }

    fn set_version(&mut self, output: &str) {
        self.version = version(output);
        self.translator.version = self.version.clone();
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Request { id, method, params } => {
                if let Some(id) = CallId::parse(&id) {
                    self.request(Request { id, method, params });
                }
            }
            // Before the start, no turn can be cancelled and no question is open.
            Message::Notification { method, .. } if *method == *method::SESSION_CANCEL => {
                self.translator.cancel();
            }
            Message::Notification { .. } => {}
            Message::Response { id, outcome } => self.translator.answer(&id, outcome),
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), LineError> {
        let done = self.translator.line(line, MAX_DEPTH);
        for output in self.outputs() {
            match (output, &self.process) {
                (
                    Output::ToClient(Message::Response { id, outcome }),
                    Process::Starting(request),
                ) if id.get() == request.id.number().to_string() => {
                    let process = std::mem::replace(&mut self.process, Process::None);
                    if let Process::Starting(request) = process {
                        self.started(request, outcome);
                    }
                }
                (output, _) => self.translator.out.push(output),
            }
        }
        done
    }

    fn launched(&mut self) {
        if let Process::Starting(request) = &self.process {
            self.translator
                .call(request.id, method::INITIALIZE, RawValue::NULL);
        }
    }

    fn ended(&mut self, reason: &str) -> bool {
        match std::mem::replace(&mut self.process, Process::None) {
            Process::None => true,
            Process::Starting(request) if !request.is_initialize() => {
                self.respond(&request, Err(internal(reason)));
                self.deliver_waiting();
                true
            }
            Process::Starting(_) | Process::Running => false,
        }
    }
}

/// The session that a process starts with: the restored one, or a new one with a random id.
fn session(cwd: PathBuf, restored: Option<Uuid>) -> StartedSession {
    StartedSession {
        id: restored.unwrap_or_else(random_uuid).to_string(),
        cwd,
        restores: restored.is_some(),
    }
}

fn session_not_found(id: &str) -> RpcError {
    RpcError::new(
        error_code::RESOURCE_NOT_FOUND,
        format!("Session not found: {id}"),
    )
}

/// Whether a client names the folder of the process, perhaps by a symbolic link.
fn is_same_folder(own: &Path, named: &Path) -> bool {
    own == named || named.canonicalize().is_ok_and(|real| real == own)
}

#[cfg(test)]
mod tests;
