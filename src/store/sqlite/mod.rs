//! The store on a disk: one SQLite file, one connection that writes, a few that read, one that checkpoints.
//!
//! A commit is durable when it returns (WAL, `synchronous = FULL`). Frames are packed, and counted as they are stored.
//! Each run has a checksum over that and its place, compared at each read: a damaged run is told and never served. SQLite
//! takes its write-ahead log away when the last connection closes, so a file that still has one was left open by a process
//! that died: it is read through as a whole, once, and the write-ahead log stays until that has found nothing. A copy that
//! is brought back has a new epoch: runs keep the one they were framed with, and reading changes their ids to the file's.

mod check;
mod checkpoint;
mod copy;
mod bounds;
mod index;
mod migrate;
pub mod compress;
mod read;
mod remove;
mod reserve;
mod wal_prealloc;
mod schema;
mod log_stats;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod read_accounting;
mod write;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use crate::shutdown::lock_or_abort;
use crate::types::{Epoch, Ids, Limits, SessionId};

use super::{
    Batch, BoxError, CommitError, Committed, Cut, Disk, EventStore, LogUsage, Page, Pruned, ReadError,
    Record, Run, RunHeader, Table, Tail,
};
use check::Check;
use checkpoint::Checkpointer;
use index::Index;
use read::ReaderPool;
use remove::{PrunedLog, Removal};
use reserve::Reserve;
use wal_prealloc::WalPrealloc;

pub use check::{CheckError, CheckReport};
pub use copy::{RestoreReport, copy, restore};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the file is not a log of this program")]
    NotALog,
    #[error(
        "the file was written by a newer version (format {found}; this one knows {known}); it was not touched"
    )]
    NewerVersion { found: i32, known: i32 },
    #[error("a restore was broken off before the log was in its place; do it again")]
    RestoreInterrupted,
    #[error("the file's folder does not take a write-ahead log")]
    NoWal,
    #[error(
        "the log is damaged and was left as it is; `acp-gateway restore FILE` puts a backup in its place"
    )]
    Damaged(#[source] BoxError),
    #[error("the file cannot be opened")]
    Io(#[from] io::Error),
    #[error("the file cannot be opened")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.into()),
            _ => Self::Sqlite(error),
        }
    }
}

/// Events and records in one SQLite file.
// The order of the fields is the order of their end: the writer's connection closes last and takes the write-ahead
// log with it.
#[derive(Debug)]
pub struct SqliteStore {
    checkpointer: Checkpointer,
    readers: ReaderPool,
    writer: Mutex<Connection>,
    wal_prealloc: WalPrealloc,
    reserve: Reserve,
    index: Mutex<Index>,
    epoch: Epoch,
    ids: Ids,
    path: PathBuf,
    /// Runs are damaged: their pages stay where they are, and no page is moved past them.
    compaction_blocked: AtomicBool,
    /// What a process that died left open and nobody has checked yet, or what failed: the write-ahead log stays, to
    /// say so at the next start.
    unclean_shutdown: AtomicBool,
}

impl SqliteStore {
    /// Whether [`open`](Self::open) would bring this file to another version.
    pub fn needs_migration(path: &Path) -> Result<bool, OpenError> {
        schema::is_earlier(path)
    }

