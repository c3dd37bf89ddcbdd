//! Encodes the gateway's own messages as lines for the peer's stdin. `params`, `result` and ids are JSON without raw
//! newlines.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::pending::CallId;

/// Encodes a message from its members.
fn line(members: std::fmt::Arguments<'_>) -> Bytes {
    let line = format!("{{\"jsonrpc\":\"2.0\",{members}}}\n");
    debug_assert!(!line.trim_end().contains('\n'), "a message is one line");
    line.into()
}

pub fn request(id: CallId, method: &str, params: &RawValue) -> Bytes {
    line(format_args!(
        r#""id":{},"method":{},"params":{params}"#,
        id.number(),
        Value::from(method)
    ))
}

pub fn notification(method: &str, params: &RawValue) -> Bytes {
    line(format_args!(
        r#""method":{},"params":{params}"#,
        Value::from(method)
    ))
}

pub fn result(id: &RawValue, result: &RawValue) -> Bytes {
    line(format_args!(r#""id":{id},"result":{result}"#))
}

/// Encodes an error response. `error` is a complete error object.
pub fn error(id: &RawValue, error: &RawValue) -> Bytes {
    line(format_args!(r#""id":{id},"error":{error}"#))
}
