//! Messages and lines that the served protocols write.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::acp::{error_code, to_one_line};
use crate::jsonrpc::{Message, RpcError};

/// Encodes one of the module's own values.
pub(super) fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("the values of this module have string keys and serialize")
}

/// An object with raw members, which keep their bytes.
pub(super) fn object(members: &[(&str, Box<RawValue>)]) -> Box<RawValue> {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(*name)))
        .collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).expect("names and values are JSON")
}

/// A value as a line.
pub(super) fn line(value: Box<RawValue>) -> Bytes {
    format!("{}\n", to_one_line(value)).into()
}

pub(super) fn rpc_error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError {
        code,
        message: message.into(),
        data: None,
    }
}

pub(super) fn invalid_params(detail: &str) -> RpcError {
    rpc_error(
        error_code::INVALID_PARAMS,
        format!("Invalid params: {detail}"),
    )
}

/// A message as a line of JSON-RPC. Absent params stay absent.
pub(super) fn encode(message: &Message) -> Bytes {
    let version = ("jsonrpc", raw("2.0"));
    let call = |id: Option<&RawValue>, method: &str, params: &RawValue| {
        let mut members = vec![version.clone()];
        members.extend(id.map(|id| ("id", id.to_owned())));
        members.push(("method", raw(method)));
        if params.get() != "null" {
            members.push(("params", params.to_owned()));
        }
        object(&members)
    };
    line(match message {
        Message::Request { id, method, params } => call(Some(id), method, params),
        Message::Notification { method, params } => call(None, method, params),
        Message::Response {
            id,
            outcome: Ok(result),
        } => object(&[version, ("id", id.clone()), ("result", result.clone())]),
        Message::Response {
            id,
            outcome: Err(error),
        } => object(&[version, ("id", id.clone()), ("error", raw(error))]),
    })
}

/// The answer to a line that is no message.
pub(super) fn answer_to_invalid(error: RpcError) -> Bytes {
    encode(&Message::Response {
        id: RawValue::NULL.to_owned(),
        outcome: Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn messages_keep_the_bytes_of_their_parts() {
        let params = || value("{\"a\":1.10,\n\"t\":\"\\ud83d\"}");
        let shown = "{\"a\":1.10, \"t\":\"\\ud83d\"}";
        let error = RpcError {
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
                    outcome: Err(error),
                },
                r#""id":7,"error":{"code":-1,"message":"m","data":1e999}"#.to_owned(),
            ),
        ] {
            assert_eq!(
                encode(&message),
                format!("{{\"jsonrpc\":\"2.0\",{expected}}}\n")
            );
        }
    }
}
