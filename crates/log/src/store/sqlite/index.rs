//! The bounds, sizes and positions of the file's content, in memory.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::usage::Usages;
use super::super::{Batch, LogUsage, ReadError, RunHeader, Table};
use super::log_stats::{self, DirtyStats, LogStats};
use super::row::{MAX_PLAUSIBLE, checksum, first_row, plausible, run_header, session_of, to_sql};
use super::schema::{self, OpenError};
use super::write::PrunedLog;
use base::types::{SessionId, Timestamp, UserId};

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) usages: Usages,
    pub(super) last_pos: u64,
    pub(super) pruned_pos: u64,
    pub(super) dirty_stats: DirtyStats,
    /// The deleted sessions whose last event is stored.
    deleted: HashSet<SessionId>,
}

impl Index {
    /// Loads the stored statistics and then all runs that were committed after them. It does not read frames.
    /// The result is not verified, except for the last position: see [`bounds`].
    pub(super) fn load(connection: &Connection) -> Result<Self, OpenError> {
        let last_pos = schema::position(connection, "last_pos")?;
        let pruned_pos = schema::position(connection, "pruned_pos")?;
        let mut index = Self {
            last_pos,
            pruned_pos,
            ..Self::default()
        };
        let summed_pos = if let Some((usages, pos)) = log_stats::load(connection)? {
            index.usages = usages;
            index.last_pos = last_pos.max(pos);
            pos
        } else {
            index.dirty_stats.full_rewrite = true;
            0
        };
        let mut select = connection.prepare(
            "SELECT session, first_seq, last_seq, pos, length(frames), time, tenant FROM run
             WHERE pos > ?1 ORDER BY pos",
        )?;
        let mut rows = select.query([to_sql(summed_pos)])?;
        let mut damaged = 0_u64;
        while let Some(row) = rows.next()? {
            // A row with columns of other types is damaged. Its readers are reset.
            let (Ok(head), Ok(owner)) = (run_header(row), row.get_ref(6)?.as_str()) else {
                damaged += 1;
                continue;
            };
            if head.last_pos == 0 || head.last_pos > MAX_PLAUSIBLE {
                damaged += 1;
                continue;
            }
            index.append(&UserId::from_text(owner), &head);
        }
        if damaged > 0 {
            tracing::error!(
                runs = damaged,
                "runs of events are damaged on disk: readers skip them"
            );
        }
        let max_pos = max_pos(connection, damaged > 0)?;
        index.last_pos = index.last_pos.max(max_pos);
        index.load_deleted(connection).unwrap_or_else(|error| {
            tracing::error!(%error, "could not read which sessions are deleted: they count as stored sessions");
        });
        Ok(index)
    }

    fn load_deleted(&mut self, connection: &Connection) -> Result<(), rusqlite::Error> {
        let mut select = connection.prepare("SELECT key FROM record WHERE tbl = ?1")?;
        let mut rows = select.query([Table::Tombstone as u8])?;
        while let Some(row) = rows.next()? {
            let session = session_of(row, 0)?;
            if self.usages.contains(session) {
                self.deleted.insert(session);
            }
        }
        Ok(())
    }

    pub(super) fn session_count(&self) -> usize {
        let others = self.deleted.len() + usize::from(self.usages.contains(SessionId::AUDIT));
        self.usages.count().saturating_sub(others)
    }

    pub(super) fn append(&mut self, owner: &UserId, head: &RunHeader) {
        self.last_pos = self.last_pos.max(head.last_pos);
        self.usages.append(owner, head);
        self.dirty_stats.mark_dirty(head.session);
    }

    /// The statistics that a commit must write, if they are due. Only the process that commits runs may write
    /// them: a command for keys does not know the logs.
    pub(super) fn stats_due(&self, batch: &Batch) -> Option<LogStats> {
        let due = !batch.runs.is_empty() && self.dirty_stats.is_due();
        due.then(|| self.dirty_stats.snapshot(&self.usages, self.last_pos))
    }

    pub(super) fn stats_after_prune(&self, pruned: &[PrunedLog]) -> LogStats {
        let mut stats = self.dirty_stats.snapshot(&self.usages, self.last_pos);
        let is_pruned =
            |log: &LogUsage| pruned.iter().any(|other| other.log.session == log.session);
        stats.logs.retain(|log| !is_pruned(log));
        stats
            .logs
            .extend(pruned.iter().map(|pruned| pruned.log.clone()));
        stats
    }

