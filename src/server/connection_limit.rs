//! The limits of open connections. They reserve connections for authenticated clients.
//!
//! A connection is unauthenticated until the gateway accepts the key of one of its requests. If a limit is
//! reached, a new connection evicts the oldest unauthenticated one, which had at least [`GRACE`] to send a request.
//! Authenticated connections are never evicted.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::shutdown::lock_or_abort;
use crate::types::network::client_network;
use crate::types::{Limits, Network};

/// The memory of an open request beside its bytes: its task, its response, and headers that HTTP/2 compressed.
const REQUEST_BYTES: usize = 32 << 10;

/// The received bytes of an unauthenticated connection up to which it reads at full speed.
const UNPACED_BYTES: usize = 16 << 10;

/// A connection cannot be evicted before this time after its first read. Otherwise a burst of clients would evict
/// connections whose requests have arrived and are not read yet.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// The reason why a new connection has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All connections are authenticated.
    Full,
    /// The connections that could be evicted are in their grace period.
    Busy,
}

/// How a connection may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadPermission {
    Full,
    /// The connection is unauthenticated and sends much, so other connections run between a few reads.
    Paced,
    Evicted,
}

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
    /// The sum of [`Unauthenticated::request_bytes`].
    request_bytes: usize,
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
    /// The time at which the connection first read.
    first_read: Option<Instant>,
    /// The bytes that the client sent since the connection had no open request.
    received: usize,
    requests: usize,
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

    /// Counts a connection, and evicts an older unauthenticated connection if a limit is reached.
    pub(super) fn acquire(&self, address: IpAddr, now: Instant) -> Result<ConnectionPermit, NoPlace> {
        let Self(table) = self;
        let is_proxy = table.proxies.iter().any(|proxy| proxy.contains(address));
        let address = (!is_proxy).then(|| client_network(address));
        let eviction = Arc::new(Notify::new());
        let id = table.lock().insert(&table.limits, address, &eviction, now)?;
        let authenticated = AtomicBool::new(false);
        Ok(ConnectionPermit(Arc::new(ConnectionGuard {
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

    /// The permission for a read at `now`.
    pub(super) fn read_permission(&self, now: Instant) -> ReadPermission {
        let guard = &*self.0;
        if self.is_authenticated() {
            return ReadPermission::Full;
        }
        guard.table.lock().read_permission(guard.id, now)
    }

    /// Records bytes of the client.
    pub(super) fn bytes_received(&self, bytes: usize) {
        self.update(|connection| connection.received += bytes);
    }

    pub(super) fn request_started(&self) {
        self.update(|connection| connection.requests += 1);
    }

    pub(super) fn request_ended(&self) {
        self.update(|connection| {
            connection.requests = connection.requests.saturating_sub(1);
            if connection.requests == 0 {
                connection.received = 0;
            }
        });
    }

    /// Changes the memory of an unauthenticated connection.
    fn update(&self, change: impl FnOnce(&mut Unauthenticated)) {
        let guard = &*self.0;
        if !self.is_authenticated() {
            guard.table.lock().update(&guard.table.limits, guard.id, change);
        }
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

impl Unauthenticated {
    fn request_bytes(&self) -> usize {
        self.received + self.requests * REQUEST_BYTES
    }

    fn had_its_grace(&self, now: Instant) -> bool {
        self.first_read.is_some_and(|first| first + GRACE <= now)
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

    /// Inserts an unauthenticated connection. Returns its id.
    fn insert(
        &mut self,
        limits: &Limits,
        address: Option<IpAddr>,
        eviction: &Arc<Notify>,
        now: Instant,
    ) -> Result<u64, NoPlace> {
        let of_address = self.of_address(address);
        if of_address.open >= limits.max_connections_per_address
            || of_address.unauthenticated >= max_unauthenticated_per_address(limits)
        {
            self.make_place(now, |other| other.address == address)?;
        }
        if self.open >= limits.max_connections || self.unauthenticated.len() >= max_unauthenticated(limits) {
            self.make_place(now, |_| true)?;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.open += 1;
        if let Some(address) = address {
            let counts = self.by_address.entry(address).or_default();
            counts.open += 1;
            counts.unauthenticated += 1;
        }
        let eviction = Arc::clone(eviction);
        let connection = Unauthenticated { address, eviction, first_read: None, received: 0, requests: 0 };
        self.unauthenticated.insert(id, connection);
        Ok(id)
    }

    /// Evicts the oldest of these connections, unless it is in its grace period.
    fn make_place(
        &mut self,
        now: Instant,
        is_candidate: impl Fn(&Unauthenticated) -> bool,
    ) -> Result<(), NoPlace> {
        let oldest = self.unauthenticated.values().find(|other| is_candidate(other)).ok_or(NoPlace::Full)?;
        if !oldest.had_its_grace(now) {
            return Err(NoPlace::Busy);
        }
        self.evict_oldest(is_candidate).ok_or(NoPlace::Full)
    }

    /// Changes the memory of a connection. Evicts the oldest connections with memory while they exceed the limit.
    fn update(&mut self, limits: &Limits, id: u64, change: impl FnOnce(&mut Unauthenticated)) {
        let Some(connection) = self.unauthenticated.get_mut(&id) else { return };
        let before = connection.request_bytes();
        change(connection);
        self.request_bytes = self.request_bytes + connection.request_bytes() - before;
        while self.request_bytes > limits.max_unauthenticated_request_bytes
            && self.evict_oldest(|other| other.request_bytes() > 0).is_some()
        {}
    }

    fn read_permission(&mut self, id: u64, now: Instant) -> ReadPermission {
        let Some(connection) = self.unauthenticated.get_mut(&id) else { return ReadPermission::Evicted };
        connection.first_read.get_or_insert(now);
        if connection.received > UNPACED_BYTES { ReadPermission::Paced } else { ReadPermission::Full }
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
        self.request_bytes -= connection.request_bytes();
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
impl ConnectionPermit {
    /// The permit of a connection in a test without limits.
    pub(super) fn unlimited() -> Self {
        let connections = Connections::new(&Arc::new(Limits::default()), Vec::new());
        connections.acquire(IpAddr::from([127, 0, 0, 1]), Instant::now()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn connections(limits: Limits) -> Connections {
        Connections::new(&Arc::new(limits), vec!["10.0.0.0/8".parse().unwrap()])
    }

    /// Opens a connection when the grace period of all others has ended.
    fn open(connections: &Connections, address: &str) -> Option<ConnectionPermit> {
        let now = Instant::now();
        let permit = connections.acquire(address.parse().unwrap(), now + GRACE).ok()?;
        permit.read_permission(now);
        Some(permit)
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
    fn connection_has_a_grace_period_after_its_first_read() {
        let limits = Limits { max_unauthenticated_connections_per_address: 1, ..Limits::default() };
        let connections = connections(limits);
        let (address, now) = (IpAddr::from([192, 0, 2, 1]), Instant::now());
        let acquire = |at| connections.acquire(address, at).map(|_| ());
        let first = connections.acquire(address, now).unwrap();
        assert_eq!(acquire(now + 2 * GRACE), Err(NoPlace::Busy), "its request may have arrived");
        first.read_permission(now + GRACE);
        first.read_permission(now + 2 * GRACE);
        assert_eq!(acquire(now + 2 * GRACE - Duration::from_millis(1)), Err(NoPlace::Busy));
        assert!(!is_evicted(&first));
        assert_eq!(acquire(now + 2 * GRACE), Ok(()));
        assert!(is_evicted(&first));
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
    fn memory_of_unauthenticated_requests_is_bounded() {
        let limit = 4 * REQUEST_BYTES;
        let limits = Limits { max_unauthenticated_request_bytes: limit, ..Limits::default() };
        let connections = connections(limits);
        let take = || open(&connections, "192.0.2.1").unwrap();
        let (silent, oldest, keyed, one, two) = (take(), take(), take(), take(), take());
        for connection in [&oldest, &keyed, &one, &two] {
            connection.bytes_received(10);
            connection.request_started();
        }
        assert!(is_evicted(&oldest), "four requests and their bytes exceed the limit");
        assert_eq!(connections.0.lock().request_bytes, 3 * (REQUEST_BYTES + 10));
        keyed.authenticated();
        keyed.bytes_received(limit);
        assert_eq!(connections.0.lock().request_bytes, 2 * (REQUEST_BYTES + 10));
        one.request_ended();
        one.bytes_received(limit - REQUEST_BYTES - 10);
        assert!([&silent, &keyed, &one, &two].into_iter().all(|permit| !is_evicted(permit)));
        two.bytes_received(1);
        assert!(is_evicted(&one) && !is_evicted(&silent), "a connection without memory is not evicted");
        drop(two);
        let three = take();
        three.bytes_received(limit + 1);
        assert!(is_evicted(&three), "one connection alone");
        assert_eq!(connections.0.lock().request_bytes, 0);
        let (four, small) = (take(), take());
        four.bytes_received(UNPACED_BYTES + 1);
        small.bytes_received(UNPACED_BYTES);
        let permissions =
            [&three, &four, &small, &keyed].map(|permit| permit.read_permission(Instant::now()));
        let [full, paced] = [ReadPermission::Full, ReadPermission::Paced];
        assert_eq!(permissions, [ReadPermission::Evicted, paced, full, full]);
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
