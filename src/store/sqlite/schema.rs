//! The database file: creation, identification, and connections.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::types::Epoch;

use super::checkpoint::WAL_KEPT_BYTES;
use super::migrate::{self, Migration};
use super::{OpenError, compress, log_stats};

/// `acpg`, the application id at byte 68 of the file.
const APPLICATION_ID: i32 = 0x6163_7067;
/// The migrations between released versions, oldest first.
const MIGRATIONS: [Migration; 2] = [log_stats::MIGRATION, compress::MIGRATION];
/// The version that this build reads and writes, at byte 60 of the file.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are few migrations")]
const VERSION: i32 = 1 + MIGRATIONS.len() as i32;
/// Only the gateway, its commands for keys and an operator's `sqlite3` prompt write to the file.
const BUSY: Duration = Duration::from_secs(10);

/// The schema of the first version. A new file runs the same migrations as an old one.
///
/// The position of a run is its rowid, so that an append changes the end of the table and one entry of one
/// index.
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

/// Checks, creates or migrates the file. A foreign or newer file is not changed.
pub(super) fn prepare(path: &Path, epoch: impl FnOnce() -> Epoch) -> Result<(), OpenError> {
    let version = match read_version(path) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            if restored_path(path).exists() {
                return Err(OpenError::RestoreInterrupted);
            }
            return create(path, &epoch());
        }
        version => version?,
    };
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    migrate::to_newest(path, version, &MIGRATIONS)
}

/// Whether opening this file would migrate it.
pub(super) fn is_earlier(path: &Path) -> Result<bool, OpenError> {
    Ok(read_version(path)? < VERSION)
}

/// Reads the version of a log file that this build supports.
pub(super) fn read_version(path: &Path) -> Result<i32, OpenError> {
    let mut header = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut header)?;
    if fs::metadata(with_suffix(path, "-wal")).is_ok_and(|wal| wal.len() > 0) {
        // The last changes may be only in the write-ahead log. After a crash the first page of the file may
        // be incomplete, but the log contains it.
        let connection = Connection::open_with_flags(path, read_only())?;
        let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
        return check(number("application_id")?, number("user_version")?);
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(OpenError::NotALog);
    }
    check(number_at(&header, 68), number_at(&header, 60))
}

/// The path of a copy that a restore prepares.
pub(super) fn restored_path(log: &Path) -> PathBuf {
    with_suffix(log, ".restored")
}

fn number_at(header: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn check(application: i32, version: i32) -> Result<i32, OpenError> {
    match version {
        _ if application != APPLICATION_ID => Err(OpenError::NotALog),
        1..=VERSION => Ok(version),
        found if found > VERSION => Err(OpenError::NewerVersion { found, known: VERSION }),
        _ => Err(OpenError::NotALog),
    }
}

/// Creates the file under a temporary name, so that an incomplete file never has the final name.
fn create(path: &Path, epoch: &Epoch) -> Result<(), OpenError> {
    let new = with_suffix(path, ".new");
    for left in [".new", ".new-journal", ".new-wal", ".new-shm"].map(|suffix| with_suffix(path, suffix)) {
        match fs::remove_file(&left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let mut connection = Connection::open_with_flags(&new, read_write())?;
    // One sync before the rename makes the whole file durable. A sync for each step would delay the start.
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "page_size", 8192)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute(
        "INSERT INTO meta (key, value) VALUES ('epoch', ?1), ('last_pos', 0), ('pruned_pos', 0)",
        [epoch.as_str()],
    )?;
    for step in MIGRATIONS {
        transaction.execute_batch(step)?;
    }
    transaction.commit()?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(File::open(folder_of(path))?.sync_all()?)
}

/// Opens the connection that commits. It never checkpoints.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(path, read_write())?;
    connection.busy_timeout(BUSY)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::NoWal);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    // Deleted data is overwritten on pages that are written anyway. Compaction returns free pages to the
    // disk.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    common(&connection)?;
    Ok(connection)
}

/// Opens the connection that checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags(path, read_write())?;
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    common(&connection)?;
    Ok(connection)
}

/// Opens a connection that reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, read_only())?;
    connection.busy_timeout(BUSY)?;
    // Without this, SQLite prepares a cached statement again for each new cursor.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    common(&connection)?;
    Ok(connection)
}

/// Opens a connection that reads a log that other processes may have open. A read-only connection cannot
/// remove the write-ahead log on close, which would look like a crash. So without a write-ahead log it opens
/// the file for writing.
pub(super) fn open_source(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = if with_suffix(path, "-wal").exists() { read_only() } else { read_write() };
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    common(&connection)?;
    Ok(connection)
}

/// Opens a connection to a file that no other process knows. The caller must sync it.
pub(super) fn open_copy(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, read_write())?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    common(&connection)?;
    Ok(connection)
}

fn common(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "mmap_size", 0)
}

fn read_write() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn read_only() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path with a suffix appended to the file name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
