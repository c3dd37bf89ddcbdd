//! The I/O object of a connection. It protects the gateway from a peer that does not read: the connection times
//! out, and it buffers little until then. It rejects floods of HTTP/2 frames before hyper reads them. When hyper drops it, a stream can take over the socket.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;
use tokio::time::{Instant, Sleep, sleep};

use super::connection_limit::{ConnectionPermit, ReadPermission};
use super::frame_limiter::{FloodLog, FrameLimiter};
use super::hijack::Hijack;

use crate::server::limits::Limits;
use base::shutdown::lock_or_abort;
use base::telemetry::metrics;

/// The number of unwritten bytes at which a body must wait before it yields the next chunk.
const MAX_UNWRITTEN_BYTES: usize = 8 << 10;

/// The additional cost of a paced read, in units of the 128 that a task may use before other tasks run.
const PACED_READ_COST: usize = 7;

/// The bytes of a response that hyper has accepted but not written. A body checks this before it yields more.
/// Otherwise hyper would accept several chunks ahead, and they would stay in memory while the peer does not
/// read.
///
/// Only for HTTP/1.1, where a connection has one response at a time, in a single task.
#[derive(Clone, Default)]
pub(super) struct SendBacklog(Arc<BacklogState>);

#[derive(Default)]
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

    pub(super) fn start_response(&self) {
        self.0.response_active.store(true, Ordering::Relaxed);
    }

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
pub(super) struct ConnectionIo<S: Unpin = TcpStream> {
    /// `None` only during the drop.
    socket: Option<S>,
    /// Bytes that the client sent before this connection existed. Reads return them first.
    read_buf: Bytes,
    hijack: Hijack<S>,
    write_timeout: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    send_backlog: SendBacklog,
    activity: Activity,
    frame_limiter: FrameLimiter,
    flood_log: FloodLog,
    peer: SocketAddr,
}

