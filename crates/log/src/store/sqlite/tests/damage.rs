//! Flipped bits: the next seq of a session, and deletion of damaged runs.

use super::*;

const PAGE: usize = 8192;

/// Changes rows of runs like a flipped bit does: the SQL index keeps the original values.
fn update_without_index(database: &Database, sql: &str) {
    let index = |then: &str| {
        database.sql(&format!(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE UNIQUE INDEX run_session
             ON run (session, first_seq){then}' WHERE name = 'run_session'"
        ));
    };
    index(" WHERE 0");
    database.sql(sql);
    index("");
}

/// Two interleaved sessions. The first has the events 1 to 9, the last of them at position 15.
fn two_logs() -> Database {
    let database = Database::new();
    let store = database.store();
    for runs in [
        vec![run(1, 1..=3), run(2, 1..=4)],
        vec![run(1, 4..=6), run(2, 5..=6)],
        vec![run(1, 7..=9)],
    ] {
        append(&store, runs);
    }
    drop(store);
    database
}

#[test]
fn no_seq_is_reused_after_damage_to_last_run() {
    for (columns, last_seq) in [
        ("last_seq = 7", 9),
        ("last_seq = 9 + (1 << 40)", 9),
        ("last_seq = -9", 9),
        ("first_seq = 5", 9),
        ("first_seq = 39", 9),
        ("first_seq = -7", 9),
        ("session = zeroblob(16)", 9),
        ("session = (SELECT session FROM run WHERE pos = 7)", 9),
        ("session = x'01'", 9),
        ("crc = crc + 1", 9),
        ("frames = x'00'", 9),
        ("frames = x'00', last_seq = 7", 9),
        ("session = zeroblob(16), crc = 0", 9),
        // One of two seqs was written, so the larger one applies.
        ("first_seq = 8, crc = 0", 10),
        // The number of events is unknown.
        ("session = zeroblob(16), first_seq = 8, crc = 0", 15),
        ("pos = 16", 16),
        ("pos = 14", 15),
        ("pos = 1 << 60", 15),
    ] {
        let database = two_logs();
        update_without_index(
            &database,
            &format!("UPDATE run SET {columns} WHERE pos = 15"),
        );
        let store = database.store();
        let ends = store.bounds(session(1)).unwrap().unwrap();
        assert_eq!(ends.last_seq, last_seq, "{columns}");
        assert_eq!(store.usage(session(1)), Some(ends.clone()), "{columns}");
        assert_eq!(
            store.bounds(session(1)).unwrap(),
            Some(ends),
            "{columns}: a corrected bound is stable"
        );
        let other = store.bounds(session(2)).unwrap().unwrap().last_seq;
        assert_eq!(
            other,
            if columns.contains("SELECT") { 9 } else { 6 },
            "{columns}"
        );
        let places = append(
            &store,
            vec![
                run(1, last_seq + 1..=last_seq + 2),
                run(2, other + 1..=other + 1),
            ],
        );
        assert!(
            places[0] >= 17,
            "no position is reused: {columns} {places:?}"
        );
        assert_eq!(
            seqs(&store.read(session(1), last_seq, 1000).unwrap()),
            [last_seq + 1, last_seq + 2]
        );
        assert_eq!(
            seqs(&store.read(session(2), other, 1000).unwrap()),
            [other + 1]
        );
    }
}

#[test]
fn damaged_first_run_keeps_log_start() {
    for columns in [
        "first_seq = -1",
        "first_seq = 1 << 60",
        "first_seq = 3",
        "last_seq = 1 << 60",
    ] {
        let database = two_logs();
        update_without_index(
            &database,
            &format!("UPDATE run SET {columns} WHERE pos = 3"),
        );
        let store = database.store();
        let ends = store.bounds(session(1)).unwrap().unwrap();
        assert_eq!((ends.first_seq, ends.last_seq), (1, 9), "{columns}");
        assert!((1..=3).contains(&ends.first_pos), "{columns}: {ends:?}");
    }
}

/// The offset of these bytes in the pages of one kind: 10 for an index, 13 for a table.
fn find_in_pages(bytes: &[u8], kind: u8, wanted: &[u8]) -> usize {
    let pages = bytes.chunks(PAGE).enumerate();
    let mut pages = pages.filter(|(_, page)| page[0] == kind);
    pages
        .find_map(|(at, page)| Some(at * PAGE + memchr::memmem::find(page, wanted)?))
        .unwrap()
}

#[test]
fn lost_first_index_entry_keeps_log_start() {
    let database = two_logs();
    // Session 1 from seq 1, at position 3. The changed entry belongs to another session.
    let mut bytes = fs::read(database.path()).unwrap();
    let entry = [&[1; 16][..], &[3]].concat();
    let found = find_in_pages(&bytes, 10, &entry);
    bytes[found] ^= 1;
    fs::write(database.path(), bytes).unwrap();
    let store = database.store();
    assert_eq!(
        store.read(session(1), 0, 1000).unwrap()[0].first_seq,
        4,
        "the index entry is lost"
    );
    let ends = store.bounds(session(1)).unwrap().unwrap();
    assert_eq!((ends.first_seq, ends.last_seq), (1, 9));
    assert_eq!(store.usage(session(1)), Some(ends));
}