    pub(super) fn committed(&mut self, batch: &Batch, heads: &[RunHeader]) {
        for session in &batch.erase {
            self.usages.erase(*session);
            self.deleted.remove(session);
        }
        for (run, head) in batch.runs.iter().zip(heads) {
            self.append(&run.owner, head);
        }
        for record in &batch.records {
            if record.table == Table::Tombstone
                && record.value.is_some()
                && let Ok(id) = uuid::Uuid::from_slice(&record.key)
            {
                self.deleted.insert(SessionId::from_uuid(id));
            }
        }
    }
}

/// Returns the corrected log, or `None` if `known` is right. `max_pos` is the last position of the whole store. Every
/// event has a position, so no seq is greater than it. If `known` is `None`, `now` replaces the unknown time of the
/// last event.
pub(super) fn find_mismatch(
    connection: &Connection,
    session: SessionId,
    known: Option<&LogUsage>,
    max_pos: u64,
    now: Timestamp,
) -> Result<Option<LogUsage>, ReadError> {
    let from = known.map_or(0, |log| log.first_seq);
    let ascending = "first_seq >= ?2 ORDER BY first_seq";
    let descending = "first_seq >= ?2 ORDER BY first_seq DESC";
    let first = index_entry(connection, session, ascending, from)?;
    let last = index_entry(connection, session, descending, 0)?;
    if let (None, None) = (known, last) {
        return Ok(None);
    }
    let mut last_seq = 0;
    if let Some((first_seq, pos)) = last {
        last_seq = last_seq_at(connection, session, pos, Some(first_seq), max_pos)?;
        // The SQL index is unique, even if an entry is damaged: a seq after this one is free.
        last_seq = last_seq.max(plausible(first_seq).unwrap_or(0));
    }
    if let Some(log) = known.filter(|log| last.is_none_or(|(_, pos)| to_sql(log.last_pos) != pos)) {
        let pos = to_sql(log.last_pos);
        last_seq = last_seq.max(last_seq_at(connection, session, pos, None, max_pos)?);
    }
    let begins_there =
        known.is_some_and(|log| first.is_some_and(|(seq, _)| seq == to_sql(log.first_seq)));
    if begins_there && known.is_some_and(|log| log.last_seq == last_seq) {
        return Ok(None);
    }
    let indexed_last = last.and_then(|(_, pos)| plausible(pos));
    let known_last = known.map(|log| log.last_pos);
    let last_pos = indexed_last.max(known_last).unwrap_or(max_pos);
    let (first_seq, first_pos) = match known {
        Some(log) if begins_there => (log.first_seq, log.first_pos),
        _ => first_indexed(connection, session)?.unwrap_or((last_seq, last_pos)),
    };
    // The index may have lost the first entry. Keep the known beginning: readers then see damage instead of
    // pruning.
    let (first_seq, first_pos) = match known.filter(|log| log.first_seq < first_seq) {
        Some(log) if log.last_seq == last_seq => return Ok(None),
        Some(log) => (log.first_seq, log.first_pos),
        None => (first_seq, first_pos),
    };
    let owner = match known {
        Some(log) => log.owner.clone(),
        None => owner(connection, session)?.unwrap_or_else(UserId::owner),
    };
    Ok(Some(LogUsage {
        session,
        owner,
        first_seq: first_seq.min(last_seq),
        last_seq,
        first_pos,
        last_pos,
        bytes: known.map_or(0, |log| log.bytes),
        runs: known.map_or(1, |log| log.runs),
        last_time: known.map_or(now, |log| log.last_time),
    }))
}

/// Reads an entry of the SQL index alone: the first seq and the position of a run.
fn index_entry(
    connection: &Connection,
    session: SessionId,
    which: &str,
    from: u64,
) -> Result<Option<(i64, i64)>, ReadError> {
    let select = format!(
        "SELECT first_seq, pos FROM run INDEXED BY run_session WHERE session = ?1 AND {which} LIMIT 1"
    );
    let run = params![session.as_bytes(), to_sql(from)];
    let entry = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(first_row(connection, &select, run, entry)?)
}

/// The first seq in the SQL index, and the smallest possible position of its event.
fn first_indexed(
    connection: &Connection,
    session: SessionId,
) -> Result<Option<(u64, u64)>, ReadError> {
    let found = index_entry(connection, session, "first_seq >= ?2 ORDER BY first_seq", 1)?;
    let Some((seq, pos)) = found.and_then(|(seq, pos)| Some((plausible(seq)?, plausible(pos)?)))
    else {
        return Ok(None);
    };
    Ok(Some((seq, pos_before(connection, pos)? + 1)))
}

