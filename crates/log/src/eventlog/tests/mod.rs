//! Tests of the log through its public API.

mod global_reader;
mod damage;
mod faults;
mod read_cache;
mod readers;
mod retention;
mod writer;

use std::collections::HashMap;
use std::time::Duration;

use super::testing::{DEADLINE, in_time, memory_log, no_fatal, open, say, start};
use super::*;
use crate::store::MemoryStore;
use crate::store::contract::session as id;
use crate::store::faulty::{FaultyStore, Outcome};
use crate::store::{RecordStore as _, Run};
use events::event::{Event, Members, ResetReason};

const fn event(members: &str) -> Event<'_> {
    Event {
        kind: "test",
        prompt: None,
        members: Members::whole(members.as_bytes()),
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn next(reader: &mut Reader) -> Item {
    in_time(reader.next())
        .await
        .expect("could not read the log")
}

fn seqs(run: &Run) -> Vec<u64> {
    run.events().map(|event| event.seq()).collect()
}

/// Returns the seqs of the next item, which must be a run.
async fn next_seqs(reader: &mut Reader) -> Vec<u64> {
    match next(reader).await {
        Item::Run(run) => seqs(&run),
        other => panic!("{other:?}"),
    }
}

/// Returns the events up to and including `last`, and the cursor of each `Ready` item.
async fn follow(reader: &mut Reader, last: u64) -> (Vec<u64>, Vec<u64>) {
    let mut events = Vec::new();
    let mut ready = Vec::new();
    while events.last() != Some(&last) {
        match next(reader).await {
            Item::Run(run) => events.extend(seqs(&run)),
            Item::Ready { cursor: last_seq } => ready.push(last_seq),
            other => panic!("{other:?}"),
        }
    }
    (events, ready)
}

#[tokio::test]
async fn appended_event_is_readable_after_commit() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    let mut live = session.reader(Start::Beginning);
    assert_eq!(next(&mut live).await, Item::Ready { cursor: 0 });
    for n in 1..=100 {
        assert_eq!(say(&session, &format!("\"n\":{n}")), n);
    }
    session.wait(100).await.unwrap();
    assert_eq!(
        (
            session.appended(),
            session.committed(),
            session.pending_bytes()
        ),
        (100, 100, 0)
    );
    assert_eq!(
        follow(&mut live, 100).await.0,
        (1..=100).collect::<Vec<_>>()
    );
    // The writer decides whether both events share a run.
    let pages = session.read(98, 10_000).await.unwrap();
    assert_eq!(pages.iter().flat_map(seqs).collect::<Vec<_>>(), [99, 100]);
    assert_eq!(
        session.id(7).to_string(),
        format!("{}-7", log.epoch().of_session(id(1)))
    );
    log.close().await;
    say(&session, "");
    assert_eq!(session.wait(101).await, Err(Closed));
    assert_eq!(
        log.write(Records::default().put(Table::Meta, "k", "v"))
            .await,
        Err(Closed)
    );
}

#[tokio::test]
async fn session_state_is_freed_with_last_handle() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    let other = open(&log, 1).await;
    let last = say(&session, "");
    assert_eq!(other.appended(), 1, "two handles share one state");
    in_time(session.wait(last)).await.unwrap();
    assert!(log.shared.published.tails().bytes() > 0);
    drop((session, other));
    until("the state is freed", || {
        log.shared.sessions.is_empty() && log.shared.published.tails().bytes() == 0
    })
    .await;
    let again = open(&log, 1).await;
    assert_eq!(
        (again.committed(), say(&again, "")),
        (1, 2),
        "the seq continues"
    );
}

#[tokio::test]
async fn pending_events_are_committed_on_close() {
    let store = Arc::new(MemoryStore::new(Ids::system()));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    for _ in 0..1000 {
        say(&session, "");
    }
    session.put(Records::default().put(Table::Fold, "f", "1"));
    drop(session);
    log.close().await;
    assert_eq!(store.usage(id(1)).unwrap().last_seq, 1000);
    assert_eq!(store.get(Table::Fold, b"f").unwrap().unwrap(), "1");
}
