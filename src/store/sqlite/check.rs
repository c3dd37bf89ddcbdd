//! Reads a whole file through: one that was not closed, and a copy before it is trusted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use crate::types::Epoch;

use super::super::{Cause, ReadError};
use super::{OpenError, read, schema};

/// Faults of the file that are told.
const TOLD: usize = 5;
/// Bytes of runs that are compared with their checksums in one go.
const PAGE: usize = 1 << 20;

/// A file that is about to be checked, on a connection of its own.
pub(super) struct Check {
    connection: Connection,
    epoch: Epoch,
    stop: Arc<AtomicBool>,
}

/// What a check found where the file itself is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    pub runs: u64,
    /// Those that are not what was written. Readers pass over them.
    pub damaged: u64,
    pub took: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// SQLite's own structure is broken: nothing may be written any more.
    #[error("the file is damaged: {0}")]
    Malformed(String),
    #[error("the check was broken off")]
    Stopped,
    #[error("the file cannot be read")]
    Failed(#[source] Cause),
}

impl From<rusqlite::Error> for CheckError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Stopped,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Malformed(error.to_string()),
            _ => Self::Failed(error.into()),
        }
    }
}

impl From<CheckError> for OpenError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Failed(cause) => Self::Io(std::io::Error::other(cause)),
            CheckError::Malformed(_) | CheckError::Stopped => Self::Damaged(error.into()),
        }
    }
}

impl Check {
    pub(super) fn of(path: &Path, epoch: &Epoch) -> Result<Self, rusqlite::Error> {
        let connection = schema::open_reader(path)?;
        Ok(Self { connection, epoch: epoch.clone(), stop: Arc::default() })
    }

    /// Breaks the check off, wherever it is.
    pub(super) fn stop(&self) -> impl Fn() + Send + 'static {
        let (stop, running) = (Arc::clone(&self.stop), self.connection.get_interrupt_handle());
        move || {
            stop.store(true, Ordering::Relaxed);
            running.interrupt();
        }
    }

    pub(super) fn run(&self) -> Result<Checked, CheckError> {
        let began = Instant::now();
        self.structure()?;
        let mut checked = Checked { runs: 0, damaged: 0, took: Duration::ZERO };
        let mut after = 0;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CheckError::Stopped);
            }
            match read::all(&self.connection, &self.epoch, after, PAGE, &|_, _| true) {
                Ok(page) => {
                    checked.runs += page.runs.len() as u64;
                    after = page.through_pos;
                    if page.ended {
                        return Ok(Checked { took: began.elapsed(), ..checked });
                    }
                }
                Err(ReadError::Corrupt { session, first_seq, last_seq, after: beyond }) => {
                    tracing::error!(%session, first_seq, last_seq, "events are damaged on disk");
                    checked.damaged += 1;
                    after = beyond;
                }
                Err(error) => return Err(CheckError::Failed(error.into())),
            }
        }
    }

    fn structure(&self) -> Result<(), CheckError> {
        let mut check = self.connection.prepare(&format!("PRAGMA quick_check({TOLD})"))?;
        let lines = check.query_map([], |row| row.get::<_, String>(0))?;
        let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
        if lines == ["ok"] { Ok(()) } else { Err(CheckError::Malformed(lines.join("; "))) }
    }
}
