//! Operations of the reader connections.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{Page, ReadError, Record, Run, RunHeader, Table};
use super::row::{
    COLUMNS, MAX_PLAUSIBLE, StoredRow, decode_row, from_sql, is_malformed, run_header, select_run,
    session_of, to_sql,
};
use super::schema;
use base::types::{Epoch, SessionId};

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.into())
    }
}

pub(super) fn session(
    connection: &Connection,
    epoch: &Epoch,
    session: SessionId,
    after: u64,
    max_bytes: usize,
) -> Result<Vec<Run>, ReadError> {
    // Start at the run that contains the event after `after`.
    let mut select = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM run WHERE session = ?1 AND last_seq > ?2 AND first_seq >= coalesce(
            (SELECT max(first_seq) FROM run WHERE session = ?1 AND first_seq <= ?2 + 1), 0) ORDER BY first_seq"
    ))?;
    let mut rows = select.query(params![session.as_bytes(), to_sql(after)])?;
    let mut runs = Vec::new();
    let mut bytes = 0;
    while bytes < max_bytes || runs.is_empty() {
        match decode_row(rows.next(), epoch, &|_, _| true)? {
            StoredRow::Run(run) => {
                if let Some(run) = run.after(after) {
                    bytes += run.frames.len();
                    runs.push(run);
                }
            }
            StoredRow::Damaged if runs.is_empty() => {
                let beyond = seq_before_next_valid(connection, epoch, session, after)?;
                return Err(ReadError::Corrupt {
                    session,
                    first_seq: after + 1,
                    last_seq: beyond,
                    after: beyond,
                });
            }
            StoredRow::Damaged | StoredRow::Filtered { .. } | StoredRow::End => break,
        }
    }
    Ok(runs)
}

/// The seq before the next intact run, or `u64::MAX` if there is none.
fn seq_before_next_valid(
    connection: &Connection,
    epoch: &Epoch,
    session: SessionId,
    after: u64,
) -> Result<u64, ReadError> {
    // Read only the SQL index: pages of frames may be unreadable.
    let mut select = connection.prepare(
        "SELECT pos FROM run INDEXED BY run_session WHERE session = ?1 AND first_seq > ?2 ORDER BY first_seq",
    )?;
    let mut one = select_run(connection)?;
    let mut positions = select.query(params![session.as_bytes(), to_sql(after)])?;
    loop {
        let pos: i64 = match positions.next() {
            Ok(Some(row)) => row.get(0)?,
            Ok(None) => return Ok(u64::MAX),
            Err(error) if is_malformed(&error) => return Ok(u64::MAX),
            Err(error) => return Err(error.into()),
        };
        let decoded = decode_row(one.query([pos])?.next(), epoch, &|_, _| true)?;
        if let StoredRow::Run(run) = decoded
            && run.session == session
            && run.first_seq > after
        {
            return Ok(run.first_seq - 1);
        }
    }
}

/// Returns a page of runs, and whether the read reached the end of the connection's snapshot.
pub(super) fn all(
    connection: &Connection,
    epoch: &Epoch,
    after_pos: u64,
    max_bytes: usize,
    filter: &dyn Fn(&str, SessionId) -> bool,
) -> Result<(Page, bool), ReadError> {
    /// The maximum rows of one read: a long read prevents a restart of the write-ahead log.
    const MAX_ROWS: usize = 10_000;
    /// The maximum bytes of those rows. A reader of few sessions gets its events before all other sessions
    /// are scanned.
    const MAX_SCAN_BYTES: usize = 1 << 20;
    let mut select = connection.prepare(&format!(
        "SELECT {COLUMNS} FROM run WHERE pos > ?1 AND pos <= ?2 ORDER BY pos"
    ))?;
    let mut rows = select.query([to_sql(after_pos), to_sql(MAX_PLAUSIBLE)])?;
    let mut page = Page {
        runs: Vec::new(),
        through: after_pos,
    };
    let mut bytes = 0;
    let mut looked = 0;
    for _ in 0..MAX_ROWS {
        if looked >= MAX_SCAN_BYTES || bytes >= max_bytes && !page.runs.is_empty() {
            break;
        }
        match decode_row(rows.next(), epoch, filter)? {
            StoredRow::End => return Ok((page, true)),
            StoredRow::Run(run) => {
                page.through = run.last_pos;
                looked += run.frames.len();
                let run = run.after_pos(after_pos);
                bytes += run.as_ref().map_or(0, |run| run.frames.len());
                page.runs.extend(run);
            }
            StoredRow::Filtered { pos, bytes } => {
                page.through = pos;
                looked += bytes;
            }
            StoredRow::Damaged => {
                let Some(damaged) = damaged_after(connection, page.through)? else {
                    return Ok((page, true));
                };
                if filter(&damaged.owner, damaged.session) {
                    if page.runs.is_empty() {
                        return Err(ReadError::Corrupt {
                            session: damaged.session,
                            first_seq: damaged.first_seq,
                            last_seq: damaged.last_seq,
                            after: damaged.pos,
                        });
                    }
                } else {
                    // The statement may have ended with the error. The next page continues after the run.
                    page.through = damaged.pos;
                }
                break;
            }
        }
    }
    Ok((page, false))
}

pub(super) struct DamagedRun {
    pub(super) session: SessionId,
    pub(super) owner: String,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) pos: u64,
}

