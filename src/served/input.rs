//! The lines of a client.

use std::io;

use serde::de::IgnoredAny;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

use super::message::rpc_error;
use crate::acp::error_code;
use crate::jsonrpc::{self, EnvelopeError, Message, RpcError};

/// The maximum size of a line. A longer line is skipped and reported.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// The maximum nesting of a message.
pub const MAX_DEPTH: usize = 128;

/// Reads the next line that is not blank, or the error for a line above the limit. `None` at the end of the input.
pub async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<Result<Vec<u8>, RpcError>>> {
    let mut line = Vec::new();
    while read_line(input, &mut line).await? {
        if line.len() > MAX_LINE_BYTES {
            let detail = format!("a line is longer than {MAX_LINE_BYTES} bytes");
            return Ok(Some(Err(rpc_error(error_code::INVALID_REQUEST, detail))));
        }
        if !line.iter().all(u8::is_ascii_whitespace) {
            return Ok(Some(Ok(line)));
        }
    }
    Ok(None)
}

/// Reads a line. Of a line above the limit, only the first bytes are kept. Returns false at the end of the input.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<bool> {
    const READ: u64 = MAX_LINE_BYTES as u64 + 1;
    line.clear();
    let read = (&mut *input).take(READ).read_until(b'\n', line).await?;
    if line.ends_with(b"\n") {
        line.pop();
        return Ok(true);
    }
    let mut rest = Vec::new();
    while line.len() > MAX_LINE_BYTES && !rest.ends_with(b"\n") {
        rest.clear();
        if (&mut *input).take(READ).read_until(b'\n', &mut rest).await? == 0 {
            break;
        }
    }
    Ok(read > 0)
}

/// Parses a line as a JSON-RPC message. The error is the answer to a line that is no message.
pub fn parse(line: &[u8]) -> Result<Message, RpcError> {
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
    jsonrpc::parse(line, MAX_DEPTH).map_err(|error| {
        // serde skips a string without a check of its encoding.
        let is_text = !matches!(error, EnvelopeError::Utf8(_));
        if !is_text || serde_json::from_slice::<IgnoredAny>(line).is_err() {
            rpc_error(error_code::PARSE, "the line is not a JSON text")
        } else if first == Some(&b'[') {
            rpc_error(error_code::INVALID_REQUEST, "batches are not supported (ACP, Transports)")
        } else {
            rpc_error(error_code::INVALID_REQUEST, format!("the line is no message: {error}"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn codes(bytes: &[u8]) -> Vec<Result<(), i64>> {
        let mut input = bytes;
        let mut found = Vec::new();
        while let Some(line) = next_line(&mut input).await.unwrap() {
            found.push(line.and_then(|line| parse(&line)).map(drop).map_err(|error| error.code));
        }
        found
    }

    #[tokio::test]
    async fn lines_that_are_no_messages_are_answered_and_the_next_line_is_read() {
        for (line, expected) in [
            (&b"{\"method\":\"m\"}"[..], Ok(())),
            (b"{\"method\":\"m\"}\r", Ok(())),
            (b"hello", Err(-32700)),
            (b"{\"id\":1,", Err(-32700)),
            (b"{\"method\":\"\xff\"}", Err(-32700)),
            (b"[{\"method\":\"m\"}]", Err(-32600)),
            (b"{}", Err(-32600)),
            (b"7", Err(-32600)),
        ] {
            let text = [line, b"\n \n{\"method\":\"last\"}"].concat();
            assert_eq!(codes(&text).await, [expected, Ok(())], "{}", String::from_utf8_lossy(line));
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped() {
        let message = |bytes: usize| {
            let padding = " ".repeat(bytes - 14);
            format!("{{\"method\":\"m\"{padding}}}").into_bytes()
        };
        for (size, expected) in
            [(MAX_LINE_BYTES, Ok(())), (MAX_LINE_BYTES + 1, Err(-32600)), (3 * MAX_LINE_BYTES, Err(-32600))]
        {
            let text = [&message(size)[..], b"\n{\"method\":\"last\"}\n"].concat();
            assert_eq!(codes(&text).await, [expected, Ok(())], "{size}");
        }
        assert_eq!(codes(&message(MAX_LINE_BYTES + 1)).await, [Err(-32600)]);
    }
}
