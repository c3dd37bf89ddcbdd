//! Answers of the agent to calls, as answers of ACP.

use serde_json::json;
use serde_json::value::RawValue;

use super::content::text_of;
use super::handshake;
use super::translator::{Attempt, FIRST_OWN_ID, Notice, SetUp, Translator, Turn};
use super::variation::{Names, PromptForm};
use crate::acp::{error_code, method, sign_in, stop_reason, update as kind};
use crate::jsonrpc::{self, Message, RpcError};
use crate::translate::early_acp::names::{self, member};
use crate::translate::message::{chunk, error, response, to_raw};
use crate::translate::object::{LineError, Object};
use crate::translate::protocol::Output;

/// The maximum size of the session's id in bytes.
const MAX_SESSION_ID: usize = 4096;

type Outcome = Result<Box<RawValue>, RpcError>;

impl Translator {
    /// Translates an answer.
    pub(super) fn answered(&mut self, id: Box<RawValue>, outcome: Outcome, out: &mut Vec<Output>) {
        let number: Option<u64> = id.get().parse().ok();
        if number.is_some_and(|number| number >= FIRST_OWN_ID) {
            self.own_answered(outcome);
            return;
        }
        let is = |call: jsonrpc::CallId| number == Some(call.number());
        if let Some(attempt) = self.initialize.take_if(|attempt| is(attempt.call)) {
            self.initialize_answered(attempt, error_in_result(outcome), out);
        } else if let Some(set_up) = self.set_up.take_if(|set_up| is(set_up.attempt.call)) {
            self.set_up_answered(set_up, error_in_result(outcome), out);
        } else if let Some(turn) = self.turn.take_if(|turn| is(turn.attempt.call)) {
            self.prompt_answered(turn, error_in_result(outcome), out);
        } else if id.get() == "null" && is_unknown_method(&outcome) {
            // Some agents answer notifications that they do not know.
            tracing::debug!("the agent does not know a notification");
        } else {
            out.push(Output::ToClient(Message::Response { id, outcome }));
        }
    }

    /// The answer to `agent/cancelSession` or `shutdown`. An agent that cancelled nothing continues its turn.
    fn own_answered(&mut self, outcome: Outcome) {
        let Ok(result) = outcome else { return };
        let cancelled = Object::parse(names::CANCEL_SESSION, &result).ok();
        let refused =
            cancelled.and_then(|result| Some(result.get(member::CANCELLED)?.get() == "false"));
        if let (Some(true), Some(turn)) = (refused, &mut self.turn) {
            turn.is_cancelled = false;
        }
    }

    fn initialize_answered(
        &mut self,
        mut attempt: Attempt,
        outcome: Outcome,
        out: &mut Vec<Output>,
    ) {
        let outcome = match outcome {
            Ok(result) => handshake::answer(&result).map_err(|missing| internal(&missing)),
            Err(failed) => match attempt
                .params
                .take()
                .filter(|_| !sign_in::is_required(&failed))
            {
                Some(params) => {
                    let call = attempt.call;
                    attempt.first_error = Some(failed);
                    self.initialize = Some(attempt);
                    self.opening = self.opening.other();
                    Self::send(call, self.send_initialize(call, &params), out);
                    return;
                }
                None => Err(attempt.first_error.unwrap_or(failed)),
            },
        };
        if let Ok((names, _)) = &outcome {
            self.names = *names;
            self.life.is_open = true;
            if *names == Names::Early && self.life.initialized == Notice::Unknown {
                self.life.initialized = Notice::Due;
            }
        }
        out.push(response(attempt.call, outcome.map(|(_, result)| result)));
    }

    fn set_up_answered(&mut self, mut set_up: SetUp, outcome: Outcome, out: &mut Vec<Output>) {
        let call = set_up.attempt.call;
        let outcome = match outcome {
            Ok(result) => match session_id(&set_up, self.names, &result) {
                Ok(id) => {
                    self.session = Some(id);
                    Ok(result)
                }
                Err(missing) => Err(internal(&missing)),
            },
            Err(failed) => {
                let again = set_up
                    .attempt
                    .params
                    .take()
                    .filter(|_| failed.code == error_code::METHOD_NOT_FOUND);
                if let Some(params) = again {
                    self.names = self.names.other();
                    set_up.attempt.first_error = Some(failed);
                    let step = self.send_set_up(call, &params);
                    self.set_up = step.is_ok().then_some(set_up);
                    Self::send(call, step, out);
                    return;
                }
                Err(set_up.attempt.first_error.unwrap_or(failed))
            }
        };
        out.push(response(call, outcome));
    }

