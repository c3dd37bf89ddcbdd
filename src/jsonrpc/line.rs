//! Encodes the gateway's own messages as lines for the peer's stdin.

use bytes::Bytes;

use serde_json::value::RawValue;

use super::pending::CallId;

/// Joins the parts of one message. The caller ensures that `params`, `result` and ids are JSON without raw
/// newlines.
fn join_line(parts: &[&[u8]]) -> Bytes {
    let mut bytes = Vec::with_capacity(parts.iter().map(|p| p.len()).sum::<usize>() + 1);
    for part in parts {
        bytes.extend_from_slice(part);
    }
    debug_assert!(!bytes.contains(&b'\n'), "a message is one line");
    bytes.push(b'\n');
    Bytes::from(bytes)
}

fn quoted(text: &str) -> Vec<u8> {
    serde_json::to_vec(text).expect("a string is JSON")
}

pub fn request(id: CallId, method: &str, params: &RawValue) -> Bytes {
    let id = id.number().to_string();
    let method = quoted(method);
    join_line(&[
        br#"{"jsonrpc":"2.0","id":"#,
        id.as_bytes(),
        br#","method":"#,
        &method,
        br#","params":"#,
        params.get().as_bytes(),
        b"}",
    ])
}

pub fn notification(method: &str, params: &RawValue) -> Bytes {
    join_line(&[
        br#"{"jsonrpc":"2.0","method":"#,
        &quoted(method),
        br#","params":"#,
        params.get().as_bytes(),
        b"}",
    ])
}

pub fn result(id: &RawValue, result: &RawValue) -> Bytes {
    response(id, br#","result":"#, result)
}

/// Encodes an error response. `error` is a complete error object.
pub fn error(id: &RawValue, error: &RawValue) -> Bytes {
    response(id, br#","error":"#, error)
}

fn response(id: &RawValue, member: &[u8], value: &RawValue) -> Bytes {
    join_line(&[br#"{"jsonrpc":"2.0","id":"#, id.get().as_bytes(), member, value.get().as_bytes(), b"}"])
}
