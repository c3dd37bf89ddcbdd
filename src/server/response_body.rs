//! The body of a response in transmission, with a time limit for a stalled one, and bounds on unsent bytes.
//!
//! With HTTP/1.1, a peer that does not read shows at the socket. With HTTP/2, one stream can stall at its
//! flow-control window while pings keep the socket busy. Then hyper does not poll the body, so the body
//! cannot detect the stall. The task of the stream detects it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::connection_io::{RequestGuard, SendBacklog};

use crate::server::limits::Limits;
use base::shutdown::lock_or_abort;
use base::telemetry::metrics;

/// The largest part of a response that counts as progress: one HTTP/2 frame.
const MAX_FRAME_BYTES: usize = 16 << 10;

tokio::task_local! {
    /// Set in the task of an HTTP/2 stream, which polls a body only for bytes that fit the flow-control
    /// window.
    static STALL_CLOCK: StallClock;
}

/// The time since which a response waits for its peer. `None` if it does not wait.
#[derive(Clone, Default)]
struct StallClock(Arc<Mutex<Option<Instant>>>);

impl StallClock {
    fn set_waiting_since(&self, since: Option<Instant>) {
        *lock_or_abort(self.0.lock()) = since;
    }

    async fn stalled(&self, stall: Duration) {
        loop {
            let since = *lock_or_abort(self.0.lock());
            let now = Instant::now();
            let look = since.unwrap_or(now) + stall;
            if now >= look {
                return;
            }
            sleep_until(look).await;
        }
    }
}

/// Runs the task of an HTTP/2 stream. If its response stalls for `stall`, the task is dropped. This resets
/// the stream and keeps the other streams of the connection, which may belong to other users of a proxy.
pub(super) async fn run_until_stalled<T>(stream: impl Future<Output = T>, stall: Duration) {
    let progress = StallClock::default();
    tokio::select! {
        biased;
        _ = STALL_CLOCK.scope(progress.clone(), stream) => {}
        () = progress.stalled(stall) => {
            metrics().stream_evictions("stalled", 1);
            tracing::debug!("reset a stream because its peer does not read");
        }
    }
}

pub(super) struct ResponseBody<B> {
    body: B,
    /// `None` with HTTP/1.1.
    stall_clock: Option<StallClock>,
    /// With HTTP/1.1: the bytes that the connection has not written.
    send_backlog: SendBacklog,
    remainder: Bytes,
    unsent: UnsentBytes,
    /// The body yields chunks, and only one of them is in memory at a time.
    chunked: bool,
    _request: RequestGuard,
}

impl<B: Body<Data = Bytes> + Unpin> ResponseBody<B> {
    /// Call this in the task that sends the body. `unsent` counts the bytes of the response while they are in memory. A
    /// shared body is not counted.
    pub(super) fn new(
        body: B,
        send_backlog: SendBacklog,
        open: RequestGuard,
        mut unsent: UnsentBytes,
        shared: bool,
    ) -> Self {
        let progress = STALL_CLOCK.try_with(Clone::clone).ok();
        if let Some(progress) = &progress {
            progress.set_waiting_since(Some(Instant::now()));
        }
        let size = body.size_hint().exact();
        if !shared {
            unsent.set(size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)));
        }
        Self {
            body,
            stall_clock: progress,
            send_backlog,
            remainder: Bytes::new(),
            unsent,
            chunked: size.is_none() && !shared,
            _request: open,
        }
    }

    fn poll_whole_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.send_backlog.is_full() {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.send_backlog
                .add(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self {
            body,
            stall_clock: Some(progress),
            remainder: rest,
            unsent,
            chunked,
            ..
        } = &mut *self
        else {
            return self.poll_whole_chunk(context);
        };
        if rest.is_empty() {
            progress.set_waiting_since(None);
            if *chunked {
                unsent.set(0);
            }
            match ready!(Pin::new(body).poll_frame(context))
                .transpose()?
                .map(Frame::into_data)
            {
                Some(Ok(data)) => {
                    if *chunked {
                        unsent.set(data.len());
                    }
                    *rest = data;
                }
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        progress.set_waiting_since(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(
            rest.split_to(rest.len().min(MAX_FRAME_BYTES)),
        ))))
    }

    fn is_end_stream(&self) -> bool {
        self.remainder.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.remainder.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// Marks a response whose body is shared by all clients. An unsent copy of it needs no memory.
#[derive(Clone, Copy)]
pub(crate) struct SharedBody;

/// Limits the memory that a client occupies by not reading: unsent response bytes, and requests on unauthenticated
/// connections. Only HTTP/2 needs this: an HTTP/1.1 connection has one request at a time.
///
/// A request over the limit waits. A 503 would discard finished work. The gateway does not announce fewer streams to
/// clients without a key, because hyper cannot raise this limit on an open connection.
pub(super) struct GlobalBacklog {
    bytes: AtomicUsize,
    /// Notifies waiting connections that response bytes were sent or dropped.
    released: Notify,
    limits: Arc<Limits>,
}

pub(super) struct ConnectionBacklog {
    total: Arc<GlobalBacklog>,
    bytes: AtomicUsize,
    authenticated: AtomicBool,
    /// Permits for requests that run before the connection is authenticated.
    unauthenticated: Arc<Semaphore>,
}

impl GlobalBacklog {
    pub(super) fn new(limits: &Arc<Limits>) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(0),
            released: Notify::new(),
            limits: Arc::clone(limits),
        })
    }

    pub(super) fn connection(self: &Arc<Self>) -> Arc<ConnectionBacklog> {
        let streams = self.limits.max_h2_unauthenticated_streams as usize;
        Arc::new(ConnectionBacklog {
            total: Arc::clone(self),
            bytes: AtomicUsize::new(0),
            authenticated: AtomicBool::new(false),
            unauthenticated: Arc::new(Semaphore::new(streams)),
        })
    }
}

