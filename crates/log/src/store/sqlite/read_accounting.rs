//! Accounts for the bytes that each call reads from the file: the cost must not depend on the length of a log
//! or the number of records.

use std::fs;

use super::super::RecordState;
use super::super::contract::{noisy, session};
use super::*;

/// The runs of the long session. Each fills most of a page.
const RUNS: u64 = 2000;
const EVENT: usize = 6000;
/// The maximum bytes of a call: a few lookups in a tree and their results. The file is a hundred times
/// larger.
const MAX_READ: u64 = 40 * 8192;

fn read_by_this_thread() -> u64 {
    let io =
        fs::read_to_string("/proc/thread-self/io").expect("could not read /proc/thread-self/io");
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "))
        .expect("no rchar line");
    line.parse().expect("not a number")
}

fn assert_reads_little<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let before = read_by_this_thread();
    let done = call();
    let read = read_by_this_thread() - before;
    assert!(read < MAX_READ, "{what} read {read} bytes");
    done
}

/// A run whose stored size equals its length.
fn long_run(number: u8, seq: u64) -> Run {
    noisy(number, seq..=seq, EVENT)
}

/// A store with a long session and a short session, interleaved.
fn filled(path: &Path) -> SqliteStore {
    let store = SqliteStore::open(path, Ids::system(), &Limits::default()).unwrap();
    for first in (1..=RUNS).step_by(100) {
        let mut runs: Vec<Run> = (first..first + 100).map(|seq| long_run(1, seq)).collect();
        runs.push(long_run(2, first / 100 + 1));
        let records = (first..first + 100).map(|n| {
            let value = "v".repeat(EVENT / 4);
            RecordState::present(Table::Prompt, format!("{n:06}"), value)
        });
        store
            .commit(&Batch {
                runs,
                records: records.collect(),
                ..Batch::default()
            })
            .unwrap();
    }
    store
}

#[test]
fn no_call_reads_more_of_a_large_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    drop(filled(&path));
    let before = read_by_this_thread();
    let store = SqliteStore::open(&path, Ids::system(), &Limits::default()).unwrap();
    let opened = read_by_this_thread() - before;
    // Opening reads only the runs that follow the stored statistics.
    assert!(
        opened < store.total_bytes() * 2 / 3,
        "opening read {opened} bytes"
    );
    for after in [0, RUNS / 2, RUNS - 2] {
        let runs = assert_reads_little("a read", || {
            store.read(session(1), after, 10 * EVENT).unwrap()
        });
        assert_eq!(runs[0].first_seq, after + 1);
    }
    assert_reads_little("a read of the short one", || {
        store.read(session(2), 10, 4 * EVENT).unwrap()
    });
    assert_reads_little("a read of all", || {
        store.read_all(RUNS / 2, 10 * EVENT, &|_, _| true).unwrap()
    });
    assert_reads_little("a record", || {
        store
            .get(Table::Prompt, b"001234")
            .unwrap()
            .expect("the record exists")
    });
    let page = assert_reads_little("a scan", || {
        store.scan(Table::Prompt, b"", Some(b"001000"), 20).unwrap()
    });
    assert_eq!(page.len(), 20);
    assert_reads_little("an append", || {
        store.commit(&Batch {
            runs: vec![long_run(1, RUNS + 1)],
            ..Batch::default()
        })
    })
    .unwrap();
    assert_reads_little("the headers of the oldest runs", || {
        store.run_headers(Some(session(1)), 0, 16).unwrap()
    });
    let cut = Cut {
        session: session(1),
        through: 16,
    };
    let pruned = assert_reads_little("a prune", || store.prune(&[cut], 64).unwrap());
    assert_eq!(pruned.runs, 16);
    let cut = Cut {
        session: session(1),
        through: 16,
    };
    let pruned = assert_reads_little("a repeated prune", || store.prune(&[cut], 64).unwrap());
    assert_eq!(pruned.runs, 0);
}
