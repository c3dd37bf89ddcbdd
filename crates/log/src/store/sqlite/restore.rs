//! The restore of a backup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::check::CheckReport;
use super::copy::{copy, epoch_of, remove_files};
use super::migrate;
use super::schema::{
    self, OpenError, VERSION, folder_of, open_copy, remove_if_exists, sync, with_suffix,
};
use base::types::Ids;

#[derive(Debug)]
pub struct RestoreReport {
    pub checked: CheckReport,
    pub previous: Option<PathBuf>,
}

/// Replaces the log with a copy of `file` under a new epoch, in the format of this version. No other process may use the log. The previous
/// log is kept beside it. After an interrupted restore the log does not open until the restore is repeated.
pub fn restore(file: &Path, log: &Path, ids: &Ids) -> Result<RestoreReport, OpenError> {
    // A read of a FIFO could wait for ever.
    if !fs::metadata(file)?.is_file() {
        let why = "it is not a regular file: restore - reads stdin";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    let new = schema::restored_path(log);
    if new.exists() && fs::canonicalize(&new)? == fs::canonicalize(file)? {
        let why = "a restore writes to this path: rename the file first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    remove_files(&new);
    let checked = copy(file, &new)?;
    let format = schema::identify(&new)?;
    if format < VERSION {
        migrate::apply(&new, format, ids)?;
    }
    renew_epoch(&new, log, ids)?;
    let previous = move_aside(log, ids)?;
    sync(folder_of(log))?;
    fs::rename(&new, log)?;
    sync(folder_of(log))?;
    Ok(RestoreReport { checked, previous })
}

/// Sets a new epoch: clients may have seen events that the copy does not contain, and new events would reuse
/// their ids.
fn renew_epoch(new: &Path, log: &Path, ids: &Ids) -> Result<(), OpenError> {
    let known = [epoch_of(new).ok(), epoch_of(log).ok()];
    let epoch = loop {
        let epoch = ids.epoch();
        if !known.iter().flatten().any(|known| *known == epoch) {
            break epoch;
        }
    };
    let file = open_copy(new)?;
    file.pragma_update(None, "synchronous", "FULL")?;
    let update = "UPDATE meta SET value = ?1 WHERE key = 'epoch'";
    file.execute(update, [epoch.as_str()])?;
    // After a migration, the changes are in a write-ahead log, which does not get the name of the file. This fails unless all of
    // them are in the file.
    let mode: String =
        file.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get(0))?;
    if mode != "delete" {
        return Err(
            io::Error::other("the write-ahead log could not be moved into the file").into(),
        );
    }
    file.close().map_err(|(_, error)| error)?;
    Ok(sync(new)?)
}

/// Renames the log together with its write-ahead log, which must never be applied to another file. If this is
/// interrupted, the log still has its write-ahead log.
fn move_aside(log: &Path, ids: &Ids) -> Result<Option<PathBuf>, OpenError> {
    let suffix = format!(".before-{}", ids.now().as_millis());
    let kept = with_suffix(log, &suffix);
    let mut found = None;
    if log.exists() {
        let wal = with_suffix(log, "-wal");
        let kept_wal = with_suffix(&kept, "-wal");
        if wal.exists() {
            fs::hard_link(&wal, &kept_wal).or_else(|_| fs::copy(&wal, &kept_wal).map(drop))?;
            sync(&kept_wal)?;
            sync(folder_of(log))?;
        }
        fs::rename(log, &kept)?;
        found = Some(kept);
    }
    // The write-ahead log has its new name already. SQLite recreates the shared-memory file.
    for suffix in ["-wal", "-shm"] {
        remove_if_exists(&with_suffix(log, suffix))?;
    }
    Ok(found)
}
