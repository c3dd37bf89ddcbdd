//! The durable adapter: one SQLite file, one writer connection, several reader connections and one connection
//! for checkpoints.
//!
//! - **Durability.** A commit is durable when it returns (WAL, `synchronous = FULL`).
//! - **Damage.** Each run has a checksum over its stored bytes, session and seqs. Every read verifies it.
//!   Damaged runs are reported and never returned.
//! - **Unclean shutdown.** SQLite deletes the write-ahead log when the last connection closes. If the file has
//!   one, the last process crashed. The adapter then checks the file completely once, and keeps the write-ahead
//!   log until a check succeeds.
//! - **Restore.** A restored file has a new epoch. Runs keep the epoch of their frames, and reads replace it
//!   with the file's epoch.
//!
//! This module owns the file and its format. It must not know readers, retention rules or ACP.
//!
//! Reading order:
//!
//! 1. `schema` (the file), `migrate` (earlier formats), `compress` and `row` (a run in it).
//! 2. `read`, `log_stats` and `write` (statements), `reserve`.
//! 3. `index` (the index in memory), `check` (damage), `copy` (backup), `restore`, `export` (one session).
//! 4. `checkpoint`, and this file, which composes them.

mod check;
mod checkpoint;
pub mod compress;
mod copy;
mod export;
mod index;
mod log_stats;
mod migrate;
mod read;
#[cfg(test)]
mod read_accounting;
mod reserve;
mod restore;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::limits::Limits;
use base::shutdown::lock_or_abort;
use base::types::{Epoch, Ids, SessionId, Timestamp, UserId};

use super::{
    Batch, CommitError, Cut, Disk, EventStore, LogUsage, Maintenance, Page, Pruned, ReadError,
    Record, RecordState, RecordStore, Run, RunHeader, Table, Tail,
};
use check::Check;
use checkpoint::Checkpointer;
use index::Index;
use read::ReaderPool;
use reserve::Reserve;
use reserve::WalPrealloc;
use schema::PAGE_BYTES;
use write::{PrunedLog, Removal};

pub use check::{CheckError, CheckReport};
pub use copy::copy;
pub use export::{ExportFile, FILE_PART_BYTES, MAX_EXPORTED_RECORD_BYTES};
pub use migrate::{Migration, migrate};
pub use restore::{RestoreReport, restore};
pub use schema::{OpenError, VERSION as FORMAT};

/// Events and records in one SQLite file.
// Fields are dropped in this order: the writer connection must close last, because the last connection
// deletes the write-ahead log.
#[derive(Debug)]
pub struct SqliteStore {
    checkpointer: Checkpointer,
    readers: ReaderPool,
    writer: Mutex<Connection>,
    wal_prealloc: WalPrealloc,
    reserve: Reserve,
    index: Mutex<Index>,
    epoch: Epoch,
    shard: u16,
    ids: Ids,
    path: PathBuf,
    /// Damaged runs exist. Their pages must not be moved, so compaction is disabled.
    compaction_blocked: AtomicBool,
    /// The previous process died with the file open and no check has succeeded since, or a write failed. The
    /// write-ahead log is then kept on close, so that the next start checks the file.
    unclean_shutdown: AtomicBool,
}

impl SqliteStore {
    /// Opens the log at `path`, or creates it with a new epoch. The directory must exist. A file of an earlier format must be
    /// migrated first ([`migrate`]).
    ///
    /// The index of runs is in memory, so only one process may commit runs, erase or prune: the gateway,
    /// which holds the lock of the data directory. Commands for keys may open the file at the same time to
    /// change records. Records are read from the file each time, and `expect` is compared inside the
    /// transaction. The two writers wait for each other.
    pub fn open(path: &Path, ids: Ids, limits: &Limits) -> Result<Self, OpenError> {
        let left_open = schema::with_suffix(path, "-wal").exists();
        schema::prepare(path, &ids)?;
        let mut writer = schema::open_writer(path)?;
        let epoch = schema::epoch(&writer)?;
        let shard = schema::shard(&writer)?;
        let index = Index::load(&writer)?;
        let wal_prealloc = WalPrealloc::new(&mut writer, path)?;
        Ok(Self {
            checkpointer: Checkpointer::start(schema::open_checkpointer(path)?)?,
            readers: ReaderPool::open(path, limits.max_store_readers)?,
            writer: Mutex::new(writer),
            wal_prealloc,
            reserve: Reserve(schema::folder_of(path).join("disk-reserve")),
            index: Mutex::new(index),
            epoch,
            shard,
            ids,
            path: path.to_owned(),
            compaction_blocked: AtomicBool::new(false),
            unclean_shutdown: AtomicBool::new(left_open),
        })
    }

