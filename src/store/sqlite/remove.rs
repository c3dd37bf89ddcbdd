//! Deletion of runs. A damaged run stays in the file and is removed only from the index in memory. Its
//! overflow pages may belong to other rows, so freeing them could destroy other data. Readers skip the run.
//!
//! Runs are verified before the transaction begins, because SQLite cannot continue a transaction that found
//! damage.

use rusqlite::{Connection, params};

use crate::types::SessionId;

use super::super::{CommitError, Cut, LogUsage, Pruned};
use super::row::{first_row, from_sql, select_run, to_sql, unless_malformed, verified_size};

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
            removal.add(
                pos,
                verified_size(run.query([pos])?.next(), session)?.is_some(),
            );
        }
        Ok(removal)
    }

    fn add(&mut self, pos: i64, whole: bool) {
        if whole {
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
    /// The log after the prune.
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
        let (mut gone, mut pruned_pos, mut next) = (Pruned::default(), None, None);
        for (first_seq, pos) in oldest {
            let whole = verified_size(run.query([pos])?.next(), cut.session)?;
            let last_seq = whole.map_or(from_sql(first_seq), |(last_seq, _)| last_seq);
            if last_seq > cut.through
                || from_sql(pos) >= log.last_pos
                || gone.runs == max_runs as u64
            {
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
        let bytes = log.bytes.saturating_sub(gone.bytes);
        let runs = log.runs.saturating_sub(gone.runs);
        let log = LogUsage {
            first_seq,
            first_pos,
            bytes,
            runs,
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
