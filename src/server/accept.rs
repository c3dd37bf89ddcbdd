//! The accept loop: HTTP/1.1 and h2c on the listeners.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior};

use super::connection::{ConnectionContext, OpenSocket, serve_connection};
use super::connection_limit::{AcquireError, ConnectionPermit, ConnectionUse, Connections};
use super::listeners::Listeners;
use super::waiting::{self, WaitingSockets};
use crate::shutdown::Shutdown;
use crate::stream::StreamWorkers;
use crate::types::{Limits, Network};

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
    /// Counts the connections of clients with a key.
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

/// The number of connections that the kernel queues.
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
    let context = ConnectionContext::new(router, limits, acceptor.stream_workers.clone(), shutdown);
    let connections = Connections::new(
        limits,
        acceptor.proxies.clone(),
        acceptor.connection_use.clone(),
    );
    let waiting = WaitingSockets::new(waiting::max_waiting_sockets(limits.max_connections));
    let mut state = Listener {
        context: Arc::new(context),
        connections,
        acceptor,
        waiting,
    };
    listeners.all().for_each(set_listen_backlog);
    let mut retries = tokio::time::interval(waiting::INTERVAL);
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

/// The state of the accept loop.
#[derive(Debug)]
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

    /// Serves waiting sockets for which there is a place now.
    fn admit_waiting(&mut self) {
        let (mut waiting, now) = (
            std::mem::replace(&mut self.waiting, WaitingSockets::new(0)),
            Instant::now(),
        );
        let acquire = |address| self.connections.acquire(address, now);
        waiting.admit(now, acquire, |stream, peer, permit| {
            self.serve(stream, peer, permit);
        });
        self.waiting = waiting;
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
        let socket = OpenSocket::accepted(stream, &permit);
        let connection = serve_connection(Arc::clone(&self.context), socket, peer, permit);
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

#[cfg(test)]
mod tests;
