//! The writer of JSON-RPC messages. Each message is one line with its end. Ids, params, results and errors keep their bytes.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::envelope::Message;

/// Encodes a message from its members.
fn line(members: fmt::Arguments<'_>) -> Bytes {
    let mut line = format!("{{\"jsonrpc\":\"2.0\",{members}}}").into_bytes();
    // A string in JSON contains no raw line end, so each one is between tokens, where a space is equivalent.
    if memchr::memchr2(b'\n', b'\r', &line).is_some() {
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
    line.push(b'\n');
    line.into()
}

/// Encodes a request. `id` displays as JSON. The params `null` are left out: params are an object or an array.
pub fn request(id: impl fmt::Display, method: &str, params: &RawValue) -> Bytes {
    let method = Value::from(method);
    if params.get() == "null" {
        return line(format_args!(r#""id":{id},"method":{method}"#));
    }
    line(format_args!(
        r#""id":{id},"method":{method},"params":{params}"#
    ))
}

/// Encodes a notification. The params `null` are left out.
pub fn notification(method: &str, params: &RawValue) -> Bytes {
    let method = Value::from(method);
    if params.get() == "null" {
        return line(format_args!(r#""method":{method}"#));
    }
    line(format_args!(r#""method":{method},"params":{params}"#))
}

pub fn result(id: &RawValue, result: &RawValue) -> Bytes {
    line(format_args!(r#""id":{id},"result":{result}"#))
}

/// Encodes an error response. `error` serializes as an error object.
pub fn error(id: &RawValue, error: &(impl Serialize + ?Sized)) -> Bytes {
    let error = serde_json::to_string(error).expect("an error object has string keys");
    line(format_args!(r#""id":{id},"error":{error}"#))
}

/// The message without the end of its line, for a body or a frame.
pub fn without_line_end(line: &Bytes) -> Bytes {
    line.slice(..line.trim_ascii_end().len())
}

impl Message {
    /// The message as a line.
    pub fn line(&self) -> Bytes {
        match self {
            Self::Request { id, method, params } => request(id, method, params),
            Self::Notification { method, params } => notification(method, params),
            Self::Response {
                id,
                outcome: Ok(value),
            } => result(id, value),
            Self::Response {
                id,
                outcome: Err(failed),
            } => error(id, failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{CallId, RpcError};

    fn value(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn messages_are_lines_and_keep_the_bytes_of_their_parts() {
        let params = || value("{\"a\":1.10,\n\"t\":\"\\ud83d\"}");
        let shown = "{\"a\":1.10, \"t\":\"\\ud83d\"}";
        let failed = RpcError {
            code: -1,
            message: "m".to_owned(),
            data: Some(value("1e999")),
        };
        for (message, expected) in [
            (
                Message::Request {
                    id: value("\"x\""),
                    method: "m".into(),
                    params: params(),
                },
                format!(r#""id":"x","method":"m","params":{shown}"#),
            ),
            (
                Message::Request {
                    id: value("0"),
                    method: "a\"b".into(),
                    params: RawValue::NULL.to_owned(),
                },
                r#""id":0,"method":"a\"b""#.to_owned(),
            ),
            (
                Message::Notification {
                    method: "m".into(),
                    params: params(),
                },
                format!(r#""method":"m","params":{shown}"#),
            ),
            (
                Message::Notification {
                    method: "m".into(),
                    params: RawValue::NULL.to_owned(),
                },
                r#""method":"m""#.to_owned(),
            ),
            (
                Message::Response {
                    id: value("7"),
                    outcome: Ok(params()),
                },
                format!(r#""id":7,"result":{shown}"#),
            ),
            (
                Message::Response {
                    id: value("7"),
                    outcome: Err(failed),
                },
                r#""id":7,"error":{"code":-1,"message":"m","data":1e999}"#.to_owned(),
            ),
        ] {
            let line = message.line();
            assert_eq!(line, format!("{{\"jsonrpc\":\"2.0\",{expected}}}\n"));
            assert_eq!(
                without_line_end(&line),
                format!("{{\"jsonrpc\":\"2.0\",{expected}}}")
            );
        }
    }

    #[test]
    fn ids_are_numbers_or_texts() {
        let empty = value("{}");
        let own = request(CallId::new(5), "m", &empty);
        assert_eq!(
            own,
            "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"m\",\"params\":{}}\n"
        );
        let text = request(Value::from("b-1"), "m", &empty);
        assert_eq!(
            text,
            "{\"jsonrpc\":\"2.0\",\"id\":\"b-1\",\"method\":\"m\",\"params\":{}}\n"
        );
    }
}
