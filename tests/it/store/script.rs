//! A random sequence of commits that its seed reproduces, and the content of a store after each commit.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use base::types::{Ids, SessionId, UserId};
use bytes::Bytes;
use log::limits::Limits;
use log::store::{
    Batch, CommitError, Cut, EventStore, Maintenance, MemoryStore, RecordState, Run, SqliteStore,
    Table,
};

use crate::support::Random;

/// The tables that the script writes to.
const TABLES: [Table; 3] = [Table::Session, Table::Prompt, Table::Fold];
const SESSIONS: u64 = 5;

#[derive(Debug)]
pub(crate) enum Step {
    Commit(Batch),
    Prune(Vec<Cut>, usize),
}

/// The steps on a store that follow from one seed.
#[derive(Debug)]
pub(crate) struct Script {
    random: Random,
    last_seqs: BTreeMap<u8, u64>,
    records: BTreeMap<(Table, Vec<u8>), Bytes>,
}

pub(crate) fn session(number: u8) -> SessionId {
    SessionId::from_uuid(uuid::Uuid::from_bytes([number; 16]))
}

pub(crate) fn limits() -> Limits {
    Limits {
        max_store_readers: 1,
        ..Limits::default()
    }
}

pub(crate) fn open(path: &std::path::Path) -> SqliteStore {
    SqliteStore::open(path, Ids::system(), &limits()).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Events of a session, each with `filler` bytes. Every other event is compressible. Some runs are stored raw, and
/// some compressed, both with and without overflow pages.
pub(crate) fn run(number: u8, first_seq: u64, events: u64, filler: u64) -> Run {
    let mut frames = String::new();
    for seq in first_seq..first_seq + events {
        let id = format!("e-{seq}");
        let filler: String = if seq % 2 == 0 {
            (0..filler)
                .map(|n| char::from(b'a' + ((n + seq) % 26) as u8))
                .collect()
        } else {
            Random::new(u64::from(number) << 32 | seq)
                .noise(usize::try_from(filler).expect("small"))
        };
        let data = format!("{{\"id\":\"{id}\",\"seq\":{seq},\"of\":{number},\"x\":\"{filler}\"}}");
        write!(frames, "id: {id}\nevent: test\ndata: {data}\n\n").expect("a string takes all");
    }
    let last_seq = first_seq + events - 1;
    let owner = UserId::owner();
    Run {
        owner,
        session: session(number),
        first_seq,
        last_seq,
        last_pos: 0,
        frames: frames.into(),
    }
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            last_seqs: BTreeMap::new(),
            records: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Step {
        if self.random.below(10) == 0 {
            let cuts = self.last_seqs.iter();
            let cuts = cuts
                .map(|(of, last)| Cut {
                    session: session(*of),
                    through: last / 2,
                })
                .collect();
            return Step::Prune(cuts, 3);
        }
        let mut batch = Batch::default();
        if self.random.below(12) == 0 {
            batch.erase.push(session(self.number()));
        }
        for _ in 0..self.random.below(4) {
            let run = self.run();
            if !batch
                .runs
                .iter()
                .any(|other: &Run| other.session == run.session)
            {
                self.last_seqs
                    .insert(run.session.as_bytes()[0], run.last_seq);
                batch.runs.push(run);
            }
        }
        self.change_records(&mut batch);
        Step::Commit(batch)
    }

    fn number(&mut self) -> u8 {
        u8::try_from(self.random.below(SESSIONS) + 1).expect("small")
    }

    fn run(&mut self) -> Run {
        let number = self.number();
        let first_seq = self.last_seqs.get(&number).copied().unwrap_or_default() + 1;
        // Some runs need pages of their own.
        let filler = if self.random.below(6) == 0 {
            6000
        } else {
            self.random.below(300)
        };
        let events = self.random.below(6) + 1;
        run(number, first_seq, events, filler)
    }

    fn change_records(&mut self, batch: &mut Batch) {
        for n in 0..self.random.below(4) {
            let table = TABLES[usize::try_from(n % 3).expect("small")];
            let key = format!("record {}", self.random.below(8)).into_bytes();
            let expected = self.records.get(&(table, key.clone())).cloned();
            if self.random.below(2) == 0 {
                batch.expect.push(RecordState {
                    table,
                    key: key.clone(),
                    value: expected.clone(),
                });
            }
            if expected.is_some() && self.random.below(3) == 0 {
                self.records.remove(&(table, key.clone()));
                batch.records.push(RecordState::absent(table, key));
            } else {
                let size = usize::try_from(self.random.below(900)).expect("small");
                let value = Bytes::from(format!("{}{}", self.random.below(1000), "v".repeat(size)));
                self.records.insert((table, key.clone()), value.clone());
                batch.records.push(RecordState::present(table, key, value));
            }
        }
    }
}

impl Step {
    pub(crate) fn take(&self, store: &(impl EventStore + Maintenance)) -> Result<(), CommitError> {
        match self {
            Self::Commit(batch) => store.commit(batch).map(drop),
            Self::Prune(cuts, max_runs) => store.prune(cuts, *max_runs).map(drop),
        }
    }
}

/// The content of a store in memory after no step, one step, two steps, ...
pub(crate) fn expected(seed: u64, steps: usize) -> Vec<u64> {
    let mut script = Script::new(seed);
    let store = MemoryStore::new(Ids::system());
    let mut contents = vec![content(&store)];
    for _ in 0..steps {
        script.next().take(&store).expect("memory takes everything");
        contents.push(content(&store));
    }
    contents
}

/// The stored size of the runs of a session, or of all sessions.
fn stored(store: &dyn Maintenance, session: Option<SessionId>) -> u64 {
    let heads = store
        .run_headers(session, 0, usize::MAX)
        .expect("they can be read");
    heads.iter().map(|head| head.bytes).sum()
}

/// How many runs of a store are packed where they are stored, and how many are not.
pub(crate) fn forms(store: &(impl EventStore + Maintenance)) -> [usize; 2] {
    let mut forms = [0, 0];
    for number in 1..=u8::try_from(SESSIONS).expect("small") {
        let runs = store
            .read(session(number), 0, usize::MAX)
            .expect("every run is whole");
        let heads = store
            .run_headers(Some(session(number)), 0, usize::MAX)
            .expect("they can be read");
        assert_eq!(runs.len(), heads.len(), "of session {number}");
        for (run, head) in runs.iter().zip(heads) {
            forms[usize::from(head.bytes == run.frames.len() as u64)] += 1;
        }
    }
    forms
}

/// The complete content of a store, hashed. A damaged run cannot be read. The store's statistics for each log must
/// equal the stored size of its runs, which is not part of the content.
pub(crate) fn content(store: &(impl EventStore + Maintenance)) -> u64 {
    let mut hash = DefaultHasher::new();
    let mut cursor = 0;
    let tail = store.tail();
    (tail.first_pos, tail.last_pos).hash(&mut hash);
    assert_eq!(store.total_bytes(), stored(store, None));
    while cursor < tail.last_pos {
        let page = store
            .read_all(cursor, 1 << 20, &|_, _| true)
            .expect("every run is whole");
        for run in &page.runs {
            (
                run.session.as_bytes(),
                run.first_seq,
                run.last_seq,
                run.last_pos,
                &run.frames,
            )
                .hash(&mut hash);
        }
        cursor = page.through;
    }
    for number in 1..=u8::try_from(SESSIONS).expect("small") {
        let log = store.usage(session(number));
        let counted = log.as_ref().map_or(0, |log| log.bytes);
        assert_eq!(
            counted,
            stored(store, Some(session(number))),
            "of session {number}"
        );
        let usage = log.map(|log| (log.first_seq, log.last_seq, log.runs));
        let runs = store
            .read(session(number), 0, usize::MAX)
            .expect("every run is whole");
        (
            usage,
            runs.iter().map(|run| run.last_pos).collect::<Vec<_>>(),
        )
            .hash(&mut hash);
    }
    for table in TABLES {
        (
            table as u8,
            store
                .scan(table, b"", None, 1000)
                .expect("records can be read"),
        )
            .hash(&mut hash);
    }
    hash.finish()
}
