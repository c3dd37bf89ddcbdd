//! How much a session may write in an hour: an agent that runs wild must not fill the disk, nor drive out what others said.

use std::time::Duration;

use tokio::time::Instant;

use super::actor::Actor;
use super::attachment::Attachment;
use super::refusal::Refusal;
use crate::api::event::DetachedReason;
use crate::pool::Fate;
use crate::types::Limits;

/// One hour after the other, each from its first event on.
const HOUR: Duration = Duration::from_hours(1);
/// About what an event is beside its own members.
const HEAD: u64 = 256;

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
        self.bytes += bytes as u64 + HEAD * events as u64;
        self.events += events as u64;
    }

    /// When the session may go on, if it has written too much.
    pub(super) fn over_until(&self, limits: &Limits, now: Instant) -> Option<Instant> {
        let much = self.bytes > limits.session_bytes_per_hour || self.events > limits.session_events_per_hour;
        Some(self.since + HOUR).filter(|until| much && *until > now)
    }
}

impl Actor {
    /// Refuses what makes an agent write, for as long as the session has written too much.
    pub(super) fn check_quota(&self) -> Result<(), Refusal> {
        let now = Instant::now();
        match self.quota.over_until(&self.context.limits, now) {
            Some(until) => Err(Refusal::Quota(until - now)),
            None => Ok(()),
        }
    }

    /// Ends the process of an agent that made the session write too much, and its turn. No cancel is waited for: what
    /// floods now would go on for as long.
    pub(super) fn keep_quota(&mut self) {
        if self.inputs.lease.is_none() {
            return;
        }
        let Err(refusal) = self.check_quota() else { return };
        tracing::warn!(session = %self.record.session_id, "a session wrote too much in an hour, and its agent is stopped");
        self.release(Fate::Stop, &refusal);
        if self.record.attached {
            self.detached(DetachedReason::Exited);
        }
        self.attachment = Attachment::Detached;
        self.unattached(&refusal);
    }

    /// When a session that nobody needs leaves memory. One that wrote too much is remembered until it may go on.
    pub(super) fn unload_at(&self) -> Option<Instant> {
        let idle = !self.is_open() && matches!(self.attachment, Attachment::Detached);
        let limits = &self.context.limits;
        let until = self.quota.over_until(limits, Instant::now());
        idle.then(|| until.into_iter().fold(self.asked_at + limits.session_idle, Instant::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_counted_from_its_first_event() {
        let limits =
            Limits { session_bytes_per_hour: 10_000, session_events_per_hour: 3, ..Limits::default() };
        let start = Instant::now();
        let mut quota = Quota::new();
        let at = |minutes| start + Duration::from_mins(minutes);
        for minute in 0..3 {
            quota.count(1, 10, at(minute));
        }
        assert_eq!(quota.over_until(&limits, at(3)), None);
        quota.count(1, 10, at(3));
        let until = quota.over_until(&limits, at(4)).expect("four events are too many");
        assert!(until >= at(60) && until < at(61));
        assert_eq!(quota.over_until(&limits, at(61)), None, "the hour is over");
        quota.count(1, 20_000, at(61));
        assert!(
            quota.over_until(&limits, at(61)).is_some_and(|until| until >= at(121)),
            "one event is too large"
        );
    }
}
