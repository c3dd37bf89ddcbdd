//! Checkpoints of the write-ahead log, on a thread and a connection of their own, so that no commit waits for
//! them.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use super::super::CommitError;
use super::row::from_sql;
use super::schema::{FRAME_BYTES, PAGE_BYTES, RESTART_PAGES, WAL_KEPT_BYTES};
use base::shutdown::{Shutdown, lock_or_abort};

/// The written bytes that trigger a passive checkpoint: about 4000 pages.
const PASSIVE_BYTES: u64 = 4000 * PAGE_BYTES;
/// The time without a commit after which a complete checkpoint runs. The file is truncated if it is too long
/// or contains deleted data.
pub(super) const IDLE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Checkpointer {
    work: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Approximate bytes committed since the last checkpoint.
    written: u64,
    /// Whether there was a commit since the last complete checkpoint.
    dirty: bool,
    /// Whether data was deleted since the last truncation.
    removed: bool,
    stop: bool,
    /// A checkpoint failed: the content of the disk is unknown.
    failed: Option<String>,
}

enum Mode {
    Passive,
    Idle { truncate: bool },
}

impl Checkpointer {
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let work = Arc::new(Shared::default());
        // The log may contain data of an earlier process. Truncate the log when idle.
        *work.state() = State {
            dirty: true,
            removed: true,
            ..State::default()
        };
        let shared = Arc::clone(&work);
        let thread = Shutdown::spawn_thread("log-checkpoint", move || shared.run(&connection))?;
        Ok(Self {
            work,
            thread: Some(thread),
        })
    }

    /// Records a write. `removed`: the commit deleted data, which must also disappear from the write-ahead
    /// log.
    pub(super) fn record_write(&self, bytes: u64, removed: bool) {
        let mut state = self.work.state();
        state.written += bytes;
        state.removed |= removed;
        let wakes = !state.dirty || state.written >= PASSIVE_BYTES;
        state.dirty = true;
        drop(state);
        if wakes {
            self.work.wake.notify_one();
        }
    }

    pub(super) fn check(&self) -> Result<(), CommitError> {
        match &self.work.state().failed {
            Some(why) => Err(CommitError::Failed(why.clone().into())),
            None => Ok(()),
        }
    }

    /// Stops the checkpoint thread and rejects all further writes to the file.
    pub(super) fn abort(&self, why: String) {
        self.work.state().failed = Some(why);
        self.work.wake.notify_one();
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.work.state().stop = true;
        self.work.wake.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock_or_abort(self.state.lock())
    }

    fn run(&self, connection: &Connection) {
        while let Some(mode) = self.next() {
            let result = match mode {
                Mode::Passive => checkpoint(connection, "PASSIVE").and_then(|moved| {
                    // A reader of old pages prevents a restart, and commits would wait in vain.
                    let is_due = moved.pages > RESTART_PAGES && moved.checkpointed == moved.pages;
                    if is_due {
                        checkpoint(connection, "RESTART").map(drop)
                    } else {
                        Ok(())
                    }
                }),
                Mode::Idle { truncate: cut } => self.checkpoint_idle(connection, cut),
            };
            let Err(error) = result else { continue };
            // A full disk is reported by the next commit. A busy file is retried.
            let passes = [
                ErrorCode::DiskFull,
                ErrorCode::DatabaseBusy,
                ErrorCode::DatabaseLocked,
            ];
            let code = error.sqlite_error_code();
            if code.is_some_and(|code| passes.contains(&code)) {
                tracing::warn!(%error, "could not checkpoint the write-ahead log; it is retried");
            } else {
                tracing::error!(%error, "could not checkpoint the write-ahead log: commits are rejected");
                self.state().failed = Some(format!("a checkpoint failed: {error}"));
                return;
            }
        }
    }

    fn checkpoint_idle(&self, connection: &Connection, cut: bool) -> Result<(), rusqlite::Error> {
        if !cut {
            let restarted = checkpoint(connection, "RESTART")?;
            let is_short = restarted.pages * FRAME_BYTES <= u64::from(WAL_KEPT_BYTES);
            if restarted.busy || is_short {
                return Ok(());
            }
        }
        let truncated = checkpoint(connection, "TRUNCATE");
        // A reader holds old pages, or the disk is full. The next idle checkpoint tries again.
        self.state().removed |= cut && truncated.as_ref().map_or(true, |moved| moved.busy);
        truncated.map(drop)
    }

    /// Waits for the next checkpoint. `None` when the thread must stop.
    fn next(&self) -> Option<Mode> {
        let mut state = self.state();
        loop {
            if state.stop || state.failed.is_some() {
                return None;
            }
            if state.written >= PASSIVE_BYTES {
                state.written = 0;
                return Some(Mode::Passive);
            }
            if !state.dirty {
                state = lock_or_abort(self.wake.wait(state));
                continue;
            }
            let before = state.written;
            let (after, waited) = lock_or_abort(self.wake.wait_timeout(state, IDLE));
            state = after;
            if waited.timed_out() && state.written == before && !state.stop {
                state.written = 0;
                state.dirty = false;
                return Some(Mode::Idle {
                    truncate: std::mem::take(&mut state.removed),
                });
            }
        }
    }
}

/// The result of a checkpoint: pages in the write-ahead log, and pages of them that are in the file.
struct CheckpointResult {
    busy: bool,
    pages: u64,
    checkpointed: u64,
}

fn checkpoint(connection: &Connection, how: &str) -> Result<CheckpointResult, rusqlite::Error> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| {
        Ok(CheckpointResult {
            busy: row.get(0)?,
            pages: from_sql(row.get(1)?),
            checkpointed: from_sql(row.get(2)?),
        })
    })
}