    /// Opens the log at `path`, or makes a new one with a new epoch. The folder has to be there.
    ///
    /// What the runs are is kept in memory, so only one process may commit runs, erase or prune: the gateway, which
    /// holds the data folder's lock. Commands for keys open the file beside it, for records alone: these are read from
    /// the file each time, `expect` is compared inside the transaction, and the two writers wait for each other.
    pub fn open(path: &Path, ids: Ids, limits: &Limits) -> Result<Self, OpenError> {
        let left_open = schema::with_suffix(path, "-wal").exists();
        schema::prepare(path, || ids.epoch())?;
        let mut writer = schema::open_writer(path)?;
        let epoch: String =
            writer.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0))?;
        let epoch = epoch.parse().map_err(|_| OpenError::NotALog)?;
        let index = Index::load(&writer)?;
        let room = WalPrealloc::new(&mut writer, path)?;
        Ok(Self {
            checkpointer: Checkpointer::start(schema::open_checkpointer(path)?)?,
            readers: ReaderPool::open(path, limits.max_store_readers)?,
            writer: Mutex::new(writer),
            wal_prealloc: room,
            reserve: Reserve::new(schema::folder_of(path).join("disk-reserve")),
            index: Mutex::new(index),
            epoch,
            ids,
            path: path.to_owned(),
            compaction_blocked: AtomicBool::new(false),
            unclean_shutdown: AtomicBool::new(left_open),
        })
    }

    /// The process that had the file open before died with it, or that of a check which found something.
    pub fn unclean_shutdown(&self) -> bool {
        self.unclean_shutdown.load(Ordering::Relaxed)
    }

    /// Bytes of all pages, wherever they are: a check has no more to read, but more to unpack.
    pub fn size(&self) -> Result<u64, OpenError> {
        let pages: i64 = self.writer().pragma_query_value(None, "page_count", |row| row.get(0))?;
        Ok(from_sql(pages) * 8192)
    }

    /// Reads the whole file through, on a connection of its own. `started` gets what breaks that off, and `beyond` is
    /// called once runs of more than `most` bytes, as readers get them, were read: packed ones take far less in the
    /// file. A file whose structure is broken takes no commit any more.
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
                self.compaction_blocked
                    .fetch_or(checked.overflow_damaged || checked.damaged > 0, Ordering::Relaxed);
            }
            Err(error @ CheckError::Malformed(_)) => {
                self.unclean_shutdown.store(true, Ordering::Relaxed);
                self.checkpointer.abort(error.to_string());
            }
            Err(CheckError::Stopped | CheckError::Failed(_)) => {}
        }
        result
    }

    /// What the disk holds is unknown after a failure, so nothing of it may be tidied up.
    fn note_failure<T>(&self, result: Result<T, CommitError>) -> Result<T, CommitError> {
        if matches!(result, Err(CommitError::Failed(_))) {
            self.unclean_shutdown.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Tells of damaged runs that were to go: they are in the file still, and in the index no more.
    fn report_damaged<'a>(&self, removals: impl IntoIterator<Item = &'a Removal>) {
        for Removal { session, damaged: runs, .. } in
            removals.into_iter().filter(|removal| removal.damaged > 0)
        {
            tracing::error!(%session, runs, "events that are to go are damaged on disk: they stay in the file, unseen");
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
            let kept = self.writer().set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            if let Err(error) = kept {
                tracing::warn!(%error, "the write-ahead log goes, though the log should be checked");
            }
        }
    }
}

/// SQLite's integers have a sign. Ours count from 0 and never come near its end.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

/// Over the bytes as they are stored and over what says whose they are.
fn checksum(session: SessionId, first_seq: u64, last_seq: u64, stored: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c(session.as_bytes());
    crc = crc32c::crc32c_append(crc, &first_seq.to_be_bytes());
    crc = crc32c::crc32c_append(crc, &last_seq.to_be_bytes());
    crc32c::crc32c_append(crc, stored)
}

impl EventStore for SqliteStore {
    fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    fn commit(&self, batch: &Batch) -> Result<Committed, CommitError> {
        let time = batch.time.unwrap_or_else(|| self.ids.now());
        let writer = self.writer();
        self.checkpointer.check()?;
        let (first, sums) = {
            let index = self.index();
            (index.last_pos, index.stats_due(batch))
        };
        let write::WriteOutcome { runs, erased, written } = self.note_failure(write::commit(
            &writer,
            &self.wal_prealloc,
            batch,
            &self.epoch,
            first,
            time,
            sums.as_ref(),
        ))?;
        let mut index = self.index();
        if sums.is_some() {
            index.dirty_stats.clear();
        }
        index.committed(batch, &runs);
        drop(index);
        drop(writer);
        self.report_damaged(&erased);
        self.checkpointer.record_write(written, !erased.is_empty());
        Ok(Committed::of(&runs))
    }

    fn read(&self, session: SessionId, after: u64, max_bytes: usize) -> Result<Vec<Run>, ReadError> {
        self.readers.with(|connection| read::session(connection, &self.epoch, session, after, max_bytes))
    }

    fn read_all(
        &self,
        after_pos: u64,
        max_bytes: usize,
        wanted: &dyn Fn(&str, SessionId) -> bool,
    ) -> Result<Page, ReadError> {
        // Everything up to here is in what the connection will see.
        let last_pos = self.index().last_pos;
        let mut page = self
            .readers
            .with(|connection| read::all(connection, &self.epoch, after_pos, max_bytes, wanted))?;
        if page.ended {
            page.through_pos = page.through_pos.max(last_pos);
        }
        Ok(Page { runs: page.runs, through_pos: page.through_pos })
    }

    fn usage(&self, session: SessionId) -> Option<LogUsage> {
        self.index().usages.get(session)
    }

