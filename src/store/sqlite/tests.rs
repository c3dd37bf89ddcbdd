//! What only a store on a disk has to do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::contract::{append, put, run, seqs, session};
use super::*;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("events.sqlite")
    }

    fn open(&self) -> Result<SqliteStore, OpenError> {
        SqliteStore::open(&self.path(), Ids::system(), &Limits::default())
    }

    fn store(&self) -> SqliteStore {
        self.open().expect("it opens")
    }

    /// As a person at a prompt would.
    fn sql(&self, sql: &str) {
        Connection::open(self.path()).and_then(|file| file.execute_batch(sql)).expect("SQL");
    }
}

#[test]
fn everything_is_there_after_opening_again() {
    let place = Place::new();
    let store = place.store();
    let epoch = store.epoch();
    append(&store, vec![run(1, 1..=3), run(2, 1..=2)]);
    append(&store, vec![run(1, 4..=4)]);
    let batch =
        Batch { puts: vec![put(Table::Session, "a", "1")], erase: vec![session(1)], ..Batch::default() };
    store.commit(&batch).unwrap();
    let (usage, total, tail) = (store.usage(session(2)), store.total_bytes(), store.tail());
    drop(store);
    assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1, "a clean end leaves one file");
    let store = place.store();
    assert_eq!((store.epoch(), store.usage(session(2)), store.total_bytes()), (epoch, usage, total));
    assert_eq!((store.usage(session(1)), store.tail()), (None, tail));
    assert_eq!(seqs(&store.read(session(2), 0, 1000).unwrap()), [1, 2]);
    assert_eq!(store.get(Table::Session, b"a").unwrap().unwrap(), "1");
    assert_eq!(append(&store, vec![run(3, 1..=1)]), [7], "places that were erased are not given again");
}

