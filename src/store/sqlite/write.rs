//! What the writer's connection does: one transaction each.

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, ffi, params};

use crate::types::{Epoch, SessionId, Timestamp};

use super::super::{Batch, CommitError, Cut, Expect, Pruned};
use super::sums::{self, Sums};
use super::{checksum, from_sql, to_sql};

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        // SQLite gives the first for a full disk and a full file, the second when the index of its write-ahead log
        // finds no room to grow. It has rolled back both times.
        let full = error.sqlite_error().is_some_and(|error| {
            error.code == ErrorCode::DiskFull || error.extended_code == ffi::SQLITE_IOERR_SHMSIZE
        });
        if full { Self::Full } else { Self::Failed(error.into()) }
    }
}

/// Gives the place of each run's last event; `last_pos` is the last place that was given before.
pub(super) fn commit(
    connection: &mut Connection,
    batch: &Batch,
    epoch: &Epoch,
    last_pos: u64,
    time: Timestamp,
    sums: Option<&Sums>,
) -> Result<Vec<u64>, CommitError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check(&transaction, &batch.expect)?;
    if let Some(sums) = sums {
        sums::write(&transaction, sums)?;
    }
    for session in &batch.erase {
        transaction.execute("DELETE FROM run WHERE session = ?1", [session.as_bytes()])?;
        sums::erase(&transaction, *session)?;
    }
    if !batch.erase.is_empty() {
        // The places that go are not given again, should they have been the last.
        set_place(&transaction, "last_pos", last_pos)?;
    }
    let positions = append(&transaction, batch, epoch, last_pos, time)?;
    if !batch.puts.is_empty() {
        let mut put = transaction
            .prepare_cached("INSERT OR REPLACE INTO record (tbl, key, value) VALUES (?1, ?2, ?3)")?;
        for record in &batch.puts {
            put.execute(params![record.table as u8, record.key, record.value.as_ref()])?;
        }
    }
    if !batch.deletes.is_empty() {
        let mut delete = transaction.prepare_cached("DELETE FROM record WHERE tbl = ?1 AND key = ?2")?;
        for record in &batch.deletes {
            delete.execute(params![record.table as u8, record.key])?;
        }
    }
    transaction.commit()?;
    Ok(positions)
}

fn check(transaction: &Transaction<'_>, expected: &[Expect]) -> Result<(), CommitError> {
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
    transaction: &Transaction<'_>,
    batch: &Batch,
    epoch: &Epoch,
    mut last_pos: u64,
    time: Timestamp,
) -> Result<Vec<u64>, CommitError> {
    if batch.runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO run (pos, session, first_seq, last_seq, tenant, epoch, time, crc, frames)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let mut positions = Vec::with_capacity(batch.runs.len());
    for run in &batch.runs {
        last_pos += run.count();
        insert.execute(params![
            to_sql(last_pos),
            run.session.as_bytes(),
            to_sql(run.first_seq),
            to_sql(run.last_seq),
            run.tenant.as_str(),
            epoch.as_str(),
            time.as_millis(),
            checksum(run.session, run.first_seq, run.last_seq, &run.frames),
            run.frames.as_ref(),
        ])?;
        positions.push(last_pos);
    }
    Ok(positions)
}

pub(super) fn set_place(transaction: &Transaction<'_>, key: &str, pos: u64) -> Result<(), rusqlite::Error> {
    transaction.execute("UPDATE meta SET value = ?2 WHERE key = ?1", params![key, to_sql(pos)]).map(drop)
}

/// About how many bytes a batch adds to the write-ahead log.
pub(super) fn size(batch: &Batch) -> u64 {
    /// A row or a record dirties a page of its own, and one of an index.
    const PAGE: usize = 8192;
    let frames: usize = batch.runs.iter().map(|run| run.frames.len() + PAGE).sum();
    let puts: usize = batch.puts.iter().map(|put| put.value.len() + PAGE).sum();
    (frames + puts + PAGE) as u64
}

/// What one session lost, and where its log begins now.
pub(super) struct PrunedLog {
    pub(super) session: SessionId,
    pub(super) gone: Pruned,
    pub(super) pruned_pos: u64,
    pub(super) first_seq: u64,
    pub(super) first_pos: u64,
}

/// Each cut comes with the place of its session's last run, which stays.
pub(super) fn prune(
    connection: &mut Connection,
    cuts: &[(Cut, u64)],
    max_runs: usize,
    pruned_pos: u64,
    sums: impl FnOnce(&[PrunedLog]) -> Sums,
) -> Result<Vec<PrunedLog>, CommitError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut pruned = Vec::with_capacity(cuts.len());
    for (cut, last_pos) in cuts {
        pruned.extend(prune_one(&transaction, *cut, *last_pos, max_runs)?);
    }
    if let Some(pos) = pruned.iter().map(|log| log.pruned_pos).max().filter(|pos| *pos > pruned_pos) {
        set_place(&transaction, "pruned_pos", pos)?;
    }
    if !pruned.is_empty() {
        sums::write(&transaction, &sums(&pruned))?;
    }
    transaction.commit()?;
    Ok(pruned)
}

fn prune_one(
    transaction: &Transaction<'_>,
    cut: Cut,
    last_pos: u64,
    max_runs: usize,
) -> Result<Option<PrunedLog>, CommitError> {
    let mut select = transaction.prepare(
        "SELECT pos, length(frames) FROM run
         WHERE session = ?1 AND first_seq <= ?2 AND last_seq <= ?2 AND pos < ?3 ORDER BY first_seq LIMIT ?4",
    )?;
    let oldest =
        params![cut.session.as_bytes(), to_sql(cut.through), to_sql(last_pos), to_sql(max_runs as u64)];
    let oldest: Vec<(i64, i64)> =
        select.query_map(oldest, |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    let Some((pruned_pos, _)) = oldest.last() else { return Ok(None) };
    let mut delete = transaction.prepare("DELETE FROM run WHERE pos = ?1")?;
    for (pos, _) in &oldest {
        delete.execute([pos])?;
    }
    let (first_seq, first_pos): (i64, i64) = transaction.query_row(
        "SELECT first_seq, pos - (last_seq - first_seq) FROM run WHERE session = ?1 ORDER BY first_seq LIMIT 1",
        [cut.session.as_bytes()],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(Some(PrunedLog {
        session: cut.session,
        gone: Pruned {
            runs: oldest.len() as u64,
            bytes: oldest.iter().map(|(_, bytes)| from_sql(*bytes)).sum(),
        },
        pruned_pos: from_sql(*pruned_pos),
        first_seq: from_sql(first_seq),
        first_pos: from_sql(first_pos),
    }))
}

/// Bytes that [`compact`] moves at most.
pub(super) const COMPACTED: u64 = PAGES * 8192;
/// Pages that it gives back.
const PAGES: u64 = 256;

/// Gives some free pages at the end of the file back to the disk; true when there are more.
pub(super) fn compact(connection: &Connection) -> Result<bool, CommitError> {
    {
        let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut pages = vacuum.query([])?;
        while pages.next()?.is_some() {}
    }
    let free: i64 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    Ok(free > 0)
}
