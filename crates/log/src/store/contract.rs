//! Tests that every adapter of the port must pass, and runs for tests.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::limits::Limits;
use base::types::{Ids, SessionId, UserId};

use super::memory::MemoryStore;
use super::{
    Batch, CommitError, Cut, EventStore, Maintenance, RecordState, RecordStore, Run, RunHeader,
    SqliteStore, Table,
};

pub(crate) fn session(number: u8) -> SessionId {
    SessionId::from_uuid(uuid::Uuid::from_bytes([number; 16]))
}

/// Pseudo-random text that cannot be compressed, different for each seed.
pub(crate) fn noise(seed: u64, length: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = seed;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        char::from(LETTERS[(mixed >> 58) as usize])
    });
    letters.take(length).collect()
}

/// A run in the log's frame format, with the epoch `e`.
pub(crate) fn run(number: u8, seqs: RangeInclusive<u64>) -> Run {
    noisy(number, seqs, 0)
}

/// Like [`run`], with `length` incompressible bytes in each event.
pub(crate) fn noisy(number: u8, seqs: RangeInclusive<u64>, length: usize) -> Run {
    let mut frames = String::new();
    for seq in seqs.clone() {
        let id = format!("e-{seq}");
        let invalid_line = match length {
            0 => String::new(),
            length => format!(",\"x\":\"{}\"", noise_of(number, seq, length)),
        };
        let data = format!(
            "{{\"id\":\"{id}\",\"seq\":{seq},\"type\":\"test\",\"session\":{number}{invalid_line}}}"
        );
        write!(frames, "id: {id}\nevent: test\ndata: {data}\n\n")
            .expect("writing to a string cannot fail");
    }
    Run {
        owner: UserId::owner(),
        session: session(number),
        first_seq: *seqs.start(),
        last_seq: *seqs.end(),
        last_pos: 0,
        frames: frames.into(),
    }
}

/// The incompressible part of an event of [`noisy`].
pub(crate) fn noise_of(number: u8, seq: u64, length: usize) -> String {
    noise(u64::from(number) << 32 | seq, length)
}

pub(crate) fn append(store: &dyn RecordStore, runs: Vec<Run>) -> Vec<u64> {
    let batch = Batch {
        runs,
        ..Batch::default()
    };
    positions(&store.commit(&batch).expect("could not commit"))
}

/// The positions of the last events of stored runs.
pub(crate) fn positions(stored: &[RunHeader]) -> Vec<u64> {
    stored.iter().map(|run| run.last_pos).collect()
}

pub(crate) fn seqs(runs: &[Run]) -> Vec<u64> {
    runs.iter()
        .flat_map(Run::events)
        .map(|event| event.seq())
        .collect()
}

fn value(store: &dyn RecordStore, table: Table, key: &str) -> Option<String> {
    let value = store
        .get(table, key.as_bytes())
        .expect("could not read the store")?;
    Some(String::from_utf8(value.to_vec()).expect("invalid UTF-8"))
}

/// Reads all events of all sessions after a position, page by page, as (position, session, seq).
fn read_everything(
    store: &dyn EventStore,
    after_pos: u64,
    max_bytes: usize,
) -> Vec<(u64, SessionId, u64)> {
    let mut cursor = after_pos;
    let mut found = Vec::new();
    while cursor < store.tail().last_pos {
        let page = store
            .read_all(cursor, max_bytes, &|_, _| true)
            .expect("could not read the store");
        for run in &page.runs {
            found.extend(
                run.events()
                    .map(|event| (run.pos(event.seq()), run.session, event.seq())),
            );
        }
        assert!(page.through > cursor, "a page must advance");
        cursor = page.through;
    }
    found
}

