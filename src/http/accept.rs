//! The accept loop: HTTP/1.1 and h2c on one listener. Limits and timeouts bound each resource that a peer can
//! use.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
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
use super::answer::{Answer, unless_stalled};
use super::backlog::{ConnectionBacklog, SendBacklog, SharedBody, Unsent};
use super::connection::{Guarded, Unwritten};
use super::lanes::{self, Lanes};
use super::layers::Peer;
use super::takeover::Takeover;
use crate::shutdown::{Shutdown, sound};
use crate::types::{Limits, Network};

/// The settings of the accept loop.
#[derive(Debug, Clone)]
pub struct Acceptor {
    pub limits: Arc<Limits>,
    /// The addresses of trusted proxies. Many clients share such an address, so it has no connection limit of
    /// its own.
    pub proxies: Vec<Network>,
    /// Accept only proxies and loopback. Other peers would send their keys in clear text.
    pub only_proxies: bool,
    pub lanes: Lanes,
    pub shutdown: Shutdown,
}

impl Acceptor {
    fn serves(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        !self.only_proxies || peer.is_loopback() || self.proxies.iter().any(|proxy| proxy.contains(peer))
    }
}

/// The number of connections that the kernel queues.
const QUEUE: i32 = 4096;
const QUEUED: usize = 4096;
/// How long an idle connection stays open while the gateway closes: a request may be on its way.
const LAST_REQUEST: Duration = Duration::from_millis(200);
/// The grace period of an idle connection that has expired. It is longer than [`CLOSE_GRACE`], because a
/// client that uses HTTP/2 without negotiation first receives a GOAWAY.
const LAST_WORD: Duration = Duration::from_secs(2);

/// Accepts connections until a shutdown has started and all work has ended. During the drain, clients receive
/// problems that report it.
///
/// Idle connections close soon, and others after their responses. The abort closes all of them.
/// [`Shutdown::wait_for_tasks`] waits for the connections.
pub async fn serve(listener: TcpListener, router: Router, acceptor: Acceptor) {
    let door = Arc::new(Door {
        builder: builder(&acceptor.limits, &acceptor.shutdown),
        connections: Connections::new(&acceptor),
        backlog: SendBacklog::new(&acceptor.limits),
        router,
        acceptor,
        runtime: Handle::current(),
    });
    widen(&listener);
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.acceptor.shutdown.closing() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => door.let_in(stream, peer),
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
    for (stream, peer) in waiting(|| listener.accept()) {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            door.let_in(stream, peer);
        }
    }
}

/// Drains the accept queue. A client that disconnected while it was queued yields an error, and other
/// connections may follow it.
fn waiting<T>(mut accept: impl FnMut() -> io::Result<T>) -> impl Iterator<Item = T> {
    use io::ErrorKind::{ConnectionAborted, Interrupted};
    let next = move || match accept() {
        Ok(accepted) => Some(Some(accepted)),
        Err(error) => matches!(error.kind(), ConnectionAborted | Interrupted).then_some(None),
    };
    std::iter::from_fn(next).take(QUEUED).flatten()
}

/// The state that all connections share.
#[derive(Debug)]
struct Door {
    builder: Builder<Streams>,
    connections: Connections,
    backlog: SendBacklog,
    router: Router,
    acceptor: Acceptor,
    runtime: Handle,
}

/// Returns the socket of a complete stream to HTTP. A new connection serves the next request.
#[derive(Debug)]
pub(in crate::http) struct Home {
    door: Arc<Door>,
    peer: SocketAddr,
}

impl Home {
    /// Serves requests on the socket. `read_buf` has the bytes that were already read.
    pub(in crate::http) fn serve(self, stream: TcpStream, held: Held, early: Bytes) {
        let Self { door, peer } = self;
        let Acceptor { limits, shutdown, .. } = &door.acceptor;
        let stream = match lanes::moved(stream, &door.runtime) {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!(%peer, %error, "could not return a socket to HTTP"),
        };
        prepare(&stream, limits);
        let begun = Begun { stream, early, activity: Activity::used() };
        shutdown.spawn_client_on(&door.runtime, connection(Arc::clone(&door), begun, peer, held));
    }
}

