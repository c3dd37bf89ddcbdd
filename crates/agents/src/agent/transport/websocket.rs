//! The transport to a remote agent over a WebSocket: one message in each text frame.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::Channel;
use super::link::{CLOSED, INCOMING_BYTES, LineQueue, Link, RemoteTransport, to_line};
use base::shutdown::Shutdown;
use base::types::QueuedLine;
use base::types::text::strip_controls;
use children::STDIN_STALL_TIMEOUT;

const PING_INTERVAL: Duration = Duration::from_secs(20);
/// An agent without a message or a pong for this long is lost.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// The time in which the agent can still send messages after the gateway has closed the connection.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

pub(in crate::agent) fn open(
    socket: WebSocketStream<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    shutdown: &Shutdown,
) -> Channel<DuplexStream> {
    let (queue, lines) = LineQueue::new();
    let (incoming, output) = tokio::io::duplex(INCOMING_BYTES);
    let link = Arc::new(Link::default());
    let shared = Arc::clone(&link);
    shutdown.spawn(async move {
        let (sink, stream) = socket.split();
        let reason = tokio::select! {
            reason = read(stream, output) => reason,
            reason = write(sink, lines, &shared) => reason,
        };
        shared.end(reason);
    });
    Channel {
        incoming,
        outgoing: Arc::new(queue),
        transport: Box::new(RemoteTransport(link)),
        offset: None,
        pending: None,
    }
}

/// Passes the agent's messages on as lines. Returns the reason of the end.
async fn read<S>(mut stream: SplitStream<WebSocketStream<S>>, mut output: DuplexStream) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let text = match timeout(SILENCE_TIMEOUT, stream.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => text,
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
            Ok(Some(Ok(Message::Binary(_)))) => {
                return "the agent sent a binary message".to_owned();
            }
            Ok(Some(Ok(Message::Close(frame)))) => return closed_by_agent(frame),
            Ok(Some(Err(error))) => return lost(&error),
            Ok(None) => return "the agent closed the connection".to_owned(),
            Err(_) => {
                let seconds = SILENCE_TIMEOUT.as_secs();
                return format!("no answer to pings for {seconds} seconds");
            }
        };
        if output.write_all(&to_line(text.as_bytes())).await.is_err() {
            return CLOSED.to_owned();
        }
    }
}

/// Sends lines and pings. Returns the reason of the end.
async fn write<S>(
    mut sink: SplitSink<WebSocketStream<S>, Message>,
    mut lines: mpsc::Receiver<QueuedLine>,
    state: &Link,
) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let mut closing = false;
    loop {
        let (message, line) = tokio::select! {
            biased;
            () = state.closing(), if !closing => {
                closing = true;
                lines.close();
                continue;
            }
            line = lines.recv() => match line {
                Some(line) => match std::str::from_utf8(line.bytes().trim_ascii_end()) {
                    Ok(text) => (Message::Text(text.into()), Some(line)),
                    Err(_) => continue,
                },
                None => break,
            },
            _ = pings.tick() => (Message::Ping(Bytes::new()), None),
        };
        match timeout(STDIN_STALL_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {
                if let Some(line) = line {
                    line.delivered();
                }
            }
            Ok(Err(error)) => return lost(&error),
            Err(_) => {
                let seconds = STDIN_STALL_TIMEOUT.as_secs();
                return format!("the agent read nothing for {seconds} seconds");
            }
        }
    }
    // The messages that the agent has sent are still read.
    let _ = timeout(CLOSE_GRACE, sink.close()).await;
    tokio::time::sleep(CLOSE_GRACE).await;
    CLOSED.to_owned()
}

fn closed_by_agent(frame: Option<CloseFrame>) -> String {
    let closed = "the agent closed the connection".to_owned();
    match frame {
        Some(frame) if !frame.reason.is_empty() => {
            format!("{closed}: {}", strip_controls(&frame.reason))
        }
        Some(frame) => format!("{closed} with code {}", u16::from(frame.code)),
        None => closed,
    }
}

fn lost(error: &Error) -> String {
    match error {
        Error::Capacity(_) => "a message of the agent exceeds max_line_bytes".to_owned(),
        error => {
            let error = error.to_string();
            format!("the connection was lost: {}", strip_controls(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// The time until the connection is lost, and the reason. `answers` is the time for which the agent answers pings.
    async fn lost_after(answers: Duration) -> (Duration, String) {
        let (near, far) = tokio::io::duplex(1 << 10);
        let near = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        let mut far = WebSocketStream::from_raw_socket(far, Role::Server, None).await;
        let began = Instant::now();
        let mut channel = open(near, &Shutdown::new());
        let agent = async {
            // Reading answers pings.
            while let Ok(message) =
                timeout(answers.saturating_sub(began.elapsed()), far.next()).await
            {
                assert!(matches!(message, Some(Ok(Message::Ping(_)))), "{message:?}");
            }
            std::future::pending::<()>().await;
        };
        let mut bytes = Vec::new();
        tokio::select! {
            read = channel.incoming.read_to_end(&mut bytes) => assert_eq!(read.unwrap(), 0),
            () = agent => {}
        }
        let lasted = began.elapsed();
        (
            lasted,
            channel.transport.exit().await.disconnected.unwrap().into(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn agent_that_answers_no_pings_is_lost_after_a_minute() {
        let reason = "no answer to pings for 60 seconds".to_owned();
        assert_eq!(
            lost_after(Duration::ZERO).await,
            (SILENCE_TIMEOUT, reason.clone())
        );
        let (lasted, lost) = lost_after(Duration::from_secs(310)).await;
        assert_eq!(
            (lasted, lost),
            (Duration::from_mins(5) + SILENCE_TIMEOUT, reason)
        );
    }
}
