//! Lines on stdin and stdout, which all programs share: the reader and the writer, with bounds, and the form of messages.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use tokio::fs::File;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use base::shutdown::Shutdown;
use wire::acp::error_code;
pub(crate) use wire::jsonrpc::MAX_DEPTH;
use wire::jsonrpc::{self, EnvelopeError, Message, RpcError};

/// The maximum size of a line of an editor, and the default for a line of an agent.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// The id of an answer above the maximum is found in so many first bytes.
const MAX_START_BYTES: usize = 1 << 10;
const QUEUE_LINES: usize = 64;
/// The size of lines that a reader holds, and of unwritten lines above which the other side is not read.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// The size of a write, if more than one line waits.
const BLOCK_BYTES: usize = 64 << 10;

/// Stdin and stdout without the buffers of the standard library, so that a line is one write.
pub fn pipes() -> io::Result<(File, File)> {
    let open = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(|fd| File::from_std(fd.into()));
    Ok((open(io::stdin().as_fd())?, open(io::stdout().as_fd())?))
}

pub(crate) type Line = Result<Vec<u8>, TooLong>;

/// The lines of an input that are not blank. A task reads them ahead, up to a bound.
pub(crate) struct Lines {
    received: mpsc::Receiver<(io::Result<Line>, Option<OwnedSemaphorePermit>)>,
    _reader: AbortOnDropHandle<()>,
}

impl Lines {
    pub(crate) fn read(
        shutdown: &Shutdown,
        input: impl AsyncRead + Send + Unpin + 'static,
        max_line_bytes: usize,
    ) -> Self {
        let (lines, received) = mpsc::channel(QUEUE_LINES);
        let room = Arc::new(Semaphore::new(MAX_QUEUED_BYTES));
        let mut input = BufReader::with_capacity(64 << 10, input);
        let reader = shutdown.spawn_client(async move {
            while let Some(line) = next_line(&mut input, max_line_bytes).await.transpose() {
                let is_last = line.is_err();
                let bytes = match &line {
                    Ok(Ok(line)) => line.len().min(MAX_QUEUED_BYTES),
                    _ => 0,
                };
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                let permit = Arc::clone(&room).acquire_many_owned(bytes).await.ok();
                if lines.send((line, permit)).await.is_err() || is_last {
                    return;
                }
            }
        });
        Self {
            received,
            _reader: AbortOnDropHandle::new(reader),
        }
    }

    /// The next line, or `None` after the last one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Line>> {
        self.received.recv().await.map(|(line, _)| line)
    }
}

/// Reads the next line that is not blank. `None` at the end of the input.
async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    max: usize,
) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    while read_line(input, &mut line, max).await? {
        if line.len() > max {
            line.truncate(MAX_START_BYTES);
            return Ok(Some(Err(TooLong { start: line, max })));
        }
        if !line.iter().all(u8::is_ascii_whitespace) {
            return Ok(Some(Ok(line)));
        }
    }
    Ok(None)
}

/// Reads a line. Of a line above the limit, only the first bytes are kept. Returns false at the end of the input.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    max_bytes: usize,
) -> io::Result<bool> {
    let max_read = max_bytes as u64 + 1;
    line.clear();
    let read = (&mut *input).take(max_read).read_until(b'\n', line).await?;
    if line.ends_with(b"\n") {
        line.pop();
        return Ok(true);
    }
    let mut rest = Vec::new();
    while line.len() > max_bytes && !rest.ends_with(b"\n") {
        rest.clear();
        let mut part = (&mut *input).take(max_read);
        if part.read_until(b'\n', &mut rest).await? == 0 {
            break;
        }
    }
    Ok(read > 0)
}

#[derive(Debug)]
pub(crate) struct TooLong {
    start: Vec<u8>,
    max: usize,
}

impl TooLong {
    /// The line that replaces an answer to the agent, or the error for the client.
    pub(crate) fn as_answer(&self) -> Result<Vec<u8>, RpcError> {
        let detail = format!("a line is longer than {} bytes", self.max);
        match answer_id(&self.start) {
            Some(id) => Ok(failed_answer(&id, &detail)),
            None => Err(RpcError::new(error_code::INVALID_REQUEST, detail)),
        }
    }
}

fn failed_answer(id: &RawValue, reason: &str) -> Vec<u8> {
    let reason = format!("the answer of the client did not reach the agent: {reason}");
    let error = RpcError::new(error_code::INTERNAL, reason);
    jsonrpc::error(id, &error).trim_ascii_end().to_vec()
}

/// The id of an answer that begins with these bytes. `None` if they do not show that the line is an answer.
fn answer_id(mut start: &[u8]) -> Option<Box<RawValue>> {
    let mut id = None;
    let mut before = b"{";
    loop {
        start = start.trim_ascii_start().strip_prefix(before)?;
        let name: String = take_value(&mut start)?;
        start = start.trim_ascii_start().strip_prefix(b":")?;
        match &*name {
            "result" | "error" => return id,
            "id" => id = Some(take_value(&mut start)?),
            "method" => return None,
            _ => drop(take_value::<IgnoredAny>(&mut start)?),
        }
        before = b",";
    }
}

