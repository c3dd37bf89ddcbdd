//! Readers of damaged events: a reset past the damage, then all later events.

use super::super::queue::Job;
use super::*;
use crate::store::SqliteStore;

struct Spoilt {
    log: EventLog,
    _folder: tempfile::TempDir,
}

/// Two interleaved sessions of five runs of two events each. The runs at the positions that the SQL condition
/// selects are damaged.
async fn spoilt(which: &str) -> Spoilt {
    let folder = tempfile::tempdir().expect("could not create a directory");
    let path = folder.path().join("log");
    let open = || {
        SqliteStore::open(&path, Ids::system(), &Limits::default())
            .expect("could not open the store")
    };
    let log = start(Arc::new(open()), Limits::default());
    for _ in 0..5 {
        for number in [1, 2] {
            let session = super::open(&log, number).await;
            // The job blocks the writer until both events are appended, so that they form one run.
            let (go, held) = std::sync::mpsc::sync_channel::<()>(1);
            log.shared.queue.push(Job::Maintenance(Box::new(move |_| {
                held.recv().expect("the test dropped the sender");
                Ok(())
            })));
            say(&session, "");
            let last = say(&session, "");
            go.send(()).expect("the job ended early");
            in_time(session.wait(last)).await.expect("the log closed");
        }
    }
    log.close().await;
    drop(log);
    until("the store is closed", || {
        !folder.path().join("log-wal").exists()
    })
    .await;
    let file = rusqlite::Connection::open(&path).expect("could not open the file");
    let spoil = format!("UPDATE run SET crc = crc + 1 WHERE {which}");
    assert!(file.execute(&spoil, []).expect("invalid SQL") > 0);
    drop(file);
    // Small pages, so that each damaged run is read separately.
    let log = start(
        Arc::new(open()),
        Limits {
            store_page_bytes: 1,
            read_ahead_bytes: 1,
            ..Limits::default()
        },
    );
    Spoilt {
        log,
        _folder: folder,
    }
}

/// Returns the readable events of a session's ten, and the seq before which each reset continues.
async fn read(spoilt: &Spoilt, start: Start) -> (Vec<u64>, Vec<u64>) {
    let mut reader = open(&spoilt.log, 1).await.reader(start);
    let mut events = Vec::new();
    let mut resets = Vec::new();
    loop {
        match next(&mut reader).await {
            Item::Run(run) => events.extend(seqs(&run)),
            Item::Reset {
                reason: ResetReason::Damaged,
                before,
                session: None,
            } => {
                assert_eq!(reader.cursor(), before);
                resets.push(before);
            }
            Item::Ready { cursor: last_seq } => {
                assert_eq!(last_seq, 10);
                return (events, resets);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn reader_is_reset_past_damage() {
    // Damages the events 3 to 6 of session 1.
    let log = spoilt("pos IN (6, 10)").await;
    assert_eq!(
        read(&log, Start::Beginning).await,
        (vec![1, 2, 7, 8, 9, 10], vec![6])
    );
    assert_eq!(
        read(&log, Start::After(2)).await,
        (vec![7, 8, 9, 10], vec![6])
    );
    assert_eq!(
        read(&log, Start::After(4)).await,
        (vec![7, 8, 9, 10], vec![6])
    );
    assert_eq!(
        read(&log, Start::After(6)).await,
        (vec![7, 8, 9, 10], vec![])
    );
    let session = open(&log.log, 1).await;
    let runs = session.read(2, 1 << 20).await.unwrap();
    assert_eq!(
        runs.iter().flat_map(seqs).collect::<Vec<_>>(),
        [7, 8, 9, 10]
    );
}

#[tokio::test]
async fn log_with_damaged_end_accepts_appends() {
    let log = spoilt("pos > 10").await;
    assert_eq!(
        read(&log, Start::Beginning).await,
        ((1..=6).collect(), vec![10])
    );
    let session = open(&log.log, 1).await;
    assert_eq!(session.read(6, 1000).await.unwrap(), []);
    let mut reader = session.reader(Start::After(8));
    assert_eq!(
        next(&mut reader).await,
        Item::Reset {
            reason: ResetReason::Damaged,
            before: 10,
            session: None
        }
    );
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: 10 });
    assert_eq!(say(&session, ""), 11);
    assert_eq!(next_seqs(&mut reader).await, [11]);
}

#[tokio::test]
async fn fully_damaged_log_has_a_reader() {
    let log = spoilt("pos > 0").await;
    assert_eq!(read(&log, Start::Beginning).await, (vec![], vec![10]));
}

#[tokio::test]
async fn damage_resets_only_readers_of_that_session() {
    let spoilt = spoilt("pos IN (6, 10)").await;
    let owner = UserId::owner();
    let only = |sessions: &[(u8, Option<u64>)]| {
        Some(
            sessions
                .iter()
                .map(|(number, start)| (id(*number), *start))
                .collect::<HashMap<_, _>>(),
        )
    };
    let reset = |before| Item::Reset {
        reason: ResetReason::Damaged,
        before,
        session: Some(id(1)),
    };
    for (sessions, start, resets, of_the_first, of_the_second) in [
        (
            None,
            Start::After(0),
            vec![reset(6), reset(10)],
            vec![1, 2, 7, 8, 9, 10],
            10,
        ),
        (
            None,
            Start::After(5),
            vec![reset(6), reset(10)],
            vec![7, 8, 9, 10],
            8,
        ),
        (None, Start::After(10), vec![], vec![7, 8, 9, 10], 6),
        (
            only(&[(1, None), (2, None)]),
            Start::Beginning,
            vec![reset(6), reset(10)],
            vec![1, 2, 7, 8, 9, 10],
            10,
        ),
        (only(&[(2, None)]), Start::Beginning, vec![], vec![], 10),
        (
            only(&[(1, Some(6)), (2, Some(0))]),
            Start::Beginning,
            vec![],
            vec![7, 8, 9, 10],
            10,
        ),
        (
            only(&[(1, Some(3)), (2, Some(9))]),
            Start::Beginning,
            vec![reset(6), reset(10)],
            vec![7, 8, 9, 10],
            1,
        ),
    ] {
        let scope = GlobalScope {
            owner: owner.clone(),
            with_shared: false,
            sessions,
        };
        let mut reader = in_time(spoilt.log.global_reader(scope.clone(), start))
            .await
            .unwrap();
        let mut first = Vec::new();
        let mut second = 0;
        let mut found = Vec::new();
        loop {
            match in_time(reader.next()).await.unwrap() {
                Item::Run(run) if run.session == id(1) => first.extend(seqs(&run)),
                Item::Run(run) => second += run.count(),
                Item::Ready { .. } => break,
                other => found.push(other),
            }
        }
        assert_eq!(
            (found, first, second),
            (resets, of_the_first, of_the_second),
            "{scope:?} {start:?}"
        );
    }
}
