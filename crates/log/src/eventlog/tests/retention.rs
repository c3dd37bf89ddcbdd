//! Deletion from logs that are too large or too old.

use std::sync::atomic::{AtomicI64, Ordering};

use super::super::retention::pass;
use super::*;
use crate::store::SqliteStore;
use base::types::{Clock, ClockLimits};

#[derive(Debug, Default)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct Aging {
    clock: Arc<Hands>,
    log: EventLog,
    _folder: tempfile::TempDir,
}

impl Aging {
    /// The expiry clock accepts each jump of the manual clock at once.
    fn new(limits: Limits) -> Self {
        let clock = ClockLimits {
            clock_settle_timeout: Duration::ZERO,
            ..ClockLimits::default()
        };
        Self::begun(0, limits, clock)
    }

    fn settling() -> Self {
        Self::begun(0, Limits::default(), ClockLimits::default())
    }

    fn begun(days: i64, limits: Limits, clock_limits: ClockLimits) -> Self {
        let clock = Arc::new(Hands(AtomicI64::new(days * 24 * 3600 * 1000)));
        let ids = Ids::with_limits(clock.clone(), clock_limits);
        let folder = tempfile::tempdir().expect("could not create a directory");
        let store = SqliteStore::open(&folder.path().join("log"), ids.clone(), &limits)
            .expect("could not open the store");
        // Only the passes of the test run: a pass between two events depends on the speed of the machine.
        let shutdown = Shutdown::new();
        shutdown.start_drain();
        let log = EventLog::start(Arc::new(store), ids, Arc::new(limits), shutdown, no_fatal());
        Self {
            clock,
            log: log.expect("could not start the writer"),
            _folder: folder,
        }
    }

    fn set(&self, days: i64) {
        self.clock
            .0
            .store(days * 24 * 3600 * 1000, Ordering::Relaxed);
    }

    fn first_seq(&self, number: u8) -> u64 {
        self.log
            .shared
            .store
            .usage(id(number))
            .expect("the session has a log")
            .first_seq
    }

    /// Appends runs of one event each, of about 300 bytes.
    async fn fill(&self, number: u8, events: u64) -> SessionLog {
        let session = open(&self.log, number).await;
        for _ in 0..events {
            let seq = say(&session, &format!("\"x\":\"{}\"", "x".repeat(100)));
            in_time(session.wait(seq)).await.unwrap();
        }
        session
    }
}

#[tokio::test]
async fn large_log_is_pruned_and_readers_are_reset() {
    let aging = Aging::new(Limits {
        max_session_log_bytes: 10_000,
        max_session_tail_bytes: 1,
        ..Limits::default()
    });
    let large = aging.fill(1, 200).await;
    aging.fill(2, 10).await;
    let mut lagging = large.reader(Start::After(2));
    pass(&aging.log.shared, true).await.unwrap();
    let usage = aging.log.shared.store.usage(id(1)).unwrap();
    assert!(
        usage.bytes <= 10_000 && usage.bytes > 9_000 && usage.last_seq == 200,
        "{usage:?}"
    );
    assert_eq!(aging.first_seq(2), 1);

    let before = usage.first_seq - 1;
    for mut reader in [lagging, large.reader(Start::Beginning)] {
        assert_eq!(
            next(&mut reader).await,
            Item::Reset {
                reason: ResetReason::Pruned,
                before,
                session: None
            }
        );
        assert_eq!(
            follow(&mut reader, 200).await.0,
            (before + 1..=200).collect::<Vec<_>>()
        );
    }
    lagging = large.reader(Start::After(before));
    assert_eq!(
        follow(&mut lagging, 200).await.0.len() as u64,
        200 - before,
        "the remaining events need no reset"
    );

    let scope = GlobalScope {
        owner: UserId::owner(),
        with_shared: false,
        sessions: None,
    };
    let mut all = aging
        .log
        .global_reader(scope.clone(), Start::After(1))
        .await
        .unwrap();
    let reset = Item::Reset {
        reason: ResetReason::Pruned,
        before: 0,
        session: None,
    };
    assert_eq!(in_time(all.next()).await.unwrap(), reset);
    let Item::Run(run) = in_time(all.next()).await.unwrap() else {
        panic!("expected a run")
    };
    assert_eq!((run.session, run.first_seq), (id(1), before + 1));
    let mut recent = aging
        .log
        .global_reader(scope, Start::After(200))
        .await
        .unwrap();
    assert!(
        matches!(in_time(recent.next()).await.unwrap(), Item::Run(run) if run.session == id(2))
    );
}

