//! The JSON-RPC messages to a client, each one line of JSON, and the errors of the surface.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::connection::TooManySessions;
use events::api::{Problem, ProblemCode};
use sessions::session::ToProblem;
use wire::acp::error_code;
use wire::jsonrpc::{self, without_line_end};

/// The longest JSON-RPC id of a client, in bytes.
const MAX_ID_BYTES: usize = 1024;

pub(super) fn response(id: &RawValue, outcome: Result<&RawValue, &Failure>) -> Bytes {
    without_line_end(&match outcome {
        Ok(result) => jsonrpc::result(id, result),
        Err(error) => jsonrpc::error(id, error),
    })
}

pub(super) fn request(id: &str, method: &str, params: &RawValue) -> Bytes {
    without_line_end(&jsonrpc::request(Value::from(id), method, params))
}

pub(super) fn notification(method: &str, params: &(impl Serialize + ?Sized)) -> Bytes {
    without_line_end(&jsonrpc::notification(method, &raw(params)))
}

pub(super) fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("the gateway's own values have string keys and serialize")
}

/// Whether a request may have this id: a string, a number or null (JSON-RPC 2.0, section 4) of limited length.
pub(super) fn is_valid_id(id: &RawValue) -> bool {
    let first = id.get().as_bytes().first();
    id.get().len() <= MAX_ID_BYTES
        && first.is_some_and(|first| !matches!(first, b'{' | b'[' | b't' | b'f'))
}

/// The message with every character outside of ASCII escaped (RFC 8259, section 7).
///
/// The SSE reader of the Python SDK decodes each read separately, and fails if a read ends inside a character.
pub(super) fn to_ascii(message: Bytes) -> Bytes {
    if message.is_ascii() {
        return message;
    }
    let text = String::from_utf8_lossy(&message);
    let mut escaped = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            // JSON has characters outside of ASCII only in strings.
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                write!(escaped, "\\u{unit:04x}").expect("a string can be written to");
            }
        }
    }
    escaped.into()
}

/// A JSON-RPC error. `data` contains the problem of REST, or the `data` of the agent's error.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    pub(super) code: i64,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    /// The key of the client does not permit the message.
    #[serde(skip)]
    pub(super) is_forbidden: bool,
}

pub(super) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
            is_forbidden: false,
        }
    }

    pub(super) fn with_code(self, code: i64) -> Self {
        Self { code, ..self }
    }

    pub(super) fn with_data(self, data: Box<RawValue>) -> Self {
        let data = Some(data);
        Self { data, ..self }
    }

    pub(super) fn invalid_params(detail: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_PARAMS, detail)
    }

    pub(super) fn invalid_request(detail: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_REQUEST, detail)
    }

    pub(super) fn internal() -> Self {
        Problem::internal().into()
    }

    pub(super) fn method_not_found(method: &str) -> Self {
        let detail = format!(
            "the gateway does not serve the method {}",
            shortened(method)
        );
        Self::new(error_code::METHOD_NOT_FOUND, detail)
    }

    pub(super) fn no_such_session(id: &str) -> Self {
        let detail = format!(
            "session {} does not exist, or this key has no access to it",
            shortened(id)
        );
        Self::new(error_code::RESOURCE_NOT_FOUND, detail)
    }

    pub(super) fn from_raw_problem(problem: Option<&RawValue>) -> Self {
        let problem: Option<Problem> =
            problem.and_then(|problem| serde_json::from_str(problem.get()).ok());
        let unknown = || Self::new(error_code::INTERNAL, "the turn failed");
        problem.map_or_else(unknown, Self::from)
    }

    /// An error of the agent keeps its code, message and data.
    fn of_problem(problem: Problem) -> Self {
        let is_forbidden = problem.code == ProblemCode::Forbidden;
        match problem.acp {
            Some(error) => Self {
                code: error.code,
                message: error.message,
                data: error.data,
                is_forbidden,
            },
            None => Self {
                code: code_of(problem.code),
                message: problem.detail.clone(),
                data: to_raw_value(&problem).ok(),
                is_forbidden,
            },
        }
    }
}

/// Returns the beginning of a text of the client, so that errors stay small.
fn shortened(text: &str) -> &str {
    const MAX_BYTES: usize = 128;
    &text[..text.floor_char_boundary(MAX_BYTES)]
}

impl From<TooManySessions> for Failure {
    fn from(error: TooManySessions) -> Self {
        Self::invalid_request(error.to_string())
    }
}

impl<E: ToProblem> From<E> for Failure {
    fn from(error: E) -> Self {
        let problem = error.problem();
        if problem.code == ProblemCode::Internal {
            // The span has the id of the request, or of the request that opened the socket.
            tracing::error!(%error, "the response to a message of an ACP client is an internal error");
        }
        Self::of_problem(problem)
    }
}

/// The code of JSON-RPC or ACP that is nearest to the problem.
fn code_of(code: ProblemCode) -> i64 {
    match code {
        ProblemCode::AgentAuthRequired => error_code::AUTH_REQUIRED,
        ProblemCode::NotFound => error_code::RESOURCE_NOT_FOUND,
        ProblemCode::AgentUnsupported => error_code::METHOD_NOT_FOUND,
        ProblemCode::Invalid
        | ProblemCode::Malformed
        | ProblemCode::ContentUnsupported
        | ProblemCode::TooLarge
        | ProblemCode::Forbidden => error_code::INVALID_PARAMS,
        _ => error_code::INTERNAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::api::RpcError;

    #[test]
    fn messages_outside_of_ascii_are_escaped_to_the_same_value() {
        let text = r#"{"a":"é☃😀\ud83d","é":1.10}"#;
        let ascii = to_ascii(Bytes::from_static(text.as_bytes()));
        assert_eq!(
            ascii,
            r#"{"a":"\u00e9\u2603\ud83d\ude00\ud83d","\u00e9":1.10}"#
        );
        let plain = Bytes::from_static(b"{\"a\":1}");
        assert_eq!(to_ascii(plain.clone()), plain);
    }

    #[test]
    fn ids_are_strings_numbers_or_null() {
        for (id, valid) in [
            ("1", true),
            ("\"a\"", true),
            ("null", true),
            ("{}", false),
            ("true", false),
        ] {
            assert_eq!(
                is_valid_id(serde_json::from_str(id).unwrap()),
                valid,
                "{id}"
            );
        }
        let long = format!("\"{}\"", "x".repeat(2000));
        assert!(!is_valid_id(serde_json::from_str(&long).unwrap()));
    }

    #[test]
    fn errors_of_agents_keep_their_members_and_problems_become_data() {
        let acp = RpcError {
            code: -32001,
            message: "busy".to_owned(),
            data: to_raw_value(&7).ok(),
        };
        let problem = Problem {
            acp: Some(acp),
            ..Problem::new(ProblemCode::AgentError, "the agent failed")
        };
        let failure = serde_json::to_value(Failure::from(problem)).unwrap();
        assert_eq!(
            failure,
            serde_json::json!({"code": -32001, "message": "busy", "data": 7})
        );

        let failure =
            serde_json::to_value(Failure::from(Problem::new(ProblemCode::PoolFull, "busy")))
                .unwrap();
        assert_eq!(
            (&failure["code"], &failure["message"]),
            (&(-32603).into(), &"busy".into())
        );
        assert_eq!(
            (&failure["data"]["code"], &failure["data"]["retryable"]),
            (&"pool_full".into(), &true.into())
        );
    }
}
