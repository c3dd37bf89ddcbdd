//! The limits of open connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::shutdown::lock_or_abort;
use crate::types::{Limits, Network};

/// The number of open connections, in total and per address.
#[derive(Debug, Clone)]
pub(super) struct Connections(Arc<ConnectionCounts>);

#[derive(Debug)]
struct ConnectionCounts {
    max: usize,
    max_per_address: usize,
    proxies: Vec<Network>,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPermit(Arc<ConnectionGuard>);

impl ConnectionPermit {
    /// Whether more than half of a connection limit is in use.
    pub(super) fn is_crowded(&self) -> bool {
        let ConnectionGuard { connections, address } = &*self.0;
        let ConnectionCounts { max, max_per_address, .. } = *connections.0;
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
    pub(super) fn new(limits: &Limits, proxies: Vec<Network>) -> Self {
        Self(Arc::new(ConnectionCounts {
            max: limits.max_connections,
            max_per_address: limits.max_connections_per_address,
            proxies,
            open: Mutex::default(),
        }))
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        lock_or_abort(self.0.open.lock())
    }

    /// Counts a connection. `None` if a limit is reached.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
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
        Some(ConnectionPermit(Arc::new(ConnectionGuard { connections: self.clone(), address })))
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
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_in_total_and_per_address_except_proxies() {
        let limits = Limits { max_connections: 4, max_connections_per_address: 2, ..Limits::default() };
        let connections = Connections::new(&limits, vec!["10.0.0.0/8".parse().unwrap()]);
        let take = |address: &str| connections.acquire(address.parse().unwrap());
        let first = take("192.0.2.1").unwrap();
        let _second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none(), "an IPv4 address and its IPv6-mapped form are the same address");
        let _proxied: Vec<_> = (0..2).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(take("192.0.2.2").is_none(), "the total limit is reached");
        drop(first);
        assert!(take("192.0.2.1").is_some());
        assert_eq!(connections.open().all, 3);
    }
}
