//! One client: lines in and out, in order. The end of stdin ends the connection within [`SHUTDOWN_GRACE`].

use std::io;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};
use tokio::sync::mpsc;

use super::agent::Agent;
use super::client::Client;
use super::sessions::Store;
use super::sign_in::SignIn;
use base::shutdown::Shutdown;
use wire::jsonrpc::{self, Message};

/// The maximum number of lines that wait for stdout. After that, turns block.
const OUTPUT_QUEUE_LINES: usize = 64;
/// The time for running turns and unwritten lines after the end of stdin.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// A longer line is discarded and answered with an error.
const LINE_MAX: u64 = 32 << 20;
/// The maximum nesting of a message.
const MAX_DEPTH: usize = 128;

/// Serves until `input` ends or `output` fails.
pub(super) async fn serve(
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin,
    store: Store,
    sign_in: SignIn,
) -> io::Result<()> {
    let (lines, queue) = mpsc::channel(OUTPUT_QUEUE_LINES);
    let shutdown = Shutdown::new();
    let agent = Agent::new(Client::new(lines), store, sign_in, shutdown.clone());
    let reading = read(input, agent, shutdown);
    let writing = write(output, queue);
    tokio::pin!(reading, writing);
    tokio::select! {
        written = &mut writing => return written,
        ended = &mut reading => ended?,
    }
    let written = tokio::time::timeout(SHUTDOWN_GRACE, writing).await;
    written.unwrap_or(Ok(()))
}

async fn read(
    mut input: impl AsyncBufRead + Unpin,
    mut agent: Agent,
    shutdown: Shutdown,
) -> io::Result<()> {
    let mut line = Vec::new();
    while read_line(&mut input, &mut line).await? {
        if line.len() as u64 >= LINE_MAX {
            let error = Error::parse_error().data("the line is too long");
            reject(&agent.client, error).await;
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            receive(&mut agent, &line).await;
        }
    }
    agent.end();
    shutdown.wait_for_tasks(SHUTDOWN_GRACE).await;
    Ok(())
}

/// Reads the next line, or its first [`LINE_MAX`] bytes. Returns false at the end of the input.
async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> io::Result<bool> {
    line.clear();
    let read = (&mut *input).take(LINE_MAX).read_until(b'\n', line).await?;
    let mut rest = Vec::new();
    let mut complete = (read as u64) < LINE_MAX || line.ends_with(b"\n");
    while !complete {
        rest.clear();
        let mut part = (&mut *input).take(LINE_MAX);
        let read = part.read_until(b'\n', &mut rest).await?;
        complete = read == 0 || rest.ends_with(b"\n");
    }
    Ok(read > 0)
}

async fn receive(agent: &mut Agent, line: &[u8]) {
    match jsonrpc::parse(line, MAX_DEPTH) {
        Ok(Message::Request { id, method, params }) => agent.request(&id, &method, &params).await,
        Ok(Message::Notification { method, params }) => agent.notification(&method, &params),
        Ok(Message::Response { id, outcome }) => agent.client.resolve(&id, outcome),
        Err(error) => {
            let is_json = serde_json::from_slice::<IgnoredAny>(line).is_ok();
            let rejection = if is_json {
                Error::invalid_request()
            } else {
                Error::parse_error()
            };
            reject(&agent.client, rejection.data(error.to_string())).await;
        }
    }
}

async fn reject(client: &Client, error: Error) {
    client.answer(RawValue::NULL, Err(error)).await;
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn oversized_line_is_discarded_and_the_next_is_read() {
        let max = usize::try_from(LINE_MAX).unwrap();
        let mut bytes = vec![b'x'; 2 * max + 1];
        bytes.extend_from_slice(b"\nnext\nlast");
        let (mut input, mut line) = (bytes.as_slice(), Vec::new());
        assert!(read_line(&mut input, &mut line).await.unwrap() && line.len() == max);
        assert!(read_line(&mut input, &mut line).await.unwrap() && line == b"next\n");
        assert!(read_line(&mut input, &mut line).await.unwrap() && line == b"last");
        assert!(!read_line(&mut input, &mut line).await.unwrap());
    }
}
