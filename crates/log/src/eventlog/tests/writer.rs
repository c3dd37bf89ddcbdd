//! The writer: fairness, transactions, and errors of the store.

use std::sync::mpsc;

use super::*;
use crate::store::Batch;

/// The runs of a batch: session, first seq and last seq.
fn runs(batch: &Batch) -> Vec<(SessionId, u64, u64)> {
    batch
        .runs
        .iter()
        .map(|run| (run.session, run.first_seq, run.last_seq))
        .collect()
}

/// Starts a log whose writer blocks in a commit of session 9, so that later appends queue up.
async fn held(limits: Limits) -> (Arc<FaultyStore>, EventLog) {
    let store = Arc::new(FaultyStore::new(Outcome::Block));
    let log = start(store.clone(), limits);
    say(&open(&log, 9).await, "");
    until("the writer blocks in a commit", || store.attempts() == 1).await;
    (store, log)
}

#[tokio::test]
async fn flood_does_not_delay_other_sessions() {
    let limits = Limits {
        max_run_bytes: 1000,
        max_transaction_bytes: 20_000,
        ..Limits::default()
    };
    let (store, log) = held(limits).await;
    let flood = open(&log, 1).await;
    let calm = open(&log, 2).await;
    let member = format!("\"x\":\"{}\"", "x".repeat(100));
    for _ in 0..1000 {
        say(&flood, &member);
    }
    let last = flood.appended();
    say(&calm, "");
    assert!(flood.pending_bytes() > 100_000);
    store.set(Outcome::Commit);
    in_time(flood.wait(last)).await.unwrap();
    let batches = store.batches();
    let first = runs(&batches[1]);
    assert_eq!((first[0].0, first[0].1), (id(1), 1));
    assert_eq!(
        first[1],
        (id(2), 1, 1),
        "one run of the flood, then the other session"
    );
    assert!(
        first.len() > 10,
        "the flood uses the rest of the transaction"
    );
    let bytes = |batch: &Batch| batch.runs.iter().map(|run| run.frames.len()).sum::<usize>();
    assert!(
        batches.iter().all(|batch| bytes(batch) < 21_000),
        "a transaction exceeds its limit"
    );
    assert!(
        batches
            .iter()
            .flat_map(|batch| &batch.runs)
            .all(|run| run.frames.len() <= 1000)
    );
}

#[tokio::test]
async fn transaction_is_bounded_and_large_event_is_alone() {
    let (store, log) = held(Limits {
        max_run_bytes: 500,
        max_transaction_bytes: 2000,
        ..Limits::default()
    })
    .await;
    let large = format!("\"x\":\"{}\"", "x".repeat(5000));
    let mut sessions = Vec::new();
    for number in 1..=8 {
        let session = open(&log, number).await;
        for members in ["", if number == 3 { &large } else { "" }, ""] {
            say(&session, members);
        }
        sessions.push(session);
    }
    store.set(Outcome::Commit);
    for session in &sessions {
        in_time(session.wait(3)).await.unwrap();
    }
    for batch in &store.batches() {
        let bytes: Vec<usize> = batch.runs.iter().map(|run| run.frames.len()).collect();
        let before_the_last: usize = bytes[..bytes.len() - 1].iter().sum();
        assert!(before_the_last < 2000, "{bytes:?}");
        assert!(
            batch
                .runs
                .iter()
                .all(|run| run.frames.len() <= 500 || run.first_seq == run.last_seq)
        );
    }
    let all: Vec<_> = store
        .batches()
        .iter()
        .flat_map(runs)
        .filter(|run| run.0 == id(3))
        .collect();
    assert_eq!(all, [(id(3), 1, 1), (id(3), 2, 2), (id(3), 3, 3)]);
}

#[tokio::test]
async fn records_commit_with_event_and_last_change_wins() {
    let (store, log) = held(Limits {
        max_run_bytes: 400,
        ..Limits::default()
    })
    .await;
    let session = open(&log, 1).await;
    let records = || Records::default();
    session.append(
        &event(""),
        records()
            .put(Table::Request, "r1", "open")
            .put(Table::Fold, "f", "1"),
    );
    session.append(
        &event(""),
        records()
            .delete(Table::Request, "r1")
            .put(Table::Fold, "f", "2"),
    );
    session.append(
        &event(""),
        records()
            .put(Table::Request, "r1", "again")
            .put(Table::Prompt, "p3", "3"),
    );
    session.put(records().put(Table::Open, "o", "1"));
    store.set(Outcome::Commit);
    in_time(session.wait(3)).await.unwrap();
    let batches = store.batches();
    for batch in &batches[1..] {
        let last = batch.runs.last().map_or(0, |run| run.last_seq);
        let third = batch.records.iter().any(|record| record.key == b"p3");
        assert_eq!(third, last == 3, "the record is committed with its event");
    }
    let value = |table, key: &str| store.get(table, key.as_bytes()).unwrap().unwrap();
    assert_eq!(
        (value(Table::Request, "r1"), value(Table::Fold, "f")),
        ("again".into(), "2".into())
    );
    assert_eq!(value(Table::Open, "o"), "1");
}

#[tokio::test]
async fn committed_position_covers_each_visible_event() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    for _ in 0..5000 {
        let seq = say(&session, "");
        // The event is visible as soon as its session is notified, before the position of all sessions advances.
        while session.committed() < seq {
            std::hint::spin_loop();
        }
        assert_eq!(log.committed_position(), seq);
    }
}

