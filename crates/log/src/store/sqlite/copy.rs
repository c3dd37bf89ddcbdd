//! Backup and restore of the log as one file. A backup can run while a gateway writes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};

use super::check::{Check, CheckReport};
use super::schema::{
    self, OpenError, files_of, folder_of, open_copy, open_source, remove_if_exists, sync,
    with_suffix,
};
use base::types::{Epoch, Ids};

/// Pages copied in one step.
const STEP: std::ffi::c_int = 1024;
/// The delay before a step is retried on a busy file.
const BUSY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct RestoreReport {
    pub checked: CheckReport,
    pub previous: Option<PathBuf>,
}

/// Copies the log at `log` into a new file. The copy is a consistent snapshot, checked, and durable when this
/// returns. Writers are not blocked, but the write-ahead log cannot restart meanwhile.
pub fn copy(log: &Path, file: &Path) -> Result<CheckReport, OpenError> {
    schema::identify(log)?;
    // Fail if the file exists: it must not be overwritten.
    let mut options = OpenOptions::new();
    options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    let check = || Ok(Check::of(file, &epoch_of(file)?)?.run(u64::MAX, || {})?);
    let made = copy_to(log, file).and_then(|()| check());
    if made.is_err() {
        remove_files(file);
    }
    made
}

fn copy_to(log: &Path, file: &Path) -> Result<(), OpenError> {
    let source = open_source(log)?;
    // The read transaction fixes the snapshot for all steps. Otherwise each commit would restart the backup.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
    let mut target = open_copy(file)?;
    {
        let backup = Backup::new(&source, &mut target)?;
        loop {
            match backup.step(STEP)? {
                StepResult::Done => break,
                StepResult::More => {}
                // Busy or locked: retry.
                _ => std::thread::sleep(BUSY),
            }
        }
    }
    target.close().map_err(|(_, error)| error)?;
    // The source uses a write-ahead log. Switch the mode, so that the copy is a single file.
    let target = open_copy(file)?;
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)?;
    Ok(sync(file)?)
}

/// Replaces the log with a copy of `file` under a new epoch. No other process may use the log. The previous
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
    file.close().map_err(|(_, error)| error)?;
    Ok(sync(new)?)
}

fn epoch_of(file: &Path) -> Result<Epoch, OpenError> {
    if !file.exists() {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    schema::epoch(&open_source(file)?)
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

/// Deletes a temporary file and the files that SQLite created beside it.
fn remove_files(file: &Path) {
    for file in files_of(file) {
        if let Err(error) = remove_if_exists(&file) {
            tracing::warn!(%error, file = %file.display(), "could not delete a temporary file");
        }
    }
}
