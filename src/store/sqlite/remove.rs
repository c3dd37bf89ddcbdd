//! Deletion of runs. A damaged run stays in the file and is removed only from the index in memory. Its
//! overflow pages may belong to other rows, so freeing them could destroy other data. Readers skip the run.
//!
//! Runs are verified before the transaction begins, because SQLite cannot continue a transaction that found
//! damage.

use rusqlite::{Connection, OptionalExtension, Statement, params};

use crate::types::SessionId;

use super::super::{CommitError, Cut, LogUsage, Pruned};
use super::row::{self, COLUMNS, from_sql, to_sql, unless_malformed};

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
        let (mut look, mut removal) =
            (RunInspector::new(connection)?, Self { session, positions: Vec::new(), damaged: 0 });
        for pos in places {
            let whole = look.verified_size(session, pos)?;
            removal.add(pos, whole.is_some());
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

    /// Deletes the runs. Returns false if SQLite found damage. The caller then calls
    /// [`skip_all`](Self::skip_all) and repeats the transaction.
    pub(super) fn remove(&self, transaction: &Connection) -> Result<bool, CommitError> {
        let mut delete = transaction.prepare("DELETE FROM run WHERE pos = ?1")?;
        for pos in &self.positions {
            if unless_malformed(delete.execute([pos]))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn skip_all(&mut self) {
        self.damaged += self.positions.len() as u64;
        self.positions.clear();
    }
}

/// Verifies runs one by one with prepared statements.
struct RunInspector<'a> {
    row: Statement<'a>,
    size: Statement<'a>,
}

impl<'a> RunInspector<'a> {
    fn new(connection: &'a Connection) -> Result<Self, rusqlite::Error> {
        Ok(Self {
            row: connection.prepare(&format!("SELECT {COLUMNS} FROM run WHERE pos = ?1"))?,
            size: connection.prepare("SELECT length(frames) FROM run WHERE pos = ?1")?,
        })
    }

    /// The last seq and the stored bytes of a run of the session. `None` if the run is damaged.
    fn verified_size(&mut self, session: SessionId, pos: i64) -> Result<Option<(u64, u64)>, rusqlite::Error> {
        row::verified_size(self.row.query([pos])?.next(), session)
    }

    /// The bytes that the index in memory counts for a damaged run.
    fn stored_size(&mut self, pos: i64) -> Result<u64, rusqlite::Error> {
        let bytes = self.size.query_row([pos], |row| row.get(0)).optional();
        let bytes: Option<i64> = unless_malformed(bytes)?.flatten();
        Ok(bytes.map_or(0, from_sql))
    }
}

/// The prune of one session: its deleted runs and the new beginning of its log.
pub(super) struct PrunedLog {
    pub(super) removal: Removal,
    pub(super) removed: Pruned,
    pub(super) pruned_pos: u64,
    pub(super) first_seq: u64,
    pub(super) first_pos: u64,
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
        let oldest = params![cut.session.as_bytes(), to_sql(log.first_seq), to_sql(max_runs as u64 + 1)];
        let oldest = select.query_map(oldest, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let oldest: Vec<(i64, i64)> = oldest.collect::<Result<_, _>>()?;
        let mut look = RunInspector::new(connection)?;
        let mut removal = Removal { session: cut.session, positions: Vec::new(), damaged: 0 };
        let (mut gone, mut pruned_pos, mut next) = (Pruned::default(), None, None);
        for (first_seq, pos) in oldest {
            let whole = look.verified_size(cut.session, pos)?;
            let last_seq = whole.map_or(from_sql(first_seq), |(last_seq, _)| last_seq);
            if last_seq > cut.through || from_sql(pos) >= log.last_pos || gone.runs == max_runs as u64 {
                let before = last_seq.saturating_sub(from_sql(first_seq));
                next = Some((from_sql(first_seq), from_sql(pos).saturating_sub(before)));
                break;
            }
            let bytes = match whole {
                Some((_, bytes)) => bytes,
                None => look.stored_size(pos)?,
            };
            removal.add(pos, whole.is_some());
            gone.add(Pruned { runs: 1, bytes });
            pruned_pos = Some(from_sql(pos));
        }
        let (first_seq, first_pos) = next.unwrap_or((log.last_seq, log.last_pos));
        Ok(pruned_pos.map(|pruned_pos| Self { removal, removed: gone, pruned_pos, first_seq, first_pos }))
    }
}
