//! Requests from an agent to its client: the kinds, the validation of answers, and the default answers.

use std::error::Error;

use serde_json::value::RawValue;

use super::form::{ValidationError, found};
use super::method::{self, error_code};
use super::raw_object::RawObject;
use super::{elicitation, permission, to_raw};

/// The kind of an agent's request. All methods of one kind have the same form of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Permission,
    Elicitation,
    ReadFile,
    WriteFile,
    CreateTerminal,
    TerminalOutput,
    WaitForExit,
    EndTerminal,
    /// An extension method, or a method of a later version of ACP.
    Extension,
}

const LATE: &str = "no client answered in time";

/// A JSON-RPC result, or the error object of a JSON-RPC error.
pub type Outcome = Result<Box<RawValue>, Box<RawValue>>;

impl RequestKind {
    pub fn from_method(method: &str) -> Self {
        match method {
            method::SESSION_REQUEST_PERMISSION => Self::Permission,
            method::ELICITATION_CREATE => Self::Elicitation,
            method::FS_READ_TEXT_FILE => Self::ReadFile,
            method::FS_WRITE_TEXT_FILE => Self::WriteFile,
            method::TERMINAL_CREATE => Self::CreateTerminal,
            method::TERMINAL_OUTPUT => Self::TerminalOutput,
            method::TERMINAL_WAIT_FOR_EXIT => Self::WaitForExit,
            method::TERMINAL_KILL | method::TERMINAL_RELEASE => Self::EndTerminal,
            _ => Self::Extension,
        }
    }

    /// The method of a request for files or terminals. A kind with two methods has one name.
    pub const fn served_method(self) -> Option<&'static str> {
        match self {
            Self::ReadFile => Some(method::FS_READ_TEXT_FILE),
            Self::WriteFile => Some(method::FS_WRITE_TEXT_FILE),
            Self::CreateTerminal => Some(method::TERMINAL_CREATE),
            Self::TerminalOutput => Some(method::TERMINAL_OUTPUT),
            Self::WaitForExit => Some(method::TERMINAL_WAIT_FOR_EXIT),
            Self::EndTerminal => Some(method::TERMINAL_KILL),
            Self::Permission | Self::Elicitation | Self::Extension => None,
        }
    }

    /// A name for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Elicitation => "elicitation",
            Self::ReadFile | Self::WriteFile => "file",
            Self::CreateTerminal | Self::TerminalOutput | Self::WaitForExit | Self::EndTerminal => {
                "terminal"
            }
            Self::Extension => "extension",
        }
    }

    /// Returns true for a question to a person about the turn. Such a request ends with its turn.
    pub const fn is_question(self) -> bool {
        matches!(self, Self::Permission | Self::Elicitation)
    }

    /// The answer to the agent if the turn is cancelled, if the agent withdraws the request, or if no client
    /// is left to answer.
    pub fn cancelled_reply(self) -> Outcome {
        match self {
            Self::Permission => Ok(permission::cancelled()),
            Self::Elicitation => Ok(elicitation::cancelled_result()),
            _ => Err(error(error_code::REQUEST_CANCELLED, "")),
        }
    }

    /// The answer to the agent after the timeout. It never approves a permission.
    pub fn timeout_reply(self, params: &RawValue) -> Outcome {
        match self {
            Self::Permission if let Ok(view) = permission::parse_permission(params) => {
                Ok(view.reject())
            }
            Self::Permission | Self::Elicitation => self.cancelled_reply(),
            Self::Extension => Err(error(error_code::METHOD_NOT_FOUND, LATE)),
            _ => Err(error(error_code::INTERNAL, LATE)),
        }
    }

    /// Validates the members of a client's result that the agent reads. Other members pass unchanged.
    pub fn validate(
        self,
        params: &RawValue,
        result: &RawValue,
    ) -> Result<(), Vec<ValidationError>> {
        match self {
            Self::Permission => {
                let invalid = |error: &dyn Error| vec![ValidationError::new("", error.to_string())];
                let view = permission::parse_permission(params);
                let view = view.map_err(|error| invalid(&error))?;
                view.validate(result).map_err(|error| invalid(&error))
            }
            Self::Elicitation => elicitation::validate_answer(params, result),
            Self::Extension => Ok(()),
            Self::WriteFile | Self::EndTerminal if result.get() == "null" => Ok(()),
            _ => {
                let Some(object) = RawObject::parse(result) else {
                    let detail = "expected an object without repeated members";
                    return Err(vec![ValidationError::new("", detail)]);
                };
                found(self.invalid_members(&object))
            }
        }
    }

    fn invalid_members(self, object: &RawObject<'_>) -> Vec<ValidationError> {
        let members: &[Member] = match self {
            Self::ReadFile => &[("content", is_text, "expected a string")],
            Self::CreateTerminal => &[("terminalId", is_text, "expected a string")],
            Self::TerminalOutput => &[
                ("output", is_text, "expected a string"),
                ("truncated", is_flag, "expected true or false"),
            ],
            Self::WaitForExit => &EXIT_MEMBERS,
            _ => &[],
        };
        let mut violations = find_invalid(object, "", members);
        if let (Self::TerminalOutput, Some(status)) = (self, object.value("exitStatus")) {
            let at = "/exitStatus";
            violations.extend(match RawObject::parse(status) {
                Some(status) => find_invalid(&status, at, &EXIT_MEMBERS),
                None => vec![ValidationError::new(at, "expected an object or null")],
            });
        }
        violations
    }
}