    /// Whether the previous process ended without closing the file, or its check found damage.
    pub fn unclean_shutdown(&self) -> bool {
        self.unclean_shutdown.load(Ordering::Relaxed)
    }

    /// The size of the database in bytes. A check reads at most that much, but decompresses more.
    pub fn size(&self) -> Result<u64, OpenError> {
        let writer = self.writer();
        let pages: i64 = writer.pragma_query_value(None, "page_count", |row| row.get(0))?;
        Ok(row::from_sql(pages) * PAGE_BYTES)
    }

    /// Checks the whole file on a connection of its own. `on_start` receives a function that stops the check.
    /// `on_limit` is called once the check has decompressed more than `max_bytes` of runs. If the structure
    /// of the file is broken, all further commits are rejected.
    pub fn check(
        &self,
        on_start: impl FnOnce(Box<dyn Fn() + Send>),
        max_bytes: u64,
        on_limit: impl FnOnce(),
    ) -> Result<CheckReport, CheckError> {
        let check = Check::of(&self.path, &self.epoch)?;
        on_start(Box::new(check.stop()));
        let result = check.run(max_bytes, on_limit);
        match &result {
            Ok(checked) => {
                self.unclean_shutdown.store(false, Ordering::Relaxed);
                let is_damaged = checked.overflow_damaged || checked.damaged > 0;
                self.compaction_blocked
                    .fetch_or(is_damaged, Ordering::Relaxed);
            }
            Err(error @ CheckError::Malformed(_)) => {
                self.unclean_shutdown.store(true, Ordering::Relaxed);
                self.checkpointer.abort(error.to_string());
            }
            Err(CheckError::Stopped | CheckError::Failed(_)) => {}
        }
        result
    }

    /// Commits the session of a file that was moved to this log, together with `records`, in one transaction. `None`: the file
    /// can no longer be read, and nothing was written.
    pub fn import(
        &self,
        file: &ExportFile,
        owner: &UserId,
        records: &[RecordState],
        time: Timestamp,
    ) -> Result<Option<Vec<RunHeader>>, CommitError> {
        let writer = self.writer();
        self.checkpointer.check()?;
        let last_pos = self.index().last_pos;
        let imported = write::import(
            &writer,
            &self.wal_prealloc,
            file,
            owner,
            records,
            &self.epoch,
            last_pos,
            time,
        );
        let Some((runs, written)) = self.note_failure(imported)? else {
            return Ok(None);
        };
        let mut index = self.index();
        for run in &runs {
            index.append(owner, run);
        }
        drop(index);
        drop(writer);
        self.checkpointer.record_write(written, false);
        Ok(Some(runs))
    }

    /// Records a failed write: the content of the disk is unknown, so the write-ahead log must be kept.
    fn note_failure<T>(&self, result: Result<T, CommitError>) -> Result<T, CommitError> {
        if matches!(result, Err(CommitError::Failed(_))) {
            self.unclean_shutdown.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Logs damaged runs that were to be deleted. They stay in the file and are removed from the index.
    fn report_damaged<'a>(&self, removals: impl IntoIterator<Item = &'a Removal>) {
        for removal in removals.into_iter().filter(|removal| removal.damaged > 0) {
            tracing::error!(session = %removal.session, runs = removal.damaged, "could not delete damaged events: they stay in the file, and readers skip them");
            self.compaction_blocked.store(true, Ordering::Relaxed);
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        lock_or_abort(self.index.lock())
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        lock_or_abort(self.writer.lock())
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if self.unclean_shutdown() || self.checkpointer.check().is_err() {
            let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let kept = self.writer().set_db_config(keep, true);
            if let Err(error) = kept {
                tracing::warn!(%error, "could not keep the write-ahead log: the next start will not check the file");
            }
        }
    }
}

impl RecordStore for SqliteStore {
    fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
        let time = batch.time.unwrap_or_else(|| self.ids.now());
        let writer = self.writer();
        self.checkpointer.check()?;
        let (first, stats) = {
            let index = self.index();
            (index.last_pos, index.stats_due(batch))
        };
        let outcome = write::commit(
            &writer,
            &self.wal_prealloc,
            batch,
            &self.epoch,
            first,
            time,
            stats.as_ref(),
        );
        let outcome = self.note_failure(outcome)?;
        let mut index = self.index();
        if stats.is_some() {
            index.dirty_stats.clear();
        }
        index.committed(batch, &outcome.runs);
        drop(index);
        drop(writer);
        self.report_damaged(&outcome.erased);
        let removed = !outcome.erased.is_empty();
        self.checkpointer.record_write(outcome.written, removed);
        Ok(outcome.runs)
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.readers
            .with(|connection| Ok(read::record(connection, table, key)?))
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        self.readers
            .with(|connection| Ok(read::scan(connection, table, prefix, after, limit)?))
    }
}

impl EventStore for SqliteStore {
    fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    fn shard(&self) -> u16 {
        self.shard
    }

