//! A store in memory with scripted faults: slow, full or broken commits, and failing reads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use base::types::{Epoch, Ids, SessionId};

use super::memory::MemoryStore;
use super::{
    Batch, CommitError, Cut, Disk, EventStore, LogUsage, Maintenance, Page, Pruned, ReadError,
    Record, RecordStore, Run, RunHeader, Table, Tail,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Commit,
    /// Blocks until the test sets another outcome.
    Block,
    /// Commits after this delay.
    Slow(Duration),
    Full,
    Fail,
    Panic,
}

#[derive(Debug)]
pub struct FaultyStore {
    inner: MemoryStore,
    script: Mutex<Script>,
    changed: Condvar,
}

#[derive(Debug)]
struct Script {
    /// The outcomes of the next calls, one each. Afterwards `always` applies.
    next: VecDeque<Outcome>,
    always: Outcome,
    reads: Option<fn() -> ReadError>,
    /// The number of reads of a session's runs.
    run_reads: usize,
    batches: Vec<Batch>,
    attempts: usize,
    /// Free bytes of a disk of 100 GiB.
    free: u64,
}

impl FaultyStore {
    pub fn new(always: Outcome) -> Self {
        let next = VecDeque::new();
        let batches = Vec::new();
        let script = Script {
            next,
            always,
            reads: None,
            run_reads: 0,
            batches,
            attempts: 0,
            free: 50 << 30,
        };
        Self {
            inner: MemoryStore::new(Ids::system()),
            script: Mutex::new(script),
            changed: Condvar::new(),
        }
    }

    /// Sets the outcome of all following commits, and of commits that are blocked.
    pub fn set(&self, always: Outcome) {
        let mut script = self.script();
        script.next.clear();
        script.always = always;
        self.changed.notify_all();
    }

    /// Sets the outcomes of the next commits. Afterwards the default applies.
    pub fn next(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.script().next.extend(outcomes);
    }

    /// Sets the error of all following reads of runs and records. `None`: reads succeed.
    pub fn set_reads(&self, error: Option<fn() -> ReadError>) {
        self.script().reads = error;
    }

    /// The number of reads of a session's runs.
    pub fn run_reads(&self) -> usize {
        self.script().run_reads
    }

    /// Sets the free bytes of its disk of 100 GiB.
    pub fn set_free(&self, free: u64) {
        self.script().free = free;
    }

    /// The number of attempted commits, including blocked and rejected ones.
    pub fn attempts(&self) -> usize {
        self.script().attempts
    }

    /// The committed batches, in order.
    pub fn batches(&self) -> Vec<Batch> {
        self.script().batches.clone()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the scripted outcome of this call.
    fn apply_outcome(&self) -> Result<(), CommitError> {
        let mut script = self.script();
        script.attempts += 1;
        let outcome = script.next.pop_front();
        let outcome = outcome.unwrap_or_else(|| {
            let held = |script: &mut Script| script.always == Outcome::Block;
            self.changed
                .wait_while(script, held)
                .unwrap_or_else(PoisonError::into_inner)
                .always
        });
        match outcome {
            Outcome::Commit | Outcome::Block => Ok(()),
            Outcome::Slow(time) => {
                std::thread::sleep(time);
                Ok(())
            }
            Outcome::Full => Err(CommitError::Full),
            Outcome::Fail => Err(CommitError::Failed("the disk is on fire".into())),
            Outcome::Panic => panic!("on purpose"),
        }
    }

    fn readable(&self) -> Result<&MemoryStore, ReadError> {
        match self.script().reads {
            Some(error) => Err(error()),
            None => Ok(&self.inner),
        }
    }
}

impl RecordStore for FaultyStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
        self.apply_outcome()?;
        let committed = self.inner.commit(batch)?;
        self.script().batches.push(batch.clone());
        Ok(committed)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.readable()?.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        self.readable()?.scan(table, prefix, after, limit)
    }
}

impl EventStore for FaultyStore {
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn shard(&self) -> u16 {
        self.inner.shard()
    }

    fn read(
        &self,
        session: SessionId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Vec<Run>, ReadError> {
        self.script().run_reads += 1;
        self.readable()?.read(session, after, max_bytes)
    }

    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        filter: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        self.readable()?.read_all(after_pos, max_bytes, filter)
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.inner.usage(session)
    }

    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        self.readable()?.bounds(session)
    }

    fn tail(&self) -> Tail {
        self.inner.tail()
    }
}

impl Maintenance for FaultyStore {
    fn usages(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.inner.usages(limit, filter)
    }

    fn session_count(&self) -> usize {
        self.inner.session_count()
    }

    fn total_bytes(&self) -> u64 {
        self.inner.total_bytes()
    }

    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError> {
        self.readable()?.run_headers(session, after_pos, limit)
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        self.apply_outcome()?;
        self.inner.prune(cuts, max_runs)
    }

    fn disk(&self) -> std::io::Result<Disk> {
        Ok(Disk {
            free: self.script().free,
            total: 100 << 30,
        })
    }

    fn compact(&self) -> Result<bool, CommitError> {
        self.inner.compact()
    }

    fn keep_reserve(&self, bytes: u64, free: u64) -> std::io::Result<bool> {
        self.inner.keep_reserve(bytes, free)
    }

    fn release_reserve(&self) -> bool {
        self.inner.release_reserve()
    }
}