/// The last seq of the run at a position: verified by the checksum, or the greatest possible value.
fn last_seq_at(
    connection: &Connection,
    session: SessionId,
    pos: i64,
    indexed_first: Option<i64>,
    max_pos: u64,
) -> Result<u64, ReadError> {
    let select = "SELECT session, first_seq, last_seq, crc, frames FROM run WHERE pos = ?1";
    let verify = |row: &Row<'_>| verified(row, session, indexed_first);
    let found = first_row(connection, select, [pos], verify)?;
    if let Some(last_seq) = found.flatten() {
        return Ok(last_seq);
    }
    // Read these columns without the frames, whose pages may be damaged.
    let select = "SELECT session, first_seq FROM run WHERE pos = ?1";
    let entry = |row: &Row<'_>| Ok((session_of(row, 0).ok(), row.get(1).ok()));
    let row = first_row(connection, select, [pos], entry)?;
    let (Some((of, first)), Some(pos)) = (row, plausible(pos)) else {
        return Ok(max_pos);
    };
    if of != Some(session) && (first.is_none() || first != indexed_first) {
        return Ok(max_pos);
    }
    let first = [first, indexed_first].into_iter().flatten();
    let first = first.filter_map(plausible);
    let Some(first) = first.filter(|first| *first <= pos).max() else {
        return Ok(max_pos);
    };
    // The positions of a run directly follow those of the previous run.
    Ok((first + (pos - pos_before(connection, pos)?) - 1).min(pos))
}

/// The row's last seq, if the checksum is valid for the first seq of the row or of the SQL index.
fn verified(
    row: &Row<'_>,
    session: SessionId,
    indexed_first: Option<i64>,
) -> Result<Option<u64>, rusqlite::Error> {
    let (Ok(last_seq), Ok(crc), Ok(stored)) =
        (row.get(2), row.get::<_, u32>(3), row.get_ref(4)?.as_blob())
    else {
        return Ok(None);
    };
    let Some(last_seq) = plausible(last_seq) else {
        return Ok(None);
    };
    let firsts = [row.get(1).ok(), indexed_first].into_iter().flatten();
    let mut firsts = firsts
        .filter_map(plausible)
        .filter(|first| *first <= last_seq);
    let is_intact = firsts.any(|first| checksum(session, first, last_seq, stored) == crc);
    Ok(is_intact.then_some(last_seq))
}

/// The position of the last run before `pos`, or 0.
fn pos_before(connection: &Connection, pos: u64) -> Result<u64, ReadError> {
    let select = "SELECT max(pos) FROM run WHERE pos < ?1";
    let max = |row: &Row<'_>| row.get::<_, Option<i64>>(0);
    let found = first_row(connection, select, [to_sql(pos)], max)?;
    Ok(found.flatten().and_then(plausible).unwrap_or(0))
}

fn owner(connection: &Connection, session: SessionId) -> Result<Option<UserId>, ReadError> {
    let select = "SELECT tenant FROM run WHERE session = ?1 LIMIT 1";
    let owner = first_row(connection, select, [session.as_bytes()], |row| {
        Ok(row.get_ref(0)?.as_str().map(UserId::from_text).ok())
    })?;
    Ok(owner.flatten())
}

/// The last position in the table or in the SQL index. If rows are damaged, this scans the index.
pub(super) fn max_pos(connection: &Connection, damaged: bool) -> Result<u64, rusqlite::Error> {
    let select = "SELECT pos, session, first_seq FROM run ORDER BY pos DESC LIMIT 1";
    let last = connection.query_row(select, [], |row| {
        let pos: i64 = row.get(0)?;
        Ok((pos, session_of(row, 1).ok(), row.get::<_, i64>(2).ok()))
    });
    let Some((pos, session, first_seq)) = last.optional()? else {
        return Ok(0);
    };
    let pos = plausible(pos);
    if let (Some(pos), Some(session), Some(first_seq), false) = (pos, session, first_seq, damaged) {
        let select =
            "SELECT pos FROM run INDEXED BY run_session WHERE session = ?1 AND first_seq = ?2";
        let run = params![session.as_bytes(), first_seq];
        let indexed = connection.query_row(select, run, |row| row.get(0));
        if indexed.optional()? == Some(to_sql(pos)) {
            return Ok(pos);
        }
    }
    tracing::error!(?pos, "the last runs of the log are damaged on disk");
    let select = "SELECT max(pos) FROM run INDEXED BY run_session WHERE +pos <= ?1";
    let indexed: Option<i64> =
        connection.query_row(select, [to_sql(MAX_PLAUSIBLE)], |row| row.get(0))?;
    Ok(indexed.and_then(plausible).max(pos).unwrap_or(0))
}
