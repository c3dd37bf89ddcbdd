//! One client: lines in and out, in order. The end of stdin ends the connection within [`SHUTDOWN_GRACE`].

use std::io;
use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::shutdown::Shutdown;

use super::agent::Agent;
use super::peer::Peer;
use super::sign_in::SignIn;
use super::store::Store;
use super::wire::{self, Line, Message};

/// The maximum number of lines that wait for stdout. After that, turns block.
const OUTPUT_QUEUE_LINES: usize = 64;
/// The time for running turns and unwritten lines after the end of stdin.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Serves until `input` ends or `output` fails.
pub(super) async fn serve(
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin,
    store: Store,
    sign_in: SignIn,
) -> io::Result<()> {
    let (lines, queue) = mpsc::channel(OUTPUT_QUEUE_LINES);
    let shutdown = Shutdown::new();
    let agent = Agent::new(Peer::new(lines.clone()), store, sign_in, shutdown.clone());
    let reading = read(&mut input, agent, Peer::new(lines), shutdown);
    let writing = write(output, queue);
    tokio::pin!(reading, writing);
    tokio::select! {
        written = &mut writing => return written,
        ended = &mut reading => ended?,
    }
    tokio::time::timeout(SHUTDOWN_GRACE, writing).await.unwrap_or(Ok(()))
}

async fn read(
    input: &mut (impl AsyncBufRead + Unpin),
    mut agent: Agent,
    peer: Peer,
    shutdown: Shutdown,
) -> io::Result<()> {
    loop {
        match wire::read_line(input).await? {
            Line::Bytes(line) if line.iter().all(u8::is_ascii_whitespace) => {}
            Line::Bytes(line) => match wire::parse(&line) {
                Ok(Message::Request { id, method, params }) => agent.request(id, &method, params).await,
                Ok(Message::Notification { method, params }) => agent.notification(&method, params),
                Ok(Message::Response { id, outcome }) => agent.handle_response(id, outcome),
                Err(error) => send_error(&peer, error).await,
            },
            Line::TooLong => send_error(&peer, Error::parse_error().data("the line is too long")).await,
            Line::End => break,
        }
    }
    agent.end();
    shutdown.wait_for_tasks(SHUTDOWN_GRACE).await;
    Ok(())
}

async fn send_error(peer: &Peer, error: Error) {
    peer.answer::<()>(RawValue::NULL, Err(error)).await;
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        output.flush().await?;
    }
    Ok(())
}
