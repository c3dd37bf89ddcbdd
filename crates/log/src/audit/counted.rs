//! Events that a client or an agent can repeat without bound.
//!
//! Equal events are counted in a time window. The first one is written at once. The others are one event with their
//! number, at the end of the window. The number of different events in a window is bounded too: further ones are
//! counted without their address or session. Thus a flood writes a bounded number of events.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use base::shutdown::lock_or_abort;
use base::types::{AgentName, Author, SessionId, Timestamp, client_network};
use events::event::{
    ActorKind, AgentRequestRefused, AuditActor, AuditEntry, AuditEvent, KeyUsedFromNewNetwork,
    RefuseReason, RejectReason, RequestRejected, TicketCreated,
};

/// The number of different events in one window.
const MAX_DIFFERENT: usize = 64;

/// An event without its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    RequestRejected(RejectReason),
    NewNetwork,
    TicketCreated,
    AgentRequestRefused {
        session: SessionId,
        method: &'static str,
        reason: RefuseReason,
    },
}

/// A handle to the counters that is cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct CountedEvents(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    counters: Mutex<HashMap<(AuditActor, Counted), Counter>>,
    added: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Counter {
    count: u64,
    /// The part of `count` that is written.
    written: u64,
    first_time: Timestamp,
    last_time: Timestamp,
}

impl CountedEvents {
    /// Counts a rejected request of a client without a valid key.
    pub fn rejected(&self, address: IpAddr, reason: RejectReason, now: Timestamp) {
        let actor = AuditActor::client(Some(client_network(address)));
        self.add(actor, Counted::RequestRejected(reason), now);
    }

    /// Counts an event of a request with a key. The requests of a client are one event, which contains no request id.
    pub fn by_key(&self, author: &Author, event: Counted, now: Timestamp) {
        let actor = AuditActor {
            http_request_id: None,
            ..author.into()
        };
        self.add(actor, event, now);
    }

    /// Counts a request of an agent that the gateway refused.
    pub fn refused(
        &self,
        agent: &AgentName,
        session: SessionId,
        method: &'static str,
        reason: RefuseReason,
        now: Timestamp,
    ) {
        let event = Counted::AgentRequestRefused {
            session,
            method,
            reason,
        };
        self.add(AuditActor::agent(agent), event, now);
    }

    fn add(&self, actor: AuditActor, event: Counted, now: Timestamp) {
        let mut counters = self.counters();
        let mut key = (actor, event);
        if counters.len() >= MAX_DIFFERENT && !counters.contains_key(&key) {
            key = without_details(&key.0, key.1);
        }
        let counter = counters.entry(key).or_insert(Counter {
            count: 0,
            written: 0,
            first_time: now,
            last_time: now,
        });
        counter.count += 1;
        counter.last_time = now;
        let is_first = counter.count == 1;
        drop(counters);
        if is_first {
            self.0.added.notify_one();
        }
    }

    /// Waits for the first event of its kind in this window. Cancel-safe.
    pub(super) async fn added(&self) {
        self.0.added.notified().await;
    }

    /// The events that no entry contains yet: the first of each kind, or all of them at the end of the window.
    pub(super) fn take(&self, window_ends: bool) -> Vec<AuditEntry> {
        let mut counters = self.counters();
        let mut entries = Vec::new();
        for ((actor, event), counter) in counters.iter_mut() {
            if counter.written == 0 || (window_ends && counter.written < counter.count) {
                entries.push(entry(actor, *event, counter));
            }
        }
        if window_ends {
            counters.clear();
        }
        entries
    }

    fn counters(&self) -> MutexGuard<'_, HashMap<(AuditActor, Counted), Counter>> {
        lock_or_abort(self.0.counters.lock())
    }
}

/// The kind of an event alone, for events beyond the bound.
fn without_details(actor: &AuditActor, event: Counted) -> (AuditActor, Counted) {
    let event = match event {
        Counted::AgentRequestRefused { method, reason, .. } => Counted::AgentRequestRefused {
            session: SessionId::AUDIT,
            method,
            reason,
        },
        other => other,
    };
    let actor = match actor.kind {
        ActorKind::Client => AuditActor::client(None),
        kind => kind.into(),
    };
    (actor, event)
}

/// The entry of the events that are counted and not written yet.
fn entry(actor: &AuditActor, event: Counted, counter: &mut Counter) -> AuditEntry {
    let count = counter.count - counter.written;
    let Counter {
        first_time,
        last_time,
        ..
    } = *counter;
    counter.written = counter.count;
    let event: AuditEvent = match event {
        Counted::RequestRejected(reason) => RequestRejected {
            reason,
            count,
            first_time,
            last_time,
        }
        .into(),
        Counted::NewNetwork => KeyUsedFromNewNetwork { count }.into(),
        Counted::TicketCreated => TicketCreated { count }.into(),
        Counted::AgentRequestRefused {
            session,
            method,
            reason,
        } => {
            let method = method.to_owned();
            AgentRequestRefused {
                session_id: session,
                method,
                reason,
                count,
                first_time,
                last_time,
            }
            .into()
        }
    };
    AuditEntry {
        time: last_time,
        actor: actor.clone(),
        event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn rejections(entries: &[AuditEntry]) -> Vec<(Option<IpAddr>, u64)> {
        let count = |entry: &AuditEntry| match &entry.event {
            AuditEvent::RequestRejected(rejected) => rejected.count,
            other => panic!("{other:?}"),
        };
        entries
            .iter()
            .map(|entry| (entry.actor.address, count(entry)))
            .collect()
    }

    #[test]
    fn the_first_event_is_written_at_once_and_the_others_as_a_number() {
        let counted = CountedEvents::default();
        let one = IpAddr::from([203, 0, 113, 1]);
        for millis in 1..=100 {
            counted.rejected(one, RejectReason::InvalidKey, at(millis));
            let first = counted.take(false);
            assert_eq!(
                rejections(&first),
                if millis == 1 {
                    vec![(Some(one), 1)]
                } else {
                    Vec::new()
                }
            );
        }
        assert_eq!(rejections(&counted.take(true)), [(Some(one), 99)]);
        assert_eq!(counted.take(true), []);
        counted.rejected(one, RejectReason::InvalidKey, at(200));
        assert_eq!(rejections(&counted.take(true)), [(Some(one), 1)]);
    }

    #[test]
    fn a_flood_from_many_addresses_is_bounded_and_counted() {
        let counted = CountedEvents::default();
        for number in 0..10_000_u32 {
            let address = std::net::Ipv4Addr::from_bits(number);
            counted.rejected(address.into(), RejectReason::MissingKey, at(1));
        }
        let entries = rejections(&counted.take(true));
        assert_eq!(entries.len(), MAX_DIFFERENT + 1);
        assert_eq!(entries.iter().map(|(_, count)| count).sum::<u64>(), 10_000);
        assert_eq!(
            entries
                .iter()
                .filter(|(address, _)| address.is_none())
                .count(),
            1
        );
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_actor() {
        let counted = CountedEvents::default();
        for address in ["2001:db8::1", "2001:db8::2"] {
            counted.rejected(address.parse().unwrap(), RejectReason::InvalidKey, at(1));
        }
        assert_eq!(
            rejections(&counted.take(true)),
            [(Some("2001:db8::".parse().unwrap()), 2)]
        );
    }
}
