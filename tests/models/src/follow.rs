//! Readers follow a log during writes: no wake-up is lost, and no event is missing or duplicated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shuttle::future::{block_on, spawn};
use shuttle::rand::Rng as _;
use tokio::sync::Notify;
use tokio::task::yield_now;

use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{Ids, SessionId, UserId};
use events::event::{Event, Members};
use log::eventlog::{
    Delivery, DirectSink, EventLog, GlobalScope, Item, NotReady, Notifier, Reader, Records, Run,
    SessionLog, Start, TailCursor,
};
use log::limits::Limits;
use log::store::MemoryStore;

/// A log in memory with small limits, so that readers often read the next event from the store.
pub(crate) fn log(tail_bytes: usize) -> EventLog {
    let limits = Limits {
        max_run_bytes: 400,
        max_session_tail_bytes: tail_bytes,
        max_tail_bytes: 2 * tail_bytes,
        store_page_bytes: 600,
        read_ahead_bytes: 1000,
        max_read_cache_bytes: 1500,
        max_transaction_bytes: 600,
        max_store_readers: 1,
        ..Limits::default()
    };
    let store = Arc::new(MemoryStore::new(Ids::system()));
    let fatal = Box::new(|why: &str| panic!("{why}"));
    EventLog::start(store, Ids::system(), Arc::new(limits), Shutdown, fatal)
        .expect("could not start the writer")
}

pub(crate) async fn open(log: &EventLog, number: u128) -> SessionLog {
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(number));
    log.session(&UserId::owner(), id)
        .await
        .expect("could not read the store")
}

fn append_event(session: &SessionLog) -> u64 {
    session.append(
        &Event {
            kind: "test",
            prompt: None,
            members: Members::whole(b"\"text\":\"some words\""),
        },
        Records::default(),
    )
}

fn random_below(below: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..below)
}

/// Two sessions are written concurrently, and one is erased at the end. Readers start at random cursors, of
/// one session or of all. The writer or a notifier notifies them, and some have a direct sink. One reader is
/// dropped at a random time, also during a wait.
pub fn every_event_once() {
    const EVENTS: u64 = 6;
    block_on(async {
        let log = log(1 + 1000 * usize::try_from(random_below(2)).expect("0 or 1"));
        let first = open(&log, 1).await;
        let second = open(&log, 2).await;
        let notifier = Arc::new(Notifier::default());
        let over = Arc::new(Notify::new());
        let heralded = Arc::clone(&notifier);
        let ends = Arc::clone(&over);
        let rings = spawn(async move {
            tokio::select! {
                () = heralded.run() => {}
                () = ends.notified() => {}
            }
        });
        let mut tasks = Vec::new();
        for from in [random_below(EVENTS), random_below(EVENTS)] {
            let session = second.clone();
            let notifier = Arc::clone(&notifier);
            tasks.push(spawn(async move {
                // The reader starts at a random cursor up to the committed seq.
                let committed = session.committed();
                let from = from.min(committed);
                let mut reader = session.reader(Start::After(from));
                if random_below(2) == 0 {
                    reader.subscribe_via(&notifier, None);
                }
                follow(reader, from, committed, EVENTS).await;
            }));
        }
        let leaver = Arc::clone(&notifier);
        let session = second.clone();
        let away = random_below(12);
        tasks.push(spawn(async move {
            let committed = session.committed();
            let mut reader = session.reader(Start::Beginning);
            reader.subscribe_via(&leaver, None);
            tokio::select! {
                biased;
                () = yield_times(away) => {}
                () = follow(reader, 0, committed, EVENTS) => {}
            }
        }));
        tasks.push(spawn(wait_for_end(first.clone(), EVENTS + 1)));
        tasks.push(spawn(follow_with_sink(
            first.clone(),
            Arc::clone(&notifier),
            EVENTS + 1,
            true,
        )));
        tasks.push(spawn(follow_with_sink(
            second.clone(),
            Arc::clone(&notifier),
            EVENTS,
            false,
        )));
        let scope = GlobalScope {
            owner: UserId::owner(),
            with_shared: false,
            sessions: None,
        };
        let mut all = log
            .global_reader(scope, Start::Beginning)
            .await
            .expect("the store reads");
        if random_below(2) == 0 {
            all.subscribe_via(&notifier, None);
        }
        let one = first.session();
        let two = second.session();
        tasks.push(spawn(follow_global(
            all,
            one,
            BTreeMap::from([(one, EVENTS), (two, EVENTS)]),
        )));
        for session in [first, second.clone()] {
            let erase = session.session() == one;
            tasks.push(spawn(async move {
                for seq in 1..=EVENTS {
                    assert_eq!(append_event(&session), seq);
                    if random_below(2) == 0 {
                        session.wait(seq).await.expect("the log is open");
                        assert!(session.committed() >= seq);
                    }
                }
                session.wait(EVENTS).await.expect("the log is closed");
                if erase {
                    let last = Event {
                        kind: "test",
                        prompt: None,
                        members: Members::default(),
                    };
                    assert_eq!(session.erase(&last, Records::default()), EVENTS + 1);
                }
            }));
        }
        for task in tasks {
            task.await.expect("a task panicked");
        }
        over.notify_one();
        rings.await.expect("the notifier panicked");
        log.close().await;
    });
}

