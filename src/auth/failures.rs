//! Limits the number of invalid keys from each address, which slows down guessing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::shutdown::lock_or_abort;
use crate::types::network::client_network;

const WINDOW: Duration = Duration::from_mins(1);
/// The maximum number of tracked addresses. At the limit, the oldest window is evicted.
const MAX_ADDRESSES: usize = 10_000;

#[derive(Debug)]
pub(super) struct FailureLimiter {
    max_per_minute: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    started_at: Instant,
    count: u32,
}

impl FailureLimiter {
    pub(super) fn new(per_minute: u32) -> Self {
        Self {
            max_per_minute: per_minute,
            windows: Mutex::default(),
        }
    }

    /// Counts an invalid key. Above the limit, returns the time until the next attempt.
    ///
    /// The limit never rejects a valid key, because several clients can share an address: loopback, or a NAT
    /// gateway.
    pub(super) fn record(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut windows = lock_or_abort(self.windows.lock());
        if windows.len() >= MAX_ADDRESSES {
            windows.retain(|_, window| now < window.started_at + WINDOW);
        }
        if windows.len() >= MAX_ADDRESSES
            && let Some(oldest) = windows
                .iter()
                .min_by_key(|(_, window)| window.started_at)
                .map(|(a, _)| *a)
        {
            windows.remove(&oldest);
        }
        let window = windows.entry(client_network(address)).or_insert(Window {
            started_at: now,
            count: 0,
        });
        if now >= window.started_at + WINDOW {
            *window = Window {
                started_at: now,
                count: 0,
            };
        }
        window.count = window.count.saturating_add(1);
        (window.count > self.max_per_minute).then(|| window.started_at + WINDOW - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_failures_per_address_and_minute() {
        let failures = FailureLimiter::new(2);
        let [one, two]: [IpAddr; 2] = [
            "203.0.113.1".parse().unwrap(),
            "203.0.113.2".parse().unwrap(),
        ];
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(failures.record(one, began), None);
        assert_eq!(failures.record(one, after(1)), None);
        assert_eq!(
            failures.record(one, after(20)),
            Some(Duration::from_secs(40))
        );
        assert_eq!(failures.record(two, after(20)), None);
        assert_eq!(
            failures.record(one, after(59)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(failures.record(one, after(60)), None);
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let failures = FailureLimiter::new(1);
        let now = Instant::now();
        assert_eq!(failures.record("2001:db8::1".parse().unwrap(), now), None);
        assert!(
            failures
                .record("2001:db8::ffff".parse().unwrap(), now)
                .is_some()
        );
        assert_eq!(
            failures.record("2001:db8:0:1::1".parse().unwrap(), now),
            None
        );
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let failures = FailureLimiter::new(1);
        let now = Instant::now();
        for number in 0..MAX_ADDRESSES + 10 {
            let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
            failures.record(IpAddr::V4(address), now);
        }
        assert_eq!(failures.windows.lock().unwrap().len(), MAX_ADDRESSES);
    }
}
