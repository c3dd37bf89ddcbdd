//! The JSON-RPC messages to a client, each one line of JSON.

use std::fmt::Write as _;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::failure::Failure;
use crate::jsonrpc::{self, without_line_end};

/// The longest JSON-RPC id of a client, in bytes.
const MAX_ID_BYTES: usize = 1024;

/// The response to a request of the client.
pub(super) fn response(id: &RawValue, outcome: Result<&RawValue, &Failure>) -> Bytes {
    without_line_end(&match outcome {
        Ok(result) => jsonrpc::result(id, result),
        Err(error) => jsonrpc::error(id, error),
    })
}

/// A request to the client.
pub(super) fn request(id: &str, method: &str, params: &RawValue) -> Bytes {
    without_line_end(&jsonrpc::request(Value::from(id), method, params))
}

pub(super) fn notification(method: &str, params: &(impl Serialize + ?Sized)) -> Bytes {
    without_line_end(&jsonrpc::notification(method, &raw(params)))
}

/// Encodes one of the gateway's own values.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
