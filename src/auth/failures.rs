//! Limits the number of invalid keys from each address, which slows down guessing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::shutdown::sound;

const WINDOW: Duration = Duration::from_mins(1);
/// The maximum number of tracked addresses. At the limit, the oldest window is evicted.
const ADDRESSES: usize = 10_000;

#[derive(Debug)]
pub(super) struct Failures {
    per_minute: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    began: Instant,
    count: u32,
}

impl Failures {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute, windows: Mutex::default() }
    }

    /// Counts an invalid key. Above the limit, returns the time until the next attempt.
    ///
    /// The limit never rejects a valid key, because several clients can share an address: loopback, or a NAT
    /// gateway.
    pub(super) fn count(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut windows = sound(self.windows.lock());
        if windows.len() >= ADDRESSES {
            windows.retain(|_, window| now < window.began + WINDOW);
        }
        if windows.len() >= ADDRESSES
            && let Some(oldest) = windows.iter().min_by_key(|(_, window)| window.began).map(|(a, _)| *a)
        {
            windows.remove(&oldest);
        }
        let window = windows.entry(network(address)).or_insert(Window { began: now, count: 0 });
        if now >= window.began + WINDOW {
            *window = Window { began: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        (window.count > self.per_minute).then(|| window.began + WINDOW - now)
    }
}

/// The address under which failures count. An IPv6 subscriber has a /64 network, so the network counts as one
/// address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_counted_by_address_and_minute() {
        let failures = Failures::new(2);
        let [one, two]: [IpAddr; 2] = ["203.0.113.1".parse().unwrap(), "203.0.113.2".parse().unwrap()];
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(failures.count(one, began), None);
        assert_eq!(failures.count(one, after(1)), None);
        assert_eq!(failures.count(one, after(20)), Some(Duration::from_secs(40)));
        assert_eq!(failures.count(two, after(20)), None);
        assert_eq!(failures.count(one, after(59)), Some(Duration::from_secs(1)));
        assert_eq!(failures.count(one, after(60)), None);
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let failures = Failures::new(1);
        let now = Instant::now();
        assert_eq!(failures.count("2001:db8::1".parse().unwrap(), now), None);
        assert!(failures.count("2001:db8::ffff".parse().unwrap(), now).is_some());
        assert_eq!(failures.count("2001:db8:0:1::1".parse().unwrap(), now), None);
    }

    #[test]
    fn a_flood_of_addresses_does_not_grow_it() {
        let failures = Failures::new(1);
        let now = Instant::now();
        for number in 0..ADDRESSES + 10 {
            let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
            failures.count(IpAddr::V4(address), now);
        }
        assert_eq!(failures.windows.lock().unwrap().len(), ADDRESSES);
    }
}
