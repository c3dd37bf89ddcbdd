//! How much a session may write in an hour: an agent that runs wild must not fill the disk, nor drive out what others said.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::Refusal;
use crate::api::event::DetachedReason;
use crate::pool::Disposition;
use crate::shutdown::lock_or_abort;
use crate::types::{Limits, SessionId};

/// One hour after the other, each from its first event on.
const HOUR: Duration = Duration::from_hours(1);
/// About what an event is beside its own members.
const EVENT_OVERHEAD_BYTES: u64 = 256;
/// Sessions out of memory whose hour is remembered. Of more than these the one that wrote the least is forgotten.
const MAX_REMEMBERED: usize = 1 << 16;

/// What was written in the hour that runs.
#[derive(Debug)]
pub(super) struct Quota {
    since: Instant,
    bytes: u64,
    events: u64,
}

impl Quota {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, events: 0 }
    }

    /// So many events more, with so many bytes of their own.
    pub(super) fn count(&mut self, events: usize, bytes: usize, now: Instant) {
        if now >= self.since + HOUR {
            *self = Self { since: now, bytes: 0, events: 0 };
        }
        self.bytes += bytes as u64 + EVENT_OVERHEAD_BYTES * events as u64;
        self.events += events as u64;
    }

    /// When the session may go on, if it has written too much.
    pub(super) fn exceeded_until(&self, limits: &Limits, now: Instant) -> Option<Instant> {
        let much = self.bytes > limits.session_bytes_per_hour || self.events > limits.session_events_per_hour;
        Some(self.since + HOUR).filter(|until| much && *until > now)
    }
}

/// The hours of the sessions that are out of memory: one that is read in again goes on with its own. A restart of the
/// gateway begins them anew.
#[derive(Debug, Clone, Default)]
pub(super) struct Quotas(Arc<Mutex<HashMap<SessionId, Quota>>>);

impl Quotas {
    pub(super) fn take(&self, id: SessionId) -> Quota {
        lock_or_abort(self.0.lock()).remove(&id).unwrap_or_else(Quota::new)
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
            && let Some(least) = quotas.iter().min_by_key(|(_, quota)| quota.bytes).map(|(id, _)| *id)
        {
            quotas.remove(&least);
        }
        quotas.insert(id, quota);
    }
}

impl Actor {
    /// Refuses what makes an agent write, for as long as the session has written too much.
    pub(super) fn check_quota(&self) -> Result<(), Refusal> {
        let now = Instant::now();
        match self.quota.exceeded_until(&self.context.limits, now) {
            Some(until) => Err(Refusal::Quota(until - now)),
            None => Ok(()),
        }
    }

    /// Ends the process of an agent that made the session write too much, and its turn. No cancel is waited for: what
    /// floods now would go on for as long.
    pub(super) fn enforce_quota(&mut self) {
        if self.event_loop.lease.is_none() {
            return;
        }
        let Err(refusal) = self.check_quota() else { return };
        tracing::warn!(session = %self.record.session_id, "a session wrote too much in an hour, and its agent is stopped");
        self.release(Disposition::Stop, &refusal);
        if self.record.attached {
            self.append_detached(DetachedReason::Exited);
        }
        self.attachment = Attachment::Detached;
        self.attach_failed(&refusal);
    }

    /// When a session that nobody needs leaves memory.
    pub(super) fn unload_at(&self) -> Option<Instant> {
        let idle = !self.is_open() && matches!(self.attachment, Attachment::Detached);
        // A session keeps its back-off for as long as it lasts.
        let idle_until = self.last_command_at + self.context.limits.session_idle;
        idle.then(|| self.crashes.backoff_until().map_or(idle_until, |until| until.max(idle_until)))
    }

    /// What it wrote in its hour outlives it in memory.
    pub(super) fn store_quota(&mut self) {
        let quota = std::mem::replace(&mut self.quota, Quota::new());
        self.context.quotas.store(self.record.session_id, quota);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hour_starts_at_first_event() {
        let limits =
            Limits { session_bytes_per_hour: 10_000, session_events_per_hour: 3, ..Limits::default() };
        let start = Instant::now();
        let mut quota = Quota::new();
        let at = |minutes| start + Duration::from_mins(minutes);
        for minute in 0..3 {
            quota.count(1, 10, at(minute));
        }
        assert_eq!(quota.exceeded_until(&limits, at(3)), None);
        quota.count(1, 10, at(3));
        let until = quota.exceeded_until(&limits, at(4)).expect("four events are too many");
        assert!(until >= at(60) && until < at(61));
        assert_eq!(quota.exceeded_until(&limits, at(61)), None, "the hour is over");
        quota.count(1, 20_000, at(61));
        assert!(
            quota.exceeded_until(&limits, at(61)).is_some_and(|until| until >= at(121)),
            "one event is too large"
        );
    }

    #[test]
    fn evicts_smallest_quota_first() {
        let (quotas, now) = (Quotas::default(), Instant::now());
        let id = |number| SessionId::from_uuid(uuid::Uuid::from_u128(number));
        let keep = |number, bytes, since| {
            quotas.store_limited(3, id(number), Quota { since, bytes, events: 1 }, since);
        };
        for (number, bytes) in [(1, 500), (2, 100), (3, 900), (4, 200)] {
            keep(number, bytes, now);
        }
        assert_eq!(quotas.take(id(2)).bytes, 0, "it wrote the least");
        assert_eq!([1, 3, 4].map(|number| quotas.take(id(number)).bytes), [500, 900, 200]);
        assert_eq!(quotas.take(id(1)).bytes, 0, "its owner has it now");
        for number in 1..=3 {
            keep(number, 500, now);
        }
        keep(4, 1, now + HOUR);
        assert_eq!(lock_or_abort(quotas.0.lock()).len(), 1, "the hours of the others are over");
    }
}
