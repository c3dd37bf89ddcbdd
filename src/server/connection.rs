//! One connection: its requests, its time limits, and its end.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::Version;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;

use super::connection_io::{Activity, ConnectionIo, SendBacklog};
use super::connection_limit::ConnectionPermit;
use super::frame_limiter::FloodLog;
use super::hijack::Hijack;
use super::middleware::Peer;
use super::response_body::{
    ConnectionBacklog, GlobalBacklog, ResponseBody, SharedBody, UnsentBytes, run_until_stalled,
};

use crate::server::limits::Limits;
use crate::stream::limits::Limits as StreamLimits;
use crate::stream::{SocketOwner, SocketStream, StreamWorkers, register_with};
use base::shutdown::Shutdown;

/// How long an idle connection stays open while the gateway closes: a request may be on its way.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// How long an expired idle connection stays open after its graceful shutdown starts. Longer than
/// [`CLOSE_GRACE`], because the client of an HTTP/2 connection without a request must first receive a GOAWAY.
const GOAWAY_GRACE: Duration = Duration::from_secs(2);

/// The number of bytes that hyper buffers for a connection, including the head of a request. A larger head fails with 431.
const MAX_HTTP_BUFFER_BYTES: usize = 64 << 10;
/// The send buffer in bytes of an event stream on its own socket. It is smaller than that of other connections, because
/// the data in flight to many readers of one log exceeds the processor's cache and then costs more for each byte.
const STREAM_SEND_BUFFER_BYTES: usize = 128 << 10;
/// HTTP/2: the number of concurrent requests, the number of pending resets, and the size in bytes of a request head.
/// Beyond them, the gateway rejects the request.
const MAX_H2_STREAMS: u32 = 128;
const MAX_H2_PENDING_RESETS: usize = 20;
const MAX_H2_HEADER_BYTES: u32 = 16 << 10;

pub(super) struct ConnectionContext {
    builder: Builder<H2Executor>,
    backlog: Arc<GlobalBacklog>,
    flood_log: FloodLog,
    router: Router,
    limits: Arc<Limits>,
    stream_limits: Arc<StreamLimits>,
    stream_workers: StreamWorkers,
    shutdown: Shutdown,
    runtime: Handle,
}

impl ConnectionContext {
    /// Must be called on the runtime of the connections.
    pub(super) fn new(
        router: Router,
        limits: &Arc<Limits>,
        stream_limits: &Arc<StreamLimits>,
        stream_workers: StreamWorkers,
        shutdown: &Shutdown,
    ) -> Self {
        Self {
            builder: builder(limits, stream_limits, shutdown),
            backlog: GlobalBacklog::new(limits),
            flood_log: FloodLog::default(),
            router,
            limits: Arc::clone(limits),
            stream_limits: Arc::clone(stream_limits),
            stream_workers,
            shutdown: shutdown.clone(),
            runtime: Handle::current(),
        }
    }
}

#[derive(Clone)]
struct RequestHandler {
    router: Router,
    backlog: Arc<ConnectionBacklog>,
    peer: SocketAddr,
    activity: Activity,
    send_backlog: SendBacklog,
    hijack: Hijack,
    permit: ConnectionPermit,
}

impl RequestHandler {
    /// Never completes if the response hijacks the connection, because the connection is then dropped.
    fn handle(
        mut self,
        request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<ResponseBody<Body>>, Infallible>> {
        let has_body = !request.body().is_end_stream();
        let open = self.activity.begin(request.version(), has_body);
        let hijack_permit = self.hijack.permit_for(&request);
        let backlog = (request.version() == Version::HTTP_2).then_some(self.backlog);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(self.peer));
        request.extensions_mut().insert(self.permit);
        if let Some(backlog) = &backlog {
            request.extensions_mut().insert(Arc::clone(backlog));
        }
        async move {
            let unsent = match backlog {
                Some(backlog) => backlog.admit().await,
                None => UnsentBytes::uncounted(),
            };
            // A router is always ready, and cloning it copies a reference.
            let mut response = self.router.call(request).await?;
            // The buffers of the connection are dropped, so they must not contain bytes of an earlier
            // response.
            if let Some(permit) = hijack_permit
                && self.send_backlog.is_empty()
                && self.hijack.try_hijack(&mut response, permit)
            {
                drop((response, open));
                return std::future::pending().await;
            }
            self.send_backlog.start_response();
            let shared = response.extensions().get::<SharedBody>().is_some();
            Ok(response
                .map(|body| ResponseBody::new(body, self.send_backlog, open, unsent, shared)))
        }
    }
}