    fn prompt_answered(&mut self, mut turn: Turn, outcome: Outcome, out: &mut Vec<Output>) {
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
            Self::send(call, step, out);
            return;
        }
        self.tools.clear();
        let was_refused = |failed: &RpcError| {
            matches!(
                failed.code,
                error_code::METHOD_NOT_FOUND | error_code::INVALID_PARAMS
            )
        };
        if turn.has_output || !outcome.as_ref().is_err_and(was_refused) {
            self.form = Some(turn.form);
        }
        let call = turn.attempt.call;
        let outcome = match outcome {
            Ok(result) => self.turn_result(&turn, result, out),
            Err(failed) => Err(turn
                .attempt
                .first_error
                .filter(|_| was_refused(&failed))
                .unwrap_or(failed)),
        };
        out.push(response(call, outcome));
    }

    /// The result of the prompt as a result of ACP, and the part of its text that was not streamed.
    fn turn_result(&self, turn: &Turn, result: Box<RawValue>, out: &mut Vec<Output>) -> Outcome {
        let object = Object::parse(turn.form.method(), &result).ok();
        let content = match &object {
            Some(object) => object.get(member::CONTENT),
            None => Some(&*result).filter(|result| result.get().starts_with('"')),
        };
        let reason = object.as_ref().and_then(|object| object.text("stopReason"));
        if content.is_none()
            && reason.is_none()
            && !turn.has_output
            && turn.form == PromptForm::Text
        {
            return Err(internal(&LineError::Member {
                object: names::PROMPT,
                member: member::CONTENT,
            }));
        }
        if let Some(content) = content {
            self.rest_of_text(turn, content, out);
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

    fn rest_of_text(&self, turn: &Turn, content: &RawValue, out: &mut Vec<Output>) {
        let session = self.session.as_deref().unwrap_or_default();
        let decoded = text_of(content).filter(|_| !turn.has_undecoded);
        match decoded {
            Some(text) => {
                let rest = turn.streamed.remainder(&text);
                if !rest.is_empty() {
                    out.push(chunk(
                        session,
                        kind::AGENT_MESSAGE_CHUNK,
                        &to_raw(&rest),
                        None,
                    ));
                }
            }
            // A text that cannot be compared is delivered only if it can be no repetition.
            None if turn.streamed.is_empty()
                && !turn.has_undecoded
                && content.get().starts_with('"') =>
            {
                out.push(chunk(session, kind::AGENT_MESSAGE_CHUNK, content, None));
            }
            None => {}
        }
    }
}

/// The session of a set-up.
fn session_id(set_up: &SetUp, names: Names, result: &RawValue) -> Result<Box<str>, LineError> {
    if let Some(id) = &set_up.restores {
        return Ok(id.clone());
    }
    let object = if names == Names::Early {
        names::CREATE_SESSION
    } else {
        method::SESSION_NEW
    };
    let missing = LineError::Member {
        object,
        member: member::SESSION_ID,
    };
    let id = Object::parse(object, result)?.required_text(member::SESSION_ID)?;
    if id.is_empty() || id.len() > MAX_SESSION_ID {
        Err(missing)
    } else {
        Ok(id.into())
    }
}

/// Early agents report an error as `{"error": ...}` within the result.
fn error_in_result(outcome: Outcome) -> Outcome {
    let result = outcome?;
    let error = Object::parse("result", &result)
        .ok()
        .and_then(|result| result.get(member::ERROR).map(ToOwned::to_owned));
    match error.filter(|error| !matches!(error.get(), "false" | "\"\"" | "{}")) {
        None => Ok(result),
        Some(raw) => Err(match serde_json::from_str::<String>(raw.get()) {
            Ok(text) => error_text(text),
            Err(_) => jsonrpc::parse_error(&raw),
        }),
    }
}

fn error_text(text: String) -> RpcError {
    error(error_code::INTERNAL, text)
}

fn internal(missing: &LineError) -> RpcError {
    error(error_code::INTERNAL, format!("Internal error: {missing}"))
}

fn is_unknown_method(outcome: &Outcome) -> bool {
    outcome
        .as_ref()
        .is_err_and(|error| error.code == error_code::METHOD_NOT_FOUND)
}
