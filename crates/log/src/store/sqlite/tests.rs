//! Tests of the SQLite adapter beyond the common contract.

mod wal;
mod damage;
mod compress;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::RecordState;
use super::super::contract::{append, deletion, noise_of, noisy, positions, run, seqs, session};
use super::*;

struct Database {
    folder: TempDir,
}

impl Database {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("could not create a directory"),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("events.sqlite")
    }

    fn open(&self) -> Result<SqliteStore, OpenError> {
        SqliteStore::open(&self.path(), Ids::system(), &Limits::default())
    }

    fn store(&self) -> SqliteStore {
        self.open().expect("could not open the store")
    }

    /// Executes SQL on a separate connection, as an operator would.
    fn sql(&self, sql: &str) {
        Connection::open(self.path())
            .and_then(|file| file.execute_batch(sql))
            .expect("invalid SQL");
    }
}

fn check(store: &SqliteStore) -> Result<CheckReport, CheckError> {
    store.check(drop, u64::MAX, || {})
}

#[test]
fn reopen_restores_everything() {
    let database = Database::new();
    let store = database.store();
    let epoch = store.epoch();
    append(&store, vec![run(1, 1..=3), run(2, 1..=2)]);
    append(&store, vec![run(1, 4..=4)]);
    let batch = Batch {
        records: vec![RecordState::present(Table::Session, "a", "1")],
        erase: vec![session(1)],
        ..Batch::default()
    };
    store.commit(&batch).unwrap();
    let usage = store.usage(session(2));
    let total = store.total_bytes();
    let tail = store.tail();
    drop(store);
    assert_eq!(
        fs::read_dir(database.folder.path()).unwrap().count(),
        1,
        "a clean shutdown leaves one file"
    );
    let store = database.store();
    assert_eq!(
        (store.epoch(), store.usage(session(2)), store.total_bytes()),
        (epoch, usage, total)
    );
    assert_eq!((store.usage(session(1)), store.tail()), (None, tail));
    assert_eq!(seqs(&store.read(session(2), 0, 1000).unwrap()), [1, 2]);
    assert_eq!(store.get(Table::Session, b"a").unwrap().unwrap(), "1");
    assert_eq!(
        append(&store, vec![run(3, 1..=1)]),
        [7],
        "erased positions are not reused"
    );
}

#[test]
fn deleted_sessions_do_not_count_after_a_restart() {
    let database = Database::new();
    let store = database.store();
    append(&store, vec![run(1, 1..=2), run(2, 1..=1)]);
    store.commit(&deletion(1, run(1, 3..=3))).unwrap();
    assert_eq!(store.session_count(), 1);
    drop(store);
    assert_eq!(database.store().session_count(), 1);
}