#[test]
fn wrong_index_entry_does_not_block_appends() {
    // The index entry of the last run (from seq 7, at position 15) has the seq 10, which is not used yet.
    let database = two_logs();
    let mut bytes = fs::read(database.path()).unwrap();
    let entry = [1, 1, 1, 7, 15];
    let page = bytes
        .chunks(PAGE)
        .position(|page| page[0] == 10 && memchr::memmem::find(page, &entry).is_some());
    let page = page.unwrap() * PAGE;
    let at = page + memchr::memmem::find(&bytes[page..], &entry).unwrap();
    bytes[at + 3] = 10;
    fs::write(database.path(), bytes).unwrap();
    let store = database.store();
    assert_eq!(store.bounds(session(1)).unwrap().unwrap().last_seq, 10);
    append(&store, vec![run(1, 11..=11)]);
}

#[test]
fn session_continues_after_any_flipped_bit_in_last_run() {
    let database = two_logs();
    let bytes = fs::read(database.path()).unwrap();
    let text = b"id: e-7\nevent: test";
    let frames = find_in_pages(&bytes, 13, text);
    let entry = find_in_pages(&bytes, 10, &[1; 16]);
    // The bytes of the row before its frames, including its size and position, and the index entry of the
    // run.
    let row = frames - 70..frames;
    let copy = Database::new();
    let mut refused = 0;
    let mut went_on = 0;
    for at in row.chain(entry - 5..entry + 19) {
        for bit in [0, 7] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            fs::write(copy.path(), bytes).unwrap();
            match copy.open() {
                Ok(store) => {
                    went_on +=
                        usize::from(accepts_append(&store, &format!("byte {at}, bit {bit}")));
                }
                Err(OpenError::Damaged(_)) => refused += 1,
                Err(error) => panic!("byte {at}, bit {bit}: {error:?}"),
            }
            for entry in fs::read_dir(copy.folder.path()).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }
    assert!(
        went_on > refused * 2,
        "{went_on} went on, {refused} were refused"
    );
}

/// Appends to both sessions. Returns false if SQLite itself rejects the file.
fn accepts_append(store: &SqliteStore, what: &str) -> bool {
    let last = match store.bounds(session(1)) {
        Ok(log) => log.map_or(0, |log| log.last_seq),
        Err(error) => panic!("{what}: {error:?}"),
    };
    assert!(last >= 9, "{what}: a seq after {last} would be reused");
    let batch = Batch {
        runs: vec![run(1, last + 1..=last + 1), run(3, 1..=1)],
        ..Batch::default()
    };
    match store.commit(&batch) {
        Ok(committed) => {
            assert!(committed[0].last_pos > 15, "{what}: {committed:?}");
            true
        }
        Err(CommitError::Failed(cause)) if cause.to_string().contains("malformed") => false,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Characters of each event that appear in the file even if the run is compressed.
const NOISE: usize = 24;

fn long(number: u8, seqs: std::ops::RangeInclusive<u64>) -> Run {
    noisy(number, seqs, NOISE)
}

/// The offset of a page in the middle of the overflow chain of a session's second run.
fn overflow_page(bytes: &[u8], number: u8) -> usize {
    // The ends of the noise may be part of an LZ4 match.
    let text = &noise_of(number, 1500, NOISE)[4..NOISE - 4];
    let mut pages = bytes.chunks(PAGE).enumerate();
    let holds =
        |page: &[u8]| page[0] != 13 && memchr::memmem::find(page, text.as_bytes()).is_some();
    pages
        .find(|(_, page)| holds(page))
        .expect("the run has overflow pages")
        .0
        * PAGE
}

/// A log of three sessions with long runs. `spoil` changes an overflow page of the first session.
fn long_runs(spoil: Corruption) -> Database {
    let database = Database::new();
    let store = database.store();
    for number in 1..=3 {
        append(
            &store,
            vec![
                long(number, 1..=1000),
                long(number, 1001..=2000),
                long(number, 2001..=2002),
            ],
        );
    }
    let heads = store.run_headers(Some(session(1)), 0, 3).unwrap();
    let frames = long(1, 1001..=2000).frames.len() as u64;
    assert!(
        (PAGE as u64 * 3..frames).contains(&heads[1].bytes),
        "the run must be compressed and have overflow pages: {heads:?}"
    );
    drop(store);
    let mut bytes = fs::read(database.path()).unwrap();
    let page = overflow_page(&bytes, 1);
    spoil(&mut bytes, page);
    fs::write(database.path(), bytes).unwrap();
    database
}

fn all_of(store: &SqliteStore, number: u8) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let runs = store
            .read(session(number), found.last().copied().unwrap_or(0), 1 << 20)
            .unwrap();
        if runs.is_empty() {
            return found;
        }
        found.extend(seqs(&runs));
    }
}

