//! The one thread that commits: sessions in turn, all that waits in one transaction, no timer.
//!
//! While it syncs, the next transaction gathers. So a commit is as small as the load allows and as large as it needs.

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

/// Between two tries while the disk is full.
const RETRY: Duration = Duration::from_secs(1);

/// A commit of no more bytes is given to the few who read it by the writer itself, when nobody else waits for a commit:
/// where more comes, their thread has more in one piece.
const LITTLE: usize = 4 << 10;

/// Called once, on the writer's thread, when nothing more can be committed: the process has to end.
pub type Fatal = Box<dyn FnOnce(&str) + Send>;

/// One place in the writer's line.
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

/// Work on the store that is no commit. The writer does it, so that a failure has one place and no commit waits for
/// more than one piece of it.
pub(super) struct Upkeep(pub(super) Work);

type Work = Box<dyn FnOnce(&dyn EventStore) -> Result<(), CommitError> + Send>;

impl fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

/// Who waits for the writer, in order. A session is in it at most once; writes are counted by their caller.
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
            // The turn is dropped without the lock: a session's end takes others.
            drop(line);
            return;
        }
        line.turns.push_back(turn);
        drop(line);
        self.wake.notify_one();
    }

    /// Asks the writer to commit what waits and to end.
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

    /// Returns once someone waits; false when there is nobody and never will be.
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

    /// Puts back what [`pop`](Self::pop) gave, for the next transaction.
    fn push_front(&self, turn: Turn) {
        self.line().turns.push_front(turn);
    }

    /// Waits until the next try; false when the log closes.
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

    /// A write that compares goes alone: its refusal is nobody else's.
    fn next_is_alone(&self) -> bool {
        match self.line().turns.front() {
            Some(Turn::Write(write)) => !write.records.expect.is_empty(),
            Some(Turn::Upkeep(_)) => true,
            Some(Turn::Session(_)) | None => false,
        }
    }
}

/// What one commit holds, and who waits for it.
#[derive(Default)]
struct Transaction {
    batch: Batch,
    changes: Changes,
    bytes: usize,
    parts: Vec<Part>,
    writes: Vec<oneshot::Sender<Result<(), WriteError>>>,
}

/// A session's part in a commit.
struct Part {
    state: Arc<State>,
    /// It has a run: the next of the batch.
    run: bool,
    erase: bool,
    bytes: usize,
}

/// Why the writer ends before its time.
enum Stop {
    /// The log closes while the disk is full.
    Full,
    Failed(Cause),
}

/// Runs until the log closes or the store fails.
pub(super) fn run(log: Arc<Shared>, fatal: Fatal) {
    let mut end = End { shared: Some(Arc::clone(&log)), fatal: Some(fatal) };
    // After `end`, so that it goes before the end is told.
    let shared = log;
    while shared.queue.wait() {
        let done = match gather(&shared) {
            Next::Commit(transaction) => commit(&shared, transaction),
            Next::Upkeep(Upkeep(work)) => match work(&*shared.store) {
                Err(CommitError::Failed(cause)) => Err(Stop::Failed(cause)),
                // A full disk takes no deletes either; it is tried again.
                _ => Ok(()),
            },
        };
        match done {
            Ok(()) => {}
            Err(Stop::Full) => {
                tracing::error!("the log closes while the disk is full: what was not committed is lost");
                return;
            }
            Err(Stop::Failed(cause)) => {
                tracing::error!(%cause, "the log cannot be written");
                if let Some(fatal) = end.fatal.take() {
                    fatal(&format!("the log cannot be written: {cause}"));
                }
                return;
            }
        }
    }
}

/// Nobody waits for a thread that is gone. Who was told of its end finds the store free of it, to be closed by whoever
/// holds it last.
struct End {
    shared: Option<Arc<Shared>>,
    fatal: Option<Fatal>,
}

impl Drop for End {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(fatal) = self.fatal.take()
        {
            fatal("the log's writer panicked");
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

/// All that waits now, turn by turn, as far as a transaction goes. A session with several runs goes to the end of the
/// line after each, so nobody waits for more than one of another's.
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

    /// What a session erases has to be committed, and given to its readers, before that.
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
            // The bytes stay in memory as long as the tail: without the room that growing left.
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
    // While the wall clock may be behind, what is written must not look older than it is.
    transaction.batch.time = Some(shared.ages.at_most());
    match commit_or_wait(shared, &transaction.batch) {
        Ok(committed) => publish(shared, transaction, &committed),
        Err(CommitError::Conflict { index }) => {
            for done in transaction.writes {
                // Whoever no longer waits does not want to know.
                done.send(Err(WriteError::Conflict { index })).ok();
            }
        }
        Err(CommitError::Full) => return Err(Stop::Full),
        Err(CommitError::Failed(cause)) => return Err(Stop::Failed(cause)),
    }
    Ok(())
}

/// Commits, and tries again for as long as the disk is full, first with the room of the reserve.
fn commit_or_wait(shared: &Shared, batch: &Batch) -> Result<Committed, CommitError> {
    loop {
        match shared.store.commit(batch) {
            Err(CommitError::Full) if shared.alarms.release(&*shared.store) => {
                tracing::error!("the disk is full: the disk reserve is released");
            }
            Err(CommitError::Full) => {
                if !shared.alarms.set_full(true) {
                    tracing::error!("the disk is full: events wait for their commit");
                }
                if !shared.queue.pause() {
                    return shared.store.commit(batch);
                }
            }
            other => {
                if other.is_ok() && shared.alarms.set_full(false) {
                    tracing::info!("the disk has room again");
                }
                return other;
            }
        }
    }
}

/// Gives the events to their readers.
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
    // The last run of each session first: one wake-up for all of them.
    for (state, last_seq) in told.into_iter().rev() {
        state.committed.tell(last_seq, alone && bytes <= LITTLE);
    }
    if let Some(last) = committed.positions.last() {
        shared.last_pos.tell(*last, false);
    }
    for done in transaction.writes {
        // Whoever no longer waits does not want to know.
        done.send(Ok(())).ok();
    }
}
