//! Operations of the writer connection, one transaction each.

use std::ops::Deref;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Statement, ffi, params};

use super::super::{Batch, CommitError, Cut, LogUsage, Pruned, RecordState, RunHeader};
use super::compress::Compressor;
use super::export::ExportFile;
use super::log_stats::{self, LogStats};
use super::reserve::WalPrealloc;
use super::row::{
    checksum, first_row, from_sql, select_run, to_sql, unless_malformed, verified_size, verify_row,
};
use super::schema::{self, PAGE_BYTES};
use base::types::{Epoch, SessionId, Timestamp, UserId};

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

pub(super) struct WriteOutcome {
    /// The headers of the stored runs, in the order of the batch.
    pub(super) runs: Vec<RunHeader>,
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
    let sessions = batch.erase.iter();
    let erased = sessions.map(|session| Removal::of(connection, *session));
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
            schema::set_position(&transaction, "last_pos", last_pos)?;
        }
        let runs = append(&transaction, batch, epoch, last_pos, time)?;
        write_records(&transaction, &batch.records)?;
        let written = wal_bytes(&batch.records, &runs);
        wal_prealloc.reserve(written);
        transaction.commit()?;
        return Ok(WriteOutcome {
            runs,
            erased,
            written,
        });
    }
}

/// Commits the session of a file that was moved to this log: its runs, and `records`. Other commits wait, so the rows are copied
/// without change. Returns the headers of the runs, and the approximate bytes that were written to the write-ahead log. `None`:
/// the file cannot be read, and nothing was written.
pub(super) fn import(
    connection: &Connection,
    wal_prealloc: &WalPrealloc,
    file: &ExportFile,
    owner: &UserId,
    records: &[RecordState],
    epoch: &Epoch,
    mut last_pos: u64,
    time: Timestamp,
) -> Result<Option<(Vec<RunHeader>, u64)>, CommitError> {
    let transaction = Transaction::begin(connection)?;
    let mut runs = Vec::new();
    let Ok(mut select) = file.select_runs() else {
        return Ok(None);
    };
    let Ok(mut rows) = select.query([file.session().as_bytes()]) else {
        return Ok(None);
    };
    let mut insert = transaction.prepare_cached(INSERT_RUN)?;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => break,
            Err(_) => return Ok(None),
        };
        let Ok(Some((session, first_seq, last_seq, stored))) = verify_row(row) else {
            return Ok(None);
        };
        last_pos += last_seq + 1 - first_seq;
        let run = RunHeader {
            session,
            first_seq,
            last_seq,
            last_pos,
            bytes: stored.len() as u64,
            time,
        };
        insert_run(&mut insert, &run, owner, epoch, stored)?;
        runs.push(run);
    }
    drop(insert);
    write_records(&transaction, records)?;
    let written = wal_bytes(records, &runs);
    wal_prealloc.reserve(written);
    transaction.commit()?;
    Ok(Some((runs, written)))
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

fn write_records(transaction: &Connection, records: &[RecordState]) -> Result<(), CommitError> {
    if records.is_empty() {
        return Ok(());
    }
    let mut put = transaction
        .prepare_cached("INSERT OR REPLACE INTO record (tbl, key, value) VALUES (?1, ?2, ?3)")?;
    let mut delete =
        transaction.prepare_cached("DELETE FROM record WHERE tbl = ?1 AND key = ?2")?;
    for RecordState { table, key, value } in records {
        match value {
            Some(value) => put.execute(params![*table as u8, key, value.as_ref()])?,
            None => delete.execute(params![*table as u8, key])?,
        };
    }
    Ok(())
}

