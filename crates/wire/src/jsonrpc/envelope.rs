//! Parses one line as one message and keeps the parts as the peer wrote them.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The nesting depth of JSON. Deeper JSON from a client fails with 422, and deeper JSON from an agent is an invalid line.
pub const MAX_DEPTH: usize = 128;

#[derive(Debug, Clone)]
pub enum Message {
    Request {
        id: Box<RawValue>,
        method: Box<str>,
        params: Box<RawValue>,
    },
    Notification {
        method: Box<str>,
        params: Box<RawValue>,
    },
    Response {
        id: Box<RawValue>,
        outcome: Result<Box<RawValue>, RpcError>,
    },
}

/// The error member of a response (JSON-RPC 2.0, section 5.1).
/// It serializes as the error object. `data` keeps its bytes, which may contain numbers and escapes that other parsers reject.
#[derive(Debug, Clone, Serialize, thiserror::Error)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

/// An error of a line that is not a valid message.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    #[error("not UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    #[error("nested deeper than {max}")]
    Depth { max: usize },
    #[error("not a JSON-RPC object")]
    Json(#[from] serde_json::Error),
    #[error("neither a request, a notification nor a response")]
    NotAMessage,
}

/// Derived, because a derived struct rejects repeated members: the router and a reader must not see different
/// messages.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The members of an error object. Each member is read separately, so that a malformed error still ends the
/// call.
#[derive(Deserialize)]
struct ErrorMember<'a> {
    #[serde(borrow)]
    code: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// The code of an internal error (JSON-RPC 2.0, section 5.1).
const INTERNAL: i64 = -32603;

