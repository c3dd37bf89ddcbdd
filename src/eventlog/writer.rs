//! The one thread that commits: sessions in turn, all that waits in one transaction, no timer.
//!
//! While it syncs, the next transaction gathers. So a commit is as small as the load allows and as large as it needs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::shutdown::lock_or_abort;
use crate::store::{Batch, BoxError, CommitError, Committed, EventStore, Run};

use super::records::{Changes, Records};
use super::session::State;
use super::{Shared, WriteError};

/// Between two tries while the disk is full.
const RETRY: Duration = Duration::from_secs(1);

/// A commit of no more bytes is given to the few who read it by the writer itself, when nobody else waits for a commit:
/// where more comes, their thread has more in one piece.
const INLINE_NOTIFY_BYTES: usize = 4 << 10;

/// Called once, on the writer's thread, when nothing more can be committed: the process has to end.
pub type Fatal = Box<dyn FnOnce(&str) + Send>;

/// One place in the writer's line.
#[derive(Debug)]
enum Job {
    Session(Arc<State>),
    Write(Write),
    Maintenance(MaintenanceJob),
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) records: Records,
    pub(super) done: oneshot::Sender<Result<(), WriteError>>,
}

/// Work on the store that is no commit. The writer does it, so that a failure has one place and no commit waits for
/// more than one piece of it.
pub(super) struct MaintenanceJob(pub(super) MaintenanceFn);

type MaintenanceFn = Box<dyn FnOnce(&dyn EventStore) -> Result<(), CommitError> + Send>;

impl fmt::Debug for MaintenanceJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upkeep")
    }
}

/// Who waits for the writer, in order. A session is in it at most once; writes are counted by their caller.
#[derive(Debug, Default)]
pub(super) struct CommitQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    closing: bool,
    closed: bool,
}

impl CommitQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock_or_abort(self.state.lock())
    }

    pub(super) fn push_session(&self, state: Arc<State>) {
        self.push(Job::Session(state));
    }

    pub(super) fn push_write(&self, write: Write) {
        self.push(Job::Write(write));
    }

    pub(super) fn push_maintenance(&self, job: MaintenanceJob) {
        self.push(Job::Maintenance(job));
    }

    fn push(&self, job: Job) {
        let mut line = self.state();
        if line.closed {
            // The turn is dropped without the lock: a session's end takes others.
            drop(line);
            return;
        }
        line.jobs.push_back(job);
        drop(line);
        self.wake.notify_one();
    }

    /// Asks the writer to commit what waits and to end.
    pub(super) fn close(&self) {
        self.state().closing = true;
        self.wake.notify_one();
    }

    fn close_and_drain(&self) {
        let mut line = self.state();
        line.closed = true;
        let rest = std::mem::take(&mut line.jobs);
        drop(line);
        drop(rest);
    }

    /// Returns once someone waits; false when there is nobody and never will be.
    fn wait(&self) -> bool {
        let mut line = self.state();
        while line.jobs.is_empty() {
            if line.closing {
                return false;
            }
            line = lock_or_abort(self.wake.wait(line));
        }
        true
    }

    /// Puts back what [`pop`](Self::pop) gave, for the next transaction.
    fn push_front(&self, job: Job) {
        self.state().jobs.push_front(job);
    }

    /// Waits until the next try; false when the log closes.
    fn wait_before_retry(&self) -> bool {
        let line = self.state();
        let (line, _) = lock_or_abort(self.wake.wait_timeout_while(line, RETRY, |line| !line.closing));
        !line.closing
    }

    fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    fn pop(&self) -> Option<Job> {
        self.state().jobs.pop_front()
    }

    /// A write that compares goes alone: its refusal is nobody else's.
    fn next_is_exclusive(&self) -> bool {
        match self.state().jobs.front() {
            Some(Job::Write(write)) => !write.records.expect.is_empty(),
            Some(Job::Maintenance(_)) => true,
            Some(Job::Session(_)) | None => false,
        }
    }
}

/// What one commit holds, and who waits for it.
#[derive(Default)]
struct Transaction {
    batch: Batch,
    changes: Changes,
    bytes: usize,
    parts: Vec<SessionPart>,
    writes: Vec<oneshot::Sender<Result<(), WriteError>>>,
}

/// A session's part in a commit.
struct SessionPart {
    state: Arc<State>,
    /// It has a run: the next of the batch.
    run: bool,
    erase: bool,
    bytes: usize,
}

/// Why the writer ends before its time.
enum StopReason {
    /// The log closes while the disk is full.
    DiskFull,
    Failed(BoxError),
}