/// The first run after a position, which is damaged. If the row cannot be trusted, the SQL index supplies the
/// values.
pub(super) fn damaged_after(
    connection: &Connection,
    after_pos: u64,
) -> Result<Option<DamagedRun>, ReadError> {
    // These columns precede the frames, on the page of the row itself.
    let select = "SELECT session, first_seq, last_seq, tenant, pos FROM run WHERE pos > ?1 ORDER BY pos LIMIT 1";
    let row = connection.query_row(select, [to_sql(after_pos)], |row| {
        Ok(DamagedRun {
            session: session_of(row, 0)?,
            first_seq: from_sql(row.get(1)?),
            last_seq: from_sql(row.get(2)?),
            owner: row.get(3)?,
            pos: from_sql(row.get(4)?),
        })
    });
    match row {
        Ok(damaged) if is_indexed(connection, &damaged)? => return Ok(Some(damaged)),
        Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(None),
        // Errors without a code are columns of wrong types.
        Err(error) if error.sqlite_error_code().is_some() && !is_malformed(&error) => {
            return Err(error.into());
        }
        Ok(_) | Err(_) => {}
    }
    let select = "SELECT session, first_seq, pos FROM run INDEXED BY run_session
        WHERE +pos > ?1 ORDER BY +pos LIMIT 1";
    let indexed = connection.query_row(select, [to_sql(after_pos)], |row| {
        let first_seq = from_sql(row.get(1)?);
        Ok((session_of(row, 0)?, first_seq, from_sql(row.get(2)?)))
    });
    let Some((session, first_seq, pos)) = indexed.optional()? else {
        return Ok(None);
    };
    // All runs of a session have the same owner.
    let select = "SELECT tenant FROM run WHERE session = ?1 AND pos <> ?2 LIMIT 1";
    let other = params![session.as_bytes(), to_sql(pos)];
    let owner = connection.query_row(select, other, |row| row.get(0));
    let owner = owner.optional()?.unwrap_or_default();
    Ok(Some(DamagedRun {
        session,
        owner,
        first_seq,
        last_seq: u64::MAX,
        pos,
    }))
}

fn is_indexed(connection: &Connection, run: &DamagedRun) -> Result<bool, rusqlite::Error> {
    let select = "SELECT 1 FROM run INDEXED BY run_session WHERE session = ?1 AND first_seq = ?2 AND +pos = ?3";
    let first_seq = to_sql(run.first_seq);
    let run = params![run.session.as_bytes(), first_seq, to_sql(run.pos)];
    connection.prepare(select)?.exists(run)
}

/// The headers of runs. A session is passed with the first seq of its log.
pub(super) fn run_headers(
    connection: &Connection,
    session: Option<(SessionId, u64)>,
    after_pos: u64,
    limit: usize,
) -> Result<Vec<RunHeader>, rusqlite::Error> {
    const HEAD: &str = "SELECT session, first_seq, last_seq, pos, length(frames), time FROM run";
    let after = to_sql(after_pos);
    let limit = to_sql(limit as u64);
    match session {
        Some((session, from)) => connection
            .prepare(&format!(
                "{HEAD} WHERE session = ?1 AND first_seq >= ?2 AND pos > ?3 ORDER BY first_seq LIMIT ?4"
            ))?
            .query_map(params![session.as_bytes(), to_sql(from), after, limit], run_header)?
            .collect(),
        None => connection
            .prepare(&format!("{HEAD} WHERE pos > ?1 ORDER BY pos LIMIT ?2"))?
            .query_map(params![after, limit], run_header)?
            .collect(),
    }
}

pub(super) fn record(
    connection: &Connection,
    table: Table,
    key: &[u8],
) -> Result<Option<Bytes>, rusqlite::Error> {
    let select = "SELECT value FROM record WHERE tbl = ?1 AND key = ?2";
    let value = connection.query_row(select, params![table as u8, key], |row| row.get(0));
    Ok(value.optional()?.map(|value: Vec<u8>| Bytes::from(value)))
}

pub(super) fn scan(
    connection: &Connection,
    table: Table,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Record>, rusqlite::Error> {
    let (sign, from) = match after {
        Some(after) if after >= prefix => (">", after),
        _ => (">=", prefix),
    };
    let mut select = connection.prepare_cached(&format!(
        "SELECT key, value FROM record WHERE tbl = ?1 AND key {sign} ?2 ORDER BY key LIMIT ?3"
    ))?;
    let mut rows = select.query(params![table as u8, from, to_sql(limit as u64)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key: Vec<u8> = row.get(0)?;
        if !key.starts_with(prefix) {
            break;
        }
        found.push((key, row.get::<_, Vec<u8>>(1)?.into()));
    }
    Ok(found)
}

/// A pool of connections. If none is free, callers wait for the connections in turn.
#[derive(Debug)]
pub(super) struct ReaderPool {
    connections: Vec<Mutex<Connection>>,
    next: AtomicUsize,
}

impl ReaderPool {
    pub(super) fn open(path: &Path, count: usize) -> Result<Self, rusqlite::Error> {
        let connections = (0..count.max(1)).map(|_| schema::open_reader(path).map(Mutex::new));
        Ok(Self {
            connections: connections.collect::<Result<_, _>>()?,
            next: AtomicUsize::new(0),
        })
    }

    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let mut connections = self.connections.iter();
        let free = connections.find_map(|connection| connection.try_lock().ok());
        let connection = free.unwrap_or_else(|| {
            let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
            // A panic of a reader does not affect its connection.
            self.connections[next]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        });
        read(&connection)
    }
}