#[test]
fn new_file_has_permissions_and_pragmas() {
    let database = Database::new();
    fs::write(
        database.folder.path().join("events.sqlite.new"),
        "half-made",
    )
    .unwrap();
    let store = database.store();
    assert_eq!(
        fs::metadata(database.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    append(&store, vec![run(1, 1..=1)]);
    let wal = fs::metadata(database.folder.path().join("events.sqlite-wal")).unwrap();
    assert_eq!(wal.permissions().mode() & 0o777, 0o600);
    let writer = store.writer();
    for (pragma, value) in [
        ("page_size", 8192),
        ("auto_vacuum", 2),
        ("synchronous", 2),
        ("user_version", 7),
    ] {
        let found: i64 = writer
            .pragma_query_value(None, pragma, |row| row.get(0))
            .unwrap();
        assert_eq!(found, value, "{pragma}");
    }
    drop(writer);
    drop(store);
    fs::set_permissions(database.path(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(database.store());
    assert_eq!(
        fs::metadata(database.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

/// Returns the first damaged seq and the position to continue after. Panics unless the read found damage.
fn corrupt_range<T: std::fmt::Debug>(read: Result<T, ReadError>) -> (u64, u64) {
    match read {
        Err(ReadError::Corrupt {
            first_seq, after, ..
        }) => (first_seq, after),
        other => panic!("{other:?}"),
    }
}

#[test]
fn damaged_run_is_reported_and_rest_is_readable() {
    let database = Database::new();
    append(
        &database.store(),
        vec![run(1, 1..=3), run(1, 4..=6), run(2, 1..=1), run(1, 7..=8)],
    );
    database
        .sql("UPDATE run SET frames = CAST(replace(frames, '\"seq\":5', '\"seq\":7') AS BLOB) WHERE pos = 6");
    let store = database.store();
    assert_eq!(
        seqs(&store.read(session(1), 0, 10_000).unwrap()),
        [1, 2, 3],
        "events before the damage are readable"
    );
    for after in 3..=5 {
        assert_eq!(
            corrupt_range(store.read(session(1), after, 10_000)),
            (after + 1, 6)
        );
    }
    assert_eq!(seqs(&store.read(session(1), 6, 10_000).unwrap()), [7, 8]);
    assert_eq!(seqs(&store.read(session(2), 0, 10_000).unwrap()), [1]);
    let all = |after| store.read_all(after, 10_000, &|_, _| true);
    let page = all(0).unwrap();
    assert_eq!((seqs(&page.runs), page.through), (vec![1, 2, 3], 3));
    assert_eq!(corrupt_range(all(3)), (4, 6));
    assert_eq!(seqs(&all(6).unwrap().runs), [1, 7, 8]);
    let mut after = 0;
    let mut other = Vec::new();
    while after < 9 {
        let page = store
            .read_all(after, 10_000, &|_, of| of == session(2))
            .unwrap();
        other.extend(seqs(&page.runs));
        assert!(
            page.through > after,
            "readers of other sessions make progress"
        );
        after = page.through;
    }
    assert_eq!(other, [1]);
}

#[test]
fn scan_for_one_session_returns_before_reading_all_others() {
    let database = Database::new();
    let store = database.store();
    let mut others: Vec<Run> = (0..40)
        .map(|n| noisy(2, n * 1000 + 1..=n * 1000 + 1000, 100))
        .collect();
    others.insert(1, run(1, 1..=1));
    append(&store, others);
    let page = store
        .read_all(0, 1 << 20, &|_, of| of == session(1))
        .unwrap();
    assert_eq!(seqs(&page.runs), [1]);
    assert!(page.through < store.tail().last_pos, "{}", page.through);
    let mut after = page.through;
    let mut pages = 1;
    while after < store.tail().last_pos {
        let page = store
            .read_all(after, 1 << 20, &|_, of| of == session(1))
            .unwrap();
        assert_eq!(page.runs, []);
        (after, pages) = (page.through, pages + 1);
    }
    assert!(pages < 10, "{pages}");
}

#[test]
fn run_with_wrong_columns_is_damaged() {
    let database = Database::new();
    append(
        &database.store(),
        vec![run(1, 1..=3), run(2, 1..=1), run(1, 4..=6)],
    );
    // The SQL index has the right session, so only readers of that session are reset.
    database.sql(
        "UPDATE run SET first_seq = 2 WHERE pos = 4; PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX run_session ON run (session, first_seq) WHERE 0'
         WHERE name = 'run_session'",
    );
    database.sql("UPDATE run SET session = (SELECT session FROM run WHERE pos = 7) WHERE pos = 4");
    database.sql(
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema
         SET sql = 'CREATE UNIQUE INDEX run_session ON run (session, first_seq)' WHERE name = 'run_session'",
    );
    let store = database.store();
    assert_eq!(
        seqs(
            &store
                .read_all(0, 10_000, &|_, of| of == session(1))
                .unwrap()
                .runs
        ),
        [1, 2, 3]
    );
    assert_eq!(
        corrupt_range(store.read_all(3, 10_000, &|_, of| of == session(2))).1,
        4
    );
    assert_eq!(
        seqs(
            &store
                .read_all(4, 10_000, &|_, of| of == session(1))
                .unwrap()
                .runs
        ),
        [4, 5, 6]
    );
}

#[test]
fn run_with_invalid_overflow_page_is_skipped() {
    // Compressed and uncompressed frames.
    for length in [16, 600] {
        let database = Database::new();
        append(
            &database.store(),
            vec![
                run(1, 1..=3),
                noisy(1, 4..=1000, length),
                run(1, 1001..=1003),
            ],
        );
        let mut bytes = fs::read(database.path()).unwrap();
        // The number of the first overflow page of the row. It is on a leaf page of the table (type 13).
        let pages = || bytes.chunks(8192).enumerate();
        let holds = |page: &[u8], text: &[u8]| memchr::memmem::find(page, text).is_some();
        let words: Vec<String> = (4..=1000)
            .map(|seq| noise_of(1, seq, 16)[4..12].to_owned())
            .collect();
        let of_the_run = |page: &[u8]| words.iter().any(|word| holds(page, word.as_bytes()));
        let goes_on = pages()
            .find(|(_, page)| page[0] != 13 && of_the_run(page))
            .unwrap()
            .0
            + 1;
        let number = u32::try_from(goes_on).unwrap().to_be_bytes();
        let (leaf, at) = pages()
            .filter(|(_, page)| page[0] == 13)
            .find_map(|(leaf, page)| Some((leaf, memchr::memmem::rfind(page, &number)?)))
            .unwrap();
        bytes[leaf * 8192 + at..][..4].fill(0xff);
        fs::write(database.path(), bytes).unwrap();
        let store = database.store();
        assert!(seqs(&store.read(session(1), 0, 1 << 20).unwrap()) == [1, 2, 3]);
        assert_eq!(corrupt_range(store.read(session(1), 3, 1 << 20)), (4, 1000));
        assert_eq!(
            corrupt_range(store.read(session(1), 500, 1 << 20)),
            (501, 1000)
        );
        assert_eq!(
            seqs(&store.read(session(1), 1000, 1 << 20).unwrap()),
            [1001, 1002, 1003]
        );
        assert_eq!(
            corrupt_range(store.read_all(3, 1 << 20, &|_, _| true)),
            (4, 1000)
        );
        assert_eq!(
            seqs(&store.read_all(1000, 1 << 20, &|_, _| true).unwrap().runs),
            [1001, 1002, 1003]
        );
    }
}

#[test]
fn damage_at_end_skips_to_end() {
    let database = Database::new();
    append(
        &database.store(),
        vec![run(1, 1..=3), run(1, 4..=6), run(1, 7..=9)],
    );
    database.sql("UPDATE run SET crc = crc + 1 WHERE pos > 3");
    let store = database.store();
    assert_eq!(
        corrupt_range(store.read(session(1), 3, 1000)),
        (4, u64::MAX)
    );
    assert_eq!(
        (corrupt_range(store.read_all(3, 1000, &|_, _| true)).1),
        6,
        "runs are skipped one by one"
    );
}

#[test]
fn foreign_file_is_rejected_unchanged() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3)]);
    let refused = |found: &str| {
        let before = fs::read(database.path()).unwrap();
        let error = database.open().unwrap_err();
        assert!(format!("{error:?}").starts_with(found), "{error:?}");
        assert!(fs::read(database.path()).unwrap() == before, "{found}");
        assert_eq!(fs::read_dir(database.folder.path()).unwrap().count(), 1);
    };
    database.sql("PRAGMA user_version = 8");
    refused("TooNew { found: 8,");
    database.sql("PRAGMA user_version = 5");
    refused("NotMigrated { found: 5 }");
    database.sql("PRAGMA user_version = 4");
    refused("TooOld { found: 4 }");
    database.sql("PRAGMA user_version = 7; PRAGMA application_id = 8");
    refused("NotALog");
    fs::write(database.path(), "not a database").unwrap();
    refused("NotALog");
}

#[test]
fn other_version_in_wal_is_detected() {
    let database = Database::new();
    drop(database.store());
    let newer = Connection::open(database.path()).unwrap();
    newer
        .execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 8")
        .unwrap();
    let before = fs::read(database.path()).unwrap();
    assert!(matches!(
        database.open().unwrap_err(),
        OpenError::TooNew { found: 8, .. }
    ));
    assert!(fs::read(database.path()).unwrap() == before);
}

#[test]
fn damaged_schema_does_not_open() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3)]);
    let mut bytes = fs::read(database.path()).unwrap();
    bytes[100..200].fill(0xff);
    fs::write(database.path(), bytes).unwrap();
    assert!(matches!(
        database.open().unwrap_err(),
        OpenError::Damaged(_)
    ));
}

