//! The accept loop: HTTP/1.1 and h2c on one listener. Limits and timeouts bound each resource that a peer can
//! use.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
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
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tower::Service;

use super::activity::Activity;
use super::backlog::{ConnectionBacklog, GlobalBacklog, SharedBody, UnsentBytes};
use super::connection::{SendBacklog, StallGuard};
use super::hijack::Hijack;
use super::layers::Peer;
use super::response_body::{ResponseBody, run_until_stalled};
use super::stream_workers::{self, StreamWorkers};
use crate::shutdown::Shutdown;
use crate::types::{KeyedCounts, KeyedGuard, Limits, Network};

/// The settings of the accept loop.
#[derive(Debug, Clone)]
pub struct Acceptor {
    pub limits: Arc<Limits>,
    /// The addresses of trusted proxies. Many clients share such an address, so it has no connection limit of
    /// its own.
    pub proxies: Vec<Network>,
    /// Accept only proxies and loopback. Other peers would send their keys in clear text.
    pub require_proxy: bool,
    pub stream_workers: StreamWorkers,
    pub shutdown: Shutdown,
}

impl Acceptor {
    fn accepts_peer(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        !self.require_proxy || peer.is_loopback() || self.proxies.iter().any(|proxy| proxy.contains(peer))
    }
}

/// The number of connections that the kernel queues.
const LISTEN_BACKLOG: i32 = 4096;
const MAX_LATE_ACCEPTS: usize = 4096;
/// How long an idle connection stays open while the gateway closes: a request may be on its way.
const CLOSE_GRACE: Duration = Duration::from_millis(200);
/// The grace period of an idle connection that has expired. It is longer than [`CLOSE_GRACE`]: the connection
/// may be an HTTP/2 connection without a request so far, whose client first receives a GOAWAY.
const GOAWAY_GRACE: Duration = Duration::from_secs(2);

/// Accepts connections until a shutdown has started and all work has ended. During the drain, clients receive
/// problems that report it.
///
/// Idle connections close soon, and others after their responses. The abort closes all of them.
/// [`Shutdown::wait_for_tasks`] waits for the connections.
pub async fn serve(listener: TcpListener, router: Router, acceptor: Acceptor) {
    let state = Arc::new(Listener {
        builder: builder(&acceptor.limits, &acceptor.shutdown),
        connections: Connections::new(&acceptor),
        backlog: GlobalBacklog::new(&acceptor.limits),
        router,
        acceptor,
        runtime: Handle::current(),
    });
    set_listen_backlog(&listener);
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.acceptor.shutdown.closing_started() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => state.admit(stream, peer),
            Err(error) => {
                // The usual cause is that no file descriptor is free. The pause avoids a busy loop until
                // other connections end.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    // Connections in the accept queue would be reset when the listener closes, so they are accepted first.
    let Ok(listener) = listener.into_std() else { return };
    for (stream, peer) in drain_accept_queue(|| listener.accept()) {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            state.admit(stream, peer);
        }
    }
}

/// Drains the accept queue. A client that disconnected while it was queued yields an error, and other
/// connections may follow it.
fn drain_accept_queue<T>(mut accept: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    let next = move || match accept() {
        Ok(accepted) => Some(Some(accepted)),
        Err(error) => matches!(error.kind(), ConnectionAborted | Interrupted).then_some(None),
    };
    std::iter::from_fn(next).take(MAX_LATE_ACCEPTS).flatten()
}

/// The state that all connections share.
#[derive(Debug)]
struct Listener {
    builder: Builder<H2Executor>,
    connections: Connections,
    backlog: GlobalBacklog,
    router: Router,
    acceptor: Acceptor,
    runtime: Handle,
}

/// Returns the socket of a complete stream to HTTP. A new connection serves the next request.
#[derive(Debug)]
pub(in crate::http) struct ReturnPath {
    listener: Arc<Listener>,
    peer: SocketAddr,
}

impl ReturnPath {
    /// Serves requests on the socket. `read_buf` has the bytes that were already read.
    pub(in crate::http) fn resume_http(self, stream: TcpStream, permit: ConnectionPermit, early: Bytes) {
        let Self { listener, peer } = self;
        let Acceptor { limits, shutdown, .. } = &listener.acceptor;
        let stream = match stream_workers::register_with(stream, &listener.runtime) {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%peer, %error, "could not return a socket to HTTP"),
        };
        set_socket_options(&stream, limits);
        let socket = OpenSocket { stream, read_buf: early, activity: Activity::after_request() };
        shutdown.spawn_client_on(
            &listener.runtime,
            serve_connection(Arc::clone(&listener), socket, peer, permit),
        );
    }
}

