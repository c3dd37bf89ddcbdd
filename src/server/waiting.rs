//! Accepted sockets that wait for a place among the unauthenticated connections.
//!
//! A burst of clients arrives faster than the gateway reads their requests. Their sockets wait here for a few
//! milliseconds instead of evicting each other.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use super::connection_limit::AcquireError;
use crate::types::network::client_network;

/// The interval at which sockets are tried again.
pub(super) const INTERVAL: Duration = Duration::from_millis(5);

/// The longest wait of a socket.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The highest number of waiting sockets. After [`MAX_ACCEPT_DELAY`], a new one replaces the oldest.
const MAX_SOCKETS: usize = 4096;

/// The number of sockets that can wait for a gateway with this limit of connections.
pub fn max_waiting_sockets(max_connections: usize) -> usize {
    max_connections.clamp(1, MAX_SOCKETS)
}

/// While all sockets are younger, a full queue delays further accepts: they wait in the queue of the kernel, so a burst of
/// clients loses no socket. A longer flood replaces the oldest sockets and does not delay a new client.
const MAX_ACCEPT_DELAY: Duration = Duration::from_secs(2);

/// The newest socket is served first: a flood must not delay a client that connects after it.
#[derive(Debug)]
pub(super) struct WaitingSockets<S = TcpStream> {
    sockets: VecDeque<Waiting<S>>,
    max: usize,
}

#[derive(Debug)]
struct Waiting<S> {
    socket: S,
    peer: SocketAddr,
    since: Instant,
}

impl<S> WaitingSockets<S> {
    /// At most `max` sockets wait.
    pub(super) fn new(max: usize) -> Self {
        Self {
            sockets: VecDeque::new(),
            max,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Whether no socket should be accepted for some milliseconds.
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
mod tests {
    use std::cell::Cell;

    use super::*;

    const MAX: usize = 100;

    fn peer(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    #[test]
    fn newest_socket_is_served_first_and_the_others_keep_their_order() {
        let (mut waiting, now) = (WaitingSockets::new(MAX), Instant::now());
        for socket in 0..4 {
            waiting.push(socket, peer(1), now);
        }
        waiting.push(4, peer(2), now);
        let admit = |waiting: &mut WaitingSockets<i32>, places: i32| {
            let (left, mut served) = (Cell::new(places), Vec::new());
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
        let (mut waiting, start) = (WaitingSockets::new(MAX), Instant::now());
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
        let (mut waiting, now) = (WaitingSockets::new(MAX), Instant::now());
        for socket in 0..=MAX {
            waiting.push(socket, peer(1), now);
        }
        assert_eq!((waiting.sockets.len(), waiting.sockets[0].socket), (MAX, 1));
    }

    #[test]
    fn full_queue_delays_accepts_until_its_oldest_socket_is_old() {
        let (mut waiting, now) = (WaitingSockets::new(MAX), Instant::now());
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
