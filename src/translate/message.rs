//! The messages and lines that translations create.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::protocol::Output;
use crate::acp::{error_code, method};
use crate::jsonrpc::{CallId, Message, RpcError};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a, U> {
    session_id: &'a str,
    update: &'a U,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    session_update: &'a str,
    content: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<&'a str>,
}

/// Encodes a value of this module.
pub(super) fn to_raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("the values of the translation have string keys")
}

/// A `session/update`.
pub(super) fn update(session: &str, update: &impl Serialize) -> Output {
    notification(
        method::SESSION_UPDATE,
        to_raw(&Params {
            session_id: session,
            update,
        }),
    )
}

pub(super) fn notification(method: &str, params: Box<RawValue>) -> Output {
    Output::ToClient(Message::Notification {
        method: method.into(),
        params,
    })
}

/// A chunk of this kind. `text` is a string, which passes unchanged.
pub(super) fn chunk(session: &str, kind: &str, text: &RawValue, message: Option<&str>) -> Output {
    let content = Text {
        r#type: "text",
        text,
    };
    update(
        session,
        &Chunk {
            session_update: kind,
            content,
            message_id: message,
        },
    )
}

/// The response to a call of the client.
pub(super) fn response(call: CallId, outcome: Result<Box<RawValue>, RpcError>) -> Output {
    let id = RawValue::from_string(call.number().to_string()).expect("a number is JSON");
    Output::ToClient(Message::Response { id, outcome })
}

pub(super) fn error(code: i64, message: impl Into<String>) -> RpcError {
    RpcError {
        code,
        message: message.into(),
        data: None,
    }
}

/// An object with raw members, which keep their bytes.
pub(super) fn object(members: &[(&str, Box<RawValue>)]) -> Box<RawValue> {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(*name)))
        .collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).expect("names and values are JSON")
}

pub(super) fn invalid_params(detail: &str) -> RpcError {
    error(
        error_code::INVALID_PARAMS,
        format!("Invalid params: {detail}"),
    )
}
