//! A complete check of a file: after an unclean shutdown, and before a copy is used.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::super::{BoxError, ReadError};
use super::schema::{self, OpenError};
use super::{compress, read};
use base::types::Epoch;

/// The maximum faults that `quick_check` returns. One large event can cause as many faulty pages.
const MAX_FAULTS: usize = 4096;
/// The number of faults in an error message.
const REPORTED_FAULTS: usize = 5;
/// The bytes of runs that are verified in one step.
const PAGE: usize = 1 << 20;

/// A check of a file, on a connection of its own.
pub(super) struct Check {
    connection: Connection,
    epoch: Epoch,
    stop: Arc<AtomicBool>,
}

/// The result of a check of a file with an intact structure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub runs: u64,
    /// Damaged runs. Readers skip them.
    pub damaged: u64,
    /// Overflow pages of runs are linked wrongly.
    pub overflow_damaged: bool,
    pub duration: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The structure of the database is broken: nothing may be written.
    #[error("the file is damaged: {0}")]
    Malformed(String),
    #[error("the check was stopped")]
    Stopped,
    #[error("could not read the file")]
    Failed(#[source] BoxError),
}

impl From<rusqlite::Error> for CheckError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Stopped,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Malformed(error.to_string())
            }
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
        Ok(Self {
            connection,
            epoch: epoch.clone(),
            stop: Arc::default(),
        })
    }

    pub(super) fn stop(&self) -> impl Fn() + Send + 'static {
        let stop = Arc::clone(&self.stop);
        let running = self.connection.get_interrupt_handle();
        move || {
            stop.store(true, Ordering::Relaxed);
            running.interrupt();
        }
    }

    /// Runs the check. Calls `on_limit` once it has decompressed more than `max_bytes`. The file
    /// size does not bound that number.
    pub(super) fn run(
        &self,
        max_bytes: u64,
        on_limit: impl FnOnce(),
    ) -> Result<CheckReport, CheckError> {
        let began = Instant::now();
        let mut checked = CheckReport {
            overflow_damaged: self.structure()?,
            ..CheckReport::default()
        };
        let mut after = 0;
        let mut bytes = 0;
        let mut on_limit = Some(on_limit);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(CheckError::Stopped);
            }
            match read::all(&self.connection, &self.epoch, after, PAGE, &|_, _| true) {
                Ok((page, ended)) => {
                    checked.runs += page.runs.len() as u64;
                    let sizes = page.runs.iter().map(|run| run.frames.len() as u64);
                    bytes += sizes.sum::<u64>();
                    after = page.through;
                    if ended {
                        return Ok(CheckReport {
                            duration: began.elapsed(),
                            ..checked
                        });
                    }
                }
                Err(ReadError::Corrupt {
                    session,
                    first_seq,
                    last_seq,
                    after: beyond,
                }) => {
                    tracing::error!(%session, first_seq, last_seq, "events are damaged on disk");
                    checked.damaged += 1;
                    // Damage may be found only after decompression, so count the maximum.
                    bytes += compress::MAX_FRAMES_BYTES as u64;
                    after = beyond;
                }
                Err(error) => return Err(CheckError::Failed(error.into())),
            }
            if bytes > max_bytes
                && let Some(on_limit) = on_limit.take()
            {
                on_limit();
            }
        }
    }

    /// Checks the structure. True if only overflow chains of runs are broken. Those stay as they are: damaged
    /// pages are never freed, and readers skip the runs.
    fn structure(&self) -> Result<bool, CheckError> {
        let select = "SELECT rootpage FROM sqlite_schema WHERE name = 'run'";
        let root: i64 = self.connection.query_row(select, [], |row| row.get(0))?;
        let check = format!("PRAGMA quick_check({MAX_FAULTS})");
        let mut check = self.connection.prepare(&check)?;
        let found = check.query_map([], |row| row.get::<_, String>(0))?;
        let found: Vec<String> = found.collect::<Result<_, _>>()?;
        let faults: Vec<&str> = found.iter().flat_map(|text| text.lines()).collect();
        if faults == ["ok"] {
            return Ok(false);
        }
        let faults = faults.into_iter();
        let faults: Vec<&str> = faults
            .filter(|fault| !fault.starts_with("*** in database"))
            .collect();
        if !only_overflow_damage(&faults, root) {
            let first = &faults[..faults.len().min(REPORTED_FAULTS)];
            return Err(CheckError::Malformed(first.join("; ")));
        }
        tracing::error!(
            faults = faults.len(),
            first = faults[0],
            "pages of events are damaged on disk"
        );
        Ok(true)
    }
}

/// Whether all faults that `quick_check` found concern overflow chains of the table with this root page.
/// Pages that became unreachable are accepted too.
fn only_overflow_damage(faults: &[&str], root: i64) -> bool {
    let of_a_run = |fault: &str| {
        let cell = fault.strip_prefix(&format!("Tree {root} page "));
        let cell = cell.and_then(|rest| rest.split_once(" cell "));
        let what = cell.and_then(|(_, rest)| rest.split_once(": "));
        what.is_some_and(|(_, what)| OVERFLOW_FAULTS.iter().any(|of| what.starts_with(of)))
    };
    let unreached = |fault: &str| fault.starts_with("Page ") && fault.ends_with(": never used");
    let is_known = |fault: &&str| of_a_run(fault) || unreached(fault);
    faults.len() < MAX_FAULTS
        && faults.iter().any(|fault| of_a_run(fault))
        && faults.iter().all(is_known)
}

/// The messages of SQLite about overflow chains.
const OVERFLOW_FAULTS: [&str; 6] = [
    "invalid page number ",
    "2nd reference to page ",
    "failed to get page ",
    "overflow list length is ",
    "Failed to read ptrmap key=",
    "Bad ptr map entry key=",
];
