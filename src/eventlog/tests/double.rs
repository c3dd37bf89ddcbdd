//! A store whose commits a test holds back, counts and refuses.

use std::sync::{Condvar, Mutex};

use bytes::Bytes;

use crate::store::{
    Batch, Cause, CommitError, Committed, Cut, EventStore, LogUsage, MemoryStore, Page, Pruned, ReadError,
    Record, Run, RunHead, Table, Tail,
};
use crate::types::{Epoch, Ids, SessionId};

/// What the next commits do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Take,
    Hold,
    Full,
    Fail,
}

#[derive(Debug)]
pub(super) struct Double {
    inner: MemoryStore,
    mode: Mutex<Mode>,
    changed: Condvar,
    batches: Mutex<Vec<Batch>>,
    /// Commits that were asked for, also those that are held or refused.
    asked: Mutex<usize>,
}

impl Double {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            inner: MemoryStore::new(Ids::system()),
            mode: Mutex::new(mode),
            changed: Condvar::new(),
            batches: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    pub(super) fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no panic") = mode;
        self.changed.notify_all();
    }

    pub(super) fn asked(&self) -> usize {
        *self.asked.lock().expect("no panic")
    }

    /// What was committed, in order.
    pub(super) fn batches(&self) -> Vec<Batch> {
        self.batches.lock().expect("no panic").clone()
    }
}

impl EventStore for Double {
    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn commit(&self, batch: &Batch) -> Result<Committed, CommitError> {
        *self.asked.lock().expect("no panic") += 1;
        let mode = self.mode.lock().expect("no panic");
        let mode = self.changed.wait_while(mode, |mode| *mode == Mode::Hold).expect("no panic");
        match *mode {
            Mode::Full => Err(CommitError::Full),
            Mode::Fail => Err(CommitError::Failed(Cause::from("the disk is on fire"))),
            Mode::Take | Mode::Hold => {
                let committed = self.inner.commit(batch)?;
                self.batches.lock().expect("no panic").push(batch.clone());
                Ok(committed)
            }
        }
    }

    fn read(&self, session: SessionId, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError> {
        self.inner.read(session, after, max_bytes)
    }

    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        wanted: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        self.inner.read_all(after_pos, max_bytes, wanted)
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.inner.usage(session)
    }

    fn usages(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.inner.usages(limit, wanted)
    }

    fn total_bytes(&self) -> u64 {
        self.inner.total_bytes()
    }

    fn tail(&self) -> Tail {
        self.inner.tail()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.inner.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        self.inner.scan(table, prefix, after, limit)
    }

    fn heads(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHead>, ReadError> {
        self.inner.heads(session, after_pos, limit)
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        self.inner.prune(cuts, max_runs)
    }
}
