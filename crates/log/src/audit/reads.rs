//! Reads of sessions, which a client can repeat without bound: one event for each reader and session in a period.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use base::types::{Author, SessionId, client_network};
use events::event::ExportForm;

/// The number of different reads that are remembered. When it is reached, the next period begins early.
const MAX_READS: usize = 4096;

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    /// One key can act for several users.
    user: Arc<str>,
    key: Arc<str>,
    network: IpAddr,
    session: SessionId,
    /// `None`: not an export.
    form: Option<ExportForm>,
}

impl Read {
    pub(super) fn new(author: &Author, session: SessionId, form: Option<ExportForm>) -> Self {
        Self {
            user: Arc::clone(&author.name),
            key: Arc::clone(&author.key),
            network: client_network(author.address),
            session,
            form,
        }
    }
}

/// The reads of this period.
#[derive(Debug)]
pub(super) struct Reads {
    period: Duration,
    ends: Instant,
    seen: HashSet<Read>,
}

impl Reads {
    pub(super) fn new(period: Duration) -> Self {
        Self {
            period,
            ends: Instant::now() + period,
            seen: HashSet::new(),
        }
    }

    /// Whether this is the first such read in the period, and therefore an event. `may_end`: whether the log accepts the events of
    /// another period. If it does not, no more than [`MAX_READS`] events wait in memory.
    pub(super) fn is_first(&mut self, read: Read, may_end: bool, now: Instant) -> bool {
        let is_full = self.seen.len() >= MAX_READS && !self.seen.contains(&read);
        if may_end && (is_full || now >= self.ends) {
            self.seen.clear();
            self.ends = now + self.period;
        }
        self.seen.len() < MAX_READS && self.seen.insert(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn read(key: &str, address: [u8; 4], session: SessionId) -> Read {
        let author = Author {
            name: "bob".into(),
            key: key.into(),
            address: address.into(),
            http_request_id: None,
        };
        Read::new(&author, session, None)
    }

    #[test]
    fn read_is_an_event_once_in_a_period_for_each_user_key_address_session_and_form() {
        let mut reads = Reads::new(HOUR);
        let now = reads.ends - HOUR;
        let of = |key, last| read(key, [203, 0, 113, last], SessionId::AUDIT);
        let exported = || Read {
            form: Some(ExportForm::Markdown),
            ..of("a", 1)
        };
        for new in [true, false] {
            let of_another_user = Read {
                user: "carol".into(),
                ..of("a", 1)
            };
            let all = [
                of("a", 1),
                of("b", 1),
                of("a", 2),
                of_another_user,
                exported(),
            ];
            for different in all {
                assert_eq!(reads.is_first(different, true, now), new);
            }
        }
        let just_before = reads.ends - Duration::from_nanos(1);
        assert!(!reads.is_first(of("a", 1), true, just_before));
        assert!(reads.is_first(of("a", 1), true, now + HOUR));
        assert!(!reads.is_first(of("a", 1), true, now + HOUR));
    }

    #[test]
    fn memory_and_the_events_of_a_full_disk_are_bounded() {
        let mut reads = Reads::new(HOUR);
        let now = reads.ends;
        let mut first = |number: usize, may_end| {
            let key = number.to_string();
            reads.is_first(read(&key, [203, 0, 113, 1], SessionId::AUDIT), may_end, now)
        };
        let events = (0..3 * MAX_READS).filter(|number| first(*number, false));
        assert_eq!(events.count(), MAX_READS);
        let events = (0..3 * MAX_READS).filter(|number| first(*number, true));
        assert_eq!(events.count(), 3 * MAX_READS);
        assert!(reads.seen.len() <= MAX_READS);
    }
}
