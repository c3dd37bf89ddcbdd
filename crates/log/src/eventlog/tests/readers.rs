//! Replay and follow: no gap, no duplicate, no unbounded cost.

use proptest::prelude::*;

use super::*;
use crate::store::SqliteStore;

/// Small limits, so that readers often read the store, split runs and find evicted tails.
fn tight(run_bytes: usize, tail_bytes: usize, page_bytes: usize) -> Limits {
    Limits {
        max_run_bytes: run_bytes,
        max_session_tail_bytes: tail_bytes,
        max_tail_bytes: 2 * tail_bytes,
        store_page_bytes: page_bytes,
        read_ahead_bytes: 3 * page_bytes,
        max_read_cache_bytes: 5 * page_bytes,
        ..Limits::default()
    }
}

/// A writer appends in bursts, and readers start at arbitrary cursors and times. Each reader gets every event
/// once and in order, and one `Ready` item.
async fn readers_see_everything(log: EventLog, bursts: Vec<u64>, starts: Vec<(usize, u64)>) {
    let session = open(&log, 1).await;
    let total: u64 = bursts.iter().sum();
    let mut tasks = Vec::new();
    let spawn = |cursor: u64| {
        let session = session.clone();
        let shutdown = Shutdown::new();
        shutdown.spawn(async move {
            let committed = session.committed();
            let cursor = cursor.min(committed).min(total - 1);
            let mut reader = session.reader(Start::After(cursor));
            let (events, mut ready) = follow(&mut reader, total).await;
            assert_eq!(
                events,
                (cursor + 1..=total).collect::<Vec<_>>(),
                "after {cursor}"
            );
            if ready.is_empty() {
                match next(&mut reader).await {
                    Item::Ready { cursor: last_seq } => ready.push(last_seq),
                    other => panic!("{other:?}"),
                }
            }
            assert!(
                ready.len() == 1 && ready[0] >= committed,
                "{ready:?} of {committed}"
            );
        })
    };
    for (index, burst) in bursts.into_iter().enumerate() {
        tasks.extend(
            starts
                .iter()
                .filter(|start| start.0 == index)
                .map(|start| spawn(start.1)),
        );
        for n in 0..burst {
            say(
                &session,
                "\"x\":1,"
                    .repeat(usize::try_from(n % 7).expect("out of range"))
                    .trim_end_matches(','),
            );
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
    for task in tasks {
        in_time(task).await.expect("a reader task panicked");
    }
    log.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_no_gap_and_no_duplicate(
        bursts in prop::collection::vec(1_u64..60, 1..6),
        starts in prop::collection::vec((0_usize..6, 0_u64..200), 0..6),
        (run, tail, page) in (1_usize..2000, 1_usize..4000, 1_usize..4000),
        on_disk in prop::bool::weighted(0.2),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut starts = starts;
            for start in &mut starts {
                start.0 %= bursts.len();
            }
            let folder = tempfile::tempdir().unwrap();
            let limits = tight(run, tail, page);
            let log = if on_disk {
                let path = folder.path().join("log");
                start(Arc::new(SqliteStore::open(&path, Ids::system(), &limits).unwrap()), limits)
            } else {
                memory_log(limits)
            };
            readers_see_everything(log, bursts, starts).await;
        });
    }
}

