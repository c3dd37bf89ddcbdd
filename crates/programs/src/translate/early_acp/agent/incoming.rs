//! The lines of the agent as messages of ACP.

use std::borrow::Cow;

use serde_json::json;
use serde_json::value::RawValue;

use super::content::text_of;
use super::tools::permission_request;
use super::translator::{
    Attempt, FIRST_OWN_ID, Names, Notice, PromptForm, SetUp, Translator, Turn,
};
use crate::translate::agent::message_of;
use crate::translate::early_acp::names;
use crate::translate::message::{
    LineError, Members, Object, chunk, internal, invalid_params, missing, notification, response,
};
use crate::translate::protocol::Output;
use wire::acp::{
    self, AcpVersion, error_code, method, sign_in, stop_reason, to_raw, update as kind,
};
use wire::jsonrpc::{self, Message, RpcError};

/// Other names of `session/update`.
const SESSION_NOTIFICATION: &str = "session/notification";
/// Other names of `session/request_permission`.
const REQUEST_PERMISSION: [&str; 3] = [
    "session/requestPermission",
    "agent/requestPermission",
    "agent/request_permission",
];

impl Translator {
    /// Translates a line. An error means that the line is skipped.
    pub(super) fn line(&mut self, line: &[u8], max_depth: usize) -> Result<(), LineError> {
        match message_of(line, max_depth)? {
            Message::Response { id, outcome } => self.answered(id, outcome),
            Message::Notification { method, params } => {
                if !self.notification(&method, &params)? {
                    self.out.push(notification(&method, params));
                }
            }
            Message::Request { id, method, params } => {
                self.request_of_agent(id, &method, params)?;
            }
        }
        Ok(())
    }

