//! The limits of open connections.

use std::net::IpAddr;
use std::sync::Arc;

use crate::types::{KeyedCounts, KeyedGuard, Limits, Network};

/// The open connections, in total and per address.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Arc<Limits>,
    /// The trusted proxies. Many clients share such an address, so it has no limit of its own.
    proxies: Vec<Network>,
    all: KeyedCounts<()>,
    by_address: KeyedCounts<IpAddr>,
}

/// Counts a connection while any clone exists. A connection that became a WebSocket outlives the task that
/// served it as HTTP.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionPermit(Arc<ConnectionGuard>);

/// One counted connection. Dropping it releases the counts.
#[derive(Debug)]
struct ConnectionGuard {
    all: KeyedGuard<()>,
    /// `None` for a trusted proxy.
    by_address: Option<KeyedGuard<IpAddr>>,
}

impl ConnectionPermit {
    /// Whether more than half of a connection limit is in use.
    pub(super) fn is_crowded(&self, limits: &Limits) -> bool {
        let ConnectionGuard { all, by_address } = &*self.0;
        let of_address = by_address.as_ref().map_or(0, KeyedGuard::count);
        all.count() > limits.max_connections / 2 || of_address > limits.max_connections_per_address / 2
    }
}

impl Connections {
    pub(super) fn new(limits: &Arc<Limits>, proxies: Vec<Network>) -> Self {
        let limits = Arc::clone(limits);
        Self { limits, proxies, all: KeyedCounts::default(), by_address: KeyedCounts::default() }
    }

    /// Counts a connection. `None` if a limit is reached.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<ConnectionPermit> {
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
mod tests {
    use super::*;

    #[test]
    fn connections_are_limited_in_total_and_per_address_except_proxies() {
        let limits = Limits { max_connections: 4, max_connections_per_address: 2, ..Limits::default() };
        let connections = Connections::new(&Arc::new(limits), vec!["10.0.0.0/8".parse().unwrap()]);
        let take = |address: &str| connections.acquire(address.parse().unwrap());
        let first = take("192.0.2.1").unwrap();
        let _second = take("::ffff:192.0.2.1").unwrap();
        assert!(take("192.0.2.1").is_none(), "an IPv4 address and its IPv6-mapped form are the same address");
        let _proxied: Vec<_> = (0..2).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(take("192.0.2.2").is_none(), "the total limit is reached");
        drop(first);
        assert!(take("192.0.2.1").is_some());
        assert_eq!(connections.all.count(&()), 3);
    }
}