    fn read(
        &self,
        session: SessionId,
        after: u64,
        max_bytes: usize,
    ) -> Result<Vec<Run>, ReadError> {
        self.readers
            .with(|connection| read::session(connection, &self.epoch, session, after, max_bytes))
    }

    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        filter: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        // The connection's snapshot contains everything up to this position.
        let last_pos = self.index().last_pos;
        let (mut page, ended) = self
            .readers
            .with(|connection| read::all(connection, &self.epoch, after_pos, max_bytes, filter))?;
        if ended {
            page.through = page.through.max(last_pos);
        }
        Ok(page)
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.index().usages.get(session)
    }

    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        // Returns the log in memory, and its correction if it is wrong.
        let compare = |connection: &Connection| {
            let (known, last_pos) = {
                let index = self.index();
                (index.usages.get(session), index.last_pos)
            };
            let now = self.ids.now();
            let corrected =
                index::find_mismatch(connection, session, known.as_ref(), last_pos, now)?;
            Ok((known, corrected))
        };
        if let (known, None) = self.readers.with(compare)? {
            return Ok(known);
        }
        // A commit may have intervened: compare again under the lock of the writer.
        let writer = self.writer();
        let (known, corrected) = compare(&writer)?;
        let Some(corrected) = corrected else {
            return Ok(known);
        };
        let believed = known.map(|log| (log.first_seq, log.last_seq));
        tracing::error!(%session, ?believed, found = ?corrected, "the bounds of a log are damaged on disk: corrected them");
        let mut index = self.index();
        index.usages.restore(&corrected);
        index.dirty_stats.mark_dirty(session);
        drop(index);
        drop(writer);
        Ok(Some(corrected))
    }

    fn tail(&self) -> Tail {
        let index = self.index();
        Tail {
            first_pos: index.pruned_pos + 1,
            last_pos: index.last_pos,
        }
    }
}

impl Maintenance for SqliteStore {
    fn usages(&self, limit: usize, filter: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.index().usages.select(limit, filter)
    }

    fn session_count(&self) -> usize {
        self.index().session_count()
    }

    fn total_bytes(&self) -> u64 {
        self.index().usages.bytes()
    }

    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError> {
        let session = session.map(|id| (id, self.usage(id).map_or(0, |log| log.first_seq)));
        self.readers
            .with(|connection| Ok(read::run_headers(connection, session, after_pos, limit)?))
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        let writer = self.writer();
        self.checkpointer.check()?;
        let (pruned_pos, cuts) = {
            let index = self.index();
            let of = |cut: &Cut| index.usages.get(cut.session).map(|log| (*cut, log));
            let cuts: Vec<_> = cuts.iter().filter_map(of).collect();
            (index.pruned_pos, cuts)
        };
        let stats = |pruned: &[PrunedLog]| self.index().stats_after_prune(pruned);
        let pruned = write::prune(&writer, &cuts, max_runs, pruned_pos, stats);
        let pruned = self.note_failure(pruned)?;
        let mut index = self.index();
        if !pruned.is_empty() {
            index.dirty_stats.clear();
        }
        let mut sum = Pruned::default();
        self.report_damaged(pruned.iter().map(|cut| &cut.removal));
        for cut in pruned {
            index.usages.restore(&cut.log);
            index.pruned_pos = index.pruned_pos.max(cut.pruned_pos);
            sum.add(cut.removed);
        }
        drop(index);
        drop(writer);
        self.checkpointer.record_write(sum.bytes, sum.runs > 0);
        Ok(sum)
    }

    fn compact(&self) -> Result<bool, CommitError> {
        if self.compaction_blocked.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let writer = self.writer();
        self.checkpointer.check()?;
        let removes = write::has_free_pages(&writer).map_err(CommitError::from);
        let removes = self.note_failure(removes)?;
        let compacted = write::compact(&writer);
        drop(writer);
        if let Ok(None) = compacted {
            tracing::error!("pages are damaged on disk: free pages cannot be returned to the disk");
            self.compaction_blocked.store(true, Ordering::Relaxed);
        }
        let compacted = compacted.map(|more| more.unwrap_or(false));
        // The moved pages are in the write-ahead log, which must be checkpointed.
        let bytes = write::COMPACT_BYTES;
        self.checkpointer.record_write(bytes, removes);
        self.note_failure(compacted)
    }

    fn disk(&self) -> io::Result<Disk> {
        Disk::of(schema::folder_of(&self.path))
    }

    fn keep_reserve(&self, bytes: u64, free: u64) -> io::Result<bool> {
        self.reserve.keep(bytes, free)
    }

    fn release_reserve(&self) -> bool {
        self.reserve.release()
    }
}