#[test]
fn the_file_is_made_as_asked() {
    let place = Place::new();
    fs::write(place.folder.path().join("events.sqlite.new"), "half-made").unwrap();
    let store = place.store();
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
    append(&store, vec![run(1, 1..=1)]);
    let wal = fs::metadata(place.folder.path().join("events.sqlite-wal")).unwrap();
    assert_eq!(wal.permissions().mode() & 0o777, 0o600);
    let writer = store.writer();
    for (pragma, value) in [("page_size", 8192), ("auto_vacuum", 2), ("synchronous", 2), ("user_version", 1)]
    {
        let found: i64 = writer.pragma_query_value(None, pragma, |row| row.get(0)).unwrap();
        assert_eq!(found, value, "{pragma}");
    }
    drop(writer);
    drop(store);
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(place.store());
    assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_damaged_run_is_told_and_the_rest_is_served() {
    let place = Place::new();
    append(&place.store(), vec![run(1, 1..=3), run(1, 4..=6), run(2, 1..=1)]);
    place
        .sql("UPDATE run SET frames = CAST(replace(frames, '\"seq\":5', '\"seq\":7') AS BLOB) WHERE pos = 6");
    let store = place.store();
    let error = store.read(session(1), 4, 1000).unwrap_err();
    assert!(matches!(error, ReadError::Corrupt { first_seq: 4, session: of } if of == session(1)), "{error}");
    assert!(store.read_all(0, 10_000, &|_, _| true).is_err());
    assert_eq!(seqs(&store.read(session(1), 0, 1).unwrap()), [1, 2, 3]);
    assert_eq!(seqs(&store.read(session(2), 0, 1000).unwrap()), [1]);
    place
        .sql("UPDATE run SET session = (SELECT session FROM run WHERE pos = 6), first_seq = 9, last_seq = 9 WHERE pos = 7");
    assert!(store.read(session(1), 6, 1000).is_err(), "bytes that are another session's");
}

#[test]
fn what_is_not_ours_is_refused_untouched() {
    let place = Place::new();
    append(&place.store(), vec![run(1, 1..=3)]);
    let refused = |found: &str| {
        let before = fs::read(place.path()).unwrap();
        let error = place.open().unwrap_err();
        assert!(format!("{error:?}").starts_with(found), "{error:?}");
        assert!(fs::read(place.path()).unwrap() == before, "{found}");
        assert_eq!(fs::read_dir(place.folder.path()).unwrap().count(), 1);
    };
    place.sql("PRAGMA user_version = 2");
    refused("Newer { found: 2, known: 1 }");
    place.sql("PRAGMA user_version = 1; PRAGMA application_id = 7");
    refused("Foreign");
    fs::write(place.path(), "not a database").unwrap();
    refused("Foreign");
}

#[test]
fn a_newer_version_in_the_write_ahead_log_is_seen() {
    let place = Place::new();
    drop(place.store());
    let newer = Connection::open(place.path()).unwrap();
    newer.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 2").unwrap();
    let before = fs::read(place.path()).unwrap();
    assert!(matches!(place.open().unwrap_err(), OpenError::Newer { found: 2, .. }));
    assert!(fs::read(place.path()).unwrap() == before);
}

#[test]
fn a_file_with_damage_does_not_open() {
    let place = Place::new();
    append(&place.store(), vec![run(1, 1..=3)]);
    let mut bytes = fs::read(place.path()).unwrap();
    bytes[100..200].fill(0xff);
    fs::write(place.path(), bytes).unwrap();
    assert!(matches!(place.open().unwrap_err(), OpenError::Damaged(_)));
}

#[test]
fn a_new_epoch_renames_what_was_framed_before() {
    let place = Place::new();
    let store = place.store();
    let old = store.epoch();
    append(&store, vec![run(1, 1..=3)]);
    let before = store.read(session(1), 0, 1000).unwrap();
    assert!(before[0].frames.starts_with(b"id: e-1\n"), "what was framed is what is read");
    drop(store);
    place.sql("UPDATE meta SET value = 'other' WHERE key = 'epoch'");
    let store = place.store();
    assert!(store.epoch().as_str() == "other" && old.as_str() != "other");
    for runs in
        [store.read(session(1), 1, 1000).unwrap(), store.read_all(1, 1000, &|_, _| true).unwrap().runs]
    {
        assert!(
            runs[0].frames.starts_with(b"id: other-2\nevent: test\ndata: {\"id\":\"other-2\",\"seq\":2,")
        );
        assert_eq!(seqs(&runs), [2, 3]);
    }
}

#[test]
fn a_full_disk_refuses_whole_batches_and_takes_them_later() {
    let place = Place::new();
    let store = place.store();
    append(&store, vec![run(1, 1..=2)]);
    let limit = |pages: i64| {
        store
            .writer()
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .unwrap()
    };
    let pages = limit(1);
    let batch =
        Batch { runs: vec![run(1, 3..=2000)], puts: vec![put(Table::Prompt, "p", "1")], ..Batch::default() };
    assert!(matches!(store.commit(&batch), Err(CommitError::Full)));
    assert!(matches!(store.commit(&batch), Err(CommitError::Full)), "again, and nothing is left half done");
    assert_eq!(seqs(&store.read(session(1), 0, 1 << 20).unwrap()), [1, 2]);
    assert_eq!((store.tail().last_pos, store.get(Table::Prompt, b"p").unwrap()), (2, None));
    limit(pages + 1000);
    assert_eq!(store.commit(&batch).unwrap().positions, [2000]);
    assert_eq!(store.read(session(1), 0, 1 << 20).unwrap().len(), 2);
}

#[test]
fn room_that_was_freed_goes_back_to_the_disk() {
    let place = Place::new();
    let store = place.store();
    for n in 0..20 {
        append(&store, vec![run(1, n * 500 + 1..=n * 500 + 500)]);
    }
    let size = || -> i64 {
        store.writer().pragma_query_value(None, "page_count", |row| row.get(0)).expect("readable")
    };
    let before = size();
    let pruned = store.prune(&[Cut { session: session(1), through: 9000 }], 100).unwrap();
    assert_eq!(pruned.runs, 18);
    while store.compact().unwrap() {}
    assert!(size() < before / 2, "{before} pages became {}", size());
}

#[test]
fn the_write_ahead_log_is_cut_when_nothing_happens() {
    let place = Place::new();
    let store = place.store();
    append(&store, vec![run(1, 1..=100)]);
    let wal = place.folder.path().join("events.sqlite-wal");
    assert!(fs::metadata(&wal).unwrap().len() > 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&wal).unwrap().len() > 0 {
        assert!(Instant::now() < deadline, "it was not cut");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(seqs(&store.read(session(1), 98, 1000).unwrap()), [99, 100]);
}

#[test]
fn the_disk_has_room() {
    let place = Place::new();
    let disk = place.store().disk().unwrap().unwrap();
    assert!(disk.free > 0 && disk.free <= disk.total);
}
