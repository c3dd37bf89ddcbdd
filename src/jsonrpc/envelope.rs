//! Parses one line as one message and keeps the parts as the peer wrote them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::depth::{TooDeep, check_depth};

/// A message of the peer. The ids, `params`, `result` and `data` keep the bytes of the peer.
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
        return RpcError {
            code: INTERNAL,
            message: raw.get().to_owned(),
            data: None,
        };
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

/// Parses the envelope of `line`.
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

#[cfg(test)]
mod tests {
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
