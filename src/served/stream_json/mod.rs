//! The protocol of the Claude Code CLI for a client: `--input-format stream-json --output-format stream-json`.
//!
//! A client of this protocol has one session, which begins with its first line. Prompts wait while a turn runs, as in
//! the CLI. An agent of ACP does not know the tools of the CLI by name, so the names are derived.
//!
//! Reading order: [`input`] (lines of the client), [`writer`] (lines for the client), [`state`] with [`settings`], [`tool`]
//! and [`permission`], [`session`] (the set-up), [`controls`], [`turn`], [`updates`], [`requests`] (of the agent).

mod controls;
mod input;
mod permission;
mod requests;
mod session;
mod settings;
mod state;
mod tool;
mod turn;
mod updates;
mod writer;

use serde_json::value::RawValue;

use self::input::ClientLine;
pub(super) use self::state::StreamJson;
use self::state::{Call, Phase};
use super::dialect::{Ending, Served, ServedDialect};
use crate::acp::{method, method_not_found};
use crate::jsonrpc::{Message, RpcError, parse_error};

/// The maximum number of invalid lines without a valid one between them.
const MAX_INVALID_LINES: u32 = 100;
impl StreamJson {
    fn answered(
        &mut self,
        id: &RawValue,
        outcome: Result<Box<RawValue>, RpcError>,
        served: &mut Served,
    ) {
        let call = id
            .get()
            .parse()
            .ok()
            .and_then(|id: u64| self.calls.remove(&id));
        match call {
            Some(Call::Initialize) => self.initialized(outcome, served),
            Some(Call::NewSession) => self.session_created(&outcome, served),
            Some(Call::Prompt) => self.turn_ended(&outcome, served),
            Some(Call::Mode { request, mode }) => {
                self.mode_answered(&request, &mode, outcome, served);
            }
            Some(Call::Model { request, model }) => {
                self.model_answered(&request, &model, outcome, served);
            }
            None => tracing::debug!("the agent answered an unknown call"),
        }
    }

    fn count_invalid(&mut self, reason: &str) {
        self.invalid_lines += 1;
        tracing::warn!(reason, "skipped an invalid line of the client");
    }
}

impl ServedDialect for StreamJson {
    fn client_line(&mut self, line: &[u8], served: &mut Served) {
        let line = match ClientLine::parse(line) {
            Ok(line) => line,
            Err(error) => return self.count_invalid(&error.to_string()),
        };
        self.invalid_lines = 0;
        match line {
            ClientLine::Prompt(content) => {
                self.begin_session(served);
                self.prompt(content, served);
            }
            ClientLine::Control(id, control) => {
                self.begin_session(served);
                self.control(id, control, served);
            }
            ClientLine::Answer(id, outcome) => {
                served
                    .to_agent
                    .extend(self.permissions.answer(&id, outcome));
            }
            ClientLine::Ignored => {}
        }
    }

    fn invalid_line(&mut self, error: RpcError, _: &mut Served) {
        self.count_invalid(&error.message);
    }

    fn agent_message(&mut self, message: Message, served: &mut Served) {
        match message {
            Message::Response { id, outcome } => self.answered(&id, outcome, served),
            Message::Notification { method, params } => self.notified(&method, &params, served),
            Message::Request { id, method, params }
                if &*method == method::SESSION_REQUEST_PERMISSION =>
            {
                self.permission_requested(&id, &params, served);
            }
            Message::Request { id, method, params } => {
                if let Some(subtype) = method.strip_prefix(updates::EXTENSION) {
                    self.extension_requested(&id, subtype, &params, served);
                } else {
                    let outcome = Err(parse_error(&method_not_found(&method)));
                    served.to_agent.push(Message::Response { id, outcome });
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        let is_starting = matches!(self.phase, Phase::Initializing | Phase::Creating);
        is_starting || self.turn.is_some() || !self.prompts.is_empty()
    }

    fn ending(&self) -> Option<Ending> {
        if matches!(self.phase, Phase::Failed) {
            return Some(Ending::NoSession);
        }
        (self.invalid_lines > MAX_INVALID_LINES).then_some(Ending::TooManyInvalidLines)
    }
}
