//! A connection that cannot hold us up: it closes when its peer takes nothing for long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream with a deadline for each time that it takes no more bytes.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    stall: Duration,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, stall: Duration) -> Self {
        Self { stream, stall, stalled: None }
    }

    /// Arms the stall's timer while a write is pending, and fails when it ran out.
    fn wrote(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let stall = self.stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_left_and_a_slow_one_is_not() {
        let (ours, mut peer) = duplex(4);
        let mut guarded = Guarded::new(ours, STALL);
        let start = Instant::now();
        let slow = async {
            for _ in 0..4 {
                tokio::time::sleep(STALL.mul_f32(0.9)).await;
                assert_eq!(peer.read(&mut [0; 4]).await.unwrap(), 4);
            }
        };
        let (written, ()) = tokio::join!(guarded.write_all(&[0; 20]), slow);
        written.unwrap();
        assert!(start.elapsed() > STALL * 3);
        let error = guarded.write_all(&[0; 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