fn rejected_batch_changes_nothing(store: &(impl EventStore + Maintenance)) {
    append(store, vec![run(1, 1..=2)]);
    store
        .commit(&Batch {
            records: vec![RecordState::present(Table::Key, "a", "1")],
            ..Batch::default()
        })
        .unwrap();
    let refused = Batch {
        expect: vec![
            RecordState::present(Table::Key, "a", "1"),
            RecordState::present(Table::Key, "b", "1"),
        ],
        erase: vec![session(1)],
        runs: vec![run(2, 1..=2)],
        records: vec![
            RecordState::present(Table::Key, "c", "1"),
            RecordState::absent(Table::Key, "a"),
        ],
        ..Batch::default()
    };
    let error = store.commit(&refused).unwrap_err();
    assert!(
        matches!(error, CommitError::Conflict { index: 1 }),
        "{error}"
    );
    assert_eq!(seqs(&store.read(session(1), 0, 1000).unwrap()), [1, 2]);
    assert!(store.read(session(2), 0, 1000).unwrap().is_empty());
    assert_eq!(value(store, Table::Key, "a").as_deref(), Some("1"));
    assert_eq!(value(store, Table::Key, "c"), None);
    assert_eq!((store.tail().last_pos, store.usage(session(2))), (2, None));
}

fn expected_records_are_compared_and_set(store: &(impl EventStore + Maintenance)) {
    let step = |expected: Option<&'static str>, then: &'static str| {
        store.commit(&Batch {
            expect: vec![RecordState {
                table: Table::Meta,
                key: "k".into(),
                value: expected.map(Bytes::from),
            }],
            records: vec![RecordState::present(Table::Meta, "k", then)],
            ..Batch::default()
        })
    };
    assert!(step(Some(""), "x").is_err(), "absent is not empty");
    step(None, "").unwrap();
    assert!(step(None, "x").is_err(), "empty is not absent");
    step(Some(""), "x").unwrap();
    assert_eq!(value(store, Table::Meta, "k").as_deref(), Some("x"));
    assert_eq!(value(store, Table::Key, "k"), None, "tables are separate");
    let gone = Batch {
        records: vec![
            RecordState::absent(Table::Meta, "k"),
            RecordState::absent(Table::Meta, "z"),
        ],
        ..Batch::default()
    };
    store.commit(&gone).unwrap();
    step(None, "y").unwrap();
}

fn read_starts_after_any_event(store: &(impl EventStore + Maintenance)) {
    for runs in [
        vec![run(1, 1..=3), run(2, 1..=1)],
        vec![run(1, 4..=4)],
        vec![run(1, 5..=9), run(2, 2..=2)],
    ] {
        append(store, runs);
    }
    for after in 0..=9 {
        for max_bytes in [1, 150, 10_000] {
            let mut cursor = after;
            let mut found = Vec::new();
            while cursor < 9 {
                let runs = store.read(session(1), cursor, max_bytes).unwrap();
                assert_eq!(runs[0].first_seq, cursor + 1);
                found.extend(seqs(&runs));
                cursor = *found.last().unwrap();
            }
            assert_eq!(found, (after + 1..=9).collect::<Vec<_>>());
        }
    }
    assert_eq!(
        store.read(session(1), 0, 1).unwrap().len(),
        1,
        "a page is about as large as requested"
    );
    assert!(store.read(session(1), 9, 1000).unwrap().is_empty());
    assert!(store.read(session(1), u64::MAX, 1000).unwrap().is_empty());
    assert!(store.read(session(3), 0, 1000).unwrap().is_empty());
    let bytes: Vec<u8> = store
        .read(session(1), 0, 10_000)
        .unwrap()
        .iter()
        .flat_map(|r| r.frames.to_vec())
        .collect();
    assert_eq!(bytes, run(1, 1..=9).frames);
}

