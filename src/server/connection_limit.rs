//! The limits of open connections. They reserve connections for authenticated clients.
//!
//! A connection is unauthenticated until the gateway accepts the key of one of its requests. If a limit is
//! reached, a new connection evicts the oldest unauthenticated one. Authenticated connections are never evicted.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::shutdown::lock_or_abort;
use crate::types::network::client_network;
use crate::types::{Limits, Network};

/// The open connections, in total and per address.
#[derive(Debug)]
pub(super) struct Connections(Arc<ConnectionTable>);

#[derive(Debug)]
struct ConnectionTable {
    limits: Arc<Limits>,
    /// The trusted proxies. Many clients share such an address, so it has no limits of its own.
    proxies: Vec<Network>,
    counts: Mutex<Counts>,
}

/// Evicted connections are not counted, although they may still be open for a moment.
#[derive(Debug, Default)]
struct Counts {
    open: usize,
    by_address: HashMap<IpAddr, AddressCounts>,
    /// The unauthenticated connections by id. The oldest has the lowest id.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    next_id: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct AddressCounts {
    open: usize,
    unauthenticated: usize,
}

#[derive(Debug)]
struct Unauthenticated {
    /// `None` for a trusted proxy.
    address: Option<IpAddr>,
    eviction: Arc<Notify>,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPermit(Arc<ConnectionGuard>);

/// One counted connection. Dropping it releases the counts.
#[derive(Debug)]
struct ConnectionGuard {
    table: Arc<ConnectionTable>,
    id: u64,
    /// `None` for a trusted proxy.
    address: Option<IpAddr>,
    authenticated: AtomicBool,
    eviction: Arc<Notify>,
}

impl Connections {
    pub(super) fn new(limits: &Arc<Limits>, proxies: Vec<Network>) -> Self {
        let limits = Arc::clone(limits);
        Self(Arc::new(ConnectionTable { limits, proxies, counts: Mutex::default() }))
    }

    /// Counts a connection, and evicts an older unauthenticated connection if a limit is reached. Returns `None`
    /// if no connection can be evicted.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
        let Self(table) = self;
        let is_proxy = table.proxies.iter().any(|proxy| proxy.contains(address));
        let address = (!is_proxy).then(|| client_network(address));
        let eviction = Arc::new(Notify::new());
        let id = table.lock().insert(&table.limits, address, &eviction)?;
        let authenticated = AtomicBool::new(false);
        Some(ConnectionPermit(Arc::new(ConnectionGuard {
            table: Arc::clone(table),
            id,
            address,
            authenticated,
            eviction,
        })))
    }
}

impl ConnectionPermit {
    /// Records that the gateway accepted the key of a request. The connection is not evicted from now on.
    pub(super) fn authenticated(&self) {
        let guard = &*self.0;
        // Every request calls this, so only the first one locks the table.
        if !self.is_authenticated() && guard.table.lock().authenticate(guard.id) {
            guard.authenticated.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.0.authenticated.load(Ordering::Relaxed)
    }

    /// Completes when the connection is evicted. Cancel-safe.
    pub(super) async fn evicted(&self) {
        self.0.eviction.notified().await;
    }

    /// Whether more than half of a limit is in use that applies to this connection.
    pub(super) fn is_crowded(&self) -> bool {
        let ConnectionGuard { table, address, .. } = &*self.0;
        let (limits, counts) = (&table.limits, table.lock());
        let of_address = counts.of_address(*address);
        let unauthenticated = !self.is_authenticated()
            && (counts.unauthenticated.len() > max_unauthenticated(limits) / 2
                || of_address.unauthenticated > max_unauthenticated_per_address(limits) / 2);
        unauthenticated
            || counts.open > limits.max_connections / 2
            || of_address.open > limits.max_connections_per_address / 2
    }
}

impl ConnectionTable {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock_or_abort(self.counts.lock())
    }
}