    fn bounds(&self, session: SessionId) -> Result<Option<LogUsage>, ReadError> {
        let known = || {
            let index = self.index();
            (index.usages.get(session), index.last_pos)
        };
        let (log, last) = known();
        if self
            .readers
            .with(|connection| bounds::find_mismatch(connection, session, log.as_ref(), last))?
            .is_none()
        {
            return Ok(log);
        }
        // Perhaps something was written in between: once more while nobody writes.
        let writer = self.writer();
        let (log, last) = known();
        let Some(found) = bounds::find_mismatch(&writer, session, log.as_ref(), last)? else {
            return Ok(log);
        };
        let believed = log.as_ref().map(|log| (log.first_seq, log.last_seq));
        tracing::error!(%session, ?believed, ?found, "the ends of a log are damaged on disk");
        let corrected = LogUsage {
            session,
            tenant: found.tenant,
            first_seq: found.first_seq,
            last_seq: found.last_seq,
            first_pos: found.first_pos,
            last_pos: found.last_pos,
            bytes: log.as_ref().map_or(0, |log| log.bytes),
            runs: log.as_ref().map_or(1, |log| log.runs),
            last_time: log.map_or_else(|| self.ids.now(), |log| log.last_time),
        };
        let mut index = self.index();
        index.usages.restore(&corrected);
        index.dirty_stats.mark_dirty(session);
        drop(index);
        drop(writer);
        Ok(Some(corrected))
    }

    fn usages(&self, limit: usize, wanted: &dyn Fn(&LogUsage) -> bool) -> Vec<LogUsage> {
        self.index().usages.select(limit, wanted)
    }

    fn total_bytes(&self) -> u64 {
        self.index().usages.bytes()
    }

    fn tail(&self) -> Tail {
        let index = self.index();
        Tail { first_pos: index.pruned_pos + 1, last_pos: index.last_pos }
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.readers.with(|connection| Ok(read::record(connection, table, key)?))
    }

    fn scan(
        &self,
        table: Table,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, ReadError> {
        self.readers.with(|connection| Ok(read::scan(connection, table, prefix, after, limit)?))
    }

    fn run_headers(
        &self,
        session: Option<SessionId>,
        after_pos: u64,
        limit: usize,
    ) -> Result<Vec<RunHeader>, ReadError> {
        let session = session.map(|id| (id, self.usage(id).map_or(0, |log| log.first_seq)));
        self.readers.with(|connection| Ok(read::run_headers(connection, session, after_pos, limit)?))
    }

    fn prune(&self, cuts: &[Cut], max_runs: usize) -> Result<Pruned, CommitError> {
        let writer = self.writer();
        self.checkpointer.check()?;
        let (pruned_pos, cuts) = {
            let index = self.index();
            let of = |cut: &Cut| index.usages.get(cut.session).map(|log| (*cut, log));
            (index.pruned_pos, cuts.iter().filter_map(of).collect::<Vec<_>>())
        };
        let sums = |pruned: &[PrunedLog]| self.index().stats_after_prune(pruned);
        let pruned = self.note_failure(write::prune(&writer, &cuts, max_runs, pruned_pos, sums))?;
        let mut index = self.index();
        if !pruned.is_empty() {
            index.dirty_stats.clear();
        }
        let mut sum = Pruned::default();
        self.report_damaged(pruned.iter().map(|cut| &cut.removal));
        for cut in pruned {
            index.usages.cut(cut.removal.session, cut.first_seq, cut.first_pos, cut.removed);
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
        let removes = self.note_failure(write::has_free_pages(&writer).map_err(CommitError::from))?;
        let compacted = write::compact(&writer);
        drop(writer);
        let compacted = compacted.map(|more| {
            more.unwrap_or_else(|| {
                tracing::error!("pages are damaged on disk: the room that was freed stays with the file");
                self.compaction_blocked.store(true, Ordering::Relaxed);
                false
            })
        });
        // What it moves goes by the write-ahead log, which is to be moved as well.
        self.checkpointer.record_write(write::COMPACT_BYTES, removes);
        self.note_failure(compacted)
    }

    fn disk(&self) -> Option<io::Result<Disk>> {
        let disk = rustix::fs::statvfs(schema::folder_of(&self.path)).map_err(io::Error::from);
        Some(disk.map(|disk| Disk {
            free: disk.f_bavail.saturating_mul(disk.f_frsize),
            total: disk.f_blocks.saturating_mul(disk.f_frsize),
        }))
    }

    fn keep_reserve(&self, bytes: u64, free: u64) -> io::Result<bool> {
        self.reserve.keep(bytes, free)
    }

    fn release_reserve(&self) -> bool {
        self.reserve.release()
    }
}