/// Leaves a write-ahead log behind, as a process does that died.
fn leave_unclean(database: &Database) {
    fs::write(database.path().with_file_name("events.sqlite-wal"), "").unwrap();
}

fn files(database: &Database) -> usize {
    fs::read_dir(database.folder.path()).unwrap().count()
}

#[test]
fn unclean_shutdown_is_reported_until_checked() {
    let database = Database::new();
    let store = database.store();
    assert!(!store.unclean_shutdown());
    append(&store, vec![run(1, 1..=3), run(2, 1..=3)]);
    drop(store);
    leave_unclean(&database);
    for _ in 0..2 {
        let store = database.store();
        assert!(store.unclean_shutdown());
        append(&store, vec![run(3, 1..=1)]);
        drop(store);
        database.sql("DELETE FROM run WHERE pos > 6");
        leave_unclean(&database);
    }
    database.sql("UPDATE run SET crc = crc + 1 WHERE pos = 3");
    leave_unclean(&database);
    let store = database.store();
    let checked = check(&store).unwrap();
    assert_eq!(
        (checked.runs, checked.damaged, store.unclean_shutdown()),
        (1, 1, false)
    );
    drop(store);
    assert_eq!(files(&database), 1, "a checked log is closed cleanly");
    assert!(!database.store().unclean_shutdown());
}

