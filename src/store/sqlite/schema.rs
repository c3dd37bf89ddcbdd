//! The format of the database file: its version, creation and identification.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::types::Epoch;

use super::connection::{
    PAGE_BYTES, READ_ONLY, READ_WRITE, files_of, folder_of, remove_if_exists, sync, with_suffix,
};
use super::error::OpenError;
use super::row::to_sql;

/// `acpg`, the application id at byte 68 of the file.
const APPLICATION_ID: i32 = 0x6163_7067;
/// The version that this build reads and writes, at byte 60 of the file.
const VERSION: i32 = 4;
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
INSERT INTO meta VALUES ('last_pos', 0), ('pruned_pos', 0), ('summed_pos', 0), ('summed_crc', 0);
";

/// Identifies the file, or creates it. A foreign file or a file of another version is not changed.
pub(super) fn prepare(path: &Path, epoch: impl FnOnce() -> Epoch) -> Result<(), OpenError> {
    match identify(path) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            if restored_path(path).exists() {
                return Err(OpenError::RestoreInterrupted);
            }
            return create(path, &epoch());
        }
        identified => identified?,
    }
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Fails unless the file is a log of this version.
pub(super) fn identify(path: &Path) -> Result<(), OpenError> {
    let mut header = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut header)?;
    if fs::metadata(with_suffix(path, "-wal")).is_ok_and(|wal| wal.len() > 0) {
        // The last changes may be only in the write-ahead log. After a crash the first page of the file may
        // be incomplete, but the log contains it.
        let connection = Connection::open_with_flags(path, READ_ONLY)?;
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

fn check(application: i32, version: i32) -> Result<(), OpenError> {
    match version {
        _ if application != APPLICATION_ID => Err(OpenError::NotALog),
        VERSION => Ok(()),
        found => Err(OpenError::OtherVersion {
            found,
            known: VERSION,
        }),
    }
}

/// Creates the file under a temporary name, so that an incomplete file never has the final name.
fn create(path: &Path, epoch: &Epoch) -> Result<(), OpenError> {
    let new = with_suffix(path, ".new");
    for file in files_of(&new) {
        remove_if_exists(&file)?;
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let mut connection = Connection::open_with_flags(&new, READ_WRITE)?;
    // One sync before the rename makes the whole file durable. A sync for each step would delay the start.
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "page_size", to_sql(PAGE_BYTES))?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute("INSERT INTO meta VALUES ('epoch', ?1)", [epoch.as_str()])?;
    transaction.commit()?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(sync(folder_of(path))?)
}