impl Listener {
    fn admit(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let Self { connections, acceptor, .. } = &**self;
        if !acceptor.accepts_peer(peer.ip()) {
            tracing::debug!(%peer, "closed a connection that did not come through the proxy");
            return;
        }
        // Over the limit. Closing at once costs the least.
        let Some(permit) = connections.acquire(peer.ip()) else { return };
        set_socket_options(&stream, &acceptor.limits);
        let begun = OpenSocket { stream, read_buf: Bytes::new(), activity: Activity::new() };
        acceptor.shutdown.spawn_client(serve_connection(Arc::clone(self), begun, peer, permit));
    }
}

/// A socket whose client may send a request.
struct OpenSocket {
    stream: TcpStream,
    /// Bytes that were already read from the socket.
    read_buf: Bytes,
    activity: Activity,
}

/// Handles the requests of one connection.
#[derive(Debug, Clone)]
struct RequestHandler {
    router: Router,
    backlog: ConnectionBacklog,
    peer: SocketAddr,
    activity: Activity,
    send_backlog: SendBacklog,
    hijack: Hijack,
    permit: ConnectionPermit,
}

impl RequestHandler {
    /// Never completes if the response hijacks the connection, because the connection is then dropped.
    fn handle(
        self,
        request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<ResponseBody<Body>>, Infallible>> {
        let Self { mut router, backlog, peer, activity, send_backlog, hijack, permit } = self;
        let open = activity.begin(request.version(), !request.body().is_end_stream());
        let hijack_permit = hijack.permit_for(&request);
        let backlog = (request.version() == Version::HTTP_2).then_some(backlog);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(permit);
        if let Some(backlog) = &backlog {
            request.extensions_mut().insert(backlog.clone());
        }
        async move {
            let unsent = match backlog {
                Some(backlog) => backlog.admit().await,
                None => UnsentBytes::uncounted(),
            };
            // A router is always ready, and cloning it copies a reference.
            let mut response = router.call(request).await?;
            // The buffers of the connection are dropped, so they must not contain bytes of an earlier
            // response.
            if let Some(may_leave) = hijack_permit.filter(|_| send_backlog.is_empty())
                && hijack.try_hijack(&mut response, may_leave)
            {
                drop((response, open));
                return std::future::pending().await;
            }
            send_backlog.start_response();
            let shared = response.extensions().get::<SharedBody>().is_some();
            Ok(response.map(|body| ResponseBody::new(body, send_backlog, open).count_unsent(unsent, shared)))
        }
    }
}

async fn serve_connection(
    listener: Arc<Listener>,
    begun: OpenSocket,
    peer: SocketAddr,
    permit: ConnectionPermit,
) {
    let OpenSocket { stream, read_buf: early, activity } = begun;
    let Acceptor { limits, stream_workers: workers, shutdown, .. } = &listener.acceptor;
    let (lent, hijack) = Hijack::wrap(stream, early);
    let io = StallGuard::new(lent, limits.write_stall_timeout, activity.clone());
    let send_backlog = io.send_backlog();
    let answers = RequestHandler {
        router: listener.router.clone(),
        backlog: listener.backlog.connection(),
        peer,
        activity: activity.clone(),
        send_backlog: send_backlog.clone(),
        hijack: hijack.clone(),
        permit: permit.clone(),
    };
    let service = service_fn(move |request| answers.clone().handle(request));
    // Boxed separately, because moving a future into another one doubles its size.
    let mut connection = Box::pin(listener.builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let (mut ending, mut asked, mut draining) = (false, false, false);
    let (mut last_request, mut look) = (None, Instant::now() + limits.header_timeout);
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
            () = tokio::time::sleep_until(look) => {
                let now = Instant::now();
                // hyper accepts a response of one chunk at once, but writing it may take long.
                if !send_backlog.is_empty() {
                    activity.response_in_progress();
                }
                match activity.next_check(limits, permit.is_crowded(limits)) {
                    Some(next) => (look, asked) = (next, false),
                    // The first step is a graceful shutdown, so that a request on its way is not lost.
                    None if !asked => {
                        let wait = if activity.is_multiplexed() { limits.write_stall_timeout } else { GOAWAY_GRACE };
                        (look, asked, ending) = (now + wait, true, true);
                        connection.as_mut().graceful_shutdown();
                    }
                    None => return,
                }
            }
        }
    }
    drop(connection);
    let home = ReturnPath { listener: Arc::clone(&listener), peer };
    hijack.start_stream(permit, home, workers, limits, shutdown);
}