/// Runs until the log closes or the store fails.
pub(super) fn run(log: Arc<Shared>, fatal: Fatal) {
    let mut end = ExitGuard { shared: Some(Arc::clone(&log)), fatal: Some(fatal) };
    // After `end`, so that it goes before the end is told.
    let shared = log;
    while shared.queue.wait() {
        let done = match gather(&shared) {
            Next::Commit(transaction) => commit(&shared, transaction),
            Next::Maintenance(MaintenanceJob(work)) => match work(&*shared.store) {
                Err(CommitError::Failed(cause)) => Err(StopReason::Failed(cause)),
                // A full disk takes no deletes either; it is tried again.
                _ => Ok(()),
            },
        };
        match done {
            Ok(()) => {}
            Err(StopReason::DiskFull) => {
                tracing::error!("the log closes while the disk is full: what was not committed is lost");
                return;
            }
            Err(StopReason::Failed(cause)) => {
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
struct ExitGuard {
    shared: Option<Arc<Shared>>,
    fatal: Option<Fatal>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(fatal) = self.fatal.take()
        {
            fatal("the log's writer panicked");
        }
        if let Some(shared) = self.shared.take() {
            shared.queue.close_and_drain();
            let closed = shared.closed.clone();
            drop(shared);
            closed.cancel();
        }
    }
}

enum Next {
    Commit(Transaction),
    Maintenance(MaintenanceJob),
}

/// All that waits now, turn by turn, as far as a transaction goes. A session with several runs goes to the end of the
/// line after each, so nobody waits for more than one of another's.
fn gather(shared: &Shared) -> Next {
    let mut transaction = Transaction::default();
    loop {
        let alone = shared.queue.next_is_exclusive();
        if alone && !transaction.is_empty() {
            break;
        }
        match shared.queue.pop() {
            Some(Job::Session(state)) if transaction.must_commit_before(&state) => {
                shared.queue.push_front(Job::Session(state));
                break;
            }
            Some(Job::Session(state)) => transaction.add_session(state),
            Some(Job::Write(write)) => transaction.add_write(write),
            Some(Job::Maintenance(upkeep)) => return Next::Maintenance(upkeep),
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
    fn must_commit_before(&self, state: &Arc<State>) -> bool {
        state.pending().erases_next() && self.parts.iter().any(|part| Arc::ptr_eq(&part.state, state))
    }

    fn add_session(&mut self, state: Arc<State>) {
        let taken = state.pending().pop_chunk();
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
        self.parts.push(SessionPart { state, run, erase: chunk.erase, bytes: chunk.bytes });
    }

    fn add_write(&mut self, mut write: Write) {
        self.batch.expect = std::mem::take(&mut write.records.expect);
        self.bytes += self.changes.add(write.records);
        self.writes.push(write.done);
    }
}

fn commit(shared: &Shared, mut transaction: Transaction) -> Result<(), StopReason> {
    // While the wall clock may be behind, what is written must not look older than it is.
    transaction.batch.time = Some(shared.expiry.latest_now());
    match commit_with_retry(shared, &transaction.batch) {
        Ok(committed) => publish(shared, transaction, &committed),
        Err(CommitError::Conflict { index }) => {
            for done in transaction.writes {
                // Whoever no longer waits does not want to know.
                done.send(Err(WriteError::Conflict { index })).ok();
            }
        }
        Err(CommitError::Full) => return Err(StopReason::DiskFull),
        Err(CommitError::Failed(cause)) => return Err(StopReason::Failed(cause)),
    }
    Ok(())
}

/// Commits, and tries again for as long as the disk is full, first with the room of the reserve.
fn commit_with_retry(shared: &Shared, batch: &Batch) -> Result<Committed, CommitError> {
    loop {
        match shared.store.commit(batch) {
            Err(CommitError::Full) if shared.alarms.release_reserve(&*shared.store) => {
                tracing::error!("the disk is full: the disk reserve is released");
            }
            Err(CommitError::Full) => {
                if !shared.alarms.set_full(true) {
                    tracing::error!("the disk is full: events wait for their commit");
                }
                if !shared.queue.wait_before_retry() {
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
        state.committed.advance(last_seq, alone && bytes <= INLINE_NOTIFY_BYTES);
    }
    if let Some(last) = committed.positions.last() {
        shared.last_pos.advance(*last, false);
    }
    for done in transaction.writes {
        // Whoever no longer waits does not want to know.
        done.send(Ok(())).ok();
    }
}
