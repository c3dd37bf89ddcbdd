//! The writer: one thread commits all pending events in one transaction, without a timer.
//!
//! While it syncs, the next transaction accumulates. Therefore the size of commits adapts to the load.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::store::{Batch, CommitError, Run, RunHeader};
use base::telemetry::metrics;

use super::queue::{Job, MaintenanceJob};
use super::records::Changes;
use super::state::{Shared, State};
use super::summaries::Summary;

/// Called once on the writer thread when the log can commit nothing more. The process must exit.
pub type Fatal = Box<dyn FnOnce(&str) + Send>;

/// One commit: its batch, and the sessions and writes that wait for it.
#[derive(Default)]
struct Transaction {
    batch: Batch,
    changes: Changes,
    bytes: usize,
    parts: Vec<SessionPart>,
    writes: Vec<oneshot::Sender<()>>,
}

struct SessionPart {
    state: Arc<State>,
    /// The session has a run in the batch. Runs are in the same order as parts.
    run: bool,
    erase: bool,
    bytes: usize,
    summary: Option<Summary>,
}

/// Runs until the log closes or the store fails.
pub(super) fn run(log: Arc<Shared>, fatal: Fatal) {
    let mut end = ExitGuard {
        shared: Some(Arc::clone(&log)),
        fatal: Some(fatal),
    };
    // Declared after `end`, so that this reference is dropped before the end is published.
    let shared = log;
    while shared.queue.wait() {
        let done = match gather(&shared) {
            Next::Commit(transaction) => commit(&shared, transaction),
            Next::Maintenance(job) => match job(&*shared.store) {
                // Deletes fail on a full disk too. Retention tries again later.
                Err(CommitError::Full) => Ok(()),
                done => done,
            },
        };
        match done {
            Ok(()) => {}
            Err(CommitError::Conflict { .. }) => {
                unreachable!("no batch of the log expects records")
            }
            Err(CommitError::Full) => {
                return tracing::error!(
                    "the log closes while the disk is full: uncommitted events are lost"
                );
            }
            Err(CommitError::Failed(cause)) => {
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
/// reference to the store first, so that the last other handle closes the store.
struct ExitGuard {
    shared: Option<Arc<Shared>>,
    fatal: Option<Fatal>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(fatal) = self.fatal.take()
        {
            fatal("the log writer panicked");
        }
        if let Some(shared) = self.shared.take() {
            shared.queue.close_and_drain();
            let closed = shared.queue.closed.clone();
            drop(shared);
            closed.cancel();
        }
    }
}

enum Next {
    Commit(Transaction),
    Maintenance(MaintenanceJob),
}

/// Collects the queued jobs into one transaction, up to its size limit. A session with several runs is
/// requeued at the end after each run, so that sessions take turns.
fn gather(shared: &Shared) -> Next {
    let mut transaction = Transaction::default();
    loop {
        match shared.queue.pop() {
            Some(Job::Session(state)) if transaction.must_commit_before(&state) => {
                shared.queue.push_front(Job::Session(state));
                break;
            }
            Some(Job::Session(state)) => transaction.add_session(state),
            Some(Job::Write(records, done)) => {
                transaction.bytes += transaction.changes.add(records);
                transaction.writes.push(done);
            }
            Some(Job::Maintenance(job)) if transaction.is_empty() => return Next::Maintenance(job),
            Some(job @ Job::Maintenance(_)) => {
                shared.queue.push_front(job);
                break;
            }
            None => break,
        }
        if transaction.bytes >= shared.limits.max_transaction_bytes {
            break;
        }
    }
    while let Some(audit) = shared.queue.pop_audit() {
        transaction.add_session(audit);
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
    fn must_commit_before(&self, state: &Arc<State>) -> bool {
        let mut parts = self.parts.iter();
        state.pending().erases_next() && parts.any(|part| Arc::ptr_eq(&part.state, state))
    }

    fn add_session(&mut self, state: Arc<State>) {
        let popped = state.pending().pop_chunk();
        let Some((mut chunk, more)) = popped else {
            return;
        };
        if more {
            state.enqueue();
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
                owner: state.owner.clone(),
                session: state.id,
                first_seq: chunk.first_seq,
                last_seq: chunk.last_seq,
                last_pos: 0,
                frames: chunk.frames.into(),
            });
        }
        self.changes.merge(chunk.changes);
        self.bytes += chunk.bytes;
        self.parts.push(SessionPart {
            state,
            run,
            erase: chunk.erase,
            bytes: chunk.bytes,
            summary: chunk.summary,
        });
    }
}

/// Commits a transaction and publishes its events. Fails if the writer must stop: the store failed, or the log
/// closes while the disk is full.
fn commit(shared: &Shared, mut transaction: Transaction) -> Result<(), CommitError> {
    // While the wall clock may be slow, the latest possible time keeps new events from expiring early.
    transaction.batch.time = Some(shared.expiry.latest_now());
    let begun = Instant::now();
    let stored = commit_with_retry(shared, &transaction.batch)?;
    metrics().commit_duration(begun.elapsed().as_secs_f64());
    let events = stored.iter().map(|run| run.last_seq - run.first_seq + 1);
    metrics().log_events(events.sum());
    publish(shared, transaction, &stored);
    Ok(())
}

/// Commits. While the disk is full, it first releases the reserve, then retries.
fn commit_with_retry(shared: &Shared, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
    loop {
        match shared.store.commit(batch) {
            Err(CommitError::Full) if shared.alarms.release_reserve() => {
                tracing::error!("the disk is full: released the disk reserve");
            }
            Err(CommitError::Full) => {
                if !shared.alarms.set_full(true) {
                    tracing::error!("the disk is full: events wait until space is free");
                }
                if !shared.queue.wait_before_retry() {
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
fn publish(shared: &Shared, transaction: Transaction, stored: &[RunHeader]) {
    let bytes = stored.iter().map(|run| run.bytes).sum();
    shared.growth.add(bytes, &shared.limits);
    let mut runs = transaction.batch.runs.into_iter().zip(stored);
    let mut watermark = Vec::with_capacity(transaction.parts.len());
    for part in transaction.parts {
        let state = part.state;
        state.pending().committed(part.bytes);
        if let Some(summary) = part.summary {
            let summaries = &shared.published.summaries;
            summaries.publish(&state.owner, state.id, summary, &shared.shares);
        }
        if part.erase {
            shared.shares.remove(state.id);
        }
        if part.run
            && let Some((mut run, header)) = runs.next()
        {
            run.last_pos = header.last_pos;
            state.publish(run, part.erase);
            watermark.push((state, header.last_seq));
        }
    }
    // Only the last run of each session advances the watermark, so each session is notified once.
    for (state, last_seq) in watermark.into_iter().rev() {
        state.committed.advance(last_seq);
    }
    if let Some(last) = stored.last() {
        shared.published.last_pos.advance(last.last_pos);
    }
    for done in transaction.writes {
        // The caller may have stopped waiting.
        done.send(()).ok();
    }
}
