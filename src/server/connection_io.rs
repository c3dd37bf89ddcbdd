//! The I/O object of a connection. It protects the gateway from a peer that does not read: the connection times
//! out, and it buffers little until then. It rejects floods of HTTP/2 frames before hyper reads them. When hyper drops it, a stream can take over the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;
use tokio::time::{Sleep, sleep};

use super::activity::Activity;
use super::connection_limit::ReadPermission;
use super::flood_log::FloodReporter;
use super::frame_limiter::FrameLimiter;
use super::hijack::Hijack;

/// The number of unwritten bytes at which a body must wait before it yields the next chunk.
const MAX_UNWRITTEN_BYTES: usize = 8 << 10;

/// The additional cost of a paced read, in units of the 128 that a task may use before other tasks run.
const PACED_READ_COST: usize = 7;

/// The bytes of a response that hyper has accepted but not written. A body checks this before it yields more.
/// Otherwise hyper would accept several chunks ahead, and they would stay in memory while the peer does not
/// read.
///
/// Only for HTTP/1.1, where a connection has one response at a time, in a single task.
#[derive(Debug, Clone, Default)]
pub(super) struct SendBacklog(Arc<BacklogState>);

#[derive(Debug, Default)]
struct BacklogState {
    bytes: AtomicUsize,
    /// A body waits until the backlog is empty.
    body_waits: AtomicBool,
    /// A response has started, and not all of its accepted bytes are written.
    response_active: AtomicBool,
}

impl SendBacklog {
    /// Whether the next chunk must wait. If so, the calling task is woken when everything is written.
    pub(super) fn is_full(&self) -> bool {
        let full = self.0.bytes.load(Ordering::Relaxed) >= MAX_UNWRITTEN_BYTES;
        self.0.body_waits.store(full, Ordering::Relaxed);
        full
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that a response starts.
    pub(super) fn start_response(&self) {
        self.0.response_active.store(true, Ordering::Relaxed);
    }

    /// Whether all accepted bytes are written.
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

/// The socket of a connection. It fails if a write makes no progress for a time limit. When hyper drops it,
/// the socket moves to its [`Hijack`].
#[derive(Debug)]
pub(super) struct ConnectionIo<S: Unpin = TcpStream> {
    /// `None` only during the drop.
    socket: Option<S>,
    /// Bytes that the client sent before this connection existed. Reads return them first.
    read_buf: Bytes,
    hijack: Hijack<S>,
    write_timeout: Duration,
    /// The timer of a pending write.
    timer: Option<Pin<Box<Sleep>>>,
    send_backlog: SendBacklog,
    activity: Activity,
    frame_limiter: FrameLimiter,
    floods: FloodReporter,
}

impl<S: Unpin> ConnectionIo<S> {
    pub(super) fn new(
        socket: S,
        read_buf: Bytes,
        write_timeout: Duration,
        activity: Activity,
        floods: FloodReporter,
    ) -> Self {
        Self {
            socket: Some(socket),
            read_buf,
            hijack: Hijack::new(),
            write_timeout,
            timer: None,
            send_backlog: SendBacklog::default(),
            activity,
            frame_limiter: FrameLimiter::new(),
            floods,
        }
    }

    pub(super) fn send_backlog(&self) -> SendBacklog {
        self.send_backlog.clone()
    }

    pub(super) fn hijack(&self) -> Hijack<S> {
        self.hijack.clone()
    }

    fn socket(&mut self) -> Pin<&mut S> {
        Pin::new(
            self.socket
                .as_mut()
                .expect("the socket is present until the drop"),
        )
    }

    /// Records the result of a write. Arms the timer while the write is pending. Fails when the timer expires.
    fn check_write(
        &mut self,
        context: &mut Context<'_>,
        poll: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = &poll {
            self.timer = None;
            self.frame_limiter.written(*written.as_ref().unwrap_or(&0));
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

impl<S: Unpin> Drop for ConnectionIo<S> {
    fn drop(&mut self) {
        self.hijack
            .release_socket(self.socket.take(), std::mem::take(&mut self.read_buf));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.activity.read_permission() {
            ReadPermission::Full => {}
            ReadPermission::Paced => {
                for _ in 0..PACED_READ_COST {
                    ready!(poll_proceed(context)).made_progress();
                }
            }
            ReadPermission::AfterEvictions => {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ReadPermission::Evicted => {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        let before = buffer.filled().len();
        let poll = if self.read_buf.is_empty() {
            self.socket().poll_read(context, buffer)
        } else {
            let early = self.read_buf.len().min(buffer.remaining());
            buffer.put_slice(&self.read_buf.split_to(early));
            Poll::Ready(Ok(()))
        };
        let more = &buffer.filled()[before..];
        if !more.is_empty() {
            self.hijack.bytes_read(more);
            self.activity.bytes_received(more.len());
            if let Err(flood) = self.frame_limiter.read(more) {
                self.floods.report(flood);
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = self.socket().poll_write(context, bytes);
        self.check_write(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = self.socket().poll_write_vectored(context, slices);
        self.check_write(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.as_ref().is_some_and(S::is_write_vectored)
    }

    /// hyper flushes when nothing is left to write.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hijack.response_flushed();
        ready!(self.socket().poll_flush(context))?;
        self.send_backlog.clear(context);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::server::connection_limit::ConnectionPermit;
    use crate::server::flood_log::FloodLog;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_stalled_peer_times_out_and_a_slow_peer_does_not() {
        let (ours, mut peer) = duplex(4);
        let floods = FloodLog::default().of_peer(([127, 0, 0, 1], 1).into());
        let activity = Activity::new(ConnectionPermit::unlimited());
        let mut guarded = ConnectionIo::new(ours, Bytes::new(), STALL, activity, floods);
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