/// Changes a file's bytes at a page.
type Corruption = fn(&mut [u8], usize);

/// Ways to damage an overflow page. The first four bytes of a page are the number of the next page.
const CORRUPTIONS: [(&str, Corruption); 5] = [
    ("next page does not exist", |bytes, page| {
        bytes[page..page + 4].fill(0xff);
    }),
    ("chain ends early", |bytes, page| {
        bytes[page..page + 4].fill(0);
    }),
    ("chain joins another chain", |bytes, page| {
        let other = overflow_page(bytes, 3) / PAGE + 1;
        bytes[page..page + 4].copy_from_slice(&u32::try_from(other).unwrap().to_be_bytes());
    }),
    ("page has other content", |bytes, page| {
        bytes.copy_within(0..PAGE, page);
    }),
    ("one bit is flipped", |bytes, page| bytes[page + 700] ^= 1),
];

#[test]
fn damaged_pages_do_not_block_erase() {
    for (what, spoil) in CORRUPTIONS {
        let database = long_runs(spoil);
        let store = database.store();
        let erase = Batch {
            erase: vec![session(1), session(2)],
            ..Batch::default()
        };
        store
            .commit(&erase)
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(
            (store.usage(session(1)), store.usage(session(2))),
            (None, None),
            "{what}"
        );
        for n in 0..20 {
            append(&store, vec![run(4, n * 500 + 1..=n * 500 + 500)]);
        }
        assert!(
            !store.compact().unwrap(),
            "{what}: compaction is disabled after damage"
        );
        assert_eq!(all_of(&store, 3), (1..=2002).collect::<Vec<_>>(), "{what}");
        assert_eq!(
            all_of(&store, 4),
            (1..=10_000).collect::<Vec<_>>(),
            "{what}"
        );
        drop(store);
        leave_unclean(&database);
        let store = database.store();
        let checked = check(&store).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(
            (checked.damaged, store.unclean_shutdown()),
            (1, false),
            "{what}"
        );
        assert_eq!(
            store.usage(session(1)).map(|log| log.runs),
            Some(1),
            "{what}: the damaged run is loaded again"
        );
        store.commit(&erase).unwrap();
        assert_eq!(store.usage(session(1)), None, "{what}");
        assert_eq!(
            all_of(&store, 4),
            (1..=10_000).collect::<Vec<_>>(),
            "{what}"
        );
    }
}

#[test]
fn damaged_pages_do_not_block_prune() {
    for (what, spoil) in CORRUPTIONS {
        let database = long_runs(spoil);
        let store = database.store();
        let bytes = store.total_bytes();
        // The stored bytes of the deleted runs: of the first session, which is damaged, and of the second.
        let of = |number| -> u64 {
            store
                .run_headers(Some(session(number)), 0, 2)
                .unwrap()
                .iter()
                .map(|head| head.bytes)
                .sum()
        };
        let gone = of(1) + of(2);
        let cut = |number| Cut {
            session: session(number),
            through: 2000,
        };
        let pruned = store.prune(&[cut(1), cut(2)], 1).unwrap();
        assert_eq!(pruned.runs, 2, "{what}");
        let pruned = store.prune(&[cut(1), cut(2)], 10).unwrap();
        assert_eq!(
            (pruned.runs, store.prune(&[cut(1)], 10).unwrap().runs),
            (2, 0),
            "{what}"
        );
        let usage = store.usage(session(1)).unwrap();
        assert_eq!(
            (usage.first_seq, usage.first_pos, usage.runs),
            (2001, 2001, 1),
            "{what}"
        );
        assert_eq!(store.total_bytes(), bytes - gone, "{what}");
        assert_eq!(
            store.run_headers(Some(session(1)), 0, 10).unwrap().len(),
            1,
            "{what}"
        );
        assert_eq!(store.bounds(session(1)).unwrap(), Some(usage), "{what}");
        assert_eq!(
            corrupt_range(store.read(session(1), 0, 1000)),
            (1, 2000),
            "{what}"
        );
        assert_eq!(
            seqs(&store.read(session(1), 2000, 1000).unwrap()),
            [2001, 2002],
            "{what}"
        );
        assert_eq!(all_of(&store, 3), (1..=2002).collect::<Vec<_>>(), "{what}");
    }
}

#[test]
fn damaged_overflow_chain_is_not_broken_structure_and_is_copied() {
    for (what, spoil) in CORRUPTIONS {
        let database = long_runs(spoil);
        leave_unclean(&database);
        let store = database.store();
        let checked = check(&store).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!((checked.runs, checked.damaged), (8, 1), "{what}");
        assert!(!store.compact().unwrap(), "{what}");
        append(&store, vec![run(1, 2003..=2003)]);
        let file = database.folder.path().join("copy");
        assert_eq!(copy(&database.path(), &file).unwrap().damaged, 1, "{what}");
        let copied = SqliteStore::open(&file, Ids::system(), &Limits::default()).unwrap();
        assert_eq!(all_of(&copied, 3), (1..=2002).collect::<Vec<_>>(), "{what}");
    }
}