/// The name of a member, the check of its raw value, and the error. An absent member is checked as `null`.
type Member = (&'static str, fn(&str) -> bool, &'static str);

/// The members of an exit status.
const EXIT_MEMBERS: [Member; 2] = [
    (
        "exitCode",
        |raw| raw == "null" || raw.parse::<u32>().is_ok(),
        "expected a whole number of at least 0, or null",
    ),
    (
        "signal",
        |raw| raw == "null" || is_text(raw),
        "expected a string, or null",
    ),
];

fn is_text(raw: &str) -> bool {
    raw.starts_with('"')
}

fn is_flag(raw: &str) -> bool {
    matches!(raw, "true" | "false")
}

/// Returns an error for each member that does not pass its check. `at` is the pointer to the object.
fn find_invalid(object: &RawObject<'_>, at: &str, members: &[Member]) -> Vec<ValidationError> {
    let member = |key| object.get(key).map_or("null", RawValue::get);
    let invalid = members.iter().filter(|(key, fits, _)| !fits(member(key)));
    let error = |(key, _, detail): &Member| ValidationError::new(format!("{at}/{key}"), *detail);
    invalid.map(error).collect()
}

/// Encodes a JSON-RPC error for an agent with the text of the SDKs: the name of the code, then the detail.
/// Some agents match the text and not the code.
pub fn error(code: i64, detail: &str) -> Box<RawValue> {
    let message = match (error_code::name(code), detail) {
        (Some(name), "") => name.to_owned(),
        (Some(name), detail) => format!("{name}: {detail}"),
        (None, detail) => detail.to_owned(),
    };
    to_raw(&serde_json::json!({ "code": code, "message": message }))
}

pub fn method_not_found(method: &str) -> Box<RawValue> {
    let message = format!("\"Method not found\": {method}");
    let data = serde_json::json!({ "method": method });
    let code = error_code::METHOD_NOT_FOUND;
    to_raw(&serde_json::json!({ "code": code, "message": message, "data": data }))
}

/// The error for a missing file or terminal.
pub fn resource_not_found(uri: &str) -> Box<RawValue> {
    let message = format!("Resource not found: {uri}");
    let data = serde_json::json!({ "uri": uri });
    let code = error_code::RESOURCE_NOT_FOUND;
    to_raw(&serde_json::json!({ "code": code, "message": message, "data": data }))
}
