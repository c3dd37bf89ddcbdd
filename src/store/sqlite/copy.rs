//! The log as one file that can be kept elsewhere: taken while a gateway writes on, and put back in its place.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};

use crate::types::{Epoch, Ids};

use super::OpenError;
use super::check::{Check, CheckReport};
use super::schema::{self, folder_of, with_suffix};

/// Pages of one step.
const STEP: std::ffi::c_int = 1024;
/// Between two tries of a step that found the file busy.
const BUSY: Duration = Duration::from_millis(50);

/// What a log was replaced by.
#[derive(Debug)]
pub struct RestoreReport {
    pub checked: CheckReport,
    /// Where the log is that was there before, if there was one.
    pub previous: Option<PathBuf>,
}

/// Copies the log at `log` into a new file, as it was at one moment: whole, checked and durable when this returns.
/// Whoever writes to the log goes on; only its write-ahead log is not taken back meanwhile.
pub fn copy(log: &Path, file: &Path) -> Result<CheckReport, OpenError> {
    schema::read_version(log)?;
    snapshot(log, file)
}

/// The same of a log that is known to be one.
pub(super) fn snapshot(log: &Path, file: &Path) -> Result<CheckReport, OpenError> {
    // What has the name already is somebody's.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    let made = copy_to(log, file).and_then(|()| Ok(Check::of(file, &epoch_of(file)?)?.run(u64::MAX, || {})?));
    if made.is_err() {
        remove_files(file);
    }
    made
}

fn copy_to(log: &Path, file: &Path) -> Result<(), OpenError> {
    let source = schema::open_source(log)?;
    // What is read first is what every step sees: one that saw later commits would have to begin again.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
    let mut target = schema::open_copy(file)?;
    {
        let backup = Backup::new(&source, &mut target)?;
        loop {
            match backup.step(STEP)? {
                StepResult::Done => break,
                StepResult::More => {}
                // Busy or locked, which passes.
                _ => std::thread::sleep(BUSY),
            }
        }
    }
    target.close().map_err(|(_, error)| error)?;
    // It is a copy of a file with a write-ahead log, and is to be one file alone.
    let target = schema::open_copy(file)?;
    target.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    target.close().map_err(|(_, error)| error)?;
    Ok(File::open(file)?.sync_all()?)
}

/// Puts a copy of `file` in the place of the log, under a new epoch. No other process may use the log. A log that is
/// there stays beside it. When this was broken off in the middle no log opens there until it was done again.
pub fn restore(file: &Path, log: &Path, ids: &Ids) -> Result<RestoreReport, OpenError> {
    let new = schema::restored_path(log);
    if new.exists() && fs::canonicalize(&new)? == fs::canonicalize(file)? {
        let why = "it lies where a restore writes to: give it another name first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    remove_files(&new);
    let checked = copy(file, &new)?;
    renew_epoch(&new, log, ids)?;
    let kept = move_aside(log, ids)?;
    File::open(folder_of(log))?.sync_all()?;
    fs::rename(&new, log)?;
    File::open(folder_of(log))?.sync_all()?;
    Ok(RestoreReport { checked, previous: kept })
}

/// What is in the copy is not all that clients saw, and what comes will have ids that they saw before.
fn renew_epoch(new: &Path, log: &Path, ids: &Ids) -> Result<(), OpenError> {
    let known = [epoch_of(new).ok(), epoch_of(log).ok()];
    let epoch = loop {
        let epoch = ids.epoch();
        if !known.iter().flatten().any(|known| *known == epoch) {
            break epoch;
        }
    };
    let file = schema::open_copy(new)?;
    file.pragma_update(None, "synchronous", "FULL")?;
    file.execute("UPDATE meta SET value = ?1 WHERE key = 'epoch'", [epoch.as_str()])?;
    file.close().map_err(|(_, error)| error)?;
    Ok(File::open(new)?.sync_all()?)
}

fn epoch_of(file: &Path) -> Result<Epoch, OpenError> {
    if !file.exists() {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    let file = schema::open_source(file)?;
    let epoch: String = file.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0))?;
    epoch.parse().map_err(|_| OpenError::NotALog)
}

/// Gives the log another name, with its write-ahead log, which must never meet another file. Whenever this is broken
/// off, the log has its own beside it.
fn move_aside(log: &Path, ids: &Ids) -> Result<Option<PathBuf>, OpenError> {
    let suffix = format!(".before-{}", ids.now().as_millis());
    let kept = with_suffix(log, &suffix);
    let mut found = None;
    if log.exists() {
        let (wal, kept_wal) = (with_suffix(log, "-wal"), with_suffix(&kept, "-wal"));
        if wal.exists() {
            fs::hard_link(&wal, &kept_wal).or_else(|_| fs::copy(&wal, &kept_wal).map(drop))?;
            File::open(&kept_wal)?.sync_all()?;
            File::open(folder_of(log))?.sync_all()?;
        }
        fs::rename(log, &kept)?;
        found = Some(kept);
    }
    // The one has another name by now, the other is made anew from it.
    for suffix in ["-wal", "-shm"] {
        match fs::remove_file(with_suffix(log, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(found)
}

/// Removes a file that nobody needs, and what SQLite put beside it.
pub(super) fn remove_files(file: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let file = with_suffix(file, suffix);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %file.display(), "a file is left behind");
            }
            _ => {}
        }
    }
}