/// Serves the requests on a socket, until the connection ends, is evicted, or a stream hijacks it.
///
/// An idle connection closes soon after a shutdown has started, and another one after its response.
pub(super) async fn serve_connection(
    context: Arc<ConnectionContext>,
    stream: TcpStream,
    read_buf: Bytes,
    activity: Activity,
    peer: SocketAddr,
    permit: ConnectionPermit,
) {
    let ConnectionContext {
        limits, shutdown, ..
    } = &*context;
    let stall_timeout = context.stream_limits.write_stall_timeout;
    set_socket_options(&stream, limits, stall_timeout);
    let io = ConnectionIo::new(
        stream,
        read_buf,
        stall_timeout,
        activity.clone(),
        context.flood_log.clone(),
        peer,
    );
    let send_backlog = io.send_backlog();
    let hijack = io.hijack();
    let handler = RequestHandler {
        router: context.router.clone(),
        backlog: context.backlog.connection(),
        peer,
        activity: activity.clone(),
        send_backlog: send_backlog.clone(),
        hijack: hijack.clone(),
        permit: permit.clone(),
    };
    let service = service_fn(move |request| handler.clone().handle(request));
    // Boxed separately, because moving a future into another one doubles its size.
    let mut connection = Box::pin(
        context
            .builder
            .serve_connection_with_upgrades(TokioIo::new(io), service),
    );
    let mut ending = false;
    let mut asked = false;
    let mut draining = false;
    let mut last_request = None;
    let mut next_check = Instant::now() + limits.header_timeout;
    loop {
        tokio::select! {
            ended = ended_or_hijacked(connection.as_mut(), &hijack) => {
                if let Some(Err(error)) = ended {
                    tracing::debug!(%peer, error, "a connection ended with an error");
                }
                break;
            }
            () = shutdown.drain_started(), if !draining => {
                draining = true;
                // GOAWAY is safe for HTTP/2. On HTTP/1.1, closing could cut off a request that the client is
                // sending. There, each response announces the close instead.
                if activity.is_multiplexed() && !ending {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = shutdown.closing_started(), if last_request.is_none() => {
                last_request = Some(Instant::now() + CLOSE_GRACE);
            }
            () = sleep_until_some(last_request), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = shutdown.abort_started() => return,
            () = permit.evicted(), if !permit.is_authenticated() => return,
            () = tokio::time::sleep_until(next_check) => {
                let now = Instant::now();
                // hyper accepts a response of one chunk at once, but writing it may take long.
                if !send_backlog.is_empty() {
                    activity.response_in_progress();
                }
                match activity.next_check(limits, permit.is_crowded()) {
                    Some(next) => {
                        next_check = next;
                        asked = false;
                    }
                    // The first step is a graceful shutdown, so that a request on its way is not lost.
                    None if !asked => {
                        let wait = if activity.is_multiplexed() { stall_timeout } else { GOAWAY_GRACE };
                        next_check = now + wait;
                        asked = true;
                        ending = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    None => return,
                }
            }
        }
    }
    drop(connection);
    let owner_context = Arc::clone(&context);
    let owner = |reusable| {
        Box::new(ReturnPath {
            context: owner_context,
            peer,
            permit,
            reusable,
        }) as Box<_>
    };
    if let Some(stream) = hijack.take(owner) {
        start_stream(&context, stream);
    }
}

/// Returns `None` if a stream hijacks the connection.
async fn ended_or_hijacked<C: Future>(
    mut connection: Pin<&mut C>,
    hijack: &Hijack,
) -> Option<C::Output> {
    poll_fn(|context| match connection.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if hijack.is_pending() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn sleep_until_some(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn start_stream(context: &ConnectionContext, stream: SocketStream) {
    let buffer = STREAM_SEND_BUFFER_BYTES.min(context.limits.send_buffer_bytes);
    if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&stream.socket, buffer) {
        tracing::debug!(%error, "could not set the send buffer size of a socket");
    }
    if let Err(error) = context.stream_workers.spawn(stream, &context.shutdown) {
        tracing::warn!(%error, "could not move a stream to a stream worker");
    }
}

/// Returns the socket of a complete stream to HTTP. A new connection serves the next request.
struct ReturnPath {
    context: Arc<ConnectionContext>,
    peer: SocketAddr,
    permit: ConnectionPermit,
    reusable: bool,
}

impl SocketOwner for ReturnPath {
    fn reclaim(self: Box<Self>, socket: TcpStream, read_buf: Bytes) {
        if !self.reusable {
            return;
        }
        let Self {
            context,
            peer,
            permit,
            ..
        } = *self;
        let stream = match register_with(socket, &context.runtime) {
            Ok(stream) => stream,
            Err(error) => {
                return tracing::debug!(%peer, %error, "could not return a socket to HTTP");
            }
        };
        let runtime = context.runtime.clone();
        let shutdown = context.shutdown.clone();
        let activity = Activity::after_request(permit.clone());
        let served = serve_connection(context, stream, read_buf, activity, peer, permit);
        shutdown.spawn_client_on(&runtime, served);
    }
}

/// Disables Nagle's algorithm, limits the send buffer for slow readers, and enables keep-alive probes for
/// dead peers.
fn set_socket_options(stream: &TcpStream, limits: &Limits, stall_timeout: Duration) {
    use rustix::net::sockopt;
    let set = stream.set_nodelay(true).and_then(|()| {
        sockopt::set_socket_send_buffer_size(stream, limits.send_buffer_bytes)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, stall_timeout)?;
        Ok(())
    });
    if let Err(error) = set {
        tracing::debug!(%error, "could not set the options of a socket");
    }
}

fn builder(
    limits: &Limits,
    stream_limits: &StreamLimits,
    shutdown: &Shutdown,
) -> Builder<H2Executor> {
    let mut builder = Builder::new(H2Executor {
        shutdown: shutdown.clone(),
        stall: stream_limits.write_stall_timeout,
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        // [`Activity`] distinguishes the time limit of a head from that of an idle connection.
        .header_read_timeout(None)
        .max_buf_size(MAX_HTTP_BUFFER_BYTES)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_H2_STREAMS)
        .max_pending_accept_reset_streams(MAX_H2_PENDING_RESETS)
        .max_header_list_size(MAX_H2_HEADER_BYTES)
        .max_send_buf_size(MAX_HTTP_BUFFER_BYTES)
        .keep_alive_interval(stream_limits.keep_alive_interval)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

/// Spawns the task of each HTTP/2 stream, and tracks it like all other tasks.
#[derive(Clone)]
struct H2Executor {
    shutdown: Shutdown,
    stall: Duration,
}

impl<F> hyper::rt::Executor<F> for H2Executor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.shutdown
            .spawn_client(run_until_stalled(task, self.stall));
    }
}
