//! The writer: one thread commits all pending events in one transaction, without a timer.
//!
//! While it syncs, the next transaction accumulates. Therefore the size of commits adapts to the load.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::shutdown::sound;
use crate::store::{Batch, Cause, CommitError, Committed, EventStore, Run};

use super::records::{Changes, Records};
use super::session::State;
use super::{Shared, WriteError};

/// The delay between two attempts while the disk is full.
const RETRY: Duration = Duration::from_secs(1);

/// The writer notifies readers inline after a commit of at most this many bytes, if no other commit waits.
/// Larger output is split into fewer pieces when the readers' own thread delivers it.
const LITTLE: usize = 4 << 10;

/// Called once on the writer thread when the log can commit nothing more. The process must exit.
pub type Fatal = Box<dyn FnOnce(&str) + Send>;

/// One entry of the commit queue.
#[derive(Debug)]
enum Turn {
    Session(Arc<State>),
    Write(Write),
    Upkeep(Upkeep),
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) records: Records,
    pub(super) done: oneshot::Sender<Result<(), WriteError>>,
}

/// Work on the store that is not a commit. The writer runs it, so that failures are handled in one place. A
/// commit waits for at most one job.
pub(super) struct Upkeep(pub(super) Work);

type Work = Box<dyn FnOnce(&dyn EventStore) -> Result<(), CommitError> + Send>;

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

/// The queue of the writer, first in, first out. A session is queued at most once. Callers bound the number
/// of writes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    line: Mutex<Line>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    turns: VecDeque<Turn>,
    closing: bool,
    closed: bool,
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        sound(self.line.lock())
    }

    pub(super) fn push_session(&self, state: Arc<State>) {
        self.push(Turn::Session(state));
    }

    pub(super) fn push_write(&self, write: Write) {
        self.push(Turn::Write(write));
    }

    pub(super) fn push_upkeep(&self, upkeep: Upkeep) {
        self.push(Turn::Upkeep(upkeep));
    }

    fn push(&self, turn: Turn) {
        let mut line = self.line();
        if line.closed {
            // Drop the job after the lock is released: dropping a session state acquires other locks.
            drop(line);
            return;
        }
        line.turns.push_back(turn);
        drop(line);
        self.wake.notify_one();
    }

    /// Asks the writer to commit all queued jobs and to stop.
    pub(super) fn close(&self) {
        self.line().closing = true;
        self.wake.notify_one();
    }

    fn end(&self) {
        let mut line = self.line();
        line.closed = true;
        let rest = std::mem::take(&mut line.turns);
        drop(line);
        drop(rest);
    }

    /// Waits for a job. Returns false if the queue is empty and closing.
    fn wait(&self) -> bool {
        let mut line = self.line();
        while line.turns.is_empty() {
            if line.closing {
                return false;
            }
            line = sound(self.wake.wait(line));
        }
        true
    }

    /// Requeues a job from [`pop`](Self::pop) for the next transaction.
    fn push_front(&self, turn: Turn) {
        self.line().turns.push_front(turn);
    }

    /// Waits for the retry interval. Returns false if the log closes.
    fn pause(&self) -> bool {
        let line = self.line();
        let (line, _) = sound(self.wake.wait_timeout_while(line, RETRY, |line| !line.closing));
        !line.closing
    }

    fn is_empty(&self) -> bool {
        self.line().turns.is_empty()
    }

    fn pop(&self) -> Option<Turn> {
        self.line().turns.pop_front()
    }

    /// Whether the next job needs a transaction of its own: a maintenance job, or a write with expected
    /// values, because a conflict must fail only that write.
    fn next_is_alone(&self) -> bool {
        match self.line().turns.front() {
            Some(Turn::Write(write)) => !write.records.expect.is_empty(),
            Some(Turn::Upkeep(_)) => true,
            Some(Turn::Session(_)) | None => false,
        }
    }
}

/// One commit: its batch, and the sessions and writes that wait for it.
#[derive(Default)]
struct Transaction {
    batch: Batch,
    changes: Changes,
    bytes: usize,
    parts: Vec<Part>,
    writes: Vec<oneshot::Sender<Result<(), WriteError>>>,
}

/// The part of a session in a commit.
struct Part {
    state: Arc<State>,
    /// The session has a run in the batch. Runs are in the same order as parts.
    run: bool,
    erase: bool,
    bytes: usize,
}

/// Why the writer stops early.
enum Stop {
    /// The log closes while the disk is full.
    Full,
    Failed(Cause),
}

/// Runs until the log closes or the store fails.
pub(super) fn run(log: Arc<Shared>, fatal: Fatal) {
    let mut end = End { shared: Some(Arc::clone(&log)), fatal: Some(fatal) };
    // Declared after `end`, so that this reference is dropped before the end is published.
    let shared = log;
    while shared.queue.wait() {
        let done = match gather(&shared) {
            Next::Commit(transaction) => commit(&shared, transaction),
            Next::Upkeep(Upkeep(work)) => match work(&*shared.store) {
                Err(CommitError::Failed(cause)) => Err(Stop::Failed(cause)),
                // Deletes fail on a full disk too. Retention tries again later.
                _ => Ok(()),
            },
        };
        match done {
            Ok(()) => {}
            Err(Stop::Full) => {
                tracing::error!("the log closes while the disk is full: uncommitted events are lost");
                return;
            }
            Err(Stop::Failed(cause)) => {
                tracing::error!(%cause, "could not write the log: the process exits");
                if let Some(fatal) = end.fatal.take() {
                    fatal(&format!("could not write the log: {cause}"));
                }
                return;
            }
        }
    }
}