#[tokio::test]
async fn total_limit_prunes_largest_logs() {
    let aging = Aging::new(Limits {
        max_total_log_bytes: 20_000,
        ..Limits::default()
    });
    aging.fill(1, 10).await;
    aging.fill(2, 60).await;
    aging.fill(3, 30).await;
    aging.fill(2, 40).await;
    pass(&aging.log.shared, true).await.unwrap();
    let total = aging.log.shared.store.total_bytes();
    assert!(total <= 20_000 && total > 19_000, "{total}");
    assert_eq!(
        (aging.first_seq(1), aging.first_seq(3)),
        (1, 1),
        "a small session keeps its events despite their age"
    );
    assert!(aging.first_seq(2) > 50);
}

#[tokio::test]
async fn large_logs_shrink_to_same_size() {
    let aging = Aging::new(Limits {
        max_total_log_bytes: 30_000,
        ..Limits::default()
    });
    for (number, events) in [(1, 90), (2, 60), (3, 20)] {
        aging.fill(number, events).await;
    }
    pass(&aging.log.shared, true).await.unwrap();
    let bytes = |number| aging.log.shared.store.usage(id(number)).unwrap().bytes;
    assert_eq!(aging.first_seq(3), 1);
    assert!(
        bytes(1).abs_diff(bytes(2)) < 700,
        "{} {}",
        bytes(1),
        bytes(2)
    );
    let total = aging.log.shared.store.total_bytes();
    assert!(total <= 30_000 && total > 28_000, "{total}");
}

#[tokio::test]
async fn expired_log_keeps_last_run_and_is_listed() {
    let aging = Aging::new(Limits::default());
    let old = aging.fill(1, 100).await;
    aging.set(20);
    aging.fill(2, 10).await;
    aging.set(29);
    pass(&aging.log.shared, true).await.unwrap();
    assert_eq!((aging.first_seq(1), aging.log.expired(10)), (1, Vec::new()));
    aging.set(31);
    pass(&aging.log.shared, true).await.unwrap();
    assert_eq!((aging.first_seq(1), aging.first_seq(2)), (100, 1));
    assert_eq!(aging.log.expired(10), [(UserId::owner(), id(1))]);
    assert_eq!(say(&old, ""), 101, "the seq continues");
    in_time(old.wait(101)).await.unwrap();
    assert_eq!(aging.log.expired(10), []);
}

#[tokio::test]
async fn tombstone_is_deleted_after_its_age() {
    let aging = Aging::new(Limits::default());
    let erased = aging.fill(1, 3).await;
    let last = erased.erase(&event(""), Records::default());
    in_time(erased.wait(last)).await.unwrap();
    drop(erased);
    let left = || {
        aging
            .log
            .shared
            .store
            .usage(id(1))
            .map(|log| (log.first_seq, log.last_seq))
    };
    aging.set(6);
    pass(&aging.log.shared, true).await.unwrap();
    assert_eq!(left(), Some((4, 4)));
    aging.set(8);
    pass(&aging.log.shared, true).await.unwrap();
    assert_eq!(left(), None);
    assert_eq!(
        aging
            .log
            .scan(Table::Tombstone, Vec::new(), None, 10)
            .await
            .unwrap(),
        []
    );
}

#[tokio::test]
async fn clock_jump_forward_deletes_nothing() {
    let aging = Aging::settling();
    aging.fill(1, 100).await;
    let erased = aging.fill(2, 3).await;
    let last = erased.erase(&event(""), Records::default());
    in_time(erased.wait(last)).await.unwrap();
    let tombstones = || aging.log.scan(Table::Tombstone, Vec::new(), None, 10);
    for days in [3650, -3650, 3650, 0] {
        aging.set(days);
        pass(&aging.log.shared, true).await.unwrap();
        assert_eq!(
            (aging.first_seq(1), aging.log.expired(10)),
            (1, Vec::new()),
            "{days}"
        );
        assert_eq!(tombstones().await.unwrap().len(), 1, "{days}");
    }
}

#[tokio::test]
async fn events_written_with_slow_clock_do_not_expire_early() {
    let aging = Aging::begun(100, Limits::default(), ClockLimits::default());
    aging.fill(1, 2).await;
    aging.set(20);
    let erased = aging.fill(2, 3).await;
    let last = erased.erase(&event(""), Records::default());
    in_time(erased.wait(last)).await.unwrap();
    aging.fill(3, 3).await;
    aging.set(100);
    pass(&aging.log.shared, true).await.unwrap();
    assert_eq!((aging.first_seq(3), aging.log.expired(10)), (1, Vec::new()));
    let tombstones = aging
        .log
        .scan(Table::Tombstone, Vec::new(), None, 10)
        .await
        .unwrap();
    assert_eq!(tombstones.len(), 1, "the session was erased today");
}
