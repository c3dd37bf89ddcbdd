//! The state of the translation, and the messages of the client.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounds::MAX_NAME;
use super::calls::{Controls, Purpose};
use super::open_tools::OpenTools;
use super::permission::{Answered, Permissions};
use super::plan::Tasks;
use super::prompt;
use super::session::{SetUp, StartedSession, set_up_requests};
use super::settings::{MODEL, Settings, selected_option};
use super::streamed::Streamed;
use super::subagents::Subagents;
use super::turn::Turn;
use crate::acp::{self, RawObject, error_code, method};
use crate::jsonrpc::{self, CallId, RpcError};
use crate::translate::message::{error, response, to_raw, update};
use crate::translate::object::LineError;
use crate::translate::protocol::{Outgoing, Output};

/// Translates between the messages of ACP and the lines of one CLI.
#[derive(Debug, Default)]
pub(super) struct Translator {
    pub(super) session: StartedSession,
    /// The version of the CLI, if its command prints one. The CLI reports it only with its first turn.
    pub(super) version: Option<String>,
    /// The client has created or restored the session.
    pub(super) has_begun: bool,
    pub(super) set_up: Option<SetUp>,
    pub(super) controls: Controls,
    pub(super) permissions: Permissions,
    /// The running turn, with the call of its prompt.
    pub(super) turn: Option<(CallId, Turn)>,
    pub(super) conversation: Conversation,
    pub(super) settings: Settings,
}

/// The parts of the conversation that later lines refer to.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) streamed: Streamed,
    pub(super) tools: OpenTools,
    pub(super) tasks: Tasks,
    pub(super) subagents: Subagents,
}

#[derive(Serialize)]
struct ControlResponse<'a> {
    r#type: &'static str,
    response: ControlOutcome<'a>,
}

#[derive(Serialize)]
struct ControlOutcome<'a> {
    subtype: &'static str,
    request_id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Lines for the CLI, or the immediate answer to a call.
type Step = Result<String, RpcError>;

impl Translator {
    pub(super) fn new(session: StartedSession) -> Self {
        Self {
            session,
            ..Self::default()
        }
    }

    /// The agent's id of the session.
    pub(super) fn session_id(&self) -> &str {
        &self.session.id
    }

    /// Translates a message of the client.
    pub(super) fn encode(&mut self, message: &Outgoing<'_>, out: &mut Vec<Output>) {
        let lines = match *message {
            Outgoing::Request { id, method, params } => {
                let step = match method {
                    method::SESSION_NEW => self.begin(id, true, params, out),
                    method::SESSION_RESUME => self.begin(id, false, params, out),
                    _ => self.request(id, method, params),
                };
                match step {
                    Ok(lines) => lines,
                    Err(error) => {
                        out.push(response(id, Err(error)));
                        return;
                    }
                }
            }
            Outgoing::Notification {
                method: method::SESSION_CANCEL,
                ..
            } => self.interrupt(),
            Outgoing::Notification { .. } => return,
            Outgoing::Answer { id, outcome } => self.answer(id, outcome),
        };
        if !lines.is_empty() {
            out.push(Output::ToAgent(lines.into()));
        }
    }

    fn request(&mut self, id: CallId, method: &str, params: &RawValue) -> Step {
        match method {
            method::INITIALIZE => self.control(
                Purpose::Initialize(id),
                &json!({ "subtype": "initialize", "hooks": null }),
            ),
            method::SESSION_PROMPT => self.prompt(id, params),
            method::SESSION_SET_MODE => self.select_mode(id, params),
            method::SESSION_SET_CONFIG_OPTION => self.select_option(id, params),
            _ => Err(jsonrpc::parse_error(&acp::method_not_found(method))),
        }
    }

    fn control(&mut self, purpose: Purpose, request: &Value) -> Step {
        let busy = || {
            error(
                error_code::INTERNAL,
                "the agent does not answer; stop its process",
            )
        };
        self.controls.send(purpose, request).ok_or_else(busy)
    }

