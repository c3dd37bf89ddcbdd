//! A connection that cannot hold us up: it closes when its peer takes nothing for long, and holds little for it until
//! then.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::activity::Activity;

/// Bytes of an answer that may wait to be written before the next chunk is asked for.
const MAX_UNWRITTEN_BYTES: usize = 8 << 10;

/// How much of an answer was handed over and is not written yet. A body asks here before it gives more, because hyper
/// would take several chunks ahead, and they are in memory for as long as the peer takes nothing.
///
/// Only for HTTP/1.1, where a connection has one answer at a time and all of it in one task.
#[derive(Debug, Clone, Default)]
pub(super) struct SendBacklog(Arc<BacklogState>);

#[derive(Debug, Default)]
struct BacklogState {
    bytes: AtomicUsize,
    /// A body was told to wait.
    body_waits: AtomicBool,
    /// An answer was begun and not all that was handed over is written.
    response_active: AtomicBool,
}

impl SendBacklog {
    /// Whether the next chunk has to wait. The task that asks is woken when everything is written.
    pub(super) fn is_full(&self) -> bool {
        let full = self.0.bytes.load(Ordering::Relaxed) >= MAX_UNWRITTEN_BYTES;
        self.0.body_waits.store(full, Ordering::Relaxed);
        full
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An answer begins.
    pub(super) fn start_response(&self) {
        self.0.response_active.store(true, Ordering::Relaxed);
    }

    /// Whether all that was handed over is written.
    pub(super) fn is_empty(&self) -> bool {
        !self.0.response_active.load(Ordering::Relaxed)
    }

    fn clear(&self, context: &Context<'_>) {
        self.0.bytes.store(0, Ordering::Relaxed);
        self.0.response_active.store(false, Ordering::Relaxed);
        if self.0.body_waits.swap(false, Ordering::Relaxed) {
            context.waker().wake_by_ref();
        }
    }
}

/// A stream with a deadline for each time that it takes no more bytes.
#[derive(Debug)]
pub(super) struct StallGuard<S> {
    stream: S,
    write_timeout: Duration,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
    send_backlog: SendBacklog,
    activity: Activity,
}

impl<S> StallGuard<S> {
    pub(super) fn new(stream: S, stall: Duration, activity: Activity) -> Self {
        Self { stream, write_timeout: stall, timer: None, send_backlog: SendBacklog::default(), activity }
    }

    pub(super) fn send_backlog(&self) -> SendBacklog {
        self.send_backlog.clone()
    }

    /// Arms the stall's timer while a write is pending, and fails when it ran out.
    fn check_stall(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if poll.is_ready() {
            self.timer = None;
            return poll;
        }
        let stall = self.write_timeout;
        let stalled = self.timer.get_or_insert_with(|| Box::pin(sleep(stall)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_received();
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_stall(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_stall(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Who writes flushes when nothing is left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.send_backlog.clear(context);
        Poll::Ready(Ok(()))
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
    async fn a_stalled_peer_times_out_and_a_slow_peer_does_not() {
        let (ours, mut peer) = duplex(4);
        let mut guarded = StallGuard::new(ours, STALL, Activity::new());
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