fn positions_follow_commit_order(store: &(impl EventStore + Maintenance)) {
    assert_eq!(store.tail().last_pos, 0);
    assert_eq!(append(store, vec![run(1, 1..=3), run(2, 1..=2)]), [3, 5]);
    assert_eq!(append(store, vec![run(2, 3..=3), run(1, 4..=6)]), [6, 9]);
    let all: Vec<_> = [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
        (1, 4),
        (1, 5),
        (1, 6),
    ]
    .into_iter()
    .zip(1..)
    .map(|((of, seq), pos)| (pos, session(of), seq))
    .collect();
    for after in 0..=9 {
        for max_bytes in [1, 200, 10_000] {
            assert_eq!(
                read_everything(store, after as u64, max_bytes),
                all[after..]
            );
        }
    }
    let page = store
        .read_all(0, 10_000, &|owner, of| {
            owner == UserId::owner().as_str() && of == session(2)
        })
        .unwrap();
    assert_eq!((seqs(&page.runs), page.through), (vec![1, 2, 3], 9));
    let page = store
        .read_all(0, 10_000, &|owner, _| owner == "other")
        .unwrap();
    assert!(page.runs.is_empty() && page.through == 9);
}

fn erased_positions_are_not_reused(store: &(impl EventStore + Maintenance)) {
    append(store, vec![run(1, 1..=3), run(2, 1..=2)]);
    append(store, vec![run(1, 4..=5)]);
    let last = Batch {
        erase: vec![session(1)],
        runs: vec![run(1, 6..=6)],
        ..Batch::default()
    };
    assert_eq!(positions(&store.commit(&last).unwrap()), [8]);
    assert_eq!(seqs(&store.read(session(1), 0, 10_000).unwrap()), [6]);
    assert_eq!(
        read_everything(store, 0, 10_000),
        [(4, session(2), 1), (5, session(2), 2), (8, session(1), 6)]
    );
    let usage = store.usage(session(1)).unwrap();
    assert_eq!(
        (
            usage.first_seq,
            usage.last_seq,
            usage.first_pos,
            usage.last_pos
        ),
        (6, 6, 8, 8)
    );
    assert_eq!(
        store.total_bytes(),
        (run(2, 1..=2).frames.len() + run(1, 6..=6).frames.len()) as u64
    );
    store
        .commit(&Batch {
            erase: vec![session(1), session(9)],
            ..Batch::default()
        })
        .unwrap();
    assert_eq!(
        (
            store.usage(session(1)),
            store.tail().last_pos,
            store.tail().first_pos
        ),
        (None, 8, 1)
    );
    assert_eq!(append(store, vec![run(3, 1..=1)]), [9]);
}

fn scan_is_ordered_and_bounded_by_prefix(store: &(impl EventStore + Maintenance)) {
    let keys = ["b", "a/2", "a/1", "a/10", "a", "a0", "\u{ff}"];
    let records = keys
        .iter()
        .map(|key| RecordState::present(Table::Prompt, *key, *key))
        .collect();
    store
        .commit(&Batch {
            records,
            ..Batch::default()
        })
        .unwrap();
    store
        .commit(&Batch {
            records: vec![RecordState::present(Table::Request, "a/3", "")],
            ..Batch::default()
        })
        .unwrap();
    let scan = |prefix: &str, after: Option<&str>, limit| -> Vec<String> {
        let found = store
            .scan(
                Table::Prompt,
                prefix.as_bytes(),
                after.map(str::as_bytes),
                limit,
            )
            .unwrap();
        assert!(found.iter().all(|(key, value)| key == value));
        found
            .into_iter()
            .map(|(key, _)| String::from_utf8(key).unwrap())
            .collect()
    };
    assert_eq!(scan("a/", None, 10), ["a/1", "a/10", "a/2"]);
    assert_eq!(scan("a/", Some("a/1"), 10), ["a/10", "a/2"]);
    assert_eq!(scan("a/", Some("a"), 1), ["a/1"]);
    assert_eq!(scan("a/", Some("b"), 10), [""; 0]);
    assert_eq!(
        scan("", None, 10),
        ["a", "a/1", "a/10", "a/2", "a0", "b", "\u{ff}"]
    );
}