    /// Translates a notification that has another form in ACP. Returns false for all others.
    fn notification(&mut self, method: &str, params: &RawValue) -> Result<bool, LineError> {
        match method {
            // The agent is ready, and does not expect the notification of the client.
            names::INITIALIZED => self.initialized = Notice::Sent,
            names::UPDATE => self.early_update(params)?,
            names::TOOL_CALL => self.early_tool(names::TOOL_CALL, params)?,
            names::TOOL_RESULT => self.early_tool(names::TOOL_RESULT, params)?,
            method::SESSION_UPDATE | SESSION_NOTIFICATION => self.session_update(params)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn request_of_agent(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<(), LineError> {
        let asks =
            method == method::SESSION_REQUEST_PERMISSION || REQUEST_PERMISSION.contains(&method);
        let translated = if asks {
            self.streamed_other();
            let session = self.session.as_deref().unwrap_or_default();
            permission_request(&params, session, &mut self.tools)
                .map(|params| Some((method::SESSION_REQUEST_PERMISSION.into(), params)))
        } else {
            self.notification(method, &params).map(|is_update| {
                (!is_update).then(|| (method.into(), self.with_session(method, params)))
            })
        };
        self.out.push(match translated {
            Ok(Some((method, params))) => Output::ToClient(Message::Request { id, method, params }),
            Ok(None) => Output::ToAgent(acknowledge(&id, method)),
            Err(missing) => {
                // Without an answer the agent would wait.
                let error = jsonrpc::error(&id, &invalid_params(&missing));
                self.out.push(Output::ToAgent(error));
                return Err(missing);
            }
        });
        Ok(())
    }

    /// The params of a method for clients with the session, if the agent omits it.
    fn with_session(&self, method: &str, params: Box<RawValue>) -> Box<RawValue> {
        let is_of_session = method.starts_with("fs/")
            || method.starts_with("terminal/")
            || method == method::ELICITATION_CREATE;
        let object = Object::parse("params", &params);
        if is_of_session
            && object.is_ok_and(|object| object.get("sessionId").is_none())
            && let Some(session) = self.session.as_deref()
            && let Ok(with) = acp::with_session_id(&params, session)
        {
            return with;
        }
        params
    }
}

fn acknowledge(id: &RawValue, method: &str) -> bytes::Bytes {
    if method == names::TOOL_CALL {
        // A result would mean that the client has run the tool.
        let detail = "\"Method not found\": agent/toolCall is a notification; clients run no tools";
        return jsonrpc::error(id, &RpcError::new(error_code::METHOD_NOT_FOUND, detail));
    }
    jsonrpc::result(id, &acp::empty_result())
}

/// The names of prompt capabilities, with their names in a list `promptTypes`.
const PROMPT_TYPES: [(&str, &[&str]); 3] = [
    ("image", &["image", "images"]),
    ("audio", &["audio"]),
    (
        "embeddedContext",
        &[
            "embeddedContext",
            "embedded_context",
            "resource",
            "resources",
        ],
    ),
];

fn initialize_result(result: &RawValue) -> Result<(Names, Box<RawValue>), LineError> {
    let result = Object::parse("initialize", result)?;
    let version = result.required("protocolVersion")?;
    let major = major_version(version).ok_or(missing("initialize", "protocolVersion"))?;
    let capabilities = result.object("agentCapabilities");
    // An agent can repeat the version of the request, so a text alone does not decide.
    let is_early = version.get().starts_with('"') && capabilities.is_none();
    let names = if is_early {
        Names::Early
    } else {
        Names::Modern
    };
    let mut answer = Members::default();
    answer.set("protocolVersion", to_raw(&major));
    let info = result.get("agentInfo");
    let info = info.or_else(|| result.get("serverInfo"));
    answer.set_some("agentInfo", info.map(ToOwned::to_owned));
    // The methods of early names can do nothing beyond a text prompt.
    let capabilities = match &capabilities {
        Some(capabilities) if names == Names::Modern => capabilities_of(capabilities),
        _ => acp::empty_result(),
    };
    answer.set("agentCapabilities", capabilities);
    answer.set_some(
        "authMethods",
        result.get("authMethods").map(ToOwned::to_owned),
    );
    Ok((names, to_raw(&answer)))
}

/// The major version. Early agents write 1, "1.0", or a version before it.
fn major_version(version: &RawValue) -> Option<u64> {
    let text: Cow<'_, str> = match serde_json::from_str::<String>(version.get()) {
        Ok(text) => text.into(),
        Err(_) => version.get().into(),
    };
    let major: u64 = text.split('.').next()?.trim().parse().ok()?;
    Some(major.max(AcpVersion::V1.number()))
}

/// The capabilities with the names of ACP. A process has one session, so the agent cannot close or fork it.
fn capabilities_of(capabilities: &Object<'_>) -> Box<RawValue> {
    let mut members = Members::default();
    for (name, value) in capabilities.iter() {
        match name {
            "promptTypes" if capabilities.get("promptCapabilities").is_none() => {
                members.set("promptCapabilities", prompt_types(value));
            }
            "mcp" if capabilities.get("mcpCapabilities").is_none() => {
                members.set("mcpCapabilities", value.to_owned());
            }
            "sessionCapabilities" => {
                let kept = Object::parse("sessionCapabilities", value).ok();
                let kept = kept.iter().flat_map(Object::iter);
                let kept = kept.filter(|(name, _)| !matches!(*name, "close" | "fork"));
                members.set(name, to_raw(&kept.collect::<Members<'_>>()));
            }
            _ => members.set(name, value.to_owned()),
        }
    }
    to_raw(&members)
}

/// `promptTypes` are flags, or a list of names.
fn prompt_types(types: &RawValue) -> Box<RawValue> {
    let Ok(listed) = serde_json::from_str::<Vec<String>>(types.get()) else {
        return types.to_owned();
    };
    let mut flags = Members::default();
    for (name, spellings) in PROMPT_TYPES {
        let has = listed.iter().any(|listed| spellings.contains(&&**listed));
        flags.set(name, to_raw(&has));
    }
    to_raw(&flags)
}

/// The maximum size of the session's id in bytes.
const MAX_SESSION_ID: usize = 4096;

type Outcome = Result<Box<RawValue>, RpcError>;

impl Translator {
    pub(super) fn answered(&mut self, id: Box<RawValue>, outcome: Outcome) {
        let number: Option<u64> = id.get().parse().ok();
        if number.is_some_and(|number| number >= FIRST_OWN_ID) {
            self.own_answered(outcome);
            return;
        }
        let is = |call: jsonrpc::CallId| number == Some(call.number());
        if let Some(attempt) = self.initialize.take_if(|attempt| is(attempt.call)) {
            self.initialize_answered(attempt, error_in_result(outcome));
        } else if let Some(set_up) = self.set_up.take_if(|set_up| is(set_up.attempt.call)) {
            self.set_up_answered(set_up, error_in_result(outcome));
        } else if let Some(turn) = self.turn.take_if(|turn| is(turn.attempt.call)) {
            self.prompt_answered(turn, error_in_result(outcome));
        } else if let (
            "null",
            Err(RpcError {
                code: error_code::METHOD_NOT_FOUND,
                ..
            }),
        ) = (id.get(), &outcome)
        {
            // Some agents answer notifications that they do not know.
            tracing::debug!("the agent does not know a notification");
        } else {
            self.out
                .push(Output::ToClient(Message::Response { id, outcome }));
        }
    }

    /// The answer to `agent/cancelSession` or `shutdown`. An agent that cancelled nothing continues its turn.
    fn own_answered(&mut self, outcome: Outcome) {
        let Ok(result) = outcome else { return };
        let cancelled = Object::parse(names::CANCEL_SESSION, &result).ok();
        let refused = cancelled.and_then(|result| Some(result.get("cancelled")?.get() == "false"));
        if let (Some(true), Some(turn)) = (refused, &mut self.turn) {
            turn.is_cancelled = false;
        }
    }

    fn initialize_answered(&mut self, mut attempt: Attempt, outcome: Outcome) {
        let outcome = match outcome {
            Ok(result) => initialize_result(&result).map_err(internal),
            Err(failed) => {
                if !sign_in::is_required(&failed)
                    && let Some(params) = attempt.params.take()
                {
                    let call = attempt.call;
                    attempt.first_error = Some(failed);
                    self.initialize = Some(attempt);
                    self.opening = self.opening.other();
                    return self.send(call, self.send_initialize(call, &params));
                }
                Err(attempt.first_error.unwrap_or(failed))
            }
        };
        if let Ok((names, _)) = &outcome {
            self.names = *names;
            self.is_open = true;
            if *names == Names::Early && self.initialized == Notice::Unknown {
                self.initialized = Notice::Due;
            }
        }
        self.out
            .push(response(attempt.call, outcome.map(|(_, result)| result)));
    }

    fn set_up_answered(&mut self, mut set_up: SetUp, outcome: Outcome) {
        let call = set_up.attempt.call;
        let outcome = match outcome {
            Ok(result) => match session_id(&set_up, self.names, &result) {
                Ok(id) => {
                    self.session = Some(id);
                    Ok(result)
                }
                Err(missing) => Err(internal(missing)),
            },
            Err(failed) => {
                if failed.code == error_code::METHOD_NOT_FOUND
                    && let Some(params) = set_up.attempt.params.take()
                {
                    self.names = self.names.other();
                    set_up.attempt.first_error = Some(failed);
                    let step = self.send_set_up(call, &params);
                    self.set_up = step.is_ok().then_some(set_up);
                    return self.send(call, step);
                }
                Err(set_up.attempt.first_error.unwrap_or(failed))
            }
        };
        self.out.push(response(call, outcome));
    }

    fn prompt_answered(&mut self, mut turn: Turn, outcome: Outcome) {
        if let Err(failed) = &outcome
            && !turn.has_output
            && let Some(form) = turn.form.next(self.names, failed.code)
            && let Some(params) = &turn.attempt.params
        {
            let call = turn.attempt.call;
            let step = self.send_prompt(form, call, params);
            turn.form = form;
            if turn.attempt.first_error.is_none() {
                turn.attempt.first_error = outcome.err();
            }
            self.turn = step.is_ok().then_some(turn);
            return self.send(call, step);
        }
        self.tools.clear();
        let refusals = [error_code::METHOD_NOT_FOUND, error_code::INVALID_PARAMS];
        let was_refused = |failed: &RpcError| refusals.contains(&failed.code);
        if turn.has_output || !outcome.as_ref().is_err_and(was_refused) {
            self.form = Some(turn.form);
        }
        let call = turn.attempt.call;
        let outcome = match outcome {
            Ok(result) => self.turn_result(&turn, result),
            Err(failed) => match turn.attempt.first_error {
                Some(first) if was_refused(&failed) => Err(first),
                _ => Err(failed),
            },
        };
        self.out.push(response(call, outcome));
    }

    /// The result of the prompt as a result of ACP, and the part of its text that was not streamed.
    fn turn_result(&mut self, turn: &Turn, result: Box<RawValue>) -> Outcome {
        let object = Object::parse(turn.form.method(), &result).ok();
        let content = match &object {
            Some(object) => object.get("content"),
            None => Some(&*result).filter(|result| result.get().starts_with('"')),
        };
        let reason = object.as_ref().and_then(|object| object.text("stopReason"));
        if content.is_none()
            && reason.is_none()
            && !turn.has_output
            && turn.form == PromptForm::Text
        {
            return Err(internal(missing(names::PROMPT, "content")));
        }
        if let Some(content) = content {
            self.rest_of_text(turn, content);
        }
        if reason.is_some() && content.is_none() {
            return Ok(result);
        }
        let default = if turn.is_cancelled {
            stop_reason::CANCELLED
        } else {
            stop_reason::END_TURN
        };
        let usage = object.as_ref().and_then(|object| object.get("usage"));
        let mut translated = json!({ "stopReason": reason.as_deref().unwrap_or(default) });
        if let Some(usage) = usage.and_then(|usage| serde_json::from_str(usage.get()).ok()) {
            translated["usage"] = usage;
        }
        Ok(to_raw(&translated))
    }

    fn rest_of_text(&mut self, turn: &Turn, content: &RawValue) {
        let session = self.session.as_deref().unwrap_or_default();
        let decoded = if turn.has_undecoded {
            None
        } else {
            text_of(content)
        };
        let rest = match &decoded {
            Some(text) => to_raw(turn.streamed.remainder(text)),
            // A text that cannot be compared is delivered only if it can be no repetition.
            None if turn.streamed.is_empty() && !turn.has_undecoded => content.to_owned(),
            None => return,
        };
        if rest.get().starts_with('"') && rest.get() != "\"\"" {
            self.out
                .push(chunk(session, kind::AGENT_MESSAGE_CHUNK, &rest, None));
        }
    }
}

fn session_id(set_up: &SetUp, names: Names, result: &RawValue) -> Result<Box<str>, LineError> {
    if let Some(id) = &set_up.restores {
        return Ok(id.clone());
    }
    let object = if names == Names::Early {
        names::CREATE_SESSION
    } else {
        method::SESSION_NEW
    };
    let id = Object::parse(object, result)?.required_text("sessionId")?;
    if id.is_empty() || id.len() > MAX_SESSION_ID {
        Err(missing(object, "sessionId"))
    } else {
        Ok(id.into())
    }
}

fn error_in_result(outcome: Outcome) -> Outcome {
    let result = outcome?;
    let error = Object::parse("result", &result).ok();
    let error = error.and_then(|result| result.get("error"));
    let error = error.filter(|error| !matches!(error.get(), "false" | "\"\"" | "{}"));
    let Some(error) = error else {
        return Ok(result);
    };
    Err(match serde_json::from_str::<String>(error.get()) {
        Ok(text) => RpcError::new(error_code::INTERNAL, text),
        Err(_) => jsonrpc::parse_error(error),
    })
}
