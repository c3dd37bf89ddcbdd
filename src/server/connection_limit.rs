//! The limits of open connections. They reserve connections for authenticated clients.
//!
//! A connection is unauthenticated until the gateway accepts the key of one of its requests. If a limit is
//! reached, a new connection evicts the oldest unauthenticated one, which had at least [`GRACE`] to send a request.
//! Authenticated connections are never evicted.
//!
//! Constraints and rejected alternatives:
//!
//! - `KeyedCounts` is not sufficient. An admission reads several counts and the order of the unauthenticated
//!   connections under one lock, and a permit moves to the authenticated connections during its life.
//! - A minimum age before eviction, with a rejection of earlier arrivals: an attacker that refills its share within
//!   that age locks out other clients at its address. [`GRACE`] is short, and waiting sockets stay open.
//! - Smaller HTTP/2 limits before the first key: limits of hyper are fixed for all connections. Adaptive windows
//!   measure each connection with `PING` frames and delay its first upload.
//! - Configuration keys for the shares: the shares follow from `max_connections`.
//! - The memory of an evicted connection counts until its tasks end. Otherwise a flood could exceed the limit with
//!   connections whose tasks have not run yet.
//! - A connection stays authenticated after its key ends, until the connection is idle.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::body_memory::{BodyCharge, BodyMemoryFull};
use crate::auth::Network;
use crate::server::limits::Limits;
use base::shutdown::lock_or_abort;
use base::types::client_network;

/// The header of a short frame of a client (RFC 6455, section 5.2): two bytes and the mask.
const CONTROL_HEADER_BYTES: usize = 6;

/// The memory of an open request beside its bytes: its task, its response, and headers that HTTP/2 compressed.
const REQUEST_BYTES: usize = 32 << 10;

/// The received bytes of an unauthenticated connection up to which it reads at full speed.
const UNPACED_BYTES: usize = 16 << 10;

/// The received bytes of an unauthenticated connection up to which it does not wait for the drop of evicted
/// connections. The head of an ordinary request is smaller, so an attack does not delay it.
const UNDELAYED_BYTES: usize = 4 << 10;