async fn yield_times(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Returns when `last` was received. Checks that each event arrives once and in order, and that `Ready`
/// arrives once.
async fn follow(mut reader: Reader, from: u64, committed: u64, last: u64) {
    let mut next = from + 1;
    let mut ready = None;
    while next <= last || ready.is_none() {
        match reader.next().await.expect("could not read the store") {
            Item::Run(run) => {
                for frame in run.events() {
                    assert_eq!(frame.seq(), next);
                    next += 1;
                }
            }
            Item::Ready { cursor: last_seq } => {
                assert!(
                    ready.replace(last_seq).is_none(),
                    "`Ready` must arrive once"
                );
                assert!(
                    last_seq >= committed && last_seq + 1 == next,
                    "{last_seq} of {committed}, next {next}"
                );
            }
            Item::Reset { .. } | Item::End => panic!("no event was pruned"),
        }
    }
}

/// Reads an erased session to its end, which follows the last event.
async fn wait_for_end(session: SessionLog, last: u64) {
    let mut reader = session.reader(Start::Beginning);
    let mut seen = 0;
    loop {
        match reader.next().await.expect("could not read the store") {
            Item::Run(run) => {
                assert!(run.first_seq > seen, "no event is duplicated");
                let from = run.first_seq;
                let to = run.last_seq;
                assert!(
                    from == seen + 1 || to == last,
                    "only an erase may skip events: {from}-{to} after {seen}"
                );
                seen = run.last_seq;
            }
            Item::Ready { .. } => {}
            Item::Reset { .. } => panic!("an erase must not cause a reset"),
            Item::End => return assert_eq!(seen, last),
        }
    }
}

/// A sink that receives events while its reader waits, like a socket: all events, or a random part.
#[derive(Debug, Default)]
struct ModelSink {
    cursor: Mutex<Option<TailCursor>>,
    /// The sink stopped in the middle of an event.
    left: Mutex<bool>,
    received: Mutex<u64>,
    last: u64,
    erased: bool,
    over: Notify,
}

impl ModelSink {
    fn delivered(&self) -> u64 {
        *lock_or_abort(self.received.lock())
    }

    fn deliver(&self, run: &Run) {
        let mut received = lock_or_abort(self.received.lock());
        let from = run.first_seq;
        let to = run.last_seq;
        assert!(
            from == *received + 1 || self.erased && from > *received,
            "{from} to {to} after {received}"
        );
        *received = to;
        if to == self.last && !self.erased {
            self.over.notify_one();
        }
    }
}

impl DirectSink for ModelSink {
    fn try_deliver(&self) -> Delivery {
        let mut cursor = lock_or_abort(self.cursor.lock());
        let mut left = lock_or_abort(self.left.lock());
        let Some(cursor) = cursor.as_mut().filter(|_| !*left) else {
            return Delivery::WakeTask;
        };
        loop {
            match cursor.try_next() {
                Ok(run) => self.deliver(&run),
                Err(NotReady::AtTail) => return Delivery::CaughtUp,
                Err(NotReady::ReadStore) => return Delivery::WakeTask,
            }
            match random_below(4) {
                0 => return Delivery::More,
                1 => {
                    *left = true;
                    return Delivery::WakeTask;
                }
                _ => {}
            }
        }
    }
}

/// A reader with a direct sink. The reader stops waiting at random times.
async fn follow_with_sink(session: SessionLog, notifier: Arc<Notifier>, last: u64, erased: bool) {
    let taker = Arc::new(ModelSink {
        last,
        erased,
        ..ModelSink::default()
    });
    let mut reader = session.reader(Start::Beginning);
    reader.subscribe_via(&notifier, Some(Arc::<ModelSink>::clone(&taker)));
    while erased || taker.delivered() < last {
        let item = match reader.try_next() {
            Err(NotReady::AtTail) => {
                *lock_or_abort(taker.cursor.lock()) = reader.tail_cursor();
                let enough = 1 + random_below(12);
                tokio::select! {
                    () = reader.changed() => {}
                    () = taker.over.notified() => {}
                    () = yield_times(enough), if enough < 8 => {}
                }
                let cursor = lock_or_abort(taker.cursor.lock())
                    .take()
                    .expect("nobody else takes it");
                assert!(
                    cursor.cursor() == taker.delivered() || erased,
                    "{} of {}",
                    taker.delivered(),
                    cursor.cursor()
                );
                reader.resume_from(&cursor);
                *lock_or_abort(taker.left.lock()) = false;
                continue;
            }
            Err(NotReady::ReadStore) => reader.next().await.expect("the store reads"),
            Ok(item) => item,
        };
        match item {
            Item::Run(run) => taker.deliver(&run),
            Item::Ready { .. } => {}
            Item::Reset { .. } => panic!("nothing was dropped"),
            Item::End => return assert_eq!((taker.delivered(), erased), (last, true)),
        }
    }
}

/// Follows all sessions in commit order.
async fn follow_global(mut reader: Reader, erased: SessionId, mut left: BTreeMap<SessionId, u64>) {
    let totals = left.clone();
    let mut last_pos = 0;
    while left.values().any(|left| *left > 0) {
        match reader.next().await.expect("the store reads") {
            Item::Run(run) => {
                for frame in run.events() {
                    let pos = run.pos(frame.seq());
                    assert!(pos > last_pos, "positions must increase");
                    last_pos = pos;
                    let left = left.get_mut(&run.session).expect("unknown session");
                    // The erase follows all events. It may skip events that the reader has not received.
                    if frame.seq() > totals[&run.session] {
                        *left = 0;
                    } else {
                        let next = totals[&run.session] - *left + 1;
                        assert!(frame.seq() == next || run.session == erased && frame.seq() > next);
                        *left = totals[&run.session] - frame.seq();
                    }
                }
            }
            Item::Ready { .. } => {}
            Item::Reset { reason, .. } => panic!("{reason:?}: nothing was dropped"),
            Item::End => panic!("a reader of all sessions has no end"),
        }
    }
}
