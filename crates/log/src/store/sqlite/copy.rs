//! A backup of the log as one file. It can run while a gateway writes.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};

use super::check::{Check, CheckReport};
use super::schema::{self, OpenError, files_of, open_copy, open_source, remove_if_exists, sync};
use base::types::Epoch;

/// Pages copied in one step.
const STEP: std::ffi::c_int = 1024;
/// The delay before a step is retried on a busy file.
const BUSY: Duration = Duration::from_millis(50);

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

pub(super) fn epoch_of(file: &Path) -> Result<Epoch, OpenError> {
    if !file.exists() {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    schema::epoch(&open_source(file)?)
}

/// Deletes a temporary file and the files that SQLite created beside it.
pub(super) fn remove_files(file: &Path) {
    for file in files_of(file) {
        if let Err(error) = remove_if_exists(&file) {
            tracing::warn!(%error, file = %file.display(), "could not delete a temporary file");
        }
    }
}
