//! Rows of runs: the encoding of their columns, and the detection of damage.

use rusqlite::{Connection, ErrorCode, OptionalExtension, Params, Row, Statement};

use super::super::ReadError;
use super::super::run::{Run, RunHeader};
use super::compress;
use base::types::{Epoch, SessionId, Timestamp, UserId};

/// Positions and seqs never reach this value. A larger number is damaged.
pub(super) const MAX_PLAUSIBLE: u64 = 1 << 53;

/// The columns that [`decode_run`] expects, in this order.
pub(super) const COLUMNS: &str = "session, first_seq, last_seq, pos, tenant, epoch, crc, frames";

/// Converts to SQLite's signed integers. Our numbers are far below the limit.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

pub(super) fn checksum(session: SessionId, first_seq: u64, last_seq: u64, stored: &[u8]) -> u32 {
    let mut crc = crc32c::crc32c(session.as_bytes());
    crc = crc32c::crc32c_append(crc, &first_seq.to_be_bytes());
    crc = crc32c::crc32c_append(crc, &last_seq.to_be_bytes());
    crc32c::crc32c_append(crc, stored)
}

/// The number, if it can be a stored seq or position.
pub(super) fn plausible(number: i64) -> Option<u64> {
    let number = u64::try_from(number).ok()?;
    (1..=MAX_PLAUSIBLE).contains(&number).then_some(number)
}

/// A row of a statement with [`COLUMNS`].
pub(super) enum StoredRow {
    Run(Run),
    /// An intact run that was filtered out, with its stored bytes.
    Filtered {
        pos: u64,
        bytes: usize,
    },
    /// None of the columns can be trusted. Perhaps SQLite could not read the row.
    Damaged,
    End,
}

pub(super) fn decode_row(
    row: Result<Option<&Row<'_>>, rusqlite::Error>,
    epoch: &Epoch,
    filter: &dyn Fn(&str, SessionId) -> bool,
) -> Result<StoredRow, ReadError> {
    match row {
        Ok(Some(row)) => Ok(decode_run(row, epoch, filter).unwrap_or(StoredRow::Damaged)),
        Ok(None) => Ok(StoredRow::End),
        Err(error) if is_malformed(&error) => Ok(StoredRow::Damaged),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn is_malformed(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
}

/// `None` if SQLite found an invalid page.
pub(super) fn unless_malformed<T>(
    result: Result<T, rusqlite::Error>,
) -> Result<Option<T>, rusqlite::Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_malformed(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first row of a query. `None` if there is none, or if SQLite found an invalid page.
pub(super) fn first_row<T>(
    connection: &Connection,
    select: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, rusqlite::Error>,
) -> Result<Option<T>, rusqlite::Error> {
    Ok(unless_malformed(connection.query_row(select, params, read).optional())?.flatten())
}

/// Prepares a statement that selects [`COLUMNS`] of the run at a position.
pub(super) fn select_run(connection: &Connection) -> Result<Statement<'_>, rusqlite::Error> {
    connection.prepare(&format!("SELECT {COLUMNS} FROM run WHERE pos = ?1"))
}

/// The session, the first and the last seq, and the stored frames.
pub(super) type VerifiedRow<'a> = (SessionId, u64, u64, &'a [u8]);

/// Verifies the checksum of a row of [`COLUMNS`]. `None` if it differs.
pub(super) fn verify_row<'a>(row: &'a Row<'_>) -> Result<Option<VerifiedRow<'a>>, rusqlite::Error> {
    let session = session_of(row, 0)?;
    let first_seq = from_sql(row.get(1)?);
    let last_seq = from_sql(row.get(2)?);
    let stored = row.get_ref(7)?.as_blob()?;
    let crc: u32 = row.get(6)?;
    let is_intact = checksum(session, first_seq, last_seq, stored) == crc;
    Ok(is_intact.then_some((session, first_seq, last_seq, stored)))
}

/// The last seq and the stored bytes of a run of the session, if the run is intact.
pub(super) fn verified_size(
    row: Result<Option<&Row<'_>>, rusqlite::Error>,
    session: SessionId,
) -> Result<Option<(u64, u64)>, rusqlite::Error> {
    let Some(row) = unless_malformed(row)?.flatten() else {
        return Ok(None);
    };
    let whole = verify_row(row).ok().flatten();
    let whole = whole.filter(|(of, ..)| *of == session);
    Ok(whole.map(|(_, _, last_seq, stored)| (last_seq, stored.len() as u64)))
}

/// Decodes a row of [`COLUMNS`]: verifies the checksum, and decompresses the frames of an accepted run.
/// Columns of wrong types and invalid compressed data are damage.
fn decode_run(
    row: &Row<'_>,
    epoch: &Epoch,
    filter: &dyn Fn(&str, SessionId) -> bool,
) -> Result<StoredRow, rusqlite::Error> {
    let Some((session, first_seq, last_seq, stored)) = verify_row(row)? else {
        return Ok(StoredRow::Damaged);
    };
    let owner = row.get_ref(4)?.as_str()?;
    let last_pos = from_sql(row.get(3)?);
    if !filter(owner, session) {
        return Ok(StoredRow::Filtered {
            pos: last_pos,
            bytes: stored.len(),
        });
    }
    let Some(frames) = compress::decompress(stored) else {
        return Ok(StoredRow::Damaged);
    };
    let run = Run {
        owner: UserId::from_text(owner),
        session,
        first_seq,
        last_seq,
        last_pos,
        frames,
    };
    let framed_with = row.get_ref(5)?.as_str()?;
    Ok(StoredRow::Run(if framed_with == epoch.as_str() {
        run
    } else {
        run.with_epoch(&epoch.of_session(session))
    }))
}

pub(super) fn session_of(row: &Row<'_>, column: usize) -> Result<SessionId, rusqlite::Error> {
    let id = uuid::Uuid::from_bytes(row.get(column)?);
    Ok(SessionId::from_uuid(id))
}

/// Decodes a row of session, first seq, last seq, position, bytes and time.
pub(super) fn run_header(row: &Row<'_>) -> Result<RunHeader, rusqlite::Error> {
    Ok(RunHeader {
        session: session_of(row, 0)?,
        first_seq: from_sql(row.get(1)?),
        last_seq: from_sql(row.get(2)?),
        last_pos: from_sql(row.get(3)?),
        bytes: from_sql(row.get(4)?),
        time: Timestamp::from_millis(row.get(5)?),
    })
}