/// Parses an error object leniently. A malformed object becomes an internal error.
pub fn parse_error(raw: &RawValue) -> RpcError {
    let parts: Result<ErrorMember<'_>, _> = serde_json::from_str(raw.get());
    let Ok(ErrorMember {
        code,
        message,
        data,
    }) = parts
    else {
        return RpcError::new(INTERNAL, raw.get());
    };
    let code = code
        .and_then(|code| code.get().parse().ok())
        .unwrap_or(INTERNAL);
    let text =
        |raw: &RawValue| serde_json::from_str(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    RpcError {
        code,
        message: message.map(text).unwrap_or_default(),
        data: data.map(ToOwned::to_owned),
    }
}

/// Treats a member with the value `null` as present, because `id: null` and `result: null` both occur.
pub fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

pub fn parse(line: &[u8], max_depth: usize) -> Result<Message, EnvelopeError> {
    let text = std::str::from_utf8(line)?;
    check_depth(line, max_depth).map_err(|TooDeep { max }| EnvelopeError::Depth { max })?;
    // serde would also accept an array with the members in the order of the struct.
    if !text.trim_start().starts_with('{') {
        return Err(EnvelopeError::NotAMessage);
    }
    let envelope: Envelope = serde_json::from_str(text)?;
    let params = || envelope.params.unwrap_or(RawValue::NULL).to_owned();
    match (envelope.id, envelope.method) {
        (Some(id), Some(method)) => Ok(Message::Request {
            id: id.to_owned(),
            method: method.into(),
            params: params(),
        }),
        (None, Some(method)) => Ok(Message::Notification {
            method: method.into(),
            params: params(),
        }),
        (id, None) => {
            let id = id.unwrap_or(RawValue::NULL).to_owned();
            let outcome = match (envelope.result, envelope.error) {
                (_, Some(error)) => Err(parse_error(error)),
                (Some(result), None) => Ok(result.to_owned()),
                (None, None) => return Err(EnvelopeError::NotAMessage),
            };
            Ok(Message::Response { id, outcome })
        }
    }
}

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

/// Encodes a response. An error serializes as an error object.
pub fn response(id: &RawValue, outcome: Result<&RawValue, &(impl Serialize + ?Sized)>) -> Bytes {
    match outcome {
        Ok(value) => result(id, value),
        Err(failed) => error(id, failed),
    }
}

/// The message without the end of its line, for a body or a frame.
pub fn without_line_end(line: &Bytes) -> Bytes {
    line.slice(..line.trim_ascii_end().len())
}

impl Message {
    pub fn line(&self) -> Bytes {
        match self {
            Self::Request { id, method, params } => request(id, method, params),
            Self::Notification { method, params } => notification(method, params),
            Self::Response { id, outcome } => response(id, outcome.as_deref()),
        }
    }
}

/// The JSON nests deeper than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("JSON nested deeper than {max}")]
pub struct TooDeep {
    pub max: usize,
}

/// Returns an error if arrays and objects nest deeper than `max`. The parser reads raw values without a depth
/// limit. A later parser (a browser, an agent, the gateway itself) could overflow its stack.
///
/// The function does not check that the bytes are JSON.
pub fn check_depth(bytes: &[u8], max: usize) -> Result<(), TooDeep> {
    // Most messages have fewer brackets than the limit.
    if memchr::memchr2_iter(b'{', b'[', bytes)
        .take(max + 1)
        .count()
        <= max
    {
        return Ok(());
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > max {
                    return Err(TooDeep { max });
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the position after the closing quote of the string whose content begins at `at`.
pub(crate) fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod envelope_tests {
    use super::*;

    fn message(line: &str) -> Result<Message, EnvelopeError> {
        parse(line.as_bytes(), 128)
    }

    #[test]
    fn every_message_kind_is_parsed_with_every_kind_of_id() {
        for expected in ["0", "\"a\"", "null", "-7"] {
            let line = format!(
                r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":1.10}},"id":{expected}}}"#
            );
            let Message::Request { id, method, params } = message(&line).unwrap() else {
                panic!("{line}")
            };
            assert_eq!(
                (id.get(), &*method, params.get()),
                (expected, "m", r#"{"a":1.10}"#)
            );
        }
        let Message::Notification { params, .. } = message(r#"{"method":"n"}"#).unwrap() else {
            panic!()
        };
        assert_eq!(params.get(), "null");
        let Message::Response { id, outcome } = message(r#"{"id":3,"result":null}"#).unwrap()
        else {
            panic!()
        };
        assert_eq!((id.get(), outcome.unwrap().get()), ("3", "null"));
        let line = r#"{"error":{"code":-32700,"message":"Parse error"}}"#;
        let Message::Response { id, outcome } = message(line).unwrap() else {
            panic!()
        };
        assert_eq!((id.get(), outcome.unwrap_err().code), ("null", -32700));
    }

    #[test]
    fn malformed_error_objects_are_still_errors() {
        for (error, code, expected) in [
            (
                r#"{"code":1,"message":"\ud83d","data":7}"#,
                1,
                r#""\ud83d""#,
            ),
            (r#"{"code":"x","message":null}"#, -32603, ""),
            (r#""no""#, -32603, r#""no""#),
            ("{}", -32603, ""),
        ] {
            let line = format!(r#"{{"id":1,"error":{error}}}"#);
            let Message::Response { outcome, .. } = message(&line).unwrap() else {
                panic!("{line}")
            };
            let got = outcome.unwrap_err();
            assert_eq!((got.code, &*got.message), (code, expected), "{line}");
        }
    }

    #[test]
    fn lines_that_are_not_messages_are_rejected() {
        for line in [
            "",
            "hello",
            "[]",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":1,"id":2,"result":1}"#,
            r#"{"method":1}"#,
            r#"[1,"m",{},null,null]"#,
        ] {
            assert!(message(line).is_err(), "{line}");
        }
        assert!(matches!(
            parse(b"{\"a\":\"\xff\"}", 128),
            Err(EnvelopeError::Utf8(_))
        ));
    }

    #[test]
    fn lone_surrogates_pass_and_depth_is_limited() {
        let line = r#"{"method":"session/update","params":{"text":"\ud83d"}}"#;
        assert!(message(line).is_ok());
        let deep = format!(
            r#"{{"method":"m","params":{}{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        assert!(matches!(message(&deep), Err(EnvelopeError::Depth { .. })));
        let wide = format!(r#"{{"method":"m","params":[{}1]}}"#, "[],".repeat(200));
        assert!(message(&wide).is_ok());
        let text = format!(r#"{{"method":"m","params":"{}"}}"#, "[".repeat(200));
        assert!(message(&text).is_ok());
    }
}

#[cfg(test)]
mod line_tests {
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

#[cfg(test)]
mod depth_tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings() {
        for (json, depth) in [
            ("1", 0),
            ("\"[[[[\"", 0),
            (r#"["\"[[["]"#, 1),
            (r#"["\\",["\\\"["]]"#, 2),
            (r#"{"a":{"b":[{}]},"c":[]}"#, 4),
            ("[[],[],[]]", 2),
        ] {
            assert_eq!(check_depth(json.as_bytes(), depth), Ok(()), "{json}");
            if depth > 0 {
                assert_eq!(
                    check_depth(json.as_bytes(), depth - 1),
                    Err(TooDeep { max: depth - 1 }),
                    "{json}"
                );
            }
        }
    }

    #[test]
    fn deep_json_is_rejected_and_garbage_does_not_panic() {
        assert_eq!(
            check_depth(&b"[".repeat(100_000), 128),
            Err(TooDeep { max: 128 })
        );
        for garbage in ["\"", "\"\\", "]]]]", "\"\\\"", ""] {
            assert_eq!(check_depth(garbage.as_bytes(), 1), Ok(()), "{garbage}");
        }
    }
}