impl<S: Unpin> ConnectionIo<S> {
    pub(super) fn new(
        socket: S,
        read_buf: Bytes,
        write_timeout: Duration,
        activity: Activity,
        flood_log: FloodLog,
        peer: SocketAddr,
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
            flood_log,
            peer,
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
            Poll::Ready(()) => {
                metrics().stream_evictions("connection_stalled", 1);
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
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
                self.flood_log.report(self.peer, flood);
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

#[derive(Clone)]
pub(super) struct Activity {
    state: Arc<Mutex<ActivityState>>,
    permit: ConnectionPermit,
}

struct ActivityState {
    requests: usize,
    idle_since: Instant,
    /// When bytes arrived that may be the start of the next head.
    head_since: Option<Instant>,
    /// The next bytes belong to the body of the last request, which may have been answered before its body
    /// was read.
    body_remainder: bool,
    version: Option<Version>,
}

impl Activity {
    pub(super) fn new(permit: ConnectionPermit) -> Self {
        let idle_since = Instant::now();
        let open = ActivityState {
            requests: 0,
            idle_since,
            head_since: None,
            body_remainder: false,
            version: None,
        };
        Self {
            state: Arc::new(Mutex::new(open)),
            permit,
        }
    }

    pub(super) fn after_request(permit: ConnectionPermit) -> Self {
        let activity = Self::new(permit);
        activity.lock().version = Some(Version::HTTP_11);
        activity
    }

    fn lock(&self) -> MutexGuard<'_, ActivityState> {
        lock_or_abort(self.state.lock())
    }

    /// Records the start of a request. `body`: whether the request has a body. The request is open until the guard is dropped.
    pub(super) fn begin(&self, version: Version, body: bool) -> RequestGuard {
        let mut open = self.lock();
        open.requests += 1;
        open.head_since = None;
        open.body_remainder = body;
        open.version = Some(version);
        drop(open);
        self.permit.request_started();
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection (HTTP/2).
    pub(super) fn is_multiplexed(&self) -> bool {
        self.lock().is_multiplexed()
    }

    pub(super) fn read_permission(&self) -> ReadPermission {
        self.permit.read_permission(Instant::now())
    }

    pub(super) fn bytes_received(&self, bytes: usize) {
        self.permit.bytes_received(bytes);
        let mut open = self.lock();
        if open.requests == 0 && !std::mem::take(&mut open.body_remainder) {
            open.head_since.get_or_insert_with(Instant::now);
        }
    }

    pub(super) fn response_in_progress(&self) {
        let mut open = self.lock();
        open.idle_since = Instant::now();
        // A head that arrived meanwhile is read only after the response.
        open.head_since = open.head_since.map(|_| open.idle_since);
    }

    /// The time of the next check. `None` if the time without a request has expired. `crowded` shortens the
    /// time, because other clients may need the connection slot.
    pub(super) fn next_check(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let now = Instant::now();
        // Until then a head may begin, or connection slots may become scarce.
        let soon = now + limits.header_timeout;
        self.request_deadline(limits, crowded)
            .map_or(Some(soon), |end| (now < end).then_some(end.min(soon)))
    }

    /// The time by which a request must arrive. `None` while a request is open.
    pub(super) fn request_deadline(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let open = self.lock();
        let idle = if crowded {
            limits.header_timeout.min(limits.connection_idle_timeout)
        } else {
            limits.connection_idle_timeout
        };
        match *open {
            ActivityState { requests: 1.., .. } => None,
            ActivityState {
                version: None,
                idle_since,
                ..
            } => Some(idle_since + limits.header_timeout),
            // With HTTP/2, arriving bytes need not be a head.
            ActivityState {
                head_since: Some(since),
                ..
            } if !open.is_multiplexed() => Some(since + limits.header_timeout),
            ActivityState { idle_since, .. } => Some(idle_since + idle),
        }
    }
}

impl ActivityState {
    fn is_multiplexed(&self) -> bool {
        self.version >= Some(Version::HTTP_2)
    }
}

pub(super) struct RequestGuard(Activity);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let Self(activity) = self;
        activity.permit.request_ended();
        let mut open = activity.lock();
        open.requests -= 1;
        if open.requests == 0 {
            open.idle_since = Instant::now();
            open.head_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::server::connection_limit::ConnectionPermit;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_stalled_peer_times_out_and_a_slow_peer_does_not() {
        let (ours, mut peer) = duplex(4);
        let address = ([127, 0, 0, 1], 1).into();
        let activity = Activity::new(ConnectionPermit::unlimited());
        let mut guarded = ConnectionIo::new(
            ours,
            Bytes::new(),
            STALL,
            activity,
            FloodLog::default(),
            address,
        );
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

#[cfg(test)]
mod activity_tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> Limits {
        let header = Duration::from_secs(10);
        let connection_idle = Duration::from_secs(100);
        Limits {
            header_timeout: header,
            connection_idle_timeout: connection_idle,
            ..Limits::default()
        }
    }

    /// The number of seconds until a request must arrive.
    fn seconds_left(activity: &Activity, crowded: bool) -> Option<u64> {
        Some((activity.request_deadline(&limits(), crowded)? - Instant::now()).as_secs())
    }

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_open_requests() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        assert_eq!(
            seconds_left(&activity, false),
            Some(10),
            "before the first request"
        );
        let one = activity.begin(Version::HTTP_11, false);
        let two = activity.begin(Version::HTTP_11, false);
        advance(5).await;
        assert_eq!(seconds_left(&activity, false), None);
        drop(one);
        assert_eq!(
            seconds_left(&activity, false),
            None,
            "another request is open"
        );
        drop(two);
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(100), Some(10))
        );
        advance(4).await;
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(96), Some(6))
        );
        let look =
            |hurry| Some((activity.next_check(&limits(), hurry)? - Instant::now()).as_secs());
        assert_eq!(
            (look(false), look(true)),
            (Some(10), Some(6)),
            "a head may begin"
        );
        advance(6).await;
        assert_eq!((look(false), look(true)), (Some(10), None));
        activity.response_in_progress();
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(100), Some(10))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_head_has_its_own_timeout() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        advance(4).await;
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(6),
            "the first head has the rest of its time"
        );
        let request = activity.begin(Version::HTTP_11, false);
        activity.bytes_received(1);
        drop(request);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "earlier bytes belong to the request"
        );
        advance(50).await;
        activity.bytes_received(1);
        advance(3).await;
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(7),
            "the time starts with the first byte"
        );
        activity.response_in_progress();
        assert_eq!(
            seconds_left(&activity, false),
            Some(10),
            "the previous response is still being written"
        );
        drop(activity.begin(Version::HTTP_11, true));
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "the bytes are the rest of an unread body"
        );
        activity.bytes_received(1);
        assert_eq!(seconds_left(&activity, false), Some(10));
        drop(activity.begin(Version::HTTP_2, false));
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "a ping is not a head"
        );
    }
}
