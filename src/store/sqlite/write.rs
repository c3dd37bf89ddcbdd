//! Operations of the writer connection, one transaction each.

use std::ops::Deref;

use rusqlite::{Connection, ErrorCode, OptionalExtension, ffi, params};

use crate::types::{Epoch, Timestamp};

use super::super::{Batch, CommitError, Cut, Expect, LogUsage, RunHeader};
use super::compress::Compressor;
use super::connection::PAGE_BYTES;
use super::log_stats::{self, LogStats};
use super::meta;
use super::remove::{PrunedLog, Removal};
use super::row::{checksum, to_sql, unless_malformed};
use super::wal_prealloc::WalPrealloc;

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        // SQLite returns the first code for a full disk or a full file. It returns the second code if the
        // index of the write-ahead log cannot grow. In both cases it has rolled back.
        let full = error.sqlite_error().is_some_and(|error| {
            error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        });
        if full {
            Self::Full
        } else {
            Self::Failed(error.into())
        }
    }
}

/// A write transaction with cached statements: preparing them would dominate the cost of a small commit.
/// Rolls back on drop unless committed.
struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    fn begin(connection: &'a Connection) -> Result<Self, rusqlite::Error> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(connection))
    }

    fn commit(self) -> Result<(), rusqlite::Error> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // After some errors SQLite has already rolled back.
        if !self.0.is_autocommit()
            && let Err(error) = self.0.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "could not roll back a transaction");
        }
    }
}

/// The result of a commit.
pub(super) struct WriteOutcome {
    /// The headers of the stored runs, in the order of the batch.
    pub(super) runs: Vec<RunHeader>,
    /// The removals of the erased sessions.
    pub(super) erased: Vec<Removal>,
    /// The approximate bytes that were written to the write-ahead log.
    pub(super) written: u64,
}

/// Commits a batch. `last_pos` is the last assigned position.
pub(super) fn commit(
    connection: &Connection,
    wal_prealloc: &WalPrealloc,
    batch: &Batch,
    epoch: &Epoch,
    last_pos: u64,
    time: Timestamp,
    stats: Option<&LogStats>,
) -> Result<WriteOutcome, CommitError> {
    let erased = batch
        .erase
        .iter()
        .map(|session| Removal::of(connection, *session));
    let mut erased = erased.collect::<Result<Vec<_>, _>>()?;
    loop {
        let transaction = Transaction::begin(connection)?;
        check(&transaction, &batch.expect)?;
        if let Some(stats) = stats {
            log_stats::write(&transaction, stats)?;
        }
        if !remove(&transaction, &mut erased)? {
            continue;
        }
        for session in &batch.erase {
            log_stats::erase(&transaction, *session)?;
        }
        if !batch.erase.is_empty() {
            // The erased positions may be the last ones. Store `last_pos`, so that they are not reused.
            meta::set_position(&transaction, "last_pos", last_pos)?;
        }
        let runs = append(&transaction, batch, epoch, last_pos, time)?;
        write_records(&transaction, batch)?;
        let written = wal_bytes(batch, &runs);
        wal_prealloc.reserve(written);
        transaction.commit()?;
        return Ok(WriteOutcome {
            runs,
            erased,
            written,
        });
    }
}

