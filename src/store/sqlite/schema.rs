//! The format of the database file: its versions, creation and identification.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::types::Epoch;

use super::connection::{PAGE_BYTES, folder_of, read_only, read_write, with_suffix};
use super::error::OpenError;
use super::row::to_sql;

/// The SQL that migrates a file to the next version.
pub(super) type Migration = &'static str;

/// `acpg`, the application id at byte 68 of the file.
const APPLICATION_ID: i32 = 0x6163_7067;
/// The migrations between released versions, oldest first.
pub(super) const MIGRATIONS: [Migration; 2] = [LOG_STATS, COMPRESSION];
/// The version that this build reads and writes, at byte 60 of the file.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are few migrations")]
const VERSION: i32 = 1 + MIGRATIONS.len() as i32;
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

/// Adds the table of statistics, without content. The first commit that is due writes them.
const LOG_STATS: Migration = "
CREATE TABLE log (
    session BLOB PRIMARY KEY,
    tenant TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    first_pos INTEGER NOT NULL,
    last_pos INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    last_time INTEGER NOT NULL,
    crc INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('summed_pos', 0), ('summed_crc', 0);
";

/// From the version without compression. No row changes. The version number prevents an older program from
/// sending compressed frames to readers.
const COMPRESSION: Migration = "";

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
pub(super) fn create(path: &Path, epoch: &Epoch) -> Result<(), OpenError> {
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
    connection.pragma_update(None, "page_size", to_sql(PAGE_BYTES))?;
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