impl ConnectionBacklog {
    pub(super) fn authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::Relaxed) {
            // Closing the semaphore wakes the waiting requests. They run without a permit.
            self.unauthenticated.close();
        }
    }

    /// Waits until the next request may run. An unauthenticated connection runs a limited number of requests
    /// at a time. A request on a connection with unsent bytes waits while the connection or the gateway
    /// exceeds its limit of unsent bytes. A connection without unsent bytes does not wait for other connections.
    pub(super) async fn admit(self: &Arc<Self>) -> UnsentBytes {
        let total = &self.total;
        let unauthenticated = Arc::clone(&self.unauthenticated);
        let permit = unauthenticated.acquire_owned().await.ok();
        loop {
            // The future is created before the check. Otherwise a release between the check and the wait
            // would be lost.
            let released = total.released.notified();
            let own = self.bytes.load(Ordering::Relaxed);
            let all = total.bytes.load(Ordering::Relaxed);
            let limits = &total.limits;
            if own == 0
                || (own < limits.max_connection_unsent_bytes && all < limits.max_unsent_bytes)
            {
                return UnsentBytes {
                    connection: Some(Arc::clone(self)),
                    bytes: 0,
                    _permit: permit,
                };
            }
            released.await;
        }
    }
}

pub(super) struct UnsentBytes {
    connection: Option<Arc<ConnectionBacklog>>,
    bytes: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

impl UnsentBytes {
    /// For HTTP/1.1 connections, which have one request at a time.
    pub(super) const fn uncounted() -> Self {
        Self {
            connection: None,
            bytes: 0,
            _permit: None,
        }
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let Some(connection) = &self.connection else {
            return;
        };
        let before = std::mem::replace(&mut self.bytes, bytes);
        for counter in [&connection.bytes, &connection.total.bytes] {
            counter.fetch_add(bytes, Ordering::Relaxed);
            counter.fetch_sub(before, Ordering::Relaxed);
        }
        if bytes < before {
            connection.total.released.notify_waiters();
        }
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tokio::time::sleep;

    use super::super::connection_io::Activity;
    use super::*;
    use crate::server::connection_limit::ConnectionPermit;
    use crate::server::limits::Limits;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_polled_stalls_and_each_frame_is_progress() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        let whole = Bytes::from(vec![7; 5 * MAX_FRAME_BYTES / 2]);
        let mut received = Vec::new();
        let began = Instant::now();
        let stream = async {
            let mut body = ResponseBody::new(
                Full::new(whole.clone()),
                SendBacklog::default(),
                activity.begin(http::Version::HTTP_11, false),
                UnsentBytes::uncounted(),
                true,
            );
            assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
            for _ in 0..3 {
                sleep(STALL.mul_f32(0.9)).await;
                assert!(!body.is_end_stream());
                received
                    .extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                assert_eq!(
                    body.size_hint().exact(),
                    Some((whole.len() - received.len()) as u64)
                );
            }
            assert_eq!(activity.request_deadline(&Limits::default(), false), None);
            std::future::pending::<()>().await;
        };
        run_until_stalled(stream, STALL).await;
        let thrice_and_a_stall = STALL.mul_f32(3.7);
        assert!(
            began.elapsed().abs_diff(thrice_and_a_stall) < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(received, whole);
        assert!(
            activity
                .request_deadline(&Limits::default(), false)
                .is_some(),
            "the request has ended"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_handlers_and_idle_bodies_do_not_stall() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        let stream = async {
            sleep(STALL * 10).await;
            let body = http_body_util::StreamBody::new(tokio_stream::pending::<
                Result<Frame<Bytes>, ()>,
            >());
            let mut body = ResponseBody::new(
                body,
                SendBacklog::default(),
                activity.begin(http::Version::HTTP_11, false),
                UnsentBytes::uncounted(),
                true,
            );
            assert!(
                tokio::time::timeout(STALL * 10, body.frame())
                    .await
                    .is_err()
            );
        };
        let began = Instant::now();
        run_until_stalled(stream, STALL).await;
        assert_eq!(began.elapsed(), STALL * 20);
    }

    #[tokio::test]
    async fn http_1_bodies_yield_whole_chunks() {
        let whole = Bytes::from(vec![7; 3 * MAX_FRAME_BYTES]);
        let mut body = ResponseBody::new(
            Full::new(whole.clone()),
            SendBacklog::default(),
            Activity::new(ConnectionPermit::unlimited()).begin(http::Version::HTTP_11, false),
            UnsentBytes::uncounted(),
            true,
        );
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            whole
        );
    }
}

#[cfg(test)]
mod backlog_tests {
    use futures_util::FutureExt;