    /// Creates or restores the session. Without control requests the answer needs no line of the CLI, which reports a
    /// session only with its first turn.
    fn begin(
        &mut self,
        call: CallId,
        is_new: bool,
        params: &RawValue,
        out: &mut Vec<Output>,
    ) -> Step {
        let requests = set_up_requests(params).map_err(|error| invalid_params(&error))?;
        if requests.is_empty() {
            self.session_ready(call, is_new, out);
            return Ok(String::new());
        }
        let mut lines = String::new();
        for request in &requests {
            lines += &self.control(Purpose::SetUp, request)?;
        }
        self.set_up = Some(SetUp {
            call,
            is_new,
            missing: requests.len(),
            failed: None,
        });
        Ok(lines)
    }

    /// Answers the set-up of the session, and reports the commands of the agent.
    pub(super) fn session_ready(&mut self, call: CallId, is_new: bool, out: &mut Vec<Output>) {
        self.has_begun = true;
        let (modes, options) = self.settings.offered();
        let mut result = json!({ "modes": modes, "configOptions": options });
        if is_new {
            result["sessionId"] = json!(self.session_id());
        }
        out.push(response(call, Ok(to_raw(&result))));
        if let Some(commands) = self.settings.commands() {
            out.push(update(self.session_id(), &commands));
        }
    }

    fn prompt(&mut self, id: CallId, params: &RawValue) -> Step {
        if self.turn.is_some() {
            return Err(error(
                error_code::INVALID_REQUEST,
                "Invalid request: a turn of this session is running",
            ));
        }
        let line = prompt::user_message(params).map_err(|error| invalid_params(&error))?;
        self.turn = Some((id, Turn::default()));
        Ok(format!("{line}\n"))
    }

    fn interrupt(&mut self) -> String {
        let Some((_, turn)) = &mut self.turn else {
            return String::new();
        };
        turn.cancelled = true;
        // The CLI withdraws its open requests, so it does not expect their answers.
        self.permissions.clear();
        self.control(Purpose::Interrupt, &json!({ "subtype": "interrupt" }))
            .unwrap_or_default()
    }

    fn select_mode(&mut self, id: CallId, params: &RawValue) -> Step {
        let mode = RawObject::parse(params).and_then(|params| params.text("modeId"));
        let Some(mode) = mode else {
            return Err(invalid_params(&LineError::Member {
                object: "params",
                member: "modeId",
            }));
        };
        if mode.len() > MAX_NAME {
            let detail = format!("Invalid params: `modeId` is longer than {MAX_NAME} bytes");
            return Err(error(error_code::INVALID_PARAMS, detail));
        }
        let request = json!({ "subtype": "set_permission_mode", "mode": mode });
        self.control(Purpose::Mode(id, mode.into_owned()), &request)
    }

    fn select_option(&mut self, id: CallId, params: &RawValue) -> Step {
        let Some((option, value)) = selected_option(params) else {
            return Err(invalid_params(&LineError::Member {
                object: "params",
                member: "value",
            }));
        };
        if option != MODEL || !self.settings.has_model(&value) {
            let detail = format!(
                "Invalid params: the agent does not offer the value {value:?} of {option:?}"
            );
            return Err(error(error_code::INVALID_PARAMS, detail));
        }
        let request = json!({ "subtype": "set_model", "model": value });
        self.control(Purpose::Model(id, value), &request)
    }

    /// Answers a control request of the CLI. Empty if the CLI has withdrawn the request.
    fn answer(&mut self, id: &RawValue, outcome: Result<&RawValue, &RawValue>) -> String {
        let (response, error) = match (self.permissions.answer(id, outcome.ok()), outcome) {
            (Answered::Permission(answer), _) => (Some(answer), None),
            (Answered::Withdrawn, _) => return String::new(),
            (Answered::Other, Ok(result)) => (Some(result.to_owned()), None),
            (Answered::Other, Err(failed)) => (None, Some(jsonrpc::parse_error(failed).message)),
        };
        control_response(id, response.as_deref(), error)
    }
}

/// The answer to a control request of the CLI as a line.
pub(super) fn control_response(
    id: &RawValue,
    response: Option<&RawValue>,
    error: Option<String>,
) -> String {
    let subtype = if error.is_none() { "success" } else { "error" };
    let outcome = ControlOutcome {
        subtype,
        request_id: id,
        response,
        error,
    };
    format!(
        "{}\n",
        to_raw(&ControlResponse {
            r#type: "control_response",
            response: outcome
        })
    )
}

fn invalid_params(detail: &LineError) -> RpcError {
    error(
        error_code::INVALID_PARAMS,
        format!("Invalid params: {detail}"),
    )
}
