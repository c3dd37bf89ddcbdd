//! The queue of the writer: sessions with pending events, writes of records, and maintenance jobs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::store::CommitError;
use base::shutdown::lock_or_abort;

use super::records::Records;
use super::store_reader::Store;

/// The delay between two attempts while the disk is full.
const RETRY: Duration = Duration::from_secs(1);

/// The log stopped before the requested commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log is closed: nothing more is committed")]
pub struct Closed;

/// One entry of the queue. `S` is the state of a session's log.
pub(super) enum Job<S> {
    Session(Arc<S>),
    /// Records that belong to no event. The sender is notified when they are durable.
    Write(Records, oneshot::Sender<()>),
    Maintenance(MaintenanceJob),
}

/// Work on the store that the writer runs between two commits, so that failures are handled in one place. A
/// commit waits for at most one job.
pub(super) type MaintenanceJob = Box<dyn FnOnce(&dyn Store) -> Result<(), CommitError> + Send>;

/// The jobs of the writer, first in, first out. [`Pending`](super::pending::Pending) queues a session at most once.
pub(super) struct CommitQueue<S> {
    state: Mutex<QueueState<S>>,
    wake: Condvar,
    /// Bounds the number of queued writes.
    writes: Semaphore,
    /// Cancelled when the writer has stopped. Nothing is committed afterwards.
    pub(super) closed: CancellationToken,
}

struct QueueState<S> {
    /// The audit log, if it has pending events. It does not wait behind the jobs: the next transaction contains it.
    audit: Option<Arc<S>>,
    jobs: VecDeque<Job<S>>,
    closing: bool,
    closed: bool,
}

impl<S> fmt::Debug for CommitQueue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommitQueue")
    }
}

impl<S> CommitQueue<S> {
    pub(super) fn new(max_writes: usize) -> Self {
        let state = QueueState {
            audit: None,
            jobs: VecDeque::new(),
            closing: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            writes: Semaphore::new(max_writes.max(1)),
            closed: CancellationToken::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState<S>> {
        lock_or_abort(self.state.lock())
    }

    /// Changes the queue, unless it is closed. A rejected job is dropped with `change`, after the lock is
    /// released: dropping a session state acquires other locks.
    fn change(&self, change: impl FnOnce(&mut QueueState<S>)) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        change(&mut state);
        drop(state);
        self.wake.notify_one();
    }
    pub(super) fn push(&self, job: Job<S>) {
        self.change(move |state| state.jobs.push_back(job));
    }
    /// Queues the audit log for the next transaction.
    pub(super) fn push_audit(&self, log: Arc<S>) {
        self.change(move |state| state.audit = Some(log));
    }

    /// The audit log, if it has pending events.
    ///
    /// The writer adds it to a transaction last. An event of the audit log is then durable no later than an event
    /// of a session that was appended after it.
    pub(super) fn pop_audit(&self) -> Option<Arc<S>> {
        self.state().audit.take()
    }

    /// Queues records that belong to no event. Returns when they are durable.
    pub(super) async fn write(&self, records: Records) -> Result<(), Closed> {
        let _permit = self.writes.acquire().await.map_err(|_| Closed)?;
        let (done, written) = oneshot::channel();
        self.push(Job::Write(records, done));
        written.await.map_err(|_| Closed)
    }

    /// Queues a maintenance job. Returns `None` if the job failed or the log is closed.
    pub(super) async fn run_maintenance<T: Send + 'static>(
        &self,
        job: impl FnOnce(&dyn Store) -> Result<T, CommitError> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.push(Job::Maintenance(Box::new(move |store| {
            // The caller may have stopped waiting.
            done.send(job(store)?).ok();
            Ok(())
        })));
        result.await.ok()
    }

    /// Asks the writer to commit all queued jobs and to stop.
    pub(super) fn close(&self) {
        self.state().closing = true;
        self.wake.notify_one();
    }

    /// Rejects and drops all jobs.
    pub(super) fn close_and_drain(&self) {
        let mut state = self.state();
        state.closed = true;
        let rest = (state.audit.take(), std::mem::take(&mut state.jobs));
        drop(state);
        drop(rest);
    }

    /// Waits for a job. Returns false if the queue is empty and closing.
    pub(super) fn wait(&self) -> bool {
        let mut state = self.state();
        while state.jobs.is_empty() && state.audit.is_none() {
            if state.closing {
                return false;
            }
            state = lock_or_abort(self.wake.wait(state));
        }
        true
    }

    /// Waits for the retry interval. Returns false if the log closes.
    pub(super) fn wait_before_retry(&self) -> bool {
        let waited = self
            .wake
            .wait_timeout_while(self.state(), RETRY, |state| !state.closing);
        !lock_or_abort(waited).0.closing
    }

    pub(super) fn pop(&self) -> Option<Job<S>> {
        self.state().jobs.pop_front()
    }

    /// Requeues a job from [`pop`](Self::pop) for the next transaction.
    pub(super) fn push_front(&self, job: Job<S>) {
        self.state().jobs.push_front(job);
    }
}
