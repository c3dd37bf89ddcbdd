//! The accept loop: HTTP/1.1 and h2c on the listeners, and sockets that wait for a place.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

use super::connection::{ConnectionContext, serve_connection};
use super::connection_io::Activity;
use super::connection_limit::{AcquireError, ConnectionPermit, ConnectionUse, Connections};
use super::listeners::Listeners;

use crate::auth::Network;
use crate::server::limits::Limits;
use crate::stream::StreamWorkers;
use crate::stream::limits::Limits as StreamLimits;
use base::shutdown::Shutdown;
use base::types::client_network;

#[derive(Clone)]
pub struct Acceptor {
    pub limits: Arc<Limits>,
    pub stream_limits: Arc<StreamLimits>,
    /// The addresses of trusted proxies. Many clients share such an address, so it has no connection limit of
    /// its own.
    pub proxies: Vec<Network>,
    /// Accept only proxies and loopback. Other peers would send their keys in clear text.
    pub require_proxy: bool,
    pub stream_workers: StreamWorkers,
    pub connection_use: ConnectionUse,
    pub shutdown: Shutdown,
}

impl Acceptor {
    fn accepts_peer(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        !self.require_proxy
            || peer.is_loopback()
            || self.proxies.iter().any(|proxy| proxy.contains(peer))
    }
}

const LISTEN_BACKLOG: i32 = 4096;
const MAX_LATE_ACCEPTS: usize = 4096;

/// Accepts connections until a shutdown has started and all work has ended. During the drain, clients receive
/// problems that report it.
///
/// Idle connections close soon after the start of the closing phase. Other connections close after their responses. An
/// abort closes all connections.
/// [`Shutdown::wait_for_tasks`] waits for the connections.
pub async fn serve(listeners: Listeners, router: Router, acceptor: Acceptor) {
    let Acceptor {
        limits, shutdown, ..
    } = &acceptor;
    let context = ConnectionContext::new(
        router,
        limits,
        &acceptor.stream_limits,
        acceptor.stream_workers.clone(),
        shutdown,
    );
    let connections = Connections::new(
        limits,
        acceptor.proxies.clone(),
        acceptor.connection_use.clone(),
    );
    let waiting = WaitingSockets::new(max_waiting_sockets(limits.max_connections));
    let mut state = Listener {
        context: Arc::new(context),
        connections,
        acceptor,
        waiting,
    };
    for listener in listeners.all() {
        set_listen_backlog(listener);
    }
    let mut retries = tokio::time::interval(INTERVAL);
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            biased;
            () = state.acceptor.shutdown.closing_started() => break,
            _ = retries.tick(), if !state.waiting.is_empty() => {
                state.admit_waiting();
                continue;
            }
            accepted = listeners.accept(), if !state.waiting.delays_accepts(Instant::now()) => accepted,
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
    for listener in listeners.into_std() {
        for (stream, peer) in drain_accept_queue(|| listener.accept()) {
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                state.admit(stream, peer);
            }
        }
        refuse_connections(&listener);
    }
    state.admit_waiting();
}

