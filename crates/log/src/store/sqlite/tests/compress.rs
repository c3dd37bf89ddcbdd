//! Compressed runs: their size, and files that contain compressed and uncompressed runs.

use std::cell::Cell;

use super::super::row::{checksum, from_sql, to_sql};
use super::*;
use crate::store::LogUsage;

/// The stored bytes of all runs in the file, of one session or of all.
fn stored(database: &Database, number: Option<u8>) -> u64 {
    let file = schema::open_reader(&database.path()).unwrap();
    let of = number.map(|number| session(number).as_bytes().to_vec());
    let select =
        "SELECT coalesce(sum(length(frames)), 0) FROM run WHERE ?1 IS NULL OR session = ?1";
    file.query_row(select, [of], |row| row.get(0))
        .map(from_sql)
        .unwrap()
}

/// The number of runs whose stored frames begin with this byte.
fn beginning_with(database: &Database, byte: u8) -> i64 {
    let file = schema::open_reader(&database.path()).unwrap();
    let select = "SELECT count(*) FROM run WHERE substr(frames, 1, 1) = ?1";
    file.query_row(select, [[byte]], |row| row.get(0)).unwrap()
}

fn frames(store: &SqliteStore, number: u8) -> Vec<u8> {
    let runs = store.read(session(number), 0, usize::MAX).unwrap();
    runs.iter().flat_map(|run| run.frames.to_vec()).collect()
}

fn bytes(usage: Option<LogUsage>) -> u64 {
    usage.map_or(0, |log| log.bytes)
}

#[test]
fn large_run_is_compressed_and_counted_by_stored_size() {
    let database = Database::new();
    let store = database.store();
    let runs = [
        run(1, 1..=500),
        run(1, 501..=502),
        noisy(1, 503..=503, 5000),
        run(2, 1..=700),
    ];
    let frames_of = |number| -> Vec<u8> {
        let of = runs.iter().filter(|run| run.session == session(number));
        of.flat_map(|run| run.frames.to_vec()).collect()
    };
    let batch = Batch {
        runs: runs.to_vec(),
        ..Batch::default()
    };
    let committed = store.commit(&batch).unwrap();
    let bytes_stored: u64 = committed.iter().map(|run| run.bytes).sum();
    assert_eq!(
        bytes_stored,
        store.total_bytes(),
        "a commit returns the stored size"
    );
    assert_eq!(
        (
            beginning_with(&database, 0),
            beginning_with(&database, b'i')
        ),
        (2, 2)
    );
    assert!(bytes(store.usage(session(2))) < frames_of(2).len() as u64 / 3);
    let is_right = |store: &SqliteStore| {
        for number in [1, 2] {
            let usage = store.usage(session(number));
            let heads = store.run_headers(Some(session(number)), 0, 10).unwrap();
            assert_eq!(
                bytes(usage),
                heads.iter().map(|head| head.bytes).sum::<u64>()
            );
            assert_eq!(
                bytes(store.usage(session(number))),
                stored(&database, Some(number))
            );
        }
        assert_eq!(store.total_bytes(), stored(&database, None));
    };
    is_right(&store);
    let total = store.total_bytes();
    drop(store);
    let store = database.store();
    is_right(&store);
    assert_eq!(store.total_bytes(), total);
    assert!(
        frames(&store, 1) == frames_of(1) && frames(&store, 2) == frames_of(2),
        "byte for byte"
    );
    let all = store.read_all(0, usize::MAX, &|_, _| true).unwrap().runs;
    assert!(
        all.iter()
            .map(|run| &run.frames)
            .eq(runs.iter().map(|run| &run.frames))
    );
    assert_eq!(
        seqs(&store.read(session(1), 333, 1).unwrap())[..2],
        [334, 335],
        "a compressed run can be split after any event"
    );

    let pruned = store
        .prune(
            &[Cut {
                session: session(1),
                through: 500,
            }],
            10,
        )
        .unwrap();
    assert_eq!(
        (pruned.runs, pruned.bytes),
        (1, total - store.total_bytes())
    );
    is_right(&store);
    store
        .commit(&Batch {
            erase: vec![session(2)],
            runs: vec![run(2, 701..=900)],
            ..Batch::default()
        })
        .unwrap();
    is_right(&store);
    assert!(frames(&store, 2) == run(2, 701..=900).frames);
    drop(store);
    is_right(&database.store());
}

#[test]
fn uncompressed_and_compressed_runs_are_readable_together() {
    let database = Database::new();
    let store = database.store();
    let old = [
        run(1, 1..=3),
        run(1, 4..=600),
        run(2, 1..=400),
        run(1, 601..=603),
    ];
    append(&store, old.to_vec());
    drop(store);
    // Store the runs without compression.
    let file = Connection::open(database.path()).unwrap();
    let mut pos = 0;
    for run in &old {
        pos += run.count();
        let crc = checksum(run.session, run.first_seq, run.last_seq, &run.frames);
        let row = rusqlite::params![&run.frames[..], crc, to_sql(pos)];
        assert_eq!(
            file.execute("UPDATE run SET frames = ?1, crc = ?2 WHERE pos = ?3", row)
                .unwrap(),
            1
        );
    }
    drop(file);
    assert_eq!(beginning_with(&database, 0), 0);

    let new = [run(1, 604..=1200), run(2, 401..=401), run(2, 402..=900)];
    for _ in 0..2 {
        let store = database.store();
        if store.usage(session(1)).unwrap().last_seq == 603 {
            assert_eq!(
                store.total_bytes(),
                old.iter().map(|run| run.frames.len() as u64).sum::<u64>()
            );
            append(&store, new.to_vec());
        }
        let written: Vec<&Run> = old.iter().chain(&new).collect();
        for number in [1, 2] {
            let of = written.iter().filter(|run| run.session == session(number));
            let expected: Vec<u8> = of.flat_map(|run| run.frames.to_vec()).collect();
            assert!(
                frames(&store, number) == expected,
                "byte for byte, of session {number}"
            );
        }
        let all = store.read_all(0, usize::MAX, &|_, _| true).unwrap().runs;
        assert!(
            all.iter()
                .map(|run| &run.frames)
                .eq(written.iter().map(|run| &run.frames)),
            "in order"
        );
        assert_eq!(store.total_bytes(), stored(&database, None));
        assert_eq!(check(&store).unwrap().damaged, 0);
    }
    assert_eq!(
        (
            beginning_with(&database, 0),
            beginning_with(&database, b'i')
        ),
        (2, 5)
    );
}

