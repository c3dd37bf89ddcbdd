//! Requests from an agent to its client: the kinds, the validation of answers, and the default answers.

use serde_json::value::RawValue;

use super::form::ValidationError;
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
    /// `terminal/kill` and `terminal/release`.
    EndTerminal,
    /// An extension method, or a method of a later version of ACP.
    Extension,
}

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
            Self::Permission => Ok(permission::parse_permission(params)
                .map_or_else(|_| permission::cancelled(), |view| view.reject())),
            Self::Elicitation => Ok(elicitation::cancelled_result()),
            Self::Extension => Err(error(
                error_code::METHOD_NOT_FOUND,
                "no client answered in time",
            )),
            _ => Err(error(error_code::INTERNAL, "no client answered in time")),
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
                validate_permission(params, result).map_err(|violation| vec![violation])
            }
            Self::Elicitation => elicitation::validate_answer(params, result),
            Self::Extension => Ok(()),
            Self::WriteFile | Self::EndTerminal if result.get() == "null" => Ok(()),
            _ => {
                let Some(object) = RawObject::parse(result) else {
                    let detail = "expected an object without repeated members";
                    return Err(vec![ValidationError::new("", detail)]);
                };
                let violations = self.invalid_members(&object);
                if violations.is_empty() {
                    Ok(())
                } else {
                    Err(violations)
                }
            }
        }
    }

    fn invalid_members(self, object: &RawObject<'_>) -> Vec<ValidationError> {
        let members: &[Member] = match self {
            Self::ReadFile => &[("content", is_text, "expected a string")],
            Self::CreateTerminal => &[("terminalId", is_text, "expected a string")],
            Self::TerminalOutput => &[
                ("output", is_text, "expected a string"),
                (
                    "truncated",
                    |raw| matches!(raw, "true" | "false"),
                    "expected true or false",
                ),
            ],
            Self::WaitForExit => &EXIT_MEMBERS,
            _ => &[],
        };
        let mut violations = find_invalid(object, "", members);
        let status = object
            .get("exitStatus")
            .filter(|status| status.get() != "null");
        if let Some(status) = status.filter(|_| self == Self::TerminalOutput) {
            match RawObject::parse(status) {
                Some(status) => {
                    violations.extend(find_invalid(&status, "/exitStatus", &EXIT_MEMBERS));
                }
                None => violations.push(ValidationError::new(
                    "/exitStatus",
                    "expected an object or null",
                )),
            }
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

/// Returns an error for each member that does not pass its check. `at` is the pointer to the object.
fn find_invalid(object: &RawObject<'_>, at: &str, members: &[Member]) -> Vec<ValidationError> {
    let invalid = members
        .iter()
        .filter(|(key, fits, _)| !fits(object.get(key).map_or("null", RawValue::get)));
    invalid
        .map(|(key, _, detail)| ValidationError::new(format!("{at}/{key}"), *detail))
        .collect()
}

fn validate_permission(params: &RawValue, result: &RawValue) -> Result<(), ValidationError> {
    let violation = |error: &dyn std::error::Error| ValidationError::new("", error.to_string());
    let view = permission::parse_permission(params).map_err(|error| violation(&error))?;
    view.validate(result).map_err(|error| violation(&error))
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

/// The error for a method that the gateway does not serve.
pub fn method_not_found(method: &str) -> Box<RawValue> {
    let message = format!("\"Method not found\": {method}");
    let data = serde_json::json!({ "method": method });
    to_raw(
        &serde_json::json!({ "code": error_code::METHOD_NOT_FOUND, "message": message, "data": data }),
    )
}

/// The error for a missing file or terminal.
pub fn resource_not_found(uri: &str) -> Box<RawValue> {
    let message = format!("Resource not found: {uri}");
    let data = serde_json::json!({ "uri": uri });
    to_raw(
        &serde_json::json!({ "code": error_code::RESOURCE_NOT_FOUND, "message": message, "data": data }),
    )
}