fn prune_removes_oldest_and_keeps_last_run(store: &(impl EventStore + Maintenance)) {
    for n in 0..5 {
        append(
            store,
            vec![run(1, n * 2 + 1..=n * 2 + 2), run(2, n + 1..=n + 1)],
        );
    }
    let bytes = store.total_bytes();
    let heads = store.run_headers(None, 0, 3).unwrap();
    assert_eq!(
        heads.iter().map(|head| head.last_pos).collect::<Vec<_>>(),
        [2, 3, 5]
    );
    let heads = store.run_headers(Some(session(1)), 2, 2).unwrap();
    assert_eq!(
        heads
            .iter()
            .map(|head| (head.first_seq, head.last_seq))
            .collect::<Vec<_>>(),
        [(3, 4), (5, 6)]
    );
    assert_eq!(heads[0].bytes, run(1, 3..=4).frames.len() as u64);
    let cut = |session, through| Cut { session, through };
    let pruned = store
        .prune(&[cut(session(1), 5), cut(session(9), 5)], 10)
        .unwrap();
    assert_eq!(
        (pruned.runs, pruned.bytes),
        (2, bytes - store.total_bytes())
    );
    assert_eq!(
        seqs(&store.read(session(1), 0, 10_000).unwrap()),
        [5, 6, 7, 8, 9, 10]
    );
    assert_eq!(
        store.tail().first_pos,
        6,
        "the last pruned position is that of seq 4"
    );
    let usage = store.usage(session(1)).unwrap();
    assert_eq!(
        (usage.first_seq, usage.first_pos, usage.last_seq),
        (5, 7, 10)
    );
    assert_eq!(
        store.prune(&[cut(session(1), 100)], 1).unwrap().runs,
        1,
        "at most `max_runs`"
    );
    assert_eq!(
        store.prune(&[cut(session(1), 100)], 10).unwrap().runs,
        1,
        "the last run is kept"
    );
    assert_eq!(store.prune(&[cut(session(1), 100)], 10).unwrap().runs, 0);
    assert_eq!(seqs(&store.read(session(1), 0, 10_000).unwrap()), [9, 10]);
    assert_eq!(
        seqs(&store.read(session(2), 0, 10_000).unwrap()),
        [1, 2, 3, 4, 5]
    );
    let old = store.usages(10, &|log| log.first_seq > 1);
    assert_eq!(
        old.iter().map(|log| log.session).collect::<Vec<_>>(),
        [session(1)]
    );
    while store.compact().unwrap() {}
}

fn deleted_sessions_and_the_audit_log_do_not_count(store: &(impl EventStore + Maintenance)) {
    append(store, vec![run(0, 1..=1), run(1, 1..=2), run(2, 1..=1)]);
    assert_eq!(session(0), SessionId::AUDIT);
    assert_eq!(store.session_count(), 2);
    store.commit(&deletion(1, run(1, 3..=3))).unwrap();
    assert_eq!(store.session_count(), 1);
    assert!(store.usage(session(1)).is_some());
    let expired = Batch {
        erase: vec![session(1)],
        records: vec![RecordState::absent(Table::Tombstone, session(1).as_bytes())],
        ..Batch::default()
    };
    store.commit(&expired).unwrap();
    assert_eq!(store.session_count(), 1);
    append(store, vec![run(3, 1..=1)]);
    assert_eq!(store.session_count(), 2);
}

/// The commit that deletes a session.
pub(crate) fn deletion(number: u8, last: Run) -> Batch {
    let id = session(number);
    Batch {
        erase: vec![id],
        runs: vec![last],
        records: vec![RecordState::present(Table::Tombstone, id.as_bytes(), "")],
        ..Batch::default()
    }
}

macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            use super::*;
            $(#[test] fn $name() { super::$name(&MemoryStore::new(Ids::system())); })*
        }

        mod sqlite {
            use super::*;
            $(#[test] fn $name() {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("log");
                super::$name(&SqliteStore::open(&path, Ids::system(), &Limits::default()).unwrap());
            })*
        }
    };
}

contract!(
    rejected_batch_changes_nothing,
    expected_records_are_compared_and_set,
    read_starts_after_any_event,
    positions_follow_commit_order,
    erased_positions_are_not_reused,
    scan_is_ordered_and_bounded_by_prefix,
    prune_removes_oldest_and_keeps_last_run,
    deleted_sessions_and_the_audit_log_do_not_count,
);