/// Returns `None` if a stream hijacks the connection.
async fn ended_or_hijacked<C: Future>(mut connection: Pin<&mut C>, hijack: &Hijack) -> Option<C::Output> {
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

/// Many clients reconnect at the same moment after a network or proxy fault. A client that finds the queue
/// full retries only after a second. The kernel limits the value to its own maximum.
fn set_listen_backlog(listener: &TcpListener) {
    if let Err(error) = rustix::net::listen(listener, LISTEN_BACKLOG) {
        tracing::debug!(%error, "could not set the length of the accept queue");
    }
}

/// Disables Nagle's algorithm, limits the send buffer for slow readers, and enables keep-alive probes for
/// dead peers.
fn set_socket_options(stream: &TcpStream, limits: &Limits) {
    use rustix::net::sockopt;
    let set = stream.set_nodelay(true).and_then(|()| {
        sockopt::set_socket_send_buffer_size(stream, limits.send_buffer_bytes)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, limits.write_stall_timeout)?;
        Ok(())
    });
    if let Err(error) = set {
        tracing::debug!(%error, "could not set the options of a socket");
    }
}

fn builder(limits: &Limits, shutdown: &Shutdown) -> Builder<H2Executor> {
    let mut builder =
        Builder::new(H2Executor { shutdown: shutdown.clone(), stall: limits.write_stall_timeout });
    builder
        .http1()
        .timer(TokioTimer::new())
        // [`Activity`] distinguishes the time limit of a head from that of an idle connection.
        .header_read_timeout(None)
        .max_buf_size(limits.max_http_buffer_bytes)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_h2_streams)
        .max_pending_accept_reset_streams(limits.max_h2_pending_resets)
        .max_header_list_size(limits.max_h2_header_bytes)
        .max_send_buf_size(limits.max_http_buffer_bytes)
        .keep_alive_interval(limits.keep_alive_interval)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

/// Spawns the task of each HTTP/2 stream, and tracks it like all other tasks.
#[derive(Debug, Clone)]
struct H2Executor {
    shutdown: Shutdown,
    stall: Duration,
}

impl<F> hyper::rt::Executor<F> for H2Executor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.shutdown.spawn_client(run_until_stalled(task, self.stall));
    }
}

/// The open connections, in total and per address.
#[derive(Debug)]
struct Connections {
    limits: Arc<Limits>,
    proxies: Vec<Network>,
    all: KeyedCounts<()>,
    by_address: KeyedCounts<IpAddr>,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPermit(Arc<ConnectionGuard>);

/// One counted connection. Dropping it releases the counts.
#[derive(Debug)]
struct ConnectionGuard {
    all: KeyedGuard<()>,
    /// `None` for a trusted proxy.
    by_address: Option<KeyedGuard<IpAddr>>,
}

impl ConnectionPermit {
    /// Whether more than half of a connection limit is in use.
    fn is_crowded(&self, limits: &Limits) -> bool {
        let ConnectionGuard { all, by_address } = &*self.0;
        let of_address = by_address.as_ref().map_or(0, KeyedGuard::count);
        all.count() > limits.max_connections / 2 || of_address > limits.max_connections_per_address / 2
    }
}

impl Connections {
    fn new(acceptor: &Acceptor) -> Self {
        let (limits, proxies) = (Arc::clone(&acceptor.limits), acceptor.proxies.clone());
        Self { limits, proxies, all: KeyedCounts::default(), by_address: KeyedCounts::default() }
    }

    fn acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let Self { limits, proxies, all, by_address } = self;
        let address = address.to_canonical();
        let all = all.acquire((), limits.max_connections)?;
        let by_address = if proxies.iter().any(|proxy| proxy.contains(address)) {
            None
        } else {
            Some(by_address.acquire(address, limits.max_connections_per_address)?)
        };
        Some(ConnectionPermit(Arc::new(ConnectionGuard { all, by_address })))
    }
}

#[cfg(test)]
mod tests;