#[test]
fn broken_structure_is_detected_and_rejects_commits() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3), run(1, 4..=6)]);
    // Swap two cells of the table's leaf page (type 13), so that the rows are out of order.
    let mut bytes = fs::read(database.path()).unwrap();
    let text = b"\"seq\":2,";
    let leaf = bytes
        .chunks(8192)
        .position(|page| page[0] == 13 && memchr::memmem::find(page, text).is_some());
    let cells = leaf.unwrap() * 8192 + 8;
    let (first, second) = bytes[cells..].split_at_mut(2);
    first.swap_with_slice(&mut second[..2]);
    fs::write(database.path(), &bytes).unwrap();
    leave_unclean(&database);
    for _ in 0..2 {
        let store = database.store();
        assert!(matches!(check(&store), Err(CheckError::Malformed(_))));
        let batch = Batch {
            runs: vec![run(1, 7..=7)],
            ..Batch::default()
        };
        assert!(matches!(store.commit(&batch), Err(CommitError::Failed(_))));
        drop(store);
        assert!(
            fs::read(database.path()).unwrap() == bytes,
            "the file is unchanged"
        );
    }
}

#[test]
fn check_can_be_stopped() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3)]);
    leave_unclean(&database);
    let store = database.store();
    assert!(matches!(
        store.check(|stop| stop(), u64::MAX, || {}),
        Err(CheckError::Stopped)
    ));
    assert!(store.unclean_shutdown());
}

#[test]
fn copy_is_a_consistent_snapshot_and_never_overwrites() {
    let database = Database::new();
    let store = database.store();
    append(&store, vec![run(1, 1..=500)]);
    let file = database.folder.path().join("copy");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for seq in 501.. {
                append(&store, vec![run(1, seq..=seq)]);
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        assert_eq!(copy(&database.path(), &file).unwrap().damaged, 0);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let beside = |suffix: &str| {
        database
            .folder
            .path()
            .join(format!("copy{suffix}"))
            .exists()
    };
    assert!(!beside("-wal") && !beside("-shm") && !beside("-journal"));
    let before = fs::read(&file).unwrap();
    assert!(matches!(
        copy(&database.path(), &file),
        Err(OpenError::Io(_))
    ));
    assert!(
        fs::read(&file).unwrap() == before,
        "an existing file is not overwritten"
    );
    let copied = SqliteStore::open(&file, Ids::system(), &Limits::default()).unwrap();
    let usage = copied.usage(session(1)).unwrap();
    let all = seqs(&copied.read(session(1), 0, usize::MAX).unwrap());
    assert!(all == (1..=usage.last_seq).collect::<Vec<_>>() && usage.last_seq >= 500);
    assert_eq!(copied.epoch(), store.epoch());
}

#[test]
fn copy_of_a_closed_log_keeps_it_clean() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3)]);
    let file = database.folder.path().join("copy");
    copy(&database.path(), &file).unwrap();
    assert_eq!(files(&database), 2, "the log and its copy");
    assert!(!database.store().unclean_shutdown());
    leave_unclean(&database);
    fs::remove_file(&file).unwrap();
    copy(&database.path(), &file).unwrap();
    assert!(
        database.store().unclean_shutdown(),
        "a copy does not clear an unclean shutdown"
    );
}

#[test]
fn restore_renews_epoch_and_keeps_previous_log() {
    let database = Database::new();
    let store = database.store();
    append(&store, vec![run(1, 1..=3)]);
    let file = database.folder.path().join("copy");
    copy(&database.path(), &file).unwrap();
    append(&store, vec![run(1, 4..=6)]);
    let epoch = store.epoch();
    drop(store);
    let restored = restore(&file, &database.path(), &Ids::system()).unwrap();
    let store = database.store();
    assert!(store.epoch() != epoch);
    let runs = store.read(session(1), 0, 1000).unwrap();
    assert_eq!(seqs(&runs), [1, 2, 3]);
    assert!(
        runs[0]
            .frames
            .starts_with(format!("id: {}-1\n", store.epoch().of_session(session(1))).as_bytes())
    );
    let kept = SqliteStore::open(
        &restored.previous.unwrap(),
        Ids::system(),
        &Limits::default(),
    )
    .unwrap();
    assert!(!kept.unclean_shutdown());
    assert_eq!(
        (kept.epoch(), kept.usage(session(1)).unwrap().last_seq),
        (epoch, 6)
    );
}

