//! The format of the database file: its version, creation and identification. `migrate` changes a file of an earlier format.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, params};

use super::super::BoxError;
use super::row::{from_sql, to_sql};
use base::types::{Epoch, Ids};

/// `acpg`, the application id at byte 68 of the file.
const APPLICATION_ID: i32 = 0x6163_7067;
/// The format that this version writes, at byte 60 of the file.
pub const VERSION: i32 = 7;
/// The oldest format that this version reads: the first one of a released version.
pub(super) const OLDEST: i32 = 5;
/// The first version of the gateway that reads [`VERSION`]. The file contains it for versions that do not read the format. No
/// format may move it.
const NEEDED_VERSION: &str = "0.1.0";
/// The position of a run is its rowid, so that an append changes the end of the table and one entry of one
/// index. The columns `tenant` contain the owner of the session with its tenant. Their name is that of the formats 5 and 6, from
/// which backups are made, too.
pub(super) const SCHEMA: &str = "
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

/// Identifies the file, or creates it. A foreign file or a file of another format is not changed.
pub(super) fn prepare(path: &Path, ids: &Ids) -> Result<(), OpenError> {
    match identify(path) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            if restored_path(path).exists() {
                return Err(OpenError::RestoreInterrupted);
            }
            return create(path, ids);
        }
        Ok(found) if found < VERSION => return Err(OpenError::NotMigrated { found }),
        identified => identified?,
    };
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Returns the format of the file. Fails unless this version reads the format.
pub(super) fn identify(path: &Path) -> Result<i32, OpenError> {
    let mut header = Vec::new();
    File::open(path)?.take(100).read_to_end(&mut header)?;
    if fs::metadata(with_suffix(path, "-wal")).is_ok_and(|wal| wal.len() > 0) {
        // The last changes may be only in the write-ahead log. After a crash the first page of the file may
        // be incomplete, but the log contains it.
        let connection = Connection::open_with_flags(path, READ_ONLY)?;
        let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get(0));
        return check(path, number("application_id")?, number("user_version")?);
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(OpenError::NotALog);
    }
    check(path, number_at(&header, 68), number_at(&header, 60))
}

/// The path of a copy that a restore prepares.
pub(super) fn restored_path(log: &Path) -> PathBuf {
    with_suffix(log, ".restored")
}

fn number_at(header: &[u8], at: usize) -> i32 {
    i32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

fn check(path: &Path, application: i32, version: i32) -> Result<i32, OpenError> {
    match version {
        _ if application != APPLICATION_ID => Err(OpenError::NotALog),
        OLDEST..=VERSION => Ok(version),
        found if found < OLDEST => Err(OpenError::TooOld { found }),
        found => Err(OpenError::TooNew {
            found,
            needed: needed_version(path),
        }),
    }
}

/// The version of the gateway that a file of a later format requires.
fn needed_version(path: &Path) -> String {
    let named = open_source(path).and_then(|file| {
        let select = "SELECT value FROM meta WHERE key = 'needed_version'";
        file.query_row(select, [], |row| row.get(0))
    });
    named.map_or_else(
        |_| "the version that wrote it".to_owned(),
        |version: String| format!("acp-gateway {version} or a later version"),
    )
}

/// Creates the file under a temporary name, so that an incomplete file never has the final name.
pub(super) fn create(path: &Path, ids: &Ids) -> Result<(), OpenError> {
    let new = with_suffix(path, ".new");
    for file in files_of(&new) {
        remove_if_exists(&file)?;
    }
    let mut options = OpenOptions::new();
    let file = options
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
    transaction.execute_batch(SCHEMA)?;
    let insert = "INSERT INTO meta VALUES ('epoch', ?1)";
    transaction.execute(insert, [ids.epoch().as_str()])?;
    insert_shard(&transaction, ids.shard())?;
    set_version(&transaction)?;
    transaction.commit()?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(sync(folder_of(path))?)
}

pub(super) fn set_version(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.pragma_update(None, "user_version", VERSION)?;
    let insert = "INSERT OR REPLACE INTO meta VALUES ('needed_version', ?1)";
    transaction.execute(insert, [NEEDED_VERSION]).map(drop)
}

pub(super) fn insert_shard(
    transaction: &Transaction<'_>,
    shard: u16,
) -> Result<(), rusqlite::Error> {
    let insert = "INSERT INTO meta VALUES ('shard', ?1)";
    transaction.execute(insert, [shard]).map(drop)
}

pub(super) fn shard(connection: &Connection) -> Result<u16, rusqlite::Error> {
    let select = "SELECT value FROM meta WHERE key = 'shard'";
    connection.query_row(select, [], |row| row.get(0))
}

pub(super) fn epoch(connection: &Connection) -> Result<Epoch, OpenError> {
    let select = "SELECT value FROM meta WHERE key = 'epoch'";
    let epoch: String = connection.query_row(select, [], |row| row.get(0))?;
    epoch.parse().map_err(|_| OpenError::NotALog)
}

pub(super) fn position(connection: &Connection, key: &str) -> Result<u64, rusqlite::Error> {
    let select = "SELECT value FROM meta WHERE key = ?1";
    let value = connection.query_row(select, [key], |row| row.get(0));
    value.map(from_sql)
}

pub(super) fn set_position(
    transaction: &Connection,
    key: &str,
    pos: u64,
) -> Result<(), rusqlite::Error> {
    let update = "UPDATE meta SET value = ?2 WHERE key = ?1";
    transaction
        .execute(update, params![key, to_sql(pos)])
        .map(drop)
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the file is not an event log of acp-gateway")]
    NotALog,
    #[error("the file has {bytes} bytes of {what}, and an export has at most {max}")]
    TooLarge {
        what: &'static str,
        bytes: u64,
        max: u64,
    },
    #[error(
        "the file has format {found}, which no released version wrote; this version reads the formats {OLDEST} to {VERSION}. \
         The file was not changed"
    )]
    TooOld { found: i32 },
    #[error(
        "the file has format {found}, and this version reads the formats {OLDEST} to {VERSION}: start {needed}. \
         The file was not changed"
    )]
    TooNew { found: i32, needed: String },
    #[error(
        "the file has format {found}, and this version writes format {VERSION}: stop the gateway of the earlier version if it \
         runs, and start the gateway, which migrates the file"
    )]
    NotMigrated { found: i32 },
    #[error(
        "a copy of the file before its migration needs {needed} bytes, and the disk has {free} free: free {} bytes more, or \
         start the gateway with --no-backup. The file was not changed",
        .needed.saturating_sub(*.free)
    )]
    NoRoom { needed: u64, free: u64 },
    #[error("a restore was interrupted before it replaced the log: repeat the restore")]
    RestoreInterrupted,
    #[error("the file system does not support a write-ahead log: use a local disk")]
    NoWal,
    #[error(
        "the log is damaged and was not changed: restore a backup with `acp-gateway restore FILE`"
    )]
    Damaged(#[source] BoxError),
    #[error("could not open the file")]
    Io(#[from] io::Error),
    #[error("could not open the file")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.into())
            }
            _ => Self::Sqlite(error),
        }
    }
}