/// A connection cannot be evicted before this time after its first read. Otherwise a burst of clients would evict
/// connections whose requests have arrived and are not read yet.
pub(super) const GRACE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcquireError {
    /// All connections are authenticated.
    Full,
    /// The connections that could be evicted are in their grace period.
    Busy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadPermission {
    Full,
    /// The connection is unauthenticated and sends much, so other connections run between a few reads.
    Paced,
    /// Evicted connections still occupy the memory of unauthenticated requests. They are dropped when their tasks
    /// run, so the connection reads later.
    AfterEvictions,
    Evicted,
}

/// The use of the gateway by clients with a key. Cheap to clone.
#[derive(Clone, Default)]
pub struct ConnectionUse(Arc<UseCounts>);

#[derive(Default)]
struct UseCounts {
    open: AtomicUsize,
    total: AtomicUsize,
}

impl ConnectionUse {
    pub fn open(&self) -> usize {
        self.0.open.load(Ordering::Relaxed)
    }

    pub fn total(&self) -> usize {
        self.0.total.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.0.open.fetch_add(1, Ordering::Relaxed);
        self.0.total.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Connections(Arc<ConnectionTable>);

struct ConnectionTable {
    limits: Arc<Limits>,
    /// The trusted proxies. Many clients share such an address, so it has no limits of its own.
    proxies: Vec<Network>,
    authenticated: ConnectionUse,
    counts: Mutex<Counts>,
}

/// Evicted connections are not counted as open, although they may still be open for a moment.
#[derive(Default)]
struct Counts {
    open: usize,
    by_address: HashMap<IpAddr, AddressCounts>,
    /// The unauthenticated connections by id. The oldest has the lowest id.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    request_bytes: usize,
    evicted: EvictedMemory,
    next_id: u64,
}

/// The memory of requests on evicted connections that are not dropped yet.
#[derive(Default)]
struct EvictedMemory {
    by_connection: HashMap<u64, usize>,
    bytes: usize,
}

#[derive(Default, Clone, Copy)]
struct AddressCounts {
    open: usize,
    unauthenticated: usize,
}

struct Unauthenticated {
    /// `None` for a trusted proxy.
    address: Option<IpAddr>,
    /// Only here, because authenticated connections are many and do not need it.
    eviction: Arc<Notify>,
    first_read: Option<Instant>,
    /// The bytes that the client sent since the connection had no open request.
    received: usize,
    requests: usize,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Clone)]
pub(crate) struct ConnectionPermit(Arc<ConnectionGuard>);

struct ConnectionGuard {
    table: Arc<ConnectionTable>,
    id: u64,
    address: Option<IpAddr>,
    /// Changes while the table is locked.
    authenticated: AtomicBool,
    /// The memory of the messages of a WebSocket, after the upgrade.
    messages: OnceLock<Arc<BodyCharge>>,
}

impl Connections {
    pub(super) fn new(
        limits: &Arc<Limits>,
        proxies: Vec<Network>,
        authenticated: ConnectionUse,
    ) -> Self {
        let limits = Arc::clone(limits);
        Self(Arc::new(ConnectionTable {
            limits,
            proxies,
            authenticated,
            counts: Mutex::default(),
        }))
    }

    /// Counts a connection, and evicts an older unauthenticated connection if a limit is reached.
    pub(super) fn acquire(
        &self,
        address: IpAddr,
        now: Instant,
    ) -> Result<ConnectionPermit, AcquireError> {
        let Self(table) = self;
        let is_proxy = table.proxies.iter().any(|proxy| proxy.contains(address));
        let address = (!is_proxy).then(|| client_network(address));
        let id = table.lock().insert(&table.limits, address, now)?;
        Ok(ConnectionPermit(Arc::new(ConnectionGuard {
            table: Arc::clone(table),
            id,
            address,
            authenticated: AtomicBool::new(false),
            messages: OnceLock::new(),
        })))
    }
}

impl ConnectionPermit {
    /// Charges the following bytes of the client, which are messages of a WebSocket, until
    /// [`message_handled`](Self::message_handled). Reads fail after a charge that exceeds the memory for bodies.
    pub(crate) fn charge_messages(&self, charge: Arc<BodyCharge>) {
        self.0.messages.get_or_init(|| charge);
    }

    /// Releases the memory of the messages that have arrived.
    pub(crate) fn message_handled(&self) {
        if let Some(charge) = self.0.messages.get() {
            charge.release();
        }
    }

    /// Releases the memory of a ping or pong with this payload. It can arrive between the fragments of a message, whose bytes
    /// stay charged.
    pub(crate) fn control_frame_handled(&self, payload: &[u8]) {
        if let Some(charge) = self.0.messages.get() {
            charge.release_part(payload.len() + CONTROL_HEADER_BYTES);
        }
    }

    pub(crate) fn messages_exceeded(&self) -> Option<BodyMemoryFull> {
        self.0.messages.get()?.exceeded()
    }

    /// Records that the gateway accepted the key of a request. The connection is not evicted from now on.
    pub(crate) fn authenticated(&self) {
        let guard = &*self.0;
        // Every request calls this, so only the first one locks the table.
        if self.is_authenticated() {
            return;
        }
        let mut counts = guard.table.lock();
        if counts.authenticate(guard.id) {
            guard.authenticated.store(true, Ordering::Relaxed);
            guard.table.authenticated.begin();
        }
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.0.authenticated.load(Ordering::Relaxed)
    }

    pub(super) fn read_permission(&self, now: Instant) -> ReadPermission {
        let guard = &*self.0;
        if self.messages_exceeded().is_some() {
            return ReadPermission::Evicted;
        }
        if self.is_authenticated() {
            return ReadPermission::Full;
        }
        guard
            .table
            .lock()
            .read_permission(&guard.table.limits, guard.id, now)
    }

    pub(super) fn bytes_received(&self, bytes: usize) {
        // After an error, the next read fails.
        if let Some(charge) = self.0.messages.get()
            && let Err(full) = charge.add(bytes)
        {
            tracing::debug!(%full, "closing a WebSocket");
        }
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

    fn update(&self, change: impl FnOnce(&mut Unauthenticated)) {
        let guard = &*self.0;
        if !self.is_authenticated() {
            guard
                .table
                .lock()
                .update(&guard.table.limits, guard.id, change);
        }
    }

    /// Completes when the connection is evicted. Cancel-safe.
    pub(super) async fn evicted(&self) {
        let eviction = {
            let counts = self.0.table.lock();
            if self.is_authenticated() {
                Some(Arc::default())
            } else {
                let connection = counts.unauthenticated.get(&self.0.id);
                connection.map(|connection| Arc::clone(&connection.eviction))
            }
        };
        // An evicted connection is not in the table.
        if let Some(eviction) = eviction {
            eviction.notified().await;
        }
    }

    /// Whether more than half of a limit is in use that applies to this connection.
    pub(super) fn is_crowded(&self) -> bool {
        let ConnectionGuard { table, address, .. } = &*self.0;
        let limits = &table.limits;
        let counts = table.lock();
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

impl EvictedMemory {
    fn insert(&mut self, id: u64, bytes: usize) {
        if bytes > 0 {
            self.by_connection.insert(id, bytes);
            self.bytes += bytes;
        }
    }

    fn remove(&mut self, id: u64) {
        self.bytes -= self.by_connection.remove(&id).unwrap_or(0);
    }
}

impl ConnectionTable {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        lock_or_abort(self.counts.lock())
    }
}

impl Counts {
    fn of_address(&self, address: Option<IpAddr>) -> AddressCounts {
        address
            .and_then(|address| self.by_address.get(&address))
            .copied()
            .unwrap_or_default()
    }

    fn insert(
        &mut self,
        limits: &Limits,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<u64, AcquireError> {
        let of_address = self.of_address(address);
        if of_address.open >= limits.max_connections_per_address
            || of_address.unauthenticated >= max_unauthenticated_per_address(limits)
        {
            self.evict_one(now, |other| other.address == address)?;
        }
        if self.open >= limits.max_connections
            || self.unauthenticated.len() >= max_unauthenticated(limits)
        {
            self.evict_one(now, |_| true)?;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.open += 1;
        if let Some(address) = address {
            let counts = self.by_address.entry(address).or_default();
            counts.open += 1;
            counts.unauthenticated += 1;
        }
        let connection = Unauthenticated {
            address,
            eviction: Arc::default(),
            first_read: None,
            received: 0,
            requests: 0,
        };
        self.unauthenticated.insert(id, connection);
        Ok(id)
    }

    /// Evicts the oldest of these connections, unless it is in its grace period.
    fn evict_one(
        &mut self,
        now: Instant,
        is_candidate: impl Fn(&Unauthenticated) -> bool,
    ) -> Result<(), AcquireError> {
        let oldest = self
            .unauthenticated
            .values()
            .find(|other| is_candidate(other))
            .ok_or(AcquireError::Full)?;
        if !oldest.had_its_grace(now) {
            return Err(AcquireError::Busy);
        }
        self.evict_oldest(is_candidate).ok_or(AcquireError::Full)
    }

    /// Changes the memory of a connection. Evicts the oldest connections with memory while they exceed the limit.
    fn update(&mut self, limits: &Limits, id: u64, change: impl FnOnce(&mut Unauthenticated)) {
        let Some(connection) = self.unauthenticated.get_mut(&id) else {
            return;
        };
        let before = connection.request_bytes();
        change(connection);
        self.request_bytes = self.request_bytes + connection.request_bytes() - before;
        while self.request_bytes > limits.max_unauthenticated_request_bytes
            && self
                .evict_oldest(|other| other.request_bytes() > 0)
                .is_some()
        {}
    }

    fn read_permission(&mut self, limits: &Limits, id: u64, now: Instant) -> ReadPermission {
        let memory = self.request_bytes + self.evicted.bytes;
        let Some(connection) = self.unauthenticated.get_mut(&id) else {
            return ReadPermission::Evicted;
        };
        connection.first_read.get_or_insert(now);
        if connection.received > UNDELAYED_BYTES
            && memory > limits.max_unauthenticated_request_bytes
        {
            ReadPermission::AfterEvictions
        } else if connection.received > UNPACED_BYTES {
            ReadPermission::Paced
        } else {
            ReadPermission::Full
        }
    }

    fn evict_oldest(&mut self, is_candidate: impl Fn(&Unauthenticated) -> bool) -> Option<()> {
        let (id, oldest) = self
            .unauthenticated
            .iter()
            .find(|(_, other)| is_candidate(other))?;
        let id = *id;
        let address = oldest.address;
        oldest.eviction.notify_one();
        self.evicted.insert(id, oldest.request_bytes());
        self.release(id, address, false);
        Some(())
    }

    /// Returns false if the connection was evicted.
    fn authenticate(&mut self, id: u64) -> bool {
        let Some(connection) = self.unauthenticated.remove(&id) else {
            return false;
        };
        self.request_bytes -= connection.request_bytes();
        if let Some(counts) = connection
            .address
            .and_then(|address| self.by_address.get_mut(&address))
        {
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
        if authenticated {
            self.table.authenticated.end();
        }
        let mut counts = self.table.lock();
        counts.release(self.id, self.address, authenticated);
        counts.evicted.remove(self.id);
    }
}

/// The limit of unauthenticated connections, at most half of all connections.
fn max_unauthenticated(limits: &Limits) -> usize {
    limits
        .max_unauthenticated_connections
        .min(limits.max_connections / 2)
        .max(1)
}

/// The limit of unauthenticated connections from one address, at most a quarter of all unauthenticated ones.
fn max_unauthenticated_per_address(limits: &Limits) -> usize {
    limits
        .max_unauthenticated_connections_per_address
        .min(max_unauthenticated(limits) / 4)
        .max(1)
}

#[cfg(test)]
mod tests;