#[test]
fn any_flipped_bit_in_a_compressed_run_is_detected() {
    let database = Database::new();
    append(
        &database.store(),
        vec![run(1, 1..=3), run(1, 4..=100), run(1, 101..=103)],
    );
    let file = Connection::open(database.path()).unwrap();
    let whole: Vec<u8> = file
        .query_row("SELECT frames FROM run WHERE pos = 100", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(whole[0] == 0 && whole.len() > 500, "{}", whole.len());
    let store = database.store();
    let write = |stored: &[u8]| {
        file.execute("UPDATE run SET frames = ?1 WHERE pos = 100", [stored])
            .unwrap();
    };
    for at in (0..20).chain((20..whole.len()).step_by(37)) {
        let mut other = whole.clone();
        other[at] ^= 1 << (at % 8);
        for other in [&other[..], &whole[..at]] {
            write(other);
            assert_eq!(
                corrupt_range(store.read(session(1), 3, 1000)),
                (4, 100),
                "byte {at}"
            );
            assert_eq!(
                corrupt_range(store.read_all(3, 1000, &|_, _| true)),
                (4, 100),
                "byte {at}"
            );
        }
    }
    write(&whole);
    assert_eq!(
        seqs(&store.read(session(1), 3, 1 << 20).unwrap()),
        (4..=103).collect::<Vec<_>>()
    );
}

#[test]
fn invalid_compression_is_damage_despite_valid_checksum() {
    let longer = |stored: &mut Vec<u8>| stored[1] ^= 1;
    let cut = |stored: &mut Vec<u8>| stored.truncate(stored.len() / 2);
    let neither = |stored: &mut Vec<u8>| stored[0] = 7;
    let nothing = |stored: &mut Vec<u8>| stored.clear();
    let more = |stored: &mut Vec<u8>| {
        let frames = vec![b'x'; super::super::compress::MAX_FRAMES_BYTES + 1];
        stored.splice(1.., u32::try_from(frames.len()).unwrap().to_le_bytes());
        stored.extend(lz4_flex::block::compress(&frames));
    };
    for spoil in [longer as fn(&mut Vec<u8>), cut, neither, nothing, more] {
        let database = Database::new();
        append(
            &database.store(),
            vec![run(1, 1..=3), run(1, 4..=100), run(1, 101..=103)],
        );
        let file = Connection::open(database.path()).unwrap();
        let select = "SELECT frames FROM run WHERE pos = 100";
        let mut stored: Vec<u8> = file.query_row(select, [], |row| row.get(0)).unwrap();
        spoil(&mut stored);
        let crc = checksum(session(1), 4, 100, &stored);
        let row = rusqlite::params![stored, crc];
        file.execute("UPDATE run SET frames = ?1, crc = ?2 WHERE pos = 100", row)
            .unwrap();
        drop(file);
        let store = database.store();
        assert_eq!(check(&store).unwrap().damaged, 1);
        assert_eq!(seqs(&store.read(session(1), 0, 1000).unwrap()), [1, 2, 3]);
        assert_eq!(corrupt_range(store.read(session(1), 3, 1000)), (4, 100));
        assert_eq!(
            corrupt_range(store.read_all(3, 1000, &|_, _| true)),
            (4, 100)
        );
        assert_eq!(
            seqs(&store.read(session(1), 100, 1000).unwrap()),
            [101, 102, 103]
        );
        store
            .commit(&Batch {
                erase: vec![session(1)],
                ..Batch::default()
            })
            .unwrap();
        assert_eq!((store.usage(session(1)), store.total_bytes()), (None, 0));
    }
}

/// `check_bytes` limits the work of a check, not the size of the file.
#[test]
fn check_reports_limit_once() {
    let database = Database::new();
    let store = database.store();
    let runs: Vec<Run> = (0..8)
        .map(|n| run(1, n * 9000 + 1..=n * 9000 + 9000))
        .collect();
    let bytes: u64 = runs.iter().map(|run| run.frames.len() as u64).sum();
    append(&store, runs);
    assert!(
        store.total_bytes() * 3 < bytes && bytes > 4 << 20,
        "{} of {bytes}",
        store.total_bytes()
    );
    for (most, expected) in [(bytes, 0), (bytes - 1, 1), (store.total_bytes(), 1), (0, 1)] {
        let calls = Cell::new(0);
        let checked = store
            .check(drop, most, || calls.set(calls.get() + 1))
            .unwrap();
        assert_eq!(
            (calls.get(), checked.runs, checked.damaged),
            (expected, 8, 0),
            "{most} of {bytes}"
        );
    }
}