#[tokio::test]
async fn dropped_next_future_loses_nothing() {
    let log = memory_log(tight(300, 1, 500));
    let session = open(&log, 1).await;
    let mut reader = session.reader(Start::Beginning);
    let mut events = Vec::new();
    for _ in 0..200 {
        say(&session, "");
    }
    in_time(async {
        while events.len() < 200 {
            tokio::select! {
                biased;
                item = reader.next() => if let Item::Run(run) = item.expect("could not read the log") {
                    events.extend(seqs(&run));
                },
                () = tokio::task::yield_now() => {}
            }
        }
    })
    .await;
    assert_eq!(events, (1..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn stalled_reader_costs_nothing_and_catches_up() {
    const EVENTS: u64 = 100_000;
    let limits = Limits::default();
    let bound = limits.max_session_tail_bytes + limits.max_run_bytes;
    let log = memory_log(limits);
    let session = open(&log, 1).await;
    let mut stalled = session.reader(Start::Beginning);
    let update = format!("\"update\":\"{}\"", "x".repeat(100));
    for n in 1..=EVENTS {
        say(&session, &update);
        if n % 1000 == 0 {
            in_time(session.wait(n)).await.unwrap();
            assert!(log.shared.published.tails().bytes() <= bound);
        }
    }
    let (events, ready) = follow(&mut stalled, EVENTS).await;
    assert!(events.iter().copied().eq(1..=EVENTS));
    assert_eq!(ready, [0], "the log was empty when the reader started");
}

#[tokio::test]
async fn readers_share_bytes() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    let mut readers: Vec<Reader> = (0..1000).map(|_| session.reader(Start::Tail)).collect();
    for reader in &mut readers {
        assert_eq!(next(reader).await, Item::Ready { cursor: 0 });
    }
    say(&session, "");
    let mut places = std::collections::HashSet::new();
    for reader in &mut readers {
        let Item::Run(run) = next(reader).await else {
            panic!("expected a run")
        };
        places.insert(run.frames.as_ptr());
    }
    assert_eq!(places.len(), 1);
}

#[tokio::test]
async fn reader_start_positions() {
    let log = memory_log(Limits::default());
    let session = open(&log, 1).await;
    for _ in 0..5 {
        say(&session, "");
    }
    in_time(session.wait(5)).await.unwrap();

    let mut tail = session.reader(Start::Tail);
    assert_eq!(next(&mut tail).await, Item::Ready { cursor: 5 });
    let mut unknown = session.reader(Start::After(6));
    assert_eq!(
        next(&mut unknown).await,
        Item::Reset {
            reason: ResetReason::UnknownCursor,
            before: 0,
            session: None
        }
    );
    assert_eq!(follow(&mut unknown, 5).await.0, [1, 2, 3, 4, 5]);
    assert_eq!(next(&mut unknown).await, Item::Ready { cursor: 5 });
    let mut foreign = session.reader(Start::Reset(ResetReason::NewEpoch));
    assert_eq!(
        next(&mut foreign).await,
        Item::Reset {
            reason: ResetReason::NewEpoch,
            before: 0,
            session: None
        }
    );
    assert_eq!(follow(&mut foreign, 5).await.0, [1, 2, 3, 4, 5]);
    say(&session, "");
    assert_eq!(next_seqs(&mut tail).await, [6]);
}

#[tokio::test]
async fn erase_ends_readers_after_last_event() {
    let store = Arc::new(MemoryStore::new(Ids::system()));
    let log = start(store.clone(), tight(200, 1, 100));
    let session = open(&log, 1).await;
    for _ in 0..20 {
        say(&session, "");
    }
    in_time(session.wait(20)).await.unwrap();
    let mut live = session.reader(Start::After(20));
    let mut lagging = session.reader(Start::After(3));
    assert_eq!(next(&mut live).await, Item::Ready { cursor: 20 });
    say(&session, "\"before\":true");
    let last = session.erase(
        &event("\"by\":\"alice\""),
        Records::default().put(Table::Meta, "m", "1"),
    );
    assert_eq!(last, 22);
    assert_eq!(
        (
            say(&session, ""),
            session.erase(&event(""), Records::default())
        ),
        (22, 22),
        "an erased log ignores appends"
    );
    session.put(Records::default().put(Table::Meta, "late", "1"));
    in_time(session.wait(22)).await.unwrap();

    for reader in [&mut live, &mut lagging] {
        let (events, _) = follow(reader, 22).await;
        assert_eq!(events.last(), Some(&22));
        loop {
            match next(reader).await {
                Item::Ready { .. } => {}
                end => break assert_eq!(end, Item::End),
            }
        }
        assert_eq!(next(reader).await, Item::End);
    }
    assert_eq!(
        store.usage(id(1)).unwrap().first_seq,
        22,
        "the store has only the last event"
    );
    assert_eq!(store.get(Table::Meta, b"m").unwrap().unwrap(), "1");
    log.close().await;
    assert_eq!(store.get(Table::Meta, b"late").unwrap(), None);
    drop((session, live, lagging, log));

    let log = start(store, Limits::default());
    let session = open(&log, 1).await;
    let mut late = session.reader(Start::After(5));
    assert_eq!(next_seqs(&mut late).await, [22]);
    assert_eq!(next(&mut late).await, Item::Ready { cursor: 22 });
    assert_eq!(next(&mut late).await, Item::End);
    assert_eq!(say(&session, ""), 22);
}