fn check(transaction: &Connection, expected: &[RecordState]) -> Result<(), CommitError> {
    let select = "SELECT value FROM record WHERE tbl = ?1 AND key = ?2";
    for (index, expect) in expected.iter().enumerate() {
        let key = params![expect.table as u8, expect.key];
        let found = transaction.query_row(select, key, |row| row.get(0));
        let found: Option<Vec<u8>> = found.optional()?;
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
    let mut insert = transaction.prepare_cached(INSERT_RUN)?;
    let mut packer = Compressor::default();
    let mut heads = Vec::with_capacity(batch.runs.len());
    for run in &batch.runs {
        last_pos += run.count();
        let stored = packer.compress(&run.frames);
        let head = RunHeader::of(run, last_pos, stored.len() as u64, time);
        insert_run(&mut insert, &head, &run.owner, epoch, stored)?;
        heads.push(head);
    }
    Ok(heads)
}

const INSERT_RUN: &str =
    "INSERT INTO run (pos, session, first_seq, last_seq, tenant, epoch, time, crc, frames)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

fn insert_run(
    insert: &mut Statement<'_>,
    run: &RunHeader,
    owner: &UserId,
    epoch: &Epoch,
    stored: &[u8],
) -> Result<(), rusqlite::Error> {
    insert.execute(params![
        to_sql(run.last_pos),
        run.session.as_bytes(),
        to_sql(run.first_seq),
        to_sql(run.last_seq),
        owner.as_str(),
        epoch.as_str(),
        run.time.as_millis(),
        checksum(run.session, run.first_seq, run.last_seq, stored),
        stored,
    ])?;
    Ok(())
}

/// The approximate bytes that a commit adds to the write-ahead log.
fn wal_bytes(records: &[RecordState], runs: &[RunHeader]) -> u64 {
    // A row or a record changes a page of its own and a page of an index.
    let runs: u64 = runs.iter().map(|run| run.bytes + PAGE_BYTES).sum();
    let values = records.iter().filter_map(|record| record.value.as_ref());
    let records: u64 = values.map(|value| value.len() as u64 + PAGE_BYTES).sum();
    runs + records + PAGE_BYTES
}

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
        let last = pruned.iter().map(|log| log.pruned_pos).max();
        if let Some(pos) = last.filter(|pos| *pos > pruned_pos) {
            schema::set_position(&transaction, "pruned_pos", pos)?;
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

/// The runs of one session to delete.
pub(super) struct Removal {
    pub(super) session: SessionId,
    positions: Vec<i64>,
    /// The number of damaged runs, which stay in the file.
    pub(super) damaged: u64,
}

impl Removal {
    /// Verifies all runs of a session.
    pub(super) fn of(connection: &Connection, session: SessionId) -> Result<Self, CommitError> {
        let select = "SELECT pos FROM run INDEXED BY run_session WHERE session = ?1";
        let mut select = connection.prepare(select)?;
        let places = select.query_map([session.as_bytes()], |row| row.get(0))?;
        let places: Vec<i64> = places.collect::<Result<_, _>>()?;
        let mut run = select_run(connection)?;
        let mut removal = Self {
            session,
            positions: Vec::new(),
            damaged: 0,
        };
        for pos in places {
            let is_intact = verified_size(run.query([pos])?.next(), session)?.is_some();
            removal.add(pos, is_intact);
        }
        Ok(removal)
    }
    fn add(&mut self, pos: i64, is_intact: bool) {
        if is_intact {
            self.positions.push(pos);
        } else {
            self.damaged += 1;
        }
    }

    /// Deletes the runs. Returns false if SQLite found damage. The removal then keeps all runs, and the caller
    /// repeats the transaction.
    pub(super) fn remove(&mut self, transaction: &Connection) -> Result<bool, CommitError> {
        let mut delete = transaction.prepare("DELETE FROM run WHERE pos = ?1")?;
        for pos in &self.positions {
            if unless_malformed(delete.execute([pos]))?.is_none() {
                self.damaged += self.positions.len() as u64;
                self.positions.clear();
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The bytes that the index in memory counts for a damaged run.
fn stored_size(connection: &Connection, pos: i64) -> Result<u64, rusqlite::Error> {
    let select = "SELECT length(frames) FROM run WHERE pos = ?1";
    Ok(first_row(connection, select, [pos], |row| row.get(0))?.map_or(0, from_sql))
}

/// The prune of one session: its deleted runs and the rest of its log.
pub(super) struct PrunedLog {
    pub(super) removal: Removal,
    pub(super) removed: Pruned,
    pub(super) pruned_pos: u64,
    pub(super) log: LogUsage,
}

impl PrunedLog {
    /// Selects the oldest runs of a log up to `cut`. The last run is never deleted.
    pub(super) fn of(
        connection: &Connection,
        cut: Cut,
        log: &LogUsage,
        max_runs: usize,
    ) -> Result<Option<Self>, CommitError> {
        let from = "FROM run INDEXED BY run_session WHERE session = ?1 AND first_seq";
        let select = format!("SELECT first_seq, pos {from} >= ?2 ORDER BY first_seq LIMIT ?3");
        let mut select = connection.prepare(&select)?;
        // Also read the run after them, which is the new beginning.
        let oldest = params![
            cut.session.as_bytes(),
            to_sql(log.first_seq),
            to_sql(max_runs as u64 + 1)
        ];
        let oldest = select.query_map(oldest, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let oldest: Vec<(i64, i64)> = oldest.collect::<Result<_, _>>()?;
        let mut run = select_run(connection)?;
        let mut removal = Removal {
            session: cut.session,
            positions: Vec::new(),
            damaged: 0,
        };
        let mut gone = Pruned::default();
        let mut pruned_pos = None;
        let mut next = None;
        for (first_seq, pos) in oldest {
            let whole = verified_size(run.query([pos])?.next(), cut.session)?;
            let last_seq = whole.map_or(from_sql(first_seq), |(last_seq, _)| last_seq);
            let is_last = from_sql(pos) >= log.last_pos;
            if last_seq > cut.through || is_last || gone.runs == max_runs as u64 {
                let before = last_seq.saturating_sub(from_sql(first_seq));
                next = Some((from_sql(first_seq), from_sql(pos).saturating_sub(before)));
                break;
            }
            let bytes = match whole {
                Some((_, bytes)) => bytes,
                None => stored_size(connection, pos)?,
            };
            removal.add(pos, whole.is_some());
            gone.add(Pruned { runs: 1, bytes });
            pruned_pos = Some(from_sql(pos));
        }
        let (first_seq, first_pos) = next.unwrap_or((log.last_seq, log.last_pos));
        let log = LogUsage {
            first_seq,
            first_pos,
            bytes: log.bytes.saturating_sub(gone.bytes),
            runs: log.runs.saturating_sub(gone.runs),
            ..log.clone()
        };
        Ok(pruned_pos.map(|pruned_pos| Self {
            removal,
            removed: gone,
            pruned_pos,
            log,
        }))
    }
}
