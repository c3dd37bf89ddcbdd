//! The hourly write quota of a session. It keeps one agent from filling the disk or evicting other logs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limits;
use base::shutdown::lock_or_abort;
use base::types::SessionId;

/// The length of a quota window. A window begins with its first event.
const HOUR: Duration = Duration::from_hours(1);
/// The approximate number of bytes of an event besides its own members.
const EVENT_OVERHEAD_BYTES: u64 = 256;
/// The maximum number of stored quotas of unloaded sessions. Above it, the smallest one is discarded.
const MAX_REMEMBERED: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Quota {
    since: Instant,
    bytes: u64,
    events: u64,
}

impl Quota {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            bytes: 0,
            events: 0,
        }
    }

    pub(super) fn count(&mut self, events: usize, bytes: usize, now: Instant) {
        if now >= self.since + HOUR {
            *self = Self {
                since: now,
                bytes: 0,
                events: 0,
            };
        }
        self.bytes += bytes as u64 + EVENT_OVERHEAD_BYTES * events as u64;
        self.events += events as u64;
    }

    /// When the session may write again, if the quota is exceeded.
    pub(super) fn exceeded_until(&self, limits: &Limits, now: Instant) -> Option<Instant> {
        let much = self.bytes > limits.max_session_bytes_per_hour
            || self.events > limits.max_session_events_per_hour;
        Some(self.since + HOUR).filter(|until| much && *until > now)
    }
}

/// The quotas of unloaded sessions. A loaded session continues its window. A restart resets all windows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quotas(Arc<Mutex<HashMap<SessionId, Quota>>>);

impl Quotas {
    pub(super) fn take(&self, id: SessionId) -> Quota {
        lock_or_abort(self.0.lock())
            .remove(&id)
            .unwrap_or_else(Quota::new)
    }

    pub(super) fn store(&self, id: SessionId, quota: Quota) {
        self.store_limited(MAX_REMEMBERED, id, quota, Instant::now());
    }

    fn store_limited(&self, most: usize, id: SessionId, quota: Quota, now: Instant) {
        let mut quotas = lock_or_abort(self.0.lock());
        if quotas.len() >= most {
            quotas.retain(|_, quota| now < quota.since + HOUR);
        }
        if quotas.len() >= most
            && let Some(least) = quotas
                .iter()
                .min_by_key(|(_, quota)| quota.bytes)
                .map(|(id, _)| *id)
        {
            quotas.remove(&least);
        }
        quotas.insert(id, quota);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hour_starts_at_first_event() {
        let limits = Limits {
            max_session_bytes_per_hour: 10_000,
            max_session_events_per_hour: 3,
            ..Limits::default()
        };
        let start = Instant::now();
        let mut quota = Quota::new();
        let at = |minutes| start + Duration::from_mins(minutes);
        for minute in 0..3 {
            quota.count(1, 10, at(minute));
        }
        assert_eq!(quota.exceeded_until(&limits, at(3)), None);
        quota.count(1, 10, at(3));
        let until = quota
            .exceeded_until(&limits, at(4))
            .expect("four events exceed the limit");
        assert!(until >= at(60) && until < at(61));
        assert_eq!(
            quota.exceeded_until(&limits, at(61)),
            None,
            "the window has ended"
        );
        quota.count(1, 20_000, at(61));
        assert!(
            quota
                .exceeded_until(&limits, at(61))
                .is_some_and(|until| until >= at(121)),
            "one event exceeds the byte limit"
        );
    }

    #[test]
    fn evicts_smallest_quota_first() {
        let quotas = Quotas::default();
        let now = Instant::now();
        let id = |number| SessionId::from_uuid(uuid::Uuid::from_u128(number));
        let keep = |number, bytes, since| {
            quotas.store_limited(
                3,
                id(number),
                Quota {
                    since,
                    bytes,
                    events: 1,
                },
                since,
            );
        };
        for (number, bytes) in [(1, 500), (2, 100), (3, 900), (4, 200)] {
            keep(number, bytes, now);
        }
        assert_eq!(
            quotas.take(id(2)).bytes,
            0,
            "the entry with the fewest bytes is discarded"
        );
        assert_eq!(
            [1, 3, 4].map(|number| quotas.take(id(number)).bytes),
            [500, 900, 200]
        );
        assert_eq!(quotas.take(id(1)).bytes, 0, "take removes the entry");
        for number in 1..=3 {
            keep(number, 500, now);
        }
        keep(4, 1, now + HOUR);
        assert_eq!(
            lock_or_abort(quotas.0.lock()).len(),
            1,
            "the windows of the others have ended"
        );
    }
}