    use super::*;

    fn backlog(limits: Limits) -> Arc<GlobalBacklog> {
        GlobalBacklog::new(&Arc::new(limits))
    }

    #[tokio::test]
    async fn connection_over_its_unsent_limit_waits_for_its_responses() {
        let backlog = backlog(Limits {
            max_connection_unsent_bytes: 100,
            ..Limits::default()
        });
        let one = backlog.connection();
        let other = backlog.connection();
        let mut first = one.admit().await;
        first.set(100);
        assert!(one.admit().now_or_never().is_none());
        assert!(other.admit().now_or_never().is_some(), "another connection");
        first.set(99);
        assert!(one.admit().now_or_never().is_some());
        first.set(200);
        let (waits, ()) = tokio::join!(biased; one.admit(), async { drop(first) });
        drop(waits);
    }

    #[tokio::test]
    async fn global_unsent_limit_blocks_only_connections_with_unsent_bytes() {
        let backlog = backlog(Limits {
            max_unsent_bytes: 100,
            ..Limits::default()
        });
        let one = backlog.connection();
        let other = backlog.connection();
        let mut first = one.admit().await;
        let mut second = other.admit().await;
        first.set(60);
        second.set(60);
        assert!(one.admit().now_or_never().is_none() && other.admit().now_or_never().is_none());
        assert!(
            backlog.connection().admit().now_or_never().is_some(),
            "the connection has no unsent bytes"
        );
        drop(first);
        assert!(other.admit().now_or_never().is_some());
    }

    #[tokio::test]
    async fn unauthenticated_connection_runs_few_concurrent_requests() {
        let backlog = backlog(Limits {
            max_h2_unauthenticated_streams: 2,
            ..Limits::default()
        });
        let connection = backlog.connection();
        let open = (connection.admit().await, connection.admit().await);
        assert!(connection.admit().now_or_never().is_none());
        drop(open.0);
        let third = connection
            .admit()
            .now_or_never()
            .expect("one request has ended");
        let (fourth, ()) =
            tokio::join!(biased; connection.admit(), async { connection.authenticated() });
        assert!(
            connection.admit().now_or_never().is_some(),
            "the connection is authenticated"
        );
        drop((third, fourth, open.1));
    }
}
