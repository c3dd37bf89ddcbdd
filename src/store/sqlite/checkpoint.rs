//! Moves the write-ahead log into the file, on a thread and a connection of its own, so that no commit waits for it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::shutdown::{Shutdown, lock_or_abort};

use super::super::CommitError;
use super::from_sql;
use super::wal_prealloc::FRAME_BYTES;

/// About 4000 pages: then what is in the write-ahead log is moved.
const PASSIVE_BYTES: u64 = 4000 * 8192;
/// What the write-ahead log keeps on the disk at most once all of it is moved: later commits overwrite that, and a sync after
/// them has nothing to wait for but their bytes.
pub(super) const WAL_KEPT_BYTES: u32 = if cfg!(test) { 4 << 20 } else { 64 << 20 };
/// Pages of the write-ahead log, when commits never left it alone: then they wait for a moment, so that it begins anew.
pub(super) const RESTART_PAGES: u64 = 16_000;
/// Without a commit for this long the write-ahead log is moved whole, and begins anew with the next one. It is cut to nothing
/// where it has become long, or has in it what was erased or dropped since.
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
    /// Bytes that were committed since the last checkpoint, about.
    written: u64,
    /// Something was committed since the write-ahead log was moved whole.
    dirty: bool,
    /// Something was erased or dropped since it was cut.
    removed: bool,
    stop: bool,
    /// The disk did not take it: what it holds is unknown.
    failed: Option<String>,
}

enum Mode {
    Passive,
    Idle { truncate: bool },
}

impl Checkpointer {
    pub(super) fn start(connection: Connection) -> io::Result<Self> {
        let work = Arc::new(Shared::default());
        // What an earlier life left, whatever it is, is moved and cut once nothing else is to do.
        *work.state() = State { dirty: true, removed: true, ..State::default() };
        let shared = Arc::clone(&work);
        let thread = Shutdown::spawn_thread("log-checkpoint", move || shared.run(&connection))?;
        Ok(Self { work, thread: Some(thread) })
    }

    /// `removed`: something was erased or dropped, and is to be nowhere in the end.
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

    /// Refuses to go on after a checkpoint that failed.
    pub(super) fn check(&self) -> Result<(), CommitError> {
        match &self.work.state().failed {
            Some(why) => Err(CommitError::Failed(why.clone().into())),
            None => Ok(()),
        }
    }
}

impl Checkpointer {
    /// Ends it for good: nothing of the file is to be moved or written any more.
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
                    // While a reader holds old pages it cannot begin anew, and commits would wait for nothing.
                    let is_due = moved.pages > RESTART_PAGES && moved.checkpointed == moved.pages;
                    if is_due { checkpoint(connection, "RESTART").map(drop) } else { Ok(()) }
                }),
                Mode::Idle { truncate: cut } => self.checkpoint_idle(connection, cut),
            };
            let Err(error) = result else { continue };
            // The next commit finds the disk full by itself; a busy file is tried again.
            let passes = [ErrorCode::DiskFull, ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked];
            if error.sqlite_error_code().is_some_and(|code| passes.contains(&code)) {
                tracing::warn!(%error, "the write-ahead log could not be moved now");
            } else {
                tracing::error!(%error, "the write-ahead log cannot be moved");
                self.state().failed = Some(format!("a checkpoint failed: {error}"));
                return;
            }
        }
    }

    fn checkpoint_idle(&self, connection: &Connection, cut: bool) -> Result<(), rusqlite::Error> {
        let restarted = if cut { None } else { Some(checkpoint(connection, "RESTART")?) };
        if restarted.is_some_and(|moved| moved.busy || moved.pages * FRAME_BYTES <= u64::from(WAL_KEPT_BYTES))
        {
            return Ok(());
        }
        let truncated = checkpoint(connection, "TRUNCATE");
        // Somebody reads old pages, or there is no room: the next rest tries it again.
        self.state().removed |= cut && truncated.as_ref().map_or(true, |moved| moved.busy);
        truncated.map(drop)
    }

    /// Waits for something to do; `None` at the end.
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
                return Some(Mode::Idle { truncate: std::mem::take(&mut state.removed) });
            }
        }
    }
}

/// Pages of the write-ahead log, and those of them that are in the file.
struct CheckpointResult {
    /// Not all of what was asked for could be done.
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
