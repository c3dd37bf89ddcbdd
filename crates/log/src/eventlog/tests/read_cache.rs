//! Slow readers share the pages that one of them read from the store.

use super::super::retention::prune;
use super::*;
use crate::store::Cut;

const EVENTS: u64 = 200;

fn behind_the_tail() -> Limits {
    Limits {
        max_session_tail_bytes: 1,
        max_run_bytes: 400,
        store_page_bytes: 600,
        read_ahead_bytes: 2000,
        ..Limits::default()
    }
}

/// A log whose tail keeps only the last run in memory.
async fn written(store: &Arc<FaultyStore>, limits: Limits) -> (EventLog, SessionLog) {
    let log = start(store.clone(), limits);
    let session = open(&log, 1).await;
    for _ in 0..EVENTS {
        let seq = say(&session, "\"x\":\"0123456789\"");
        in_time(session.wait(seq)).await.unwrap();
    }
    (log, session)
}

fn breaks(store: &FaultyStore) {
    store.set_reads(Some(|| {
        ReadError::Failed("the store must not be read again".into())
    }));
}

async fn replays(session: &SessionLog) {
    let (events, _) = follow(&mut session.reader(Start::Beginning), EVENTS).await;
    assert!(events.into_iter().eq(1..=EVENTS));
}

#[tokio::test]
async fn cached_pages_are_shared() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(&store, behind_the_tail()).await;
    replays(&session).await;
    breaks(&store);
    replays(&session).await;
    let mut both = [
        session.reader(Start::After(50)),
        session.reader(Start::After(50)),
    ];
    let mut places = Vec::new();
    for reader in &mut both {
        let Item::Run(run) = next(reader).await else {
            panic!("expected a run")
        };
        assert!(run.frames.len() <= 600, "{}", run.frames.len());
        places.push(run.frames.as_ptr());
    }
    assert_eq!(places[0], places[1]);
    drop(log);
}

#[tokio::test]
async fn concurrent_readers_read_each_page_once() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(&store, behind_the_tail()).await;
    let before = store.run_reads();
    let readers: Vec<_> = (0..10)
        .map(|_| {
            let session = session.clone();
            Shutdown::new().spawn(async move { replays(&session).await })
        })
        .collect();
    for reader in readers {
        in_time(reader).await.expect("a reader task panicked");
    }
    let together = store.run_reads() - before;
    log.shared.published.read_cache().invalidate(id(1));
    let before = store.run_reads();
    replays(&session).await;
    assert_eq!(
        together,
        store.run_reads() - before,
        "concurrent readers must read as often as one reader"
    );
}

#[tokio::test]
async fn cache_is_bounded_and_evicted_when_unused() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(
        &store,
        Limits {
            max_read_cache_bytes: 3000,
            ..behind_the_tail()
        },
    )
    .await;
    replays(&session).await;
    replays(&session).await;
    let bytes = || log.shared.published.read_cache().bytes();
    assert!((1000..=3000).contains(&bytes()), "{}", bytes());
    log.shared.published.read_cache().evict_if_unused();
    assert!(bytes() > 0, "the cache was used since the last call");
    log.shared.published.read_cache().evict_if_unused();
    assert_eq!(bytes(), 0);
    replays(&session).await;
}

#[tokio::test]
async fn erase_invalidates_cache() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(&store, behind_the_tail()).await;
    let mut lagging = session.reader(Start::Beginning);
    assert_eq!(next_seqs(&mut lagging).await[0], 1);
    replays(&session).await;
    let last = session.erase(&event(""), Records::default());
    in_time(session.wait(last)).await.unwrap();
    assert_eq!(log.shared.published.read_cache().bytes(), 0);
    assert_eq!(follow(&mut lagging, last).await.0, [last]);
    let before = log.shared.published.read_cache().bytes();
    session.state.cache_runs(&[Run {
        owner: UserId::owner(),
        session: id(1),
        first_seq: 1,
        last_seq: 1,
        last_pos: 1,
        frames: Bytes::from_static(b"late"),
    }]);
    assert_eq!(
        log.shared.published.read_cache().bytes(),
        before,
        "a read from before the erase must not be cached"
    );
}

#[tokio::test]
async fn prune_invalidates_cache() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(&store, behind_the_tail()).await;
    let mut early = session.reader(Start::Beginning);
    assert_eq!(next_seqs(&mut early).await[0], 1);
    let read = log
        .shared
        .published
        .read_cache()
        .after(id(1), 0)
        .expect("the run is cached");
    assert!(
        prune(
            &log.shared,
            vec![Cut {
                session: id(1),
                through: EVENTS / 2
            }]
        )
        .await
    );
    assert!(store.usage(id(1)).expect("the session has a log").first_seq > read.last_seq);
    assert_eq!(log.shared.published.read_cache().bytes(), 0);
    session.state.cache_runs(&[read]);
    assert_eq!(
        log.shared.published.read_cache().bytes(),
        0,
        "a read from before the prune must not be cached"
    );
    let mut late = session.reader(Start::After(1));
    assert!(matches!(
        next(&mut late).await,
        Item::Reset {
            reason: ResetReason::Pruned,
            ..
        }
    ));
}

#[tokio::test]
async fn evicted_page_is_read_again_alone() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (log, session) = written(
        &store,
        Limits {
            max_read_cache_bytes: 8000,
            ..behind_the_tail()
        },
    )
    .await;
    let mut slow = session.reader(Start::Beginning);
    while log.shared.published.read_cache().bytes() <= 1200 {
        next_seqs(&mut slow).await;
    }
    log.shared.published.read_cache().invalidate(id(1));
    next_seqs(&mut slow).await;
    let bytes = log.shared.published.read_cache().bytes();
    assert!((1..1200).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn uncommitted_notice_hides_events() {
    let store = Arc::new(FaultyStore::new(Outcome::Commit));
    let (_log, session) = written(&store, behind_the_tail()).await;
    let frames =
        (EVENTS - 1..=EVENTS + 1).map(|seq| format!("id: e-{seq}\nevent: test\ndata: {{}}\n\n"));
    session.state.cache_runs(&[Run {
        owner: UserId::owner(),
        session: id(1),
        first_seq: EVENTS - 1,
        last_seq: EVENTS + 1,
        last_pos: EVENTS + 1,
        frames: frames.collect::<String>().into(),
    }]);
    let mut reader = session.reader(Start::After(EVENTS - 2));
    assert_eq!(next_seqs(&mut reader).await, [EVENTS - 1, EVENTS]);
    assert_eq!(next(&mut reader).await, Item::Ready { cursor: EVENTS });
    assert_eq!(reader.try_next(), Err(NotReady::AtTail));
}
