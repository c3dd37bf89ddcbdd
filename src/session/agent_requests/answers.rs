//! Checks a client's answer and converts it to the response for the agent. The check runs outside of the
//! actor, which must not wait for it.

use serde_json::value::RawValue;

use crate::acp::{self, Outcome, RequestKind, ValidationError};
use crate::api::{FieldError, PendingRequest};
use crate::session::command::Answer;
use crate::session::error::{AnswerError, InputError, SessionError};

/// The response for the agent. Fails if the answer does not match the request.
pub(in crate::session) fn check_answer(
    asked: &PendingRequest,
    answer: Answer,
) -> Result<Outcome, AnswerError> {
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

/// The error for an answer on the route of another kind of request.
fn wrong_route(asked: &PendingRequest, ask: RequestKind) -> InputError {
    let (id, method) = (asked.request_id, &asked.method);
    let route = match ask {
        RequestKind::Permission => "permissions",
        RequestKind::Elicitation => "elicitations",
        _ => "requests",
    };
    InputError::invalid("", format!("{id} is {method}: answer it at {route}/{id}"))
}
