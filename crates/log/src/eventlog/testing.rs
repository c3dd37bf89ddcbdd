//! A log in memory, for tests of this crate and of its readers.

use std::sync::Arc;
use std::time::Duration;

use super::{EventLog, Fatal, Records, SessionLog};
use crate::limits::Limits;
use crate::store::{EventStore, Maintenance, MemoryStore};
use base::shutdown::Shutdown;
use base::types::{Ids, SessionId, UserId};
use events::event::{Event, Members};

/// A timeout for waits in tests.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

pub(super) fn no_fatal() -> Fatal {
    Box::new(|why| panic!("fatal: {why}"))
}

pub(super) fn start(
    store: Arc<impl EventStore + Maintenance + 'static>,
    limits: Limits,
) -> EventLog {
    EventLog::start(
        store,
        Ids::system(),
        Arc::new(limits),
        Shutdown::new(),
        no_fatal(),
    )
    .expect("could not start the writer")
}

pub fn memory_log(limits: Limits) -> EventLog {
    start(Arc::new(MemoryStore::new(Ids::system())), limits)
}

pub async fn open(log: &EventLog, number: u8) -> SessionLog {
    log.session(
        &UserId::owner(),
        SessionId::from_uuid(uuid::Uuid::from_bytes([number; 16])),
    )
    .await
    .expect("could not read the store")
}

pub fn say(session: &SessionLog, members: &str) -> u64 {
    session.append(
        &Event {
            kind: "test",
            prompt: None,
            members: Members::whole(members.as_bytes()),
        },
        Records::default(),
    )
}

pub async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what)
        .await
        .expect("timed out")
}