/// Decodes the first value, and moves behind it.
fn take_value<T: DeserializeOwned>(start: &mut &[u8]) -> Option<T> {
    let mut values = serde_json::Deserializer::from_slice(start).into_iter();
    let value = values.next()?.ok()?;
    *start = &start[values.byte_offset()..];
    Some(value)
}

/// Parses a line as a JSON-RPC message. The error is the answer to a line that is no message.
pub(crate) fn parse(line: &[u8]) -> Result<Message, RpcError> {
    let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
    jsonrpc::parse(line, MAX_DEPTH).map_err(|error| {
        // serde skips a string without a check of its encoding.
        let is_text = !matches!(error, EnvelopeError::Utf8(_));
        if !is_text || serde_json::from_slice::<IgnoredAny>(line).is_err() {
            return RpcError::new(error_code::PARSE, "the line is not a JSON text");
        }
        let reason = match first {
            Some(b'[') => "batches are not supported (ACP, Transports)".to_owned(),
            _ => format!("the line is no message: {error}"),
        };
        RpcError::new(error_code::INVALID_REQUEST, reason)
    })
}

/// Writes each block at once, until all senders are gone.
pub(crate) async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut blocks: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(block) = blocks.recv().await {
        output.write_all(&block).await?;
        output.flush().await?;
    }
    Ok(())
}

/// Lines that the writer has not accepted yet.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    pub(crate) lines: VecDeque<Bytes>,
    pub(crate) bytes: usize,
}

impl Unwritten {
    pub(crate) fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }

    /// The next lines, together up to a bound.
    pub(crate) fn pop_block(&mut self) -> Option<Bytes> {
        let first = self.pop()?;
        if self.lines.is_empty() || first.len() >= BLOCK_BYTES {
            return Some(first);
        }
        let mut block = BytesMut::from(&*first);
        while let Some(line) = self.lines.front()
            && block.len() + line.len() <= BLOCK_BYTES
        {
            block.extend_from_slice(line);
            self.pop();
        }
        Some(block.freeze())
    }

    pub(crate) fn has_room(&self) -> bool {
        self.bytes <= MAX_QUEUED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn codes(bytes: &[u8]) -> Vec<Result<(), i64>> {
        let mut input = bytes;
        let mut found = Vec::new();
        while let Some(line) = next_line(&mut input, MAX_LINE_BYTES).await.unwrap() {
            found.push(
                line.or_else(|too_long| too_long.as_answer())
                    .and_then(|line| parse(&line))
                    .map(drop)
                    .map_err(|error| error.code),
            );
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
            assert_eq!(
                codes(&text).await,
                [expected, Ok(())],
                "{}",
                String::from_utf8_lossy(line)
            );
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_skipped() {
        let message = |bytes: usize| {
            let padding = " ".repeat(bytes - 14);
            format!("{{\"method\":\"m\"{padding}}}").into_bytes()
        };
        for (size, expected) in [
            (MAX_LINE_BYTES, Ok(())),
            (MAX_LINE_BYTES + 1, Err(-32600)),
            (3 * MAX_LINE_BYTES, Err(-32600)),
        ] {
            let text = [&message(size)[..], b"\n{\"method\":\"last\"}\n"].concat();
            assert_eq!(codes(&text).await, [expected, Ok(())], "{size}");
        }
        assert_eq!(codes(&message(MAX_LINE_BYTES + 1)).await, [Err(-32600)]);
    }

    #[tokio::test]
    async fn an_answer_over_the_limit_is_replaced_by_an_error_with_its_id() {
        let padding = "x".repeat(MAX_LINE_BYTES);
        let id = |text: String| async move {
            let line = next_line(&mut text.as_bytes(), MAX_LINE_BYTES)
                .await
                .unwrap()
                .unwrap();
            let line = line.or_else(|too_long| too_long.as_answer());
            match line.and_then(|line| parse(&line)) {
                Ok(Message::Response { id, outcome }) => {
                    let error = outcome.unwrap_err();
                    assert!(
                        error.code == -32603 && error.message.contains("16777216 bytes"),
                        "{error:?}"
                    );
                    Some(id.get().to_owned())
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.code, -32600);
                    None
                }
            }
        };
        let far = format!(r#""a":"{}","#, "y".repeat(MAX_START_BYTES));
        for (start, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"s:r1","result":""#,
                Some(r#""s:r1""#),
            ),
            (r#" { "id" : 7 , "_x":[{"method":1}], "error":""#, Some("7")),
            (r#"{"id":7,"method":"m","params":""#, None),
            (r#"{"id":7,"params":""#, None),
            (r#"{"result":""#, None),
            (r#"{"params":{"id":7,"result":1},"x":""#, None),
            (r#"["id",7,"result",""#, None),
            (&*format!(r#"{{{far}"id":7,"result":""#), None),
        ] {
            let text = format!("{start}{padding}\"}}\n");
            assert_eq!(
                id(text).await.as_deref(),
                expected,
                "{}",
                &start[..start.len().min(80)]
            );
        }
    }
}