/// Releases the queue and publishes the end when the writer thread ends, also by a panic. It drops its
/// reference to the store first, so that the last other owner closes the store.
struct End {
    shared: Option<Arc<Shared>>,
    fatal: Option<Fatal>,
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(fatal) = self.fatal.take()
        {
            fatal("the log writer panicked");
        }
        if let Some(shared) = self.shared.take() {
            shared.queue.end();
            let closed = shared.closed.clone();
            drop(shared);
            closed.cancel();
        }
    }
}

enum Next {
    Commit(Transaction),
    Upkeep(Upkeep),
}

/// Collects the queued jobs into one transaction, up to its size limit. A session with several runs is
/// requeued at the end after each run, so that sessions take turns.
fn gather(shared: &Shared) -> Next {
    let mut transaction = Transaction::default();
    loop {
        let alone = shared.queue.next_is_alone();
        if alone && !transaction.is_empty() {
            break;
        }
        match shared.queue.pop() {
            Some(Turn::Session(state)) if transaction.must_end_before(&state) => {
                shared.queue.push_front(Turn::Session(state));
                break;
            }
            Some(Turn::Session(state)) => transaction.add_session(state),
            Some(Turn::Write(write)) => transaction.add_write(write),
            Some(Turn::Upkeep(upkeep)) => return Next::Upkeep(upkeep),
            None => break,
        }
        if alone || transaction.bytes >= shared.limits.transaction_bytes {
            break;
        }
    }
    std::mem::take(&mut transaction.changes).write_to(&mut transaction.batch);
    Next::Commit(transaction)
}

impl Transaction {
    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.writes.is_empty()
    }

    /// Whether the current transaction must be committed before this session's erase: readers must see the
    /// earlier events first.
    fn must_end_before(&self, state: &Arc<State>) -> bool {
        state.pending().erases_next() && self.parts.iter().any(|part| Arc::ptr_eq(&part.state, state))
    }

    fn add_session(&mut self, state: Arc<State>) {
        let taken = state.pending().take();
        let Some((mut chunk, more)) = taken else { return };
        if more {
            state.shared.queue.push_session(Arc::clone(&state));
        }
        let run = chunk.last_seq >= chunk.first_seq;
        if chunk.erase {
            self.batch.erase.push(state.id);
        }
        if run {
            // The tail keeps the frames in memory, so release unused capacity.
            if chunk.frames.capacity() - chunk.frames.len() > chunk.frames.len() / 4 {
                chunk.frames.shrink_to_fit();
            }
            self.batch.runs.push(Run {
                tenant: state.tenant.clone(),
                session: state.id,
                first_seq: chunk.first_seq,
                last_seq: chunk.last_seq,
                last_pos: 0,
                frames: chunk.frames.into(),
            });
        }
        self.changes.merge(chunk.changes);
        self.bytes += chunk.bytes;
        self.parts.push(Part { state, run, erase: chunk.erase, bytes: chunk.bytes });
    }

    fn add_write(&mut self, mut write: Write) {
        self.batch.expect = std::mem::take(&mut write.records.expect);
        self.bytes += self.changes.add(write.records);
        self.writes.push(write.done);
    }
}

fn commit(shared: &Shared, mut transaction: Transaction) -> Result<(), Stop> {
    // While the wall clock may be slow, the latest possible time keeps new events from expiring early.
    transaction.batch.time = Some(shared.ages.at_most());
    match commit_or_wait(shared, &transaction.batch) {
        Ok(committed) => publish(shared, transaction, &committed),
        Err(CommitError::Conflict { index }) => {
            for done in transaction.writes {
                // The caller may have stopped waiting.
                done.send(Err(WriteError::Conflict { index })).ok();
            }
        }
        Err(CommitError::Full) => return Err(Stop::Full),
        Err(CommitError::Failed(cause)) => return Err(Stop::Failed(cause)),
    }
    Ok(())
}

/// Commits. While the disk is full, it first releases the reserve, then retries.
fn commit_or_wait(shared: &Shared, batch: &Batch) -> Result<Committed, CommitError> {
    loop {
        match shared.store.commit(batch) {
            Err(CommitError::Full) if shared.alarms.release(&*shared.store) => {
                tracing::error!("the disk is full: released the disk reserve");
            }
            Err(CommitError::Full) => {
                if !shared.alarms.set_full(true) {
                    tracing::error!("the disk is full: events wait until space is free");
                }
                if !shared.queue.pause() {
                    return shared.store.commit(batch);
                }
            }
            other => {
                if other.is_ok() && shared.alarms.set_full(false) {
                    tracing::info!("the disk has space again: commits continue");
                }
                return other;
            }
        }
    }
}

/// Publishes committed events to the readers.
fn publish(shared: &Shared, transaction: Transaction, committed: &Committed) {
    shared.growth.add(committed.bytes, &shared.limits);
    let bytes = transaction.bytes;
    let mut runs = transaction.batch.runs.into_iter().zip(&committed.positions);
    let mut told = Vec::with_capacity(transaction.parts.len());
    for part in transaction.parts {
        part.state.pending().committed(part.bytes);
        if part.run
            && let Some((run, last_pos)) = runs.next()
        {
            let last_seq = run.last_seq;
            part.state.publish(Run { last_pos: *last_pos, ..run }, part.erase);
            told.push((part.state, last_seq));
        }
    }
    let alone = told.len() == 1 && transaction.writes.is_empty() && shared.queue.is_empty();
    // Only the last run of each session advances the watermark, so each session is notified once.
    for (state, last_seq) in told.into_iter().rev() {
        state.committed.tell(last_seq, alone && bytes <= LITTLE);
    }
    if let Some(last) = committed.positions.last() {
        shared.last_pos.tell(*last, false);
    }
    for done in transaction.writes {
        // The caller may have stopped waiting.
        done.send(Ok(())).ok();
    }
}
