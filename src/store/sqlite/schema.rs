//! The file: how it is made, what it has to be before anything is written to it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::types::Epoch;

use super::OpenError;

/// `acpg`, at byte 68 of the file: it is ours.
const APPLICATION: i32 = 0x6163_7067;
/// What this build reads and writes, at byte 60 of the file.
const VERSION: i32 = 1;
/// Only we and a person at the `sqlite3` prompt write to the file.
const BUSY: Duration = Duration::from_secs(10);

/// A run's place is its rowid, so that appending touches the end of the table and one place of one index.
const SCHEMA: &str = "
CREATE TABLE run (
    pos INTEGER PRIMARY KEY,
    session BLOB NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    epoch TEXT NOT NULL,
    time INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    frames BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX run_session ON run (session, first_seq);
CREATE TABLE record (
    tbl INTEGER NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tbl, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Checks the file, or makes it. A file that is not ours or is newer is not touched.
pub(super) fn prepare(path: &Path, epoch: impl FnOnce() -> Epoch) -> Result<(), OpenError> {
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut header)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return create(path, &epoch()),
        Err(error) => return Err(error.into()),
    };
    if header.len() < 100
        || !header.starts_with(b"SQLite format 3\0")
        || number_at(&header, 68) != APPLICATION
    {
        return Err(OpenError::Foreign);
    }
    check_version(number_at(&header, 60))?;
    if fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0) {
        // What a newer build did last may not be in the file itself yet.
        let connection = Connection::open_with_flags(path, reading())?;
        check_version(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)?;
    }
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn number_at(header: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn check_version(found: i32) -> Result<(), OpenError> {
    match found {
        VERSION => Ok(()),
        found if found > VERSION => Err(OpenError::Newer { found, known: VERSION }),
        _ => Err(OpenError::Foreign),
    }
}

/// Makes the file under another name, so that a half-made one is never found under its own.
fn create(path: &Path, epoch: &Epoch) -> Result<(), OpenError> {
    let new = beside(path, ".new");
    for left in [&new, &beside(path, ".new-journal")] {
        match fs::remove_file(left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let mut connection = Connection::open_with_flags(&new, writing())?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "page_size", 8192)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute(
        "INSERT INTO meta (key, value) VALUES ('epoch', ?1), ('last_pos', 0), ('pruned_pos', 0)",
        [epoch.as_str()],
    )?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(File::open(folder)?.sync_all()?)
}

/// The connection that commits. Checkpoints are another thread's.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(path, writing())?;
    connection.busy_timeout(BUSY)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::NoWal);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    common(&connection)?;
    Ok(connection)
}

/// A connection that checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(path, writing())?;
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    common(&connection)?;
    Ok(connection)
}

/// A connection that reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, reading())?;
    connection.busy_timeout(BUSY)?;
    common(&connection)?;
    Ok(connection)
}

fn common(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "mmap_size", 0)
}

fn writing() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn reading() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// A file beside another, by what follows its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
