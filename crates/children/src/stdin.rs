//! The writer of stdin: a separate task, so that a sender never waits for the child.
//!
//! Lines keep their order. A cancel must not overtake its prompt, and the answers that follow from the cancel
//! must not overtake it. Some places in the queue are reserved for cancels and answers, for the case that the
//! rest of the queue is full.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use base::types::QueuedLine;

/// The number of lines that may wait for an agent. Beyond it, the gateway rejects the sender.
pub const MAX_STDIN_LINES: usize = 64;
/// Additional lines that only cancels and answers may use. Beyond them, the gateway rejects the sender.
pub const RESERVED_STDIN_LINES: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StdinError {
    /// The child reads lines more slowly than they arrive.
    #[error("too many lines are queued for the child's stdin")]
    Full,
    /// The child has closed its stdin, is being stopped, or has ended.
    #[error("the child's stdin is closed")]
    Closed,
}

impl<T> From<mpsc::error::TrySendError<T>> for StdinError {
    fn from(error: mpsc::error::TrySendError<T>) -> Self {
        match error {
            mpsc::error::TrySendError::Full(_) => Self::Full,
            mpsc::error::TrySendError::Closed(_) => Self::Closed,
        }
    }
}

/// A cheap handle of the queue. A line includes its newline.
#[derive(Debug, Clone)]
pub struct StdinWriter {
    lines: mpsc::Sender<QueuedLine>,
}

impl StdinWriter {
    /// Queues a line. Never waits. The line is delivered when the pipe has all of it.
    pub fn send(&self, line: impl Into<QueuedLine>) -> Result<(), StdinError> {
        if !self.is_closed() && self.lines.capacity() <= RESERVED_STDIN_LINES {
            return Err(StdinError::Full);
        }
        self.send_reserved(line)
    }

    /// The same for cancels and answers, which may use the reserved places.
    pub fn send_reserved(&self, line: impl Into<QueuedLine>) -> Result<(), StdinError> {
        Ok(self.lines.try_send(line.into())?)
    }

    pub fn is_closed(&self) -> bool {
        self.lines.is_closed()
    }
}

/// The time between the close of stdin by the child and its stop.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct StdinTask {
    pipe: pipe::Sender,
    lines: mpsc::Receiver<QueuedLine>,
    /// Requests the end of the file after the queued lines.
    close: CancellationToken,
    /// Reports that the child has read nothing for too long.
    stalled: CancellationToken,
    stall_timeout: Duration,
}

impl StdinTask {
    pub(super) fn new(
        pipe: pipe::Sender,
        stall_timeout: Duration,
        close: CancellationToken,
        stalled: CancellationToken,
    ) -> (StdinWriter, Self) {
        let (lines_in, lines) = mpsc::channel(MAX_STDIN_LINES + RESERVED_STDIN_LINES);
        let writer = StdinWriter { lines: lines_in };
        let task = Self {
            pipe,
            lines,
            close,
            stalled,
            stall_timeout,
        };
        (writer, task)
    }

    /// Returns, which closes the pipe, after a close request, after the child has closed its end, or after a
    /// write without progress for `stall_timeout`.
    pub(super) async fn run(mut self) {
        let mut closing = false;
        loop {
            let line = tokio::select! {
                biased;
                () = self.close.cancelled(), if !closing => {
                    closing = true;
                    self.lines.close();
                    continue;
                }
                Some(line) = self.lines.recv() => line,
                else => return,
            };
            if !self.write(line.bytes()).await {
                return;
            }
            line.delivered();
        }
    }

    async fn write(&mut self, line: &[u8]) -> bool {
        let mut rest = line;
        while !rest.is_empty() {
            match tokio::time::timeout(self.stall_timeout, self.pipe.write(rest)).await {
                Ok(Ok(written)) => {
                    rest = &rest[written..];
                    continue;
                }
                // The child closed its stdin. Wait, because it may be about to end by itself.
                Ok(Err(_)) => tokio::time::sleep(CLOSED_GRACE).await,
                Err(_) => {}
            }
            self.stalled.cancel();
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;

    use super::*;

    type Parts = (
        StdinWriter,
        StdinTask,
        pipe::Receiver,
        CancellationToken,
        CancellationToken,
    );

    const STALL_TIMEOUT: Duration = Duration::from_secs(10);

    fn parts(stall_timeout: Duration) -> Parts {
        let out = CancellationToken::new();
        let into = CancellationToken::new();
        let (sender, receiver) = pipe::pipe().expect("a pipe");
        let (writer, task) = StdinTask::new(sender, stall_timeout, out.clone(), into.clone());
        (writer, task, receiver, out, into)
    }

    #[tokio::test]
    async fn lines_keep_their_order_and_some_places_are_reserved() {
        let (writer, task, mut receiver, close, _) = parts(STALL_TIMEOUT);
        let mut expected = String::new();
        for number in 0..MAX_STDIN_LINES {
            let line = format!("{number}\n");
            expected.push_str(&line);
            writer.send(Bytes::from(line)).unwrap();
        }
        assert_eq!(
            writer.send(Bytes::from_static(b"no\n")),
            Err(StdinError::Full)
        );
        for _ in 0..RESERVED_STDIN_LINES {
            expected.push_str("cancel\n");
            writer
                .send_reserved(Bytes::from_static(b"cancel\n"))
                .unwrap();
        }
        assert_eq!(
            writer.send_reserved(Bytes::from_static(b"no\n")),
            Err(StdinError::Full)
        );

        close.cancel();
        task.run().await;
        let mut got = String::new();
        receiver.read_to_string(&mut got).await.unwrap();
        assert_eq!(
            got, expected,
            "queued lines are written before the end of the file"
        );
        assert_eq!(
            writer.send(Bytes::from_static(b"4\n")),
            Err(StdinError::Closed)
        );
    }

    #[tokio::test]
    async fn stalled_reader_is_reported() {
        let stall_timeout = Duration::from_millis(50);
        let (writer, task, receiver, _close, stalled) = parts(stall_timeout);
        writer.send(Bytes::from(vec![b'x'; 1 << 20])).unwrap();
        let began = tokio::time::Instant::now();
        task.run().await;
        assert!(stalled.is_cancelled());
        assert!(began.elapsed() >= stall_timeout);
        drop(receiver);
    }

    #[tokio::test]
    async fn closed_reader_is_reported_after_a_grace_period() {
        let (writer, task, receiver, _close, stalled) = parts(STALL_TIMEOUT);
        drop(receiver);
        writer.send(Bytes::from_static(b"1\n")).unwrap();
        let began = tokio::time::Instant::now();
        task.run().await;
        assert!(stalled.is_cancelled() && began.elapsed() >= CLOSED_GRACE);
        assert!(writer.is_closed());
    }
    #[tokio::test]
    async fn delivery_is_reported_when_the_pipe_has_the_whole_line() {
        let (writer, task, mut receiver, _close, _) = parts(STALL_TIMEOUT);
        let (line, mut delivered) = QueuedLine::reported(Bytes::from(vec![b'x'; 1 << 20]));
        writer.send(line).unwrap();
        let check = async move {
            let mut half = vec![0; 1 << 19];
            receiver.read_exact(&mut half).await.unwrap();
            // The pipe is smaller than the other half.
            delivered.try_recv().unwrap_err();
            receiver.read_exact(&mut half).await.unwrap();
            delivered.await.unwrap();

            drop(receiver);
            let (lost, delivered) = QueuedLine::reported(Bytes::from_static(b"x"));
            writer.send(lost).unwrap();
            delivered.await.unwrap_err();
        };
        tokio::join!(task.run(), check);
    }
}
