//! The write-ahead log: preallocation, and idle checkpoints.

use super::super::checkpoint::IDLE;
use super::super::schema::WAL_KEPT_BYTES;
use super::*;

fn wal(database: &Database) -> PathBuf {
    database.folder.path().join("events.sqlite-wal")
}

fn size(database: &Database) -> u64 {
    fs::metadata(wal(database)).unwrap().len()
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_truncate(database: &Database) {
    wait_until("the file is truncated", || size(database) == 0);
}

/// A store after its first idle checkpoint, which truncates the log of an earlier process.
fn idle_store(database: &Database) -> SqliteStore {
    let store = database.store();
    append(&store, vec![run(9, 1..=1)]);
    wait_for_truncate(database);
    store
}

#[test]
fn idle_checkpoint_keeps_wal_file_size() {
    let database = Database::new();
    let store = idle_store(&database);
    append(&store, vec![noisy(1, 1..=100, 1000)]);
    assert_eq!(
        size(&database),
        store.wal_prealloc.written(),
        "an empty file is not preallocated"
    );
    append(&store, vec![run(2, 1..=1)]);
    let room = size(&database);
    let first = store.wal_prealloc.written();
    assert!(room > first);
    // The main file contains all commits.
    let moved = || {
        let folder = tempfile::tempdir().unwrap();
        let alone = folder.path().join("events.sqlite");
        fs::copy(database.path(), &alone).unwrap();
        let alone = Connection::open(alone).unwrap();
        alone
            .query_row("SELECT count(*) FROM run", [], |row| row.get::<_, i64>(0))
            .is_ok_and(|runs| runs == 3)
    };
    wait_until("the checkpoint is complete", moved);
    // The next commits overwrite the checkpointed frames.
    let mut seq = 101;
    let deadline = Instant::now() + Duration::from_secs(20);
    append(&store, vec![run(1, seq..=seq)]);
    while store.wal_prealloc.written() >= first {
        assert!(
            Instant::now() < deadline,
            "the write-ahead log did not restart"
        );
        std::thread::sleep(2 * IDLE);
        seq += 1;
        append(&store, vec![run(1, seq..=seq)]);
    }
    assert_eq!(size(&database), room);
    assert_eq!(
        seqs(&store.read(session(1), 99, 10_000).unwrap()),
        (100..=seq).collect::<Vec<_>>()
    );
}

/// The content of the log's files.
fn bytes_beside(database: &Database) -> Vec<u8> {
    ["", "-wal"]
        .iter()
        .flat_map(|end| fs::read(format!("{}{end}", database.path().display())).unwrap())
        .collect()
}

#[test]
fn erased_bytes_leave_both_files_when_idle() {
    let database = Database::new();
    let store = database.store();
    // Some events have pages of their own, more than one compaction step returns. Others share pages.
    append(
        &store,
        vec![
            noisy(1, 1..=260, 10_000),
            noisy(2, 1..=10, 1000),
            noisy(2, 11..=20, 1000),
        ],
    );
    for seq in 1..30 {
        let first = 260 + seq;
        let second = 20 + seq;
        append(
            &store,
            vec![
                noisy(1, first..=first, 60),
                noisy(2, second..=second, 60),
                noisy(3, seq..=seq, 60),
            ],
        );
    }
    let texts = [
        (1, 5, 10_000),
        (1, 130, 10_000),
        (1, 270, 60),
        (2, 5, 1000),
        (2, 15, 1000),
        (2, 30, 60),
    ];
    let texts = texts.map(|(of, seq, length)| noise_of(of, seq, length).into_bytes());
    let there = || {
        let files = bytes_beside(&database);
        texts
            .each_ref()
            .map(|texts| memchr::memmem::find(&files, &texts[..40]).is_some())
    };
    assert_eq!(there(), [true; 6]);
    store
        .commit(&Batch {
            erase: vec![session(1)],
            ..Batch::default()
        })
        .unwrap();
    wait_for_truncate(&database);
    // An append that reuses a free page writes the old content of that page to the write-ahead log.
    append(&store, vec![noisy(4, 1..=10, 1000)]);
    while store.compact().unwrap() {}
    wait_for_truncate(&database);
    assert_eq!(there(), [false, false, false, true, true, true]);
    store
        .prune(
            &[Cut {
                session: session(2),
                through: 10,
            }],
            10,
        )
        .unwrap();
    while store.compact().unwrap() {}
    wait_for_truncate(&database);
    assert_eq!(there(), [false, false, false, false, true, true]);
}

#[test]
fn long_wal_is_truncated_when_idle() {
    let database = Database::new();
    let store = idle_store(&database);
    let reader = Connection::open(database.path()).unwrap();
    // A reader of old pages prevents a restart.
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM run")
        .unwrap();
    let mut seq = 1;
    while size(&database) < 2 * u64::from(WAL_KEPT_BYTES) {
        append(&store, vec![noisy(1, seq..=seq + 9, 40_000)]);
        seq += 10;
    }
    std::thread::sleep(2 * IDLE);
    assert!(
        size(&database) >= 2 * u64::from(WAL_KEPT_BYTES),
        "the reader prevents truncation"
    );
    reader.execute_batch("COMMIT").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while size(&database) > 0 {
        assert!(Instant::now() < deadline, "the file was not truncated");
        // Retention does this regularly.
        store.compact().unwrap();
        std::thread::sleep(2 * IDLE);
    }
    assert_eq!(
        seqs(&store.read(session(1), seq - 2, 1000).unwrap()),
        [seq - 1]
    );
}

#[test]
fn commits_reuse_preallocated_wal() {
    let database = Database::new();
    let store = database.store();
    let mut sizes = Vec::new();
    for n in 0..200 {
        append(&store, vec![run(1, n + 1..=n + 1)]);
        sizes.push(size(&database));
    }
    let grown = sizes.windows(2).filter(|sizes| sizes[0] < sizes[1]).count();
    assert!(
        (2..12).contains(&grown),
        "{grown} of 200 commits: {sizes:?}"
    );
    assert!(store.wal_prealloc.written() <= size(&database));
    let mut head = [0; 4];
    File::open(wal(&database))
        .unwrap()
        .read_exact(&mut head)
        .unwrap();
    assert_eq!(
        head[..3],
        [0x37, 0x7f, 0x06],
        "the file begins with SQLite's magic number"
    );
    assert_eq!(
        seqs(&store.read(session(1), 198, 10_000).unwrap()),
        [199, 200]
    );
}