/// Deletes the runs of all removals. Returns false if SQLite found damage: the transaction must be repeated.
fn remove<'a>(
    transaction: &Connection,
    removals: impl IntoIterator<Item = &'a mut Removal>,
) -> Result<bool, CommitError> {
    for removal in removals {
        if !removal.remove(transaction)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_records(transaction: &Connection, batch: &Batch) -> Result<(), CommitError> {
    if !batch.puts.is_empty() {
        let mut put = transaction.prepare_cached(
            "INSERT OR REPLACE INTO record (tbl, key, value) VALUES (?1, ?2, ?3)",
        )?;
        for record in &batch.puts {
            put.execute(params![
                record.table as u8,
                record.key,
                record.value.as_ref()
            ])?;
        }
    }
    if !batch.deletes.is_empty() {
        let mut delete =
            transaction.prepare_cached("DELETE FROM record WHERE tbl = ?1 AND key = ?2")?;
        for record in &batch.deletes {
            delete.execute(params![record.table as u8, record.key])?;
        }
    }
    Ok(())
}

fn check(transaction: &Connection, expected: &[Expect]) -> Result<(), CommitError> {
    for (index, expect) in expected.iter().enumerate() {
        let found: Option<Vec<u8>> = transaction
            .query_row(
                "SELECT value FROM record WHERE tbl = ?1 AND key = ?2",
                params![expect.table as u8, expect.key],
                |row| row.get(0),
            )
            .optional()?;
        if found.as_deref() != expect.value.as_deref() {
            return Err(CommitError::Conflict { index });
        }
    }
    Ok(())
}

fn append(
    transaction: &Connection,
    batch: &Batch,
    epoch: &Epoch,
    mut last_pos: u64,
    time: Timestamp,
) -> Result<Vec<RunHeader>, CommitError> {
    if batch.runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO run (pos, session, first_seq, last_seq, tenant, epoch, time, crc, frames)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let mut packer = Compressor::default();
    let mut heads = Vec::with_capacity(batch.runs.len());
    for run in &batch.runs {
        last_pos += run.count();
        let stored = packer.compress(&run.frames);
        insert.execute(params![
            to_sql(last_pos),
            run.session.as_bytes(),
            to_sql(run.first_seq),
            to_sql(run.last_seq),
            run.tenant.as_str(),
            epoch.as_str(),
            time.as_millis(),
            checksum(run.session, run.first_seq, run.last_seq, stored),
            stored,
        ])?;
        heads.push(RunHeader::of(run, last_pos, stored.len() as u64, time));
    }
    Ok(heads)
}

/// The approximate bytes that a batch adds to the write-ahead log.
fn wal_bytes(batch: &Batch, runs: &[RunHeader]) -> u64 {
    // A row or a record changes a page of its own and a page of an index.
    let runs: u64 = runs.iter().map(|run| run.bytes + PAGE_BYTES).sum();
    let puts: u64 = batch
        .puts
        .iter()
        .map(|put| put.value.len() as u64 + PAGE_BYTES)
        .sum();
    runs + puts + PAGE_BYTES
}

/// Prunes logs. Each cut is passed with the usage of its log.
pub(super) fn prune(
    connection: &Connection,
    cuts: &[(Cut, LogUsage)],
    max_runs: usize,
    pruned_pos: u64,
    stats: impl Fn(&[PrunedLog]) -> LogStats,
) -> Result<Vec<PrunedLog>, CommitError> {
    let mut pruned = Vec::with_capacity(cuts.len());
    for (cut, log) in cuts {
        pruned.extend(PrunedLog::of(connection, *cut, log, max_runs)?);
    }
    loop {
        let transaction = Transaction::begin(connection)?;
        if !remove(&transaction, pruned.iter_mut().map(|log| &mut log.removal))? {
            continue;
        }
        if let Some(pos) = pruned
            .iter()
            .map(|log| log.pruned_pos)
            .max()
            .filter(|pos| *pos > pruned_pos)
        {
            meta::set_position(&transaction, "pruned_pos", pos)?;
        }
        if !pruned.is_empty() {
            log_stats::write(&transaction, &stats(&pruned))?;
        }
        transaction.commit()?;
        return Ok(pruned);
    }
}

/// The maximum bytes that one [`compact`] moves.
pub(super) const COMPACT_BYTES: u64 = COMPACT_PAGES * PAGE_BYTES;
/// The maximum pages that one [`compact`] returns to the disk.
const COMPACT_PAGES: u64 = 256;

/// Whether the file has free pages. Free pages still contain deleted data.
pub(super) fn has_free_pages(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    Ok(free > 0)
}

/// Returns some free pages to the disk. True if more pages are free. `None` if a page could not be moved
/// because of damage; nothing was moved then.
pub(super) fn compact(connection: &Connection) -> Result<Option<bool>, CommitError> {
    if unless_malformed(vacuum(connection))?.is_none() {
        return Ok(None);
    }
    Ok(Some(has_free_pages(connection)?))
}

fn vacuum(connection: &Connection) -> Result<(), rusqlite::Error> {
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({COMPACT_PAGES})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(())
}