#[tokio::test]
async fn full_disk_raises_alarm_and_loses_nothing() {
    let store = Arc::new(FaultyStore::new(Outcome::Full));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Beginning);
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 0 });
    for _ in 0..10 {
        say(&session, "");
    }
    until("the alarm is raised", || log.storage_full()).await;
    until("the commit is retried", || store.attempts() >= 2).await;
    assert_eq!((session.committed(), store.batches().len()), (0, 0));
    assert!(session.pending_bytes() > 0, "pending bytes are counted");
    say(&session, "");
    store.set(Outcome::Commit);
    assert_eq!(
        follow(&mut reader, 11).await.0,
        (1..=11).collect::<Vec<_>>()
    );
    assert_eq!((log.storage_full(), session.pending_bytes()), (false, 0));
}

#[tokio::test]
async fn low_disk_raises_and_clears_alarm() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let log = start(store.clone(), Limits::default());
    let session = open(&log, 1).await;
    assert!(!log.storage_full());
    // The first check comes after an interval. The writer thread does not use the paused clock.
    tokio::time::pause();
    store.set_free(4 << 30);
    until("the alarm is raised", || log.storage_full()).await;
    tokio::time::resume();
    // While the disk has space, appends and reads still succeed.
    for _ in 0..1000 {
        say(&session, "");
    }
    let mut reader = session.reader(Start::Beginning);
    assert_eq!(follow(&mut reader, 1000).await.0.len(), 1000);
    tokio::time::pause();
    store.set_free(6 << 30);
    until("the alarm is cleared", || !log.storage_full()).await;
}

#[tokio::test]
async fn close_returns_with_full_disk() {
    let log = start(Arc::new(FaultyStore::new(Outcome::Full)), Limits::default());
    let session = open(&log, 1).await;
    say(&session, "");
    until("the alarm is raised", || log.storage_full()).await;
    in_time(log.close()).await;
    assert_eq!(session.wait(1).await, Err(Closed));
}

#[tokio::test]
async fn failed_store_is_fatal_and_publishes_nothing() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (watermark, why) = mpsc::sync_channel(1);
    let fatal: Fatal = Box::new(move |why| {
        watermark
            .send(why.to_owned())
            .expect("the test dropped the receiver");
    });
    let limits = Arc::new(Limits::default());
    let log =
        EventLog::start(store.clone(), Ids::system(), limits, Shutdown::new(), fatal).unwrap();
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Beginning);
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 0 });
    store.set(Outcome::Fail);
    let seq = say(&session, "");
    assert_eq!(in_time(session.wait(seq)).await, Err(Closed));
    assert_eq!(
        why.recv_timeout(DEADLINE).unwrap(),
        "could not write the log: the disk is on fire"
    );
    assert_eq!(session.committed(), 0);
    assert_eq!(in_time(log.write(Records::default())).await, Err(Closed));
    let nothing = tokio::time::timeout(Duration::from_millis(20), reader.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

#[tokio::test]
async fn writer_panic_is_fatal_and_unblocks_waiters() {
    let (tell, watermark) = mpsc::sync_channel(1);
    let fatal: Fatal = Box::new(move |why| {
        tell.send(why.to_owned())
            .expect("the test dropped the receiver");
    });
    let store = Arc::new(FaultyStore::new(Outcome::Panic));
    let log = EventLog::start(store, Ids::system(), Arc::default(), Shutdown::new(), fatal);
    let log = log.expect("could not start the writer");
    let session = open(&log, 1).await;
    let seq = say(&session, "");
    assert!(
        in_time(session.wait(seq)).await.is_err(),
        "an uncommitted event must not be reported"
    );
    assert_eq!(in_time(log.write(Records::default())).await, Err(Closed));
    assert_eq!(
        watermark.recv_timeout(DEADLINE),
        Ok("the log writer panicked".to_owned())
    );
    in_time(log.close()).await;
}

#[tokio::test]
async fn audit_log_is_durable_with_later_events() {
    let limits = Limits {
        max_run_bytes: 500,
        max_transaction_bytes: 1000,
        ..Limits::default()
    };
    let (store, log) = held(limits).await;
    let audit = log
        .session(&UserId::from_text("/audit"), SessionId::AUDIT)
        .await
        .unwrap();
    let session = open(&log, 1).await;
    let member = format!("\"x\":\"{}\"", "x".repeat(300));
    for _ in 0..20 {
        say(&session, &member);
        say(&audit, &member);
        say(&session, "\"decided\":true");
    }
    let last = session.appended();
    store.set(Outcome::Commit);
    in_time(session.wait(last)).await.unwrap();
    let mut audited = 0;
    let mut decided = 0;
    for batch in &store.batches() {
        // A transaction contains the audit log completely, although it exceeds the size of the transaction.
        for run in &batch.runs {
            let events = u64::try_from(run.events().count()).unwrap();
            match run.session {
                SessionId::AUDIT => audited += events,
                of if of == id(1) => {
                    let marked = run
                        .events()
                        .filter(|event| event.raw_json().ends_with(b"\"decided\":true}"));
                    decided += u64::try_from(marked.count()).unwrap();
                }
                _ => {}
            }
        }
        assert!(audited >= decided, "{audited} of {decided} decisions");
    }
    assert_eq!((audited, decided), (20, 20));
    assert!(
        store.batches().len() > 3,
        "the session needs several transactions"
    );
}