/// Stops listening. Supervisors hold copies of the listener, which keep the port bound until the last child has ended.
/// Without the option for reuse, no child can bind a port that nobody listens on.
fn refuse_connections(listener: &std::net::TcpListener) {
    let refused = rustix::net::sockopt::set_socket_reuseaddr(listener, false)
        .and_then(|()| rustix::net::shutdown(listener, rustix::net::Shutdown::Read));
    if let Err(error) = refused {
        tracing::warn!(%error, "could not stop listening");
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

struct Listener {
    context: Arc<ConnectionContext>,
    connections: Connections,
    acceptor: Acceptor,
    waiting: WaitingSockets,
}

impl Listener {
    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        if !self.acceptor.accepts_peer(peer.ip()) {
            tracing::debug!(%peer, "closed a connection that did not come through the proxy");
            return;
        }
        let now = Instant::now();
        match self.connections.acquire(peer.ip(), now) {
            Ok(permit) => self.serve(stream, peer, permit),
            Err(AcquireError::Busy) => self.waiting.push(stream, peer, now),
            // Closing at once costs the least.
            Err(AcquireError::Full) => {}
        }
    }

    fn admit_waiting(&mut self) {
        let mut waiting = std::mem::replace(&mut self.waiting, WaitingSockets::new(0));
        let now = Instant::now();
        let acquire = |address| self.connections.acquire(address, now);
        waiting.admit(now, acquire, |stream, peer, permit| {
            self.serve(stream, peer, permit);
        });
        self.waiting = waiting;
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
        let context = Arc::clone(&self.context);
        let activity = Activity::new(permit.clone());
        let connection = serve_connection(context, stream, Bytes::new(), activity, peer, permit);
        self.acceptor.shutdown.spawn_client(connection);
    }
}

/// Many clients reconnect at the same moment after a network or proxy fault. A client that finds the queue
/// full retries only after a second. The kernel limits the value to its own maximum.
fn set_listen_backlog(listener: &tokio::net::TcpListener) {
    if let Err(error) = rustix::net::listen(listener, LISTEN_BACKLOG) {
        tracing::debug!(%error, "could not set the length of the accept queue");
    }
}

pub(super) const INTERVAL: Duration = Duration::from_millis(5);

const MAX_WAIT: Duration = Duration::from_secs(10);

/// The highest number of waiting sockets. After [`MAX_ACCEPT_DELAY`], a new one replaces the oldest.
const MAX_SOCKETS: usize = 4096;

pub fn max_waiting_sockets(max_connections: usize) -> usize {
    max_connections.clamp(1, MAX_SOCKETS)
}

/// While all sockets are younger, a full queue delays further accepts: they wait in the queue of the kernel, so a burst of
/// clients loses no socket. A longer flood replaces the oldest sockets and does not delay a new client.
const MAX_ACCEPT_DELAY: Duration = Duration::from_secs(2);

/// The newest socket is served first: a flood must not delay a client that connects after it.
///
/// Accepted sockets that wait for a place among the unauthenticated connections. A burst of clients arrives faster than the
/// gateway reads their requests. Their sockets wait here for a few milliseconds instead of evicting each other.
pub(super) struct WaitingSockets<S = TcpStream> {
    sockets: VecDeque<Waiting<S>>,
    max: usize,
}

struct Waiting<S> {
    socket: S,
    peer: SocketAddr,
    since: Instant,
}

impl<S> WaitingSockets<S> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            sockets: VecDeque::new(),
            max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    pub(super) fn delays_accepts(&self, now: Instant) -> bool {
        let is_young = |oldest: &Waiting<S>| oldest.since + MAX_ACCEPT_DELAY > now;
        self.sockets.len() >= self.max && self.sockets.front().is_some_and(is_young)
    }

    pub(super) fn push(&mut self, socket: S, peer: SocketAddr, now: Instant) {
        if self.sockets.len() >= self.max {
            self.sockets.pop_front();
        }
        self.sockets.push_back(Waiting {
            socket,
            peer,
            since: now,
        });
    }

    /// Serves the sockets for which there is a place now. Closes those that waited too long, and those that can
    /// have no place. After the first failure for an address, its other sockets are not tried.
    pub(super) fn admit<P>(
        &mut self,
        now: Instant,
        acquire: impl Fn(IpAddr) -> Result<P, AcquireError>,
        mut serve: impl FnMut(S, SocketAddr, P),
    ) {
        let mut busy = HashSet::new();
        for waiting in std::mem::take(&mut self.sockets).into_iter().rev() {
            let network = client_network(waiting.peer.ip());
            let permit = if busy.contains(&network) {
                Err(AcquireError::Busy)
            } else {
                acquire(waiting.peer.ip())
            };
            match permit {
                Ok(permit) => serve(waiting.socket, waiting.peer, permit),
                Err(AcquireError::Busy) => {
                    busy.insert(network);
                    if waiting.since + MAX_WAIT > now {
                        self.sockets.push_front(waiting);
                    }
                }
                Err(AcquireError::Full) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod waiting_tests {
    use std::cell::Cell;

    use super::*;

    const MAX: usize = 100;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    #[test]
    fn newest_socket_is_served_first_and_the_others_keep_their_order() {
        let mut waiting = WaitingSockets::new(MAX);
        let now = Instant::now();
        for socket in 0..4 {
            waiting.push(socket, peer(1), now);
        }
        waiting.push(4, peer(2), now);
        let admit = |waiting: &mut WaitingSockets<i32>, places: i32| {
            let left = Cell::new(places);
            let mut served = Vec::new();
            let acquire = |address| {
                let is_busy = address == peer(1).ip() && left.get() == 0;
                left.set((left.get() - 1).max(0));
                if is_busy {
                    Err(AcquireError::Busy)
                } else {
                    Ok(())
                }
            };
            waiting.admit(now, acquire, |socket, _, ()| served.push(socket));
            served
        };
        assert_eq!(admit(&mut waiting, 3), [4, 3, 2]);
        assert_eq!(admit(&mut waiting, 0), [0; 0]);
        assert_eq!(admit(&mut waiting, 9), [1, 0]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn socket_is_closed_after_its_wait_and_if_nothing_can_be_evicted() {
        let mut waiting = WaitingSockets::new(MAX);
        let start = Instant::now();
        waiting.push("old", peer(1), start);
        waiting.push("new", peer(2), start + INTERVAL);
        let never = |_, _, ()| unreachable!("there is no place");
        waiting.admit(start + MAX_WAIT, |_| Err(AcquireError::Busy), never);
        assert_eq!(
            waiting
                .sockets
                .iter()
                .map(|one| one.socket)
                .collect::<Vec<_>>(),
            ["new"]
        );
        waiting.admit(start + MAX_WAIT, |_| Err(AcquireError::Full), never);
        assert!(waiting.is_empty());
    }

    #[test]
    fn number_of_sockets_is_bounded() {
        let mut waiting = WaitingSockets::new(MAX);
        let now = Instant::now();
        for socket in 0..=MAX {
            waiting.push(socket, peer(1), now);
        }
        assert_eq!((waiting.sockets.len(), waiting.sockets[0].socket), (MAX, 1));
    }

    #[test]
    fn full_queue_delays_accepts_until_its_oldest_socket_is_old() {
        let mut waiting = WaitingSockets::new(MAX);
        let now = Instant::now();
        for socket in 1..MAX {
            waiting.push(socket, peer(1), now);
        }
        assert!(!waiting.delays_accepts(now), "there is room for one");
        waiting.push(MAX, peer(1), now + INTERVAL);
        assert!(waiting.delays_accepts(now + MAX_ACCEPT_DELAY - INTERVAL));
        assert!(
            !waiting.delays_accepts(now + MAX_ACCEPT_DELAY),
            "the oldest socket is replaced"
        );
    }
}