impl Door {
    fn let_in(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let Self { connections, acceptor, .. } = &**self;
        if !acceptor.serves(peer.ip()) {
            tracing::debug!(%peer, "closed a connection that did not come through the proxy");
            return;
        }
        // Over the limit. Closing at once costs the least.
        let Some(counted) = connections.take(peer.ip()) else { return };
        prepare(&stream, &acceptor.limits);
        let held = Held { counted: Arc::new(counted) };
        let begun = Begun { stream, early: Bytes::new(), activity: Activity::new() };
        acceptor.shutdown.spawn_client(connection(Arc::clone(self), begun, peer, held));
    }
}

/// A socket whose client may send a request.
struct Begun {
    stream: TcpStream,
    /// Bytes that were already read from the socket.
    early: Bytes,
    activity: Activity,
}

/// Handles the requests of one connection.
#[derive(Debug, Clone)]
struct Answers {
    router: Router,
    backlog: ConnectionBacklog,
    peer: SocketAddr,
    activity: Activity,
    unwritten: Unwritten,
    takeover: Takeover,
    held: Held,
}

impl Answers {
    /// Never completes if the response hijacks the connection, because the connection is then dropped.
    fn answer(
        self,
        request: hyper::Request<Incoming>,
    ) -> impl Future<Output = Result<hyper::Response<Answer<Body>>, Infallible>> {
        let Self { mut router, backlog, peer, activity, unwritten, takeover, held } = self;
        let open = activity.begin(request.version(), !request.body().is_end_stream());
        let may_leave = takeover.may_leave(&request);
        let backlog = (request.version() == Version::HTTP_2).then_some(backlog);
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(held);
        if let Some(backlog) = &backlog {
            request.extensions_mut().insert(backlog.clone());
        }
        async move {
            let unsent = match backlog {
                Some(backlog) => backlog.admit().await,
                None => Unsent::uncounted(),
            };
            // A router is always ready, and cloning it copies a reference.
            let mut response = router.call(request).await?;
            // The buffers of the connection are dropped, so they must not contain bytes of an earlier
            // response.
            if let Some(may_leave) = may_leave.filter(|_| unwritten.is_empty())
                && takeover.takes(&mut response, may_leave)
            {
                drop((response, open));
                return std::future::pending().await;
            }
            unwritten.answers();
            let shared = response.extensions().get::<SharedBody>().is_some();
            Ok(response.map(|body| Answer::new(body, unwritten, open).counted(unsent, shared)))
        }
    }
}

