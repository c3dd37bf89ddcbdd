//! Incoming lines and JSON-RPC envelopes. Does not know the methods of ACP.

use std::borrow::Cow;
use std::io;

use agent_client_protocol_schema::v1::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// A longer line is discarded and answered with an error.
const LINE_MAX: usize = 32 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Bytes(Vec<u8>),
    TooLong,
    End,
}

/// The next line without its end. The text after the last newline is a line too.
pub(super) async fn read_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let chunk = input.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(match (too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Bytes(line),
            });
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        if line.len() + part.len() > LINE_MAX {
            too_long = true;
            line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(if too_long { Line::TooLong } else { Line::Bytes(line) });
        }
    }
}

/// One message of the client. `id` and `params` keep their serialization.
#[derive(Debug)]
pub(super) enum Message<'a> {
    Request { id: &'a RawValue, method: Cow<'a, str>, params: &'a RawValue },
    Notification { method: Cow<'a, str>, params: &'a RawValue },
    Response { id: &'a RawValue, outcome: Result<&'a RawValue, Error> },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<Error>,
}

/// `null` is a value here: it can be the id of a request and the result of a response.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Parses a line. The error is the answer to an invalid line.
pub(super) fn parse(line: &[u8]) -> Result<Message<'_>, Error> {
    let whole: &RawValue = std::str::from_utf8(line)
        .ok()
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(Error::parse_error)?;
    if whole.get().starts_with('[') {
        return Err(Error::invalid_request().data("batches are not part of ACP"));
    }
    let envelope: Envelope<'_> = serde_json::from_str(whole.get())
        .map_err(|error| Error::invalid_request().data(error.to_string()))?;
    let id_fits = envelope.id.is_none_or(|id| !id.get().starts_with(['{', '[', 't', 'f']));
    if envelope.jsonrpc.as_deref() != Some("2.0") || !id_fits {
        return Err(Error::invalid_request());
    }
    let params = envelope.params.unwrap_or(RawValue::NULL);
    match (envelope.id, envelope.method) {
        (Some(id), Some(method)) => Ok(Message::Request { id, method, params }),
        (None, Some(method)) => Ok(Message::Notification { method, params }),
        (Some(id), None) => match (envelope.error, envelope.result) {
            (Some(error), _) => Ok(Message::Response { id, outcome: Err(error) }),
            (None, Some(result)) => Ok(Message::Response { id, outcome: Ok(result) }),
            (None, None) => Err(Error::invalid_request()),
        },
        (None, None) => Err(Error::invalid_request()),
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::ErrorCode;

    use super::*;

    fn code(line: &str) -> ErrorCode {
        parse(line.as_bytes()).unwrap_err().code
    }

    #[test]
    fn invalid_lines_get_an_error() {
        assert_eq!(code("{"), ErrorCode::ParseError);
        assert_eq!(parse(b"\xff{}").unwrap_err().code, ErrorCode::ParseError);
        for wrong in [
            "[]",
            "{}",
            "1",
            r#"{"id":1,"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,
        ] {
            assert_eq!(code(wrong), ErrorCode::InvalidRequest, "{wrong}");
        }
    }

    #[test]
    fn ids_and_params_keep_their_spelling() {
        let line = br#"{"jsonrpc":"2.0","method":"x","params":{"a":"\ud83d"},"id":null}"#;
        let Message::Request { id, params, .. } = parse(line).unwrap() else { panic!("a request") };
        assert_eq!((id.get(), params.get()), ("null", r#"{"a":"\ud83d"}"#));
    }

    #[tokio::test]
    async fn oversized_line_is_discarded_and_the_next_is_read() {
        let mut bytes = vec![b'x'; LINE_MAX + 1];
        bytes.extend_from_slice(b"\nnext\nlast");
        let mut input = bytes.as_slice();
        assert_eq!(read_line(&mut input).await.unwrap(), Line::TooLong);
        assert_eq!(read_line(&mut input).await.unwrap(), Line::Bytes(b"next".to_vec()));
        assert_eq!(read_line(&mut input).await.unwrap(), Line::Bytes(b"last".to_vec()));
        assert_eq!(read_line(&mut input).await.unwrap(), Line::End);
    }
}
