//! A slow, full, broken or unreadable store: no event is visible early, lost, duplicated or wrong.

use std::sync::mpsc;
use std::time::Instant;

use super::*;
use crate::store::{Cut, ReadError};

/// Limits that make readers read everything from the store.
fn no_tails() -> Limits {
    Limits {
        max_session_tail_bytes: 1,
        max_tail_bytes: 1,
        store_page_bytes: 300,
        max_read_cache_bytes: 1,
        ..Limits::default()
    }
}

fn unreadable() -> ReadError {
    ReadError::Failed("the disk is on fire".into())
}

/// Starts a log that sends its fatal error to a channel.
fn start_to_fail(store: &Arc<FaultyStore>, limits: Limits) -> (EventLog, mpsc::Receiver<String>) {
    let (watermark, why) = mpsc::sync_channel(1);
    let fatal: Fatal = Box::new(move |why| {
        watermark
            .send(why.to_owned())
            .expect("the test dropped the receiver");
    });
    let log = EventLog::start(
        Arc::clone(store),
        Ids::system(),
        Arc::new(limits),
        Shutdown::new(),
        fatal,
    );
    (log.expect("could not start the writer"), why)
}

#[tokio::test]
async fn slow_commit_delays_readers_not_appends() {
    const SLOW: Duration = Duration::from_millis(200);
    let store = Arc::new(FaultyStore::new(Outcome::Block));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Tail);
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 0 });
    for _ in 0..1000 {
        say(&session, "");
    }
    assert_eq!(
        (session.appended(), session.committed()),
        (1000, 0),
        "appends do not wait"
    );
    let began = Instant::now();
    store.set(Outcome::Slow(SLOW));
    let first = next_seqs(&mut reader).await;
    assert!(
        began.elapsed() >= SLOW,
        "the event was visible before its commit"
    );
    assert_eq!(first[0], 1);
    assert_eq!(follow(&mut reader, 1000).await.0.last(), Some(&1000));
    assert!(
        store.batches().len() < 20,
        "events appended during a sync must share a commit: {}",
        store.batches().len()
    );
}

#[tokio::test]
async fn intermittently_full_disk_keeps_batches_atomic() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Tail);
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 0 });
    for n in 1..=3 {
        store.set(Outcome::Full);
        session.append(
            &event(""),
            Records::default().put(Table::Fold, "f", n.to_string()),
        );
        until("the alarm is raised", || log.storage_full()).await;
        assert_eq!(session.committed(), n - 1);
        store.set(Outcome::Commit);
        let write = log.write(Records::default().put(Table::Meta, "w", n.to_string()));
        in_time(write).await.expect("the write waits for space");
        assert_eq!(next_seqs(&mut reader).await, [n]);
        assert!(!log.storage_full());
    }
    assert_eq!(store.get(Table::Fold, b"f").unwrap().unwrap(), "3");
    assert_eq!(store.get(Table::Meta, b"w").unwrap().unwrap(), "3");
}

#[tokio::test]
async fn maintenance_waits_for_space_and_failure_is_fatal() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, why) = start_to_fail(&store, Limits::default());
    let session = open(&log, 1).await;
    for n in 1..=5 {
        say(&session, "");
        in_time(session.wait(n)).await.unwrap();
    }
    let prune = || {
        let cut = Cut {
            session: id(1),
            through: 4,
        };
        in_time(
            log.shared
                .queue
                .run_maintenance(move |store| store.prune(&[cut], 100)),
        )
    };
    store.next([Outcome::Full]);
    assert!(prune().await.is_none(), "a full disk rejects deletes");
    say(&session, "");
    in_time(session.wait(6)).await.unwrap();
    assert_eq!(
        prune().await.map(|pruned| pruned.runs),
        Some(4),
        "the next prune succeeds"
    );
    store.set(Outcome::Fail);
    assert!(prune().await.is_none());
    assert_eq!(
        why.recv_timeout(DEADLINE).unwrap(),
        "could not write the log: the disk is on fire"
    );
}

#[tokio::test]
async fn reader_resumes_after_failed_read() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let log = start(store.clone(), no_tails());
    let session = open(&log, 1).await;
    for n in 1..=60 {
        say(&session, "");
        in_time(session.wait(n)).await.unwrap();
    }
    let mut reader = session.reader(Start::Beginning);
    let scope = GlobalScope {
        owner: UserId::owner(),
        with_shared: false,
        sessions: None,
    };
    let mut all = log.global_reader(scope, Start::Beginning).await.unwrap();
    let mut seen = Vec::new();
    let mut of_all = Vec::new();
    let mut failures = 0;
    for turn in 0.. {
        store.set_reads(if turn % 2 == 0 {
            Some(unreadable)
        } else {
            None
        });
        let of_one = if seen.last() == Some(&60) {
            None
        } else {
            Some(in_time(reader.next()).await)
        };
        match of_one.unwrap_or(Ok(Item::Ready { cursor: 60 })) {
            Ok(Item::Run(run)) => seen.extend(seqs(&run)),
            Ok(other) => assert_eq!(other, Item::Ready { cursor: 60 }),
            Err(error) => failures += usize::from(matches!(error, ReadError::Failed(_))),
        }
        let of_many = if of_all.last() == Some(&60) {
            None
        } else {
            Some(in_time(all.next()).await)
        };
        match of_many.unwrap_or(Ok(Item::Ready { cursor: 60 })) {
            Ok(Item::Run(run)) => of_all.extend(seqs(&run)),
            Ok(other) => assert_eq!(other, Item::Ready { cursor: 60 }),
            Err(error) => failures += usize::from(matches!(error, ReadError::Failed(_))),
        }
        if seen.last() == Some(&60) && of_all.last() == Some(&60) {
            break;
        }
    }
    assert!(failures > 10, "{failures}");
    assert_eq!(seen, (1..=60).collect::<Vec<_>>());
    assert_eq!(of_all, seen);
}

#[tokio::test]
async fn tail_readers_do_not_need_the_store() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Tail);
    store.set_reads(Some(unreadable));
    assert!(log.get(Table::Meta, b"k".to_vec()).await.is_err());
    for _ in 0..10 {
        say(&session, "");
    }
    assert_eq!(
        follow(&mut reader, 10).await.0,
        (1..=10).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn damage_is_skipped_once() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let log = start(store.clone(), no_tails());
    let session = open(&log, 1).await;
    for n in 1..=60 {
        say(&session, "");
        in_time(session.wait(n)).await.unwrap();
    }
    let mut reader = session.reader(Start::After(10));
    store.set_reads(Some(|| ReadError::Corrupt {
        session: id(1),
        first_seq: 11,
        last_seq: 20,
        after: 20,
    }));
    assert_eq!(
        next(&mut reader).await,
        Item::Reset {
            reason: ResetReason::Damaged,
            before: 20,
            session: None
        }
    );
    store.set_reads(None);
    let (events, ready) = follow(&mut reader, 60).await;
    assert_eq!((events, ready), ((21..=60).collect(), Vec::new()));
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 60 });
}