async fn connection(door: Arc<Door>, begun: Begun, peer: SocketAddr, held: Held) {
    let Begun { stream, early, activity } = begun;
    let Acceptor { limits, lanes, shutdown, .. } = &door.acceptor;
    let (lent, takeover) = Takeover::lend(stream, early);
    let io = Guarded::new(lent, limits.write_stall, activity.clone());
    let unwritten = io.unwritten();
    let answers = Answers {
        router: door.router.clone(),
        backlog: door.backlog.connection(),
        peer,
        activity: activity.clone(),
        unwritten: unwritten.clone(),
        takeover: takeover.clone(),
        held: held.clone(),
    };
    let service = service_fn(move |request| answers.clone().answer(request));
    // Boxed separately, because moving a future into another one doubles its size.
    let mut connection = Box::pin(door.builder.serve_connection_with_upgrades(TokioIo::new(io), service));
    let (mut ending, mut asked, mut draining) = (false, false, false);
    let (mut last_request, mut look) = (None, Instant::now() + limits.header);
    loop {
        tokio::select! {
            ended = ended_or_left(connection.as_mut(), &takeover) => {
                if let Some(Err(error)) = ended {
                    tracing::debug!(%peer, error, "a connection ended with an error");
                }
                break;
            }
            () = shutdown.soft(), if !draining => {
                draining = true;
                // GOAWAY is safe for HTTP/2. On HTTP/1.1, closing could cut off a request that the client is
                // sending. There, each response announces the close instead.
                if activity.multiplexed() && !ending {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
            () = shutdown.closing(), if last_request.is_none() => {
                last_request = Some(Instant::now() + LAST_REQUEST);
            }
            () = at(last_request), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = shutdown.hard() => return,
            () = tokio::time::sleep_until(look) => {
                let now = Instant::now();
                // hyper accepts a response of one chunk at once, but writing it may take long.
                if !unwritten.is_empty() {
                    activity.writes();
                }
                match activity.look_again(limits, held.is_crowded()) {
                    Some(next) => (look, asked) = (next, false),
                    // The first step is a graceful shutdown, so that a request on its way is not lost.
                    None if !asked => {
                        let wait = if activity.multiplexed() { limits.write_stall } else { LAST_WORD };
                        (look, asked, ending) = (now + wait, true, true);
                        connection.as_mut().graceful_shutdown();
                    }
                    None => return,
                }
            }
        }
    }
    drop(connection);
    let home = Home { door: Arc::clone(&door), peer };
    takeover.begin(held, home, lanes, limits, shutdown);
}

/// Returns `None` if a stream hijacks the connection.
async fn ended_or_left<C: Future>(mut connection: Pin<&mut C>, takeover: &Takeover) -> Option<C::Output> {
    poll_fn(|context| match connection.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if takeover.is_asked() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Many clients reconnect at the same moment after a network or proxy fault. A client that finds the queue
/// full retries only after a second. The kernel limits the value to its own maximum.
fn widen(listener: &TcpListener) {
    if let Err(error) = rustix::net::listen(listener, QUEUE) {
        tracing::debug!(%error, "could not set the length of the accept queue");
    }
}

/// Disables Nagle's algorithm, limits the send buffer for slow readers, and enables keep-alive probes for
/// dead peers.
fn prepare(stream: &TcpStream, limits: &Limits) {
    use rustix::net::sockopt;
    let set = stream.set_nodelay(true).and_then(|()| {
        sockopt::set_socket_send_buffer_size(stream, limits.send_buffer_bytes)?;
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, limits.write_stall)?;
        Ok(())
    });
    if let Err(error) = set {
        tracing::debug!(%error, "could not set the options of a socket");
    }
}

fn builder(limits: &Limits, shutdown: &Shutdown) -> Builder<Streams> {
    let mut builder = Builder::new(Streams { shutdown: shutdown.clone(), stall: limits.write_stall });
    builder
        .http1()
        .timer(TokioTimer::new())
        // [`Activity`] distinguishes the time limit of a head from that of an idle connection.
        .header_read_timeout(None)
        .max_buf_size(limits.http_buffer_bytes)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams)
        .max_pending_accept_reset_streams(limits.h2_pending_resets)
        .max_header_list_size(limits.h2_header_bytes)
        .max_send_buf_size(limits.http_buffer_bytes)
        .keep_alive_interval(limits.keep_alive)
        .keep_alive_timeout(limits.header);
    builder
}

/// Spawns the task of each HTTP/2 stream, and tracks it like all other tasks.
#[derive(Debug, Clone)]
struct Streams {
    shutdown: Shutdown,
    stall: Duration,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.shutdown.spawn_client(unless_stalled(task, self.stall));
    }
}

/// The number of open connections, in total and per address.
#[derive(Debug, Clone)]
struct Connections(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    max: usize,
    max_per_address: usize,
    proxies: Vec<Network>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Debug, Clone)]
pub(super) struct Held {
    counted: Arc<ConnectionGuard>,
}

impl Held {
    /// Whether more than half of a connection limit is in use.
    fn is_crowded(&self) -> bool {
        let ConnectionGuard { connections, address } = &*self.counted;
        let Counted { max, max_per_address, .. } = *connections.0;
        let open = connections.open();
        let beside = address.and_then(|address| open.by_address.get(&address)).copied().unwrap_or(0);
        open.all > max / 2 || beside > max_per_address / 2
    }
}

/// One counted connection. Dropping it releases the count.
#[derive(Debug)]
struct ConnectionGuard {
    connections: Connections,
    /// `None` for a trusted proxy.
    address: Option<IpAddr>,
}

impl Connections {
    fn new(acceptor: &Acceptor) -> Self {
        Self(Arc::new(Counted {
            max: acceptor.limits.connections,
            max_per_address: acceptor.limits.connections_per_address,
            proxies: acceptor.proxies.clone(),
            open: Mutex::default(),
        }))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        sound(self.0.open.lock())
    }

    fn take(&self, address: IpAddr) -> Option<ConnectionGuard> {
        let address = address.to_canonical();
        let address = (!self.0.proxies.iter().any(|proxy| proxy.contains(address))).then_some(address);
        let mut open = self.open();
        if open.all >= self.0.max {
            return None;
        }
        if let Some(address) = address {
            let count = open.by_address.entry(address).or_default();
            if *count >= self.0.max_per_address {
                return None;
            }
            *count += 1;
        }
        open.all += 1;
        drop(open);
        Some(ConnectionGuard { connections: self.clone(), address })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.all -= 1;
        let Some(address) = self.address else { return };
        if let Some(count) = open.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                open.by_address.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
