//! Readers that follow a log while it is written: no wake-up is lost, no event is left out or given twice.

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

/// A log in memory, so narrow that readers often find the next event only in the store.
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
    EventLog::start(store, Ids::system(), Arc::new(limits), Shutdown, fatal).expect("the writer starts")
}

pub(crate) async fn open(log: &EventLog, number: u128) -> SessionLog {
    let id = SessionId::from_uuid(uuid::Uuid::from_u128(number));
    log.session(&Tenant::default(), id).await.expect("the store reads")
}

fn say(session: &SessionLog) -> u64 {
    session.append(&Event { kind: "test", prompt: None, members: Members::whole(b"\"text\":\"some words\"") }, Records::new())
}

fn pick(below: u64) -> u64 {
    shuttle::rand::thread_rng().gen_range(0..below)
}

/// Two sessions are written at once and followed from anywhere, alone and together, by the writer's word or a herald's, by who is
/// woken or who has an outlet; one of them is erased at its end. One of those who heed the herald leaves whenever it likes,
/// also while it waits.
pub fn every_event_once() {
    const EVENTS: u64 = 6;
    block_on(async {
        let log = log(1 + 1000 * usize::try_from(pick(2)).expect("0 or 1"));
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
                // It begins wherever the log is by now, and is told where that was.
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
        let mut all = log.reader_all(scope, AllStart::Beginning).await.expect("the store reads");
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
                        session.wait(seq).await.expect("the log is open");
                        assert!(session.committed() >= seq);
                    }
                }
                session.wait(EVENTS).await.expect("the log is open");
                if erase {
                    let last = Event { kind: "test", prompt: None, members: Members::default() };
                    assert_eq!(session.erase(&last, Records::new()), EVENTS + 1);
                }
            }));
        }
        for task in tasks {
            task.await.expect("it ends");
        }
        over.notify_one();
        rings.await.expect("it ends");
        log.close().await;
    });
}

async fn turns(count: u64) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Gives back when `last` was given: each event once, in order, and once that the replay is over.
async fn follow(mut reader: Reader, from: u64, committed: u64, last: u64) {
    let (mut next, mut ready) = (from + 1, None);
    while next <= last || ready.is_none() {
        match reader.next().await.expect("the store reads") {
            Item::Run(run) => {
                for frame in run.events() {
                    assert_eq!(frame.seq, next);
                    next += 1;
                }
            }
            Item::Ready { last_seq } => {
                assert!(ready.replace(last_seq).is_none(), "once");
                assert!(last_seq >= committed && last_seq + 1 == next, "{last_seq} of {committed}, next {next}");
            }
            Item::Reset { .. } | Item::End => panic!("nothing was dropped"),
        }
    }
}

/// A reader of a session that is erased comes to its end, after the last event.
async fn end_of(session: SessionLog, last: u64) {
    let mut reader = session.reader(Start::Beginning);
    let mut seen = 0;
    loop {
        match reader.next().await.expect("the store reads") {
            Item::Run(run) => {
                assert!(run.first_seq > seen, "nothing is given twice");
                let (from, to) = (run.first_seq, run.last_seq);
                assert!(from == seen + 1 || to == last, "only an erase leaves something out: {from}-{to} after {seen}");
                seen = run.last_seq;
            }
            Item::Ready { .. } => {}
            Item::Reset { .. } => panic!("an erase is no reset"),
            Item::End => return assert_eq!(seen, last),
        }
    }
}

/// What takes events while its reader waits, as a socket does: all that there are, or as far as it comes.
#[derive(Debug, Default)]
struct Taker {
    place: Mutex<Option<TailCursor>>,
    /// It stopped in the middle of something.
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

/// A reader whose outlet takes what comes while it waits, and which stops waiting whenever it likes.
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
                let place = sound(taker.place.lock()).take().expect("nobody else takes it");
                assert!(place.cursor() == taker.taken() || erased, "{} of {}", taker.taken(), place.cursor());
                reader.go_on(&place);
                *sound(taker.left.lock()) = false;
                continue;
            }
            Err(Later::Read) => reader.next().await.expect("the store reads"),
            Ok(item) => item,
        };
        match item {
            Item::Run(run) => taker.give(&run),
            Item::Ready { .. } => {}
            Item::Reset { .. } => panic!("nothing was dropped"),
            Item::End => return assert_eq!((taker.taken(), erased), (last, true)),
        }
    }
}

/// The same over all sessions, in the order of their commits.
async fn follow_all(mut reader: AllReader, erased: SessionId, mut left: BTreeMap<SessionId, u64>) {
    let wanted = left.clone();
    let mut last_pos = 0;
    while left.values().any(|left| *left > 0) {
        match reader.next().await.expect("the store reads") {
            AllItem::Run(run) => {
                for frame in run.events() {
                    let pos = run.pos(frame.seq);
                    assert!(pos > last_pos, "places only grow");
                    last_pos = pos;
                    let left = left.get_mut(&run.session).expect("there are no others");
                    // The erase comes after all events, and may leave out those that were not given yet.
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
            AllItem::Reset { reason, .. } => panic!("{reason:?}: nothing was dropped"),
        }
    }
}
