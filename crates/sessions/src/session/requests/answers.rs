//! Answers to the agent: the check of a client's answer, and the policy for permission requests and questions, which is the
//! agent's setting as narrowed by the client's policy.
//!
//! The check runs outside of the actor, which must not wait for it.

use std::time::Duration;

use serde_json::value::RawValue;

use super::offer::Wait;
use crate::session::command::Answer;
use crate::session::error::{AnswerError, InputError, SessionError};
use agents::agent::AgentSpec;
use events::api::{FieldError, OnTimeout, PendingRequest, SessionPolicy};
use wire::acp::{self, DeniedModes, Outcome, RequestKind, ValidationError};

/// The response for the agent. Fails if the answer does not match the request.
pub(crate) fn check_answer(asked: &PendingRequest, answer: Answer) -> Result<Outcome, AnswerError> {
    let ask = RequestKind::from_method(&asked.method);
    match answer {
        Answer::Option(option) if ask == RequestKind::Permission => {
            let view = acp::parse_permission(&asked.params)
                .map_err(|error| SessionError::internal(&error))?;
            if view.offers(&option) {
                Ok(Ok(acp::selected(&option)))
            } else {
                Err(InputError::invalid("/optionId", "the agent did not offer this option").into())
            }
        }
        Answer::Cancelled if ask == RequestKind::Permission => Ok(Ok(acp::cancelled())),
        Answer::Elicitation(result) if ask == RequestKind::Elicitation => {
            Ok(check_result(ask, asked, result, "")?)
        }
        Answer::Option(_) | Answer::Cancelled | Answer::Elicitation(_) => {
            Err(wrong_route(asked, ask).into())
        }
        Answer::Result(result) => Ok(check_result(ask, asked, result, "/result")?),
        Answer::Error(error) => {
            let object = acp::RawObject::parse(&error).filter(|object| {
                let code = object
                    .get("code")
                    .is_some_and(|code| code.get().parse::<i64>().is_ok());
                code && object.text("message").is_some()
            });
            match object {
                Some(_) => Ok(Err(acp::to_one_line(error))),
                None => Err(InputError::invalid(
                    "/error",
                    "a JSON-RPC error has a number `code` and a text `message`",
                )
                .into()),
            }
        }
    }
}

fn check_result(
    ask: RequestKind,
    asked: &PendingRequest,
    result: Box<RawValue>,
    at: &str,
) -> Result<Outcome, InputError> {
    match ask.validate(&asked.params, &result) {
        Ok(()) => Ok(Ok(acp::to_one_line(result))),
        Err(violations) => Err(InputError::Invalid(
            violations
                .into_iter()
                .map(|ValidationError { pointer, detail }| FieldError {
                    pointer: format!("{at}{pointer}"),
                    detail,
                })
                .collect(),
        )),
    }
}

fn wrong_route(asked: &PendingRequest, ask: RequestKind) -> InputError {
    let id = asked.request_id;
    let method = &asked.method;
    let route = match ask {
        RequestKind::Permission => "permissions",
        RequestKind::Elicitation => "elicitations",
        _ => "requests",
    };
    InputError::invalid("", format!("{id} is {method}: answer it at {route}/{id}"))
}

pub(crate) fn answer_wait(spec: &AgentSpec, policy: &SessionPolicy) -> Wait {
    let entry = &spec.settings.permissions;
    let narrowed = policy.permissions.as_ref();
    let rejects = narrowed.and_then(|policy| policy.on_timeout) == Some(OnTimeout::Reject);
    if !rejects && entry.on_timeout == OnTimeout::Wait {
        return Wait::Turn;
    }
    let timeout = narrowed
        .and_then(|policy| policy.timeout_seconds)
        .map(Duration::from_secs);
    Wait::AtMost(timeout.map_or(entry.timeout, |timeout| timeout.min(entry.timeout)))
}

/// Whether the policy allows this kind of tool without a question.
pub(crate) fn allows(spec: &AgentSpec, policy: &SessionPolicy, kind: Option<&str>) -> bool {
    let narrowed = policy.permissions.as_ref();
    let listed =
        |list: &[String]| kind.is_some_and(|kind| list.iter().any(|allowed| allowed == kind));
    let narrow = narrowed.and_then(|policy| policy.allow.as_deref());
    listed(&spec.settings.permissions.allow) && narrow.is_none_or(listed)
}

/// Returns the entry of `modes.deny` whose mode this answer selects. Files and the output of commands select no mode.
pub(crate) fn denying_entry<'d>(
    denied: &'d DeniedModes,
    request: &PendingRequest,
    answer: &RawValue,
) -> Option<&'d str> {
    match RequestKind::from_method(&request.method) {
        RequestKind::Permission => acp::parse_permission(&request.params)
            .ok()?
            .find_denied(denied, answer),
        RequestKind::Elicitation | RequestKind::Extension => acp::find_in_value(denied, answer),
        _ => None,
    }
}