impl Counts {
    fn of_address(&self, address: Option<IpAddr>) -> AddressCounts {
        address.and_then(|address| self.by_address.get(&address)).copied().unwrap_or_default()
    }

    /// Inserts an unauthenticated connection. Returns its id, or `None` if no connection can be evicted for it.
    fn insert(&mut self, limits: &Limits, address: Option<IpAddr>, eviction: &Arc<Notify>) -> Option<u64> {
        let of_address = self.of_address(address);
        if of_address.open >= limits.max_connections_per_address
            || of_address.unauthenticated >= max_unauthenticated_per_address(limits)
        {
            self.evict_oldest(|other| other.address == address)?;
        }
        if self.open >= limits.max_connections || self.unauthenticated.len() >= max_unauthenticated(limits) {
            self.evict_oldest(|_| true)?;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.open += 1;
        if let Some(address) = address {
            let counts = self.by_address.entry(address).or_default();
            counts.open += 1;
            counts.unauthenticated += 1;
        }
        self.unauthenticated.insert(id, Unauthenticated { address, eviction: Arc::clone(eviction) });
        Some(id)
    }

    fn evict_oldest(&mut self, is_candidate: impl Fn(&Unauthenticated) -> bool) -> Option<()> {
        let (id, oldest) = self.unauthenticated.iter().find(|(_, other)| is_candidate(other))?;
        let (id, address) = (*id, oldest.address);
        oldest.eviction.notify_one();
        self.release(id, address, false);
        Some(())
    }

    /// Returns false if the connection was evicted.
    fn authenticate(&mut self, id: u64) -> bool {
        let Some(connection) = self.unauthenticated.remove(&id) else { return false };
        if let Some(counts) = connection.address.and_then(|address| self.by_address.get_mut(&address)) {
            counts.unauthenticated -= 1;
        }
        true
    }

    /// Releases a connection, unless it was evicted before.
    fn release(&mut self, id: u64, address: Option<IpAddr>, authenticated: bool) {
        if !authenticated && !self.authenticate(id) {
            return;
        }
        self.open -= 1;
        let Some(address) = address else { return };
        if let Some(counts) = self.by_address.get_mut(&address) {
            counts.open -= 1;
            if counts.open == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let authenticated = *self.authenticated.get_mut();
        self.table.lock().release(self.id, self.address, authenticated);
    }
}

/// The limit of unauthenticated connections, at most half of all connections.
fn max_unauthenticated(limits: &Limits) -> usize {
    limits.max_unauthenticated_connections.min(limits.max_connections / 2).max(1)
}

/// The limit of unauthenticated connections from one address, at most a quarter of all unauthenticated ones.
fn max_unauthenticated_per_address(limits: &Limits) -> usize {
    limits.max_unauthenticated_connections_per_address.min(max_unauthenticated(limits) / 4).max(1)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn connections(limits: Limits) -> Connections {
        Connections::new(&Arc::new(limits), vec!["10.0.0.0/8".parse().unwrap()])
    }

    fn open(connections: &Connections, address: &str) -> Option<ConnectionPermit> {
        connections.acquire(address.parse().unwrap())
    }

    fn open_authenticated(connections: &Connections, address: &str) -> Option<ConnectionPermit> {
        open(connections, address).inspect(ConnectionPermit::authenticated)
    }

    fn is_evicted(permit: &ConnectionPermit) -> bool {
        permit.evicted().now_or_never().is_some()
    }

    #[test]
    fn authenticated_connections_are_limited_in_total_and_per_address_except_proxies() {
        let limits = Limits { max_connections: 4, max_connections_per_address: 2, ..Limits::default() };
        let connections = connections(limits);
        let take = |address: &str| open_authenticated(&connections, address);
        let first = take("192.0.2.1").unwrap();
        let second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none(), "an IPv4 address and its IPv6-mapped form are the same address");
        let proxied: Vec<_> = (0..2).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(take("192.0.2.2").is_none(), "the total limit is reached");
        drop(first);
        let third = take("192.0.2.1").unwrap();
        assert_eq!(connections.0.lock().open, 4);
        assert!([&second, &third].into_iter().chain(&proxied).all(|permit| !is_evicted(permit)));
        drop((second, third, proxied));
        let counts = connections.0.lock();
        assert!(counts.open == 0 && counts.by_address.is_empty() && counts.unauthenticated.is_empty());
    }

    #[test]
    fn new_connection_evicts_the_oldest_unauthenticated_connection_of_its_address() {
        let limits = Limits { max_unauthenticated_connections_per_address: 2, ..Limits::default() };
        let connections = connections(limits);
        let other = open(&connections, "192.0.2.2").unwrap();
        let keyed = open_authenticated(&connections, "192.0.2.1").unwrap();
        let mut held: Vec<_> = (0..5).map(|_| open(&connections, "192.0.2.1").unwrap()).collect();
        assert_eq!(held.iter().map(is_evicted).collect::<Vec<_>>(), [true, true, true, false, false]);
        assert!(!is_evicted(&other) && !is_evicted(&keyed));
        // An evicted connection cannot become authenticated, and it is not counted twice.
        held[0].authenticated();
        assert!(!held[0].is_authenticated());
        held.drain(..3);
        assert_eq!(connections.0.lock().open, 4);
        held[0].authenticated();
        let next = open(&connections, "192.0.2.1").unwrap();
        assert!(!is_evicted(&held[1]), "an authenticated connection does not use the share");
        drop((next, held));
    }

    #[test]
    fn ipv6_network_has_one_share() {
        let limits = Limits { max_unauthenticated_connections_per_address: 1, ..Limits::default() };
        let connections = connections(limits);
        let first = open(&connections, "2001:db8::1").unwrap();
        let other = open(&connections, "2001:db8:0:1::1").unwrap();
        let _second = open(&connections, "2001:db8::2").unwrap();
        assert!(is_evicted(&first) && !is_evicted(&other));
    }

    #[test]
    fn full_gateway_evicts_only_unauthenticated_connections() {
        let connections = connections(Limits { max_connections: 16, ..Limits::default() });
        let keyed: Vec<_> = (0..14).map(|_| open_authenticated(&connections, "192.0.2.1").unwrap()).collect();
        let (one, two) = (open(&connections, "192.0.2.2").unwrap(), open(&connections, "10.0.0.1").unwrap());
        let three = open_authenticated(&connections, "192.0.2.3").unwrap();
        assert!(is_evicted(&one) && !is_evicted(&two));
        let four = open_authenticated(&connections, "192.0.2.3").unwrap();
        assert!(is_evicted(&two), "connections of a proxy are evicted too");
        assert!(open(&connections, "192.0.2.4").is_none(), "all connections are authenticated");
        assert!(keyed.iter().chain([&three, &four]).all(|permit| !is_evicted(permit)));
    }

    #[test]
    fn one_address_uses_at_most_a_quarter_of_the_unauthenticated_connections() {
        // The shares shrink with `max_connections`: 20 unauthenticated connections, 5 per address.
        let connections = connections(Limits { max_connections: 40, ..Limits::default() });
        let neighbour = open(&connections, "192.0.2.2").unwrap();
        let flood: Vec<_> = (0..100).map(|_| open(&connections, "192.0.2.1").unwrap()).collect();
        assert!(!is_evicted(&neighbour));
        assert_eq!(flood.iter().filter(|permit| !is_evicted(permit)).count(), 5);
        let proxied: Vec<_> = (0..14).map(|_| open(&connections, "10.0.0.1").unwrap()).collect();
        assert!(proxied.iter().all(|permit| !is_evicted(permit)), "a proxy has no share of its own");
        assert!(flood[99].is_crowded() && neighbour.is_crowded());
        neighbour.authenticated();
        assert!(!neighbour.is_crowded(), "20 of 40 connections are open");
    }
}
