//! Connections to the file, and the constants of its pages.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::OpenError;

/// A page of the file.
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

/// Opens the connection that checkpoints.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = open(path, READ_WRITE, Duration::from_secs(2))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

/// Opens a connection that reads.
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
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(connection)
}

pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
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
