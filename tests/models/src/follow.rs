//! Readers follow a log during writes: no wake-up is lost, and no event is missing or duplicated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shuttle::future::{block_on, spawn};
use shuttle::rand::Rng as _;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::eventlog::{
    AllItem, AllReader, AllScope, AllStart, Event, EventLog, Herald, Item, Later, Members, Outlet, Reader, Records, Run,
    SessionLog, Start, TailCursor, Took,
};
use crate::shutdown::{Shutdown, sound};
use crate::store::MemoryStore;
use crate::types::{Ids, Limits, SessionId, Tenant};

/// A log in memory with small limits, so that readers often read the next event from the store.
pub(crate) fn log(tail_bytes: usize) -> EventLog {
    let limits = Limits {
        run_bytes: 400,
        tail_bytes,
        tails_bytes: 2 * tail_bytes,
        store_page_bytes: 600,
        read_ahead_bytes: 1000,
        pages_bytes: 1500,
        transaction_bytes: 600,
        store_readers: 1,
        ..Limits::default()
    };
    let store = Arc::new(MemoryStore::new(Ids::system()));
    let fatal = Box::new(|why: &str| panic!("{why}"));
    EventLog::start(store, Ids::system(), Arc::new(limits), Shutdown, fatal).expect("could not start the writer")
}

pub(crate) async fn open(log: &EventLog, number: u128) -> SessionLog {
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(number));
    log.session(&Tenant::default(), id).await.expect("could not read the store")
}

fn say(session: &SessionLog) -> u64 {
    session.append(&Event { kind: "test", prompt: None, members: Members::whole(b"\"text\":\"some words\"") }, Records::new())
}

fn pick(below: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..below)
}