pub(super) const PAGE_BYTES: u64 = 8192;
/// A page in the write-ahead log, with its header.
pub(super) const FRAME_BYTES: u64 = PAGE_BYTES + 24;
/// The maximum size of the write-ahead log file after a complete checkpoint. Later commits overwrite the
/// file, so their syncs wait only for data.
pub(super) const WAL_KEPT_BYTES: u32 = if cfg!(test) { 4 << 20 } else { 64 << 20 };
/// The pages of the write-ahead log above which commits are paused for a checkpoint, so that the log can
/// restart.
pub(super) const RESTART_PAGES: u64 = 16_000;
/// Only the gateway, its commands for keys and an operator's `sqlite3` prompt write to the file.
const BUSY: Duration = Duration::from_secs(10);

pub(super) const READ_WRITE: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
pub(super) const READ_ONLY: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens the connection that commits. It never checkpoints.
pub(super) fn open_writer(path: &Path) -> Result<Connection, OpenError> {
    let connection = open(path, READ_WRITE, BUSY)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(OpenError::NoWal);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)?;
    // Deleted data is overwritten on pages that are written anyway. Compaction returns free pages to the
    // disk.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    Ok(connection)
}

pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open(path, READ_WRITE, Duration::from_secs(2))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

pub(super) fn open_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open(path, READ_ONLY, BUSY)?;
    // Without the stable query planner (QPSG), SQLite prepares a cached statement again for each new position in
    // the log.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Opens a connection that reads a log that other processes may have open. A read-only connection cannot
/// remove the write-ahead log on close, which would look like a crash. So without a write-ahead log it opens
/// the file for writing.
pub(super) fn open_source(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = if with_suffix(path, "-wal").exists() {
        READ_ONLY
    } else {
        READ_WRITE
    };
    open(path, flags, BUSY)
}

/// Opens a connection to a file that no other process knows. The caller must sync it.
pub(super) fn open_copy(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open(path, READ_WRITE, BUSY)?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags, busy: Duration) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    // The log has neither. Those of a foreign file could run without an end.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(connection)
}

pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// The path with a suffix appended to the file name.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A database file and the files that SQLite may create beside it.
pub(super) fn files_of(path: &Path) -> [PathBuf; 4] {
    ["", "-journal", "-wal", "-shm"].map(|suffix| with_suffix(path, suffix))
}

pub(super) fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Syncs a file, or the entries of a folder.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