#[test]
fn interrupted_restore_is_detected_and_repeatable() {
    let database = Database::new();
    append(&database.store(), vec![run(1, 1..=3)]);
    let file = database.folder.path().join("copy");
    copy(&database.path(), &file).unwrap();
    // The state between the two renames: the log has its new name, and the copy still has its temporary name.
    fs::rename(
        database.path(),
        database.folder.path().join("events.sqlite.before-1"),
    )
    .unwrap();
    fs::copy(&file, database.folder.path().join("events.sqlite.restored")).unwrap();
    assert!(matches!(
        database.open(),
        Err(OpenError::RestoreInterrupted)
    ));
    assert!(!database.path().exists(), "no empty log is created");
    assert!(
        restore(&file, &database.path(), &Ids::system())
            .unwrap()
            .previous
            .is_none()
    );
    assert_eq!(
        seqs(&database.store().read(session(1), 0, 1000).unwrap()),
        [1, 2, 3]
    );
}

#[test]
fn new_epoch_rewrites_ids_of_old_frames() {
    let database = Database::new();
    let store = database.store();
    let old = store.epoch();
    append(&store, vec![run(1, 1..=3)]);
    let before = store.read(session(1), 0, 1000).unwrap();
    assert!(
        before[0].frames.starts_with(b"id: e-1\n"),
        "frames of the same epoch are returned unchanged"
    );
    drop(store);
    database.sql("UPDATE meta SET value = 'other' WHERE key = 'epoch'");
    let store = database.store();
    assert!(store.epoch().as_str() == "other" && old.as_str() != "other");
    let new = store.epoch().of_session(session(1));
    let start = format!("id: {new}-2\nevent: test\ndata: {{\"id\":\"{new}-2\",\"seq\":2,");
    for runs in [
        store.read(session(1), 1, 1000).unwrap(),
        store.read_all(1, 1000, &|_, _| true).unwrap().runs,
    ] {
        assert!(runs[0].frames.starts_with(start.as_bytes()));
        assert_eq!(seqs(&runs), [2, 3]);
    }
}

#[test]
fn full_disk_rejects_whole_batches_until_space_returns() {
    let database = Database::new();
    let store = database.store();
    append(&store, vec![run(1, 1..=2)]);
    let limit = |pages: i64| {
        store
            .writer()
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let pages = limit(1);
    let batch = Batch {
        runs: vec![run(1, 3..=2000)],
        records: vec![RecordState::present(Table::Prompt, "p", "1")],
        ..Batch::default()
    };
    assert!(matches!(store.commit(&batch), Err(CommitError::Full)));
    assert!(
        matches!(store.commit(&batch), Err(CommitError::Full)),
        "the rejected transaction was rolled back"
    );
    assert_eq!(seqs(&store.read(session(1), 0, 1 << 20).unwrap()), [1, 2]);
    assert_eq!(
        (
            store.tail().last_pos,
            store.get(Table::Prompt, b"p").unwrap()
        ),
        (2, None)
    );
    limit(pages + 1000);
    assert_eq!(positions(&store.commit(&batch).unwrap()), [2000]);
    assert_eq!(store.read(session(1), 0, 1 << 20).unwrap().len(), 2);
}

#[test]
fn compact_returns_free_pages_to_disk() {
    let database = Database::new();
    let store = database.store();
    for n in 0..20 {
        append(&store, vec![run(1, n * 500 + 1..=n * 500 + 500)]);
    }
    let size = || -> i64 {
        store
            .writer()
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .expect("could not read the page count")
    };
    let before = size();
    let pruned = store
        .prune(
            &[Cut {
                session: session(1),
                through: 9000,
            }],
            100,
        )
        .unwrap();
    assert_eq!(pruned.runs, 18);
    while store.compact().unwrap() {}
    assert!(size() < before / 2, "{before} pages became {}", size());
}

#[test]
fn disk_reports_free_space() {
    let database = Database::new();
    let disk = database.store().disk().unwrap();
    assert!(disk.free > 0 && disk.free <= disk.total);
}