/// Two sessions are written concurrently, and one is erased at the end. Readers start at random cursors, of
/// one session or of all. The writer or a notifier notifies them, and some have a direct sink. One reader is
/// dropped at a random time, also during a wait.
pub fn every_event_once() {
    const EVENTS: u64 = 6;
    block_on(async {
        let log = log(1 + 1000 * usize::try_from(pick(2)).expect("out of range"));
        let (first, second) = (open(&log, 1).await, open(&log, 2).await);
        let (herald, over) = (Arc::new(Herald::default()), Arc::new(Notify::new()));
        let (heralded, ends) = (Arc::clone(&herald), Arc::clone(&over));
        let rings = spawn(async move {
            tokio::select! {
                () = heralded.run() => {}
                () = ends.notified() => {}
            }
        });
        let mut tasks = Vec::new();
        for from in [pick(EVENTS), pick(EVENTS)] {
            let (session, herald) = (second.clone(), Arc::clone(&herald));
            tasks.push(spawn(async move {
                // The reader starts at a random cursor up to the committed seq.
                let committed = session.committed();
                let from = from.min(committed);
                let mut reader = session.reader(Start::After(from));
                if pick(2) == 0 {
                    reader.heeds(&herald, None);
                }
                follow(reader, from, committed, EVENTS).await;
            }));
        }
        let (leaver, session, away) = (Arc::clone(&herald), second.clone(), pick(12));
        tasks.push(spawn(async move {
            let committed = session.committed();
            let mut reader = session.reader(Start::Beginning);
            reader.heeds(&leaver, None);
            tokio::select! {
                biased;
                () = turns(away) => {}
                () = follow(reader, 0, committed, EVENTS) => {}
            }
        }));
        tasks.push(spawn(end_of(first.clone(), EVENTS + 1)));
        tasks.push(spawn(served(first.clone(), Arc::clone(&herald), EVENTS + 1, true)));
        tasks.push(spawn(served(second.clone(), Arc::clone(&herald), EVENTS, false)));
        let scope = AllScope { tenant: Tenant::default(), sessions: None };
        let mut all = log.reader_all(scope, AllStart::Beginning).await.expect("could not read the store");
        if pick(2) == 0 {
            all.heeds(&herald);
        }
        let (one, two) = (first.session(), second.session());
        tasks.push(spawn(follow_all(all, one, BTreeMap::from([(one, EVENTS), (two, EVENTS)]))));
        for session in [first, second.clone()] {
            let erase = session.session() == one;
            tasks.push(spawn(async move {
                for seq in 1..=EVENTS {
                    assert_eq!(say(&session), seq);
                    if pick(2) == 0 {
                        session.wait(seq).await.expect("the log is closed");
                        assert!(session.committed() >= seq);
                    }
                }
                session.wait(EVENTS).await.expect("the log is closed");
                if erase {
                    let last = Event { kind: "test", prompt: None, members: Members::default() };
                    assert_eq!(session.erase(&last, Records::new()), EVENTS + 1);
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

async fn turns(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Returns when `last` was received. Checks that each event arrives once and in order, and that `Ready`
/// arrives once.
async fn follow(mut reader: Reader, from: u64, committed: u64, last: u64) {
    let (mut next, mut ready) = (from + 1, None);
    while next <= last || ready.is_none() {
        match reader.next().await.expect("could not read the store") {
            Item::Run(run) => {
                for frame in run.events() {
                    assert_eq!(frame.seq, next);
                    next += 1;
                }
            }
            Item::Ready { last_seq } => {
                assert!(ready.replace(last_seq).is_none(), "`Ready` must arrive once");
                assert!(last_seq >= committed && last_seq + 1 == next, "{last_seq} of {committed}, next {next}");
            }
            Item::Reset { .. } | Item::End => panic!("no event was pruned"),
        }
    }
}

/// Reads an erased session to its end, which follows the last event.
async fn end_of(session: SessionLog, last: u64) {
    let mut reader = session.reader(Start::Beginning);
    let mut seen = 0;
    loop {
        match reader.next().await.expect("could not read the store") {
            Item::Run(run) => {
                assert!(run.first_seq > seen, "no event is duplicated");
                let (from, to) = (run.first_seq, run.last_seq);
                assert!(from == seen + 1 || to == last, "only an erase may skip events: {from}-{to} after {seen}");
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
struct Taker {
    place: Mutex<Option<TailCursor>>,
    /// The sink stopped in the middle of an event.
    left: Mutex<bool>,
    taken: Mutex<u64>,
    last: u64,
    erased: bool,
    over: Notify,
}

impl Taker {
    fn taken(&self) -> u64 {
        *sound(self.taken.lock())
    }

    fn give(&self, run: &Run) {
        let mut taken = sound(self.taken.lock());
        let (from, to) = (run.first_seq, run.last_seq);
        assert!(from == *taken + 1 || self.erased && from > *taken, "{from} to {to} after {taken}");
        *taken = to;
        if to == self.last && !self.erased {
            self.over.notify_one();
        }
    }
}

impl Outlet for Taker {
    fn take(&self) -> Took {
        let mut place = sound(self.place.lock());
        let mut left = sound(self.left.lock());
        let Some(place) = place.as_mut().filter(|_| !*left) else { return Took::Nothing };
        loop {
            match place.try_next() {
                Ok(run) => self.give(&run),
                Err(Later::Wait) => return Took::All,
                Err(Later::Read) => return Took::Nothing,
            }
            match pick(4) {
                0 => return Took::Part,
                1 => {
                    *left = true;
                    return Took::Nothing;
                }
                _ => {}
            }
        }
    }
}

/// A reader with a direct sink. The reader stops waiting at random times.
async fn served(session: SessionLog, herald: Arc<Herald>, last: u64, erased: bool) {
    let taker = Arc::new(Taker { last, erased, ..Taker::default() });
    let mut reader = session.reader(Start::Beginning);
    reader.heeds(&herald, Some(Arc::<Taker>::clone(&taker)));
    while erased || taker.taken() < last {
        let item = match reader.try_next() {
            Err(Later::Wait) => {
                *sound(taker.place.lock()) = Some(reader.place());
                let enough = 1 + pick(12);
                tokio::select! {
                    () = reader.moved() => {}
                    () = taker.over.notified() => {}
                    () = turns(enough), if enough < 8 => {}
                }
                let place = sound(taker.place.lock()).take().expect("only this task removes the cursor");
                assert!(place.cursor() == taker.taken() || erased, "{} of {}", taker.taken(), place.cursor());
                reader.go_on(&place);
                *sound(taker.left.lock()) = false;
                continue;
            }
            Err(Later::Read) => reader.next().await.expect("could not read the store"),
            Ok(item) => item,
        };
        match item {
            Item::Run(run) => taker.give(&run),
            Item::Ready { .. } => {}
            Item::Reset { .. } => panic!("no event was pruned"),
            Item::End => return assert_eq!((taker.taken(), erased), (last, true)),
        }
    }
}

/// Follows all sessions in commit order.
async fn follow_all(mut reader: AllReader, erased: SessionId, mut left: BTreeMap<SessionId, u64>) {
    let wanted = left.clone();
    let mut last_pos = 0;
    while left.values().any(|left| *left > 0) {
        match reader.next().await.expect("could not read the store") {
            AllItem::Run(run) => {
                for frame in run.events() {
                    let pos = run.pos(frame.seq);
                    assert!(pos > last_pos, "positions must increase");
                    last_pos = pos;
                    let left = left.get_mut(&run.session).expect("unknown session");
                    // The erase follows all events. It may skip events that the reader has not received.
                    if frame.seq > wanted[&run.session] {
                        *left = 0;
                    } else {
                        let next = wanted[&run.session] - *left + 1;
                        assert!(frame.seq == next || run.session == erased && frame.seq > next);
                        *left = wanted[&run.session] - frame.seq;
                    }
                }
            }
            AllItem::Ready { .. } => {}
            AllItem::Reset { reason, .. } => panic!("{reason:?}: no event was pruned"),
        }
    }
}
