//! The parts that all transports over a network share: the queue of lines, the request to close, and the end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{BoxFuture, Closed, LineWriter, Queueing, Transport};
use crate::agent::failure::AgentExit;
use base::types::QueuedLine;
use children::{MAX_STDIN_LINES, RESERVED_STDIN_LINES};

/// The size of received bytes that the reader of the connection has not taken yet. Above it, the transport stops reading.
pub(super) const INCOMING_BYTES: usize = 64 << 10;
/// The reason of an end by the gateway.
pub(super) const CLOSED: &str = "the gateway closed the connection";
/// The time between the end of the incoming bytes and the reason.
const EXIT_GRACE: Duration = Duration::from_millis(400);

#[derive(Debug, Default)]
pub(super) struct Link {
    close: CancellationToken,
    ended: CancellationToken,
    reason: OnceLock<String>,
}

impl Link {
    /// Completes when the gateway closes the connection.
    pub(super) async fn closing(&self) {
        self.close.cancelled().await;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.close.is_cancelled()
    }

    pub(super) fn end(&self, reason: String) {
        // A later reason is a consequence of the first one.
        let _ = self.reason.set(reason);
        self.ended.cancel();
    }
}

/// The owner of a connection to an agent that is not a child process of the gateway.
#[derive(Debug)]
pub(super) struct RemoteTransport(pub(super) Arc<Link>);

impl Transport for RemoteTransport {
    fn begin_close(&self) {
        self.0.close.cancel();
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.ended.cancelled())
    }

    fn is_closed(&self) -> bool {
        self.0.ended.is_cancelled()
    }

    fn exit(&self) -> BoxFuture<'_, AgentExit> {
        Box::pin(async {
            // Without an end, the reader of the connection has stopped first, and has the reason.
            let _ = tokio::time::timeout(EXIT_GRACE, self.0.ended.cancelled()).await;
            let reason = self.0.reason.get().cloned();
            let reason = reason.unwrap_or_else(|| CLOSED.to_owned());
            AgentExit {
                disconnected: Some(reason.into()),
                ..AgentExit::default()
            }
        })
    }

    fn diagnostics(&self) -> String {
        String::new()
    }
}

impl Drop for RemoteTransport {
    fn drop(&mut self) {
        self.begin_close();
    }
}

/// A queue with the bounds of a child's stdin.
#[derive(Debug)]
pub(super) struct LineQueue(mpsc::Sender<QueuedLine>);

impl LineQueue {
    pub(super) fn new() -> (Self, mpsc::Receiver<QueuedLine>) {
        let (lines, receiver) = mpsc::channel(MAX_STDIN_LINES + RESERVED_STDIN_LINES);
        (Self(lines), receiver)
    }
}

impl LineWriter for LineQueue {
    fn send(&self, line: QueuedLine, queueing: Queueing) -> Result<(), Closed> {
        if queueing == Queueing::Ordinary && self.0.capacity() <= RESERVED_STDIN_LINES {
            return Err(Closed);
        }
        self.0.try_send(line).map_err(|_| Closed)
    }
}

/// A JSON text as one line. A line break can only be between two tokens, so a blank has the same meaning.
pub(super) fn to_line(text: &[u8]) -> Vec<u8> {
    let mut line = text.to_vec();
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn message_with_line_breaks_becomes_one_line() {
        assert_eq!(to_line(b"{\r\n\"a\":\n1}"), b"{  \"a\": 1}\n");
    }

    #[tokio::test]
    async fn some_places_of_the_queue_are_reserved() {
        let (queue, mut lines) = LineQueue::new();
        let send =
            |line: &'static [u8], queueing| queue.send(Bytes::from_static(line).into(), queueing);
        for _ in 0..MAX_STDIN_LINES {
            assert_eq!(send(b"1", Queueing::Ordinary), Ok(()));
        }
        assert_eq!(send(b"2", Queueing::Ordinary), Err(Closed));
        for _ in 0..RESERVED_STDIN_LINES {
            assert_eq!(send(b"3", Queueing::Reserved), Ok(()));
        }
        assert_eq!(send(b"4", Queueing::Reserved), Err(Closed));
        assert_eq!(lines.recv().await.unwrap().bytes(), "1");
    }

    #[tokio::test]
    async fn first_reason_of_an_end_is_reported() {
        let transport = RemoteTransport(Arc::default());
        transport.0.end("first".to_owned());
        transport.0.end("second".to_owned());
        assert!(transport.is_closed());
        assert_eq!(
            transport.exit().await.disconnected.as_deref(),
            Some("first")
        );
    }
}
