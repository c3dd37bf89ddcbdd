//! What the index in memory believes of a log's ends, compared with what is stored. The columns that it was read from
//! are compared with nothing then, and where a session goes on is taken from them.
//!
//! The first seq of a run and its place stand twice in the file, in its row and in the index, and the checksum covers
//! the last seq. Where they disagree the end is the greatest that can have been, and the beginning the smallest: seqs may
//! be left out, which readers are told as damage, and none is given twice.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::types::{SessionId, Tenant};

use super::super::{LogUsage, ReadError};
use super::{checksum, read, to_sql};

/// No place and no seq comes near it: what is larger was never written.
pub(super) const MAX_PLAUSIBLE: u64 = 1 << 53;

/// Where a log begins and ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) tenant: Tenant,
    pub(super) first_seq: u64,
    pub(super) first_pos: u64,
    pub(super) last_seq: u64,
    pub(super) last_pos: u64,
}

/// A number that was written, if that can be.
pub(super) fn plausible(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (1..=MAX_PLAUSIBLE).contains(number))
}

/// `None` when `known` is right. `last_place` is the last of the whole store: every event has a place, so no seq is
/// greater than it.
pub(super) fn find_mismatch(
    connection: &Connection,
    session: SessionId,
    known: Option<&LogUsage>,
    last_place: u64,
) -> Result<Option<Bounds>, ReadError> {
    let from = known.map_or(0, |log| log.first_seq);
    let first = index_entry(connection, session, "first_seq >= ?2 ORDER BY first_seq", from)?;
    let last = index_entry(connection, session, "first_seq >= ?2 ORDER BY first_seq DESC", 0)?;
    if let (None, None) = (known, last) {
        return Ok(None);
    }
    let mut last_seq = 0;
    if let Some((first_seq, pos)) = last {
        last_seq = last_seq_at(connection, session, pos, Some(first_seq), last_place)?;
        // The index takes no seq twice, also where it lies.
        last_seq = last_seq.max(plausible(first_seq).unwrap_or(0));
    }
    if let Some(log) = known.filter(|log| last.is_none_or(|(_, pos)| to_sql(log.last_pos) != pos)) {
        last_seq = last_seq.max(last_seq_at(connection, session, to_sql(log.last_pos), None, last_place)?);
    }
    let begins_there = known.is_some_and(|log| first.is_some_and(|(seq, _)| seq == to_sql(log.first_seq)));
    if begins_there && known.is_some_and(|log| log.last_seq == last_seq) {
        return Ok(None);
    }
    let indexed_last = last.and_then(|(_, pos)| plausible(pos));
    let last_pos = indexed_last.max(known.map(|log| log.last_pos)).unwrap_or(last_place);
    let (first_seq, first_pos) = match known.filter(|_| begins_there) {
        Some(log) => (log.first_seq, log.first_pos),
        None => first_indexed(connection, session)?.unwrap_or((last_seq, last_pos)),
    };
    // An entry that the index has lost was there: its readers are told of damage, and not that it was dropped.
    let (first_seq, first_pos) = match known.filter(|log| log.first_seq < first_seq) {
        Some(log) if log.last_seq == last_seq => return Ok(None),
        Some(log) => (log.first_seq, log.first_pos),
        None => (first_seq, first_pos),
    };
    let tenant = match known {
        Some(log) => log.tenant.clone(),
        None => tenant(connection, session)?.unwrap_or_default(),
    };
    Ok(Some(Bounds { tenant, first_seq: first_seq.min(last_seq), first_pos, last_seq, last_pos }))
}

/// An entry of the index, which is read alone: the first seq and the place of a run.
fn index_entry(
    connection: &Connection,
    session: SessionId,
    which: &str,
    from: u64,
) -> Result<Option<(i64, i64)>, ReadError> {
    let select = format!(
        "SELECT first_seq, pos FROM run INDEXED BY run_session WHERE session = ?1 AND {which} LIMIT 1"
    );
    let found = connection
        .query_row(&select, params![session.as_bytes(), to_sql(from)], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(read::unless_malformed(found.optional())?.flatten())
}

/// The first seq that the index has, and a place that is not after it.
fn first_indexed(connection: &Connection, session: SessionId) -> Result<Option<(u64, u64)>, ReadError> {
    let found = index_entry(connection, session, "first_seq >= ?2 ORDER BY first_seq", 1)?;
    let Some((seq, pos)) = found.and_then(|(seq, pos)| Some((plausible(seq)?, plausible(pos)?))) else {
        return Ok(None);
    };
    Ok(Some((seq, pos_before(connection, pos)? + 1)))
}

/// The seq of the last event of the run at a place: as its checksum says, or else the greatest that can be.
fn last_seq_at(
    connection: &Connection,
    session: SessionId,
    pos: i64,
    indexed_first: Option<i64>,
    last_place: u64,
) -> Result<u64, ReadError> {
    let found = connection
        .query_row("SELECT session, first_seq, last_seq, crc, frames FROM run WHERE pos = ?1", [pos], |row| {
            verified(row, session, indexed_first)
        })
        .optional();
    if let Some(Some(Some(last_seq))) = read::unless_malformed(found)? {
        return Ok(last_seq);
    }
    // Nothing of the frames is needed for these.
    let select = "SELECT session, first_seq FROM run WHERE pos = ?1";
    let row = connection.query_row(select, [pos], |row| Ok((read::session_of(row, 0).ok(), row.get(1).ok())));
    let row: Option<(Option<SessionId>, Option<i64>)> = read::unless_malformed(row.optional())?.flatten();
    let Some((of, first)) = row else { return Ok(last_place) };
    let Some(pos) = plausible(pos) else { return Ok(last_place) };
    if of != Some(session) && (first.is_none() || first != indexed_first) {
        return Ok(last_place);
    }
    let first = [first, indexed_first].into_iter().flatten().filter_map(plausible);
    let Some(first) = first.filter(|first| *first <= pos).max() else { return Ok(last_place) };
    // The places of a run follow those of the run before it.
    Ok((first + (pos - pos_before(connection, pos)?) - 1).min(pos))
}

/// The row's last seq, when the checksum is that of the session's run with the first seq of the row or of the index.
fn verified(
    row: &Row<'_>,
    session: SessionId,
    indexed_first: Option<i64>,
) -> Result<Option<u64>, rusqlite::Error> {
    let (Ok(last_seq), Ok(crc), Ok(stored)) = (row.get(2), row.get::<_, u32>(3), row.get_ref(4)?.as_blob())
    else {
        return Ok(None);
    };
    let Some(last_seq) = plausible(last_seq) else { return Ok(None) };
    let firsts = [row.get(1).ok(), indexed_first].into_iter().flatten().filter_map(plausible);
    let mut firsts = firsts.filter(|first| *first <= last_seq);
    Ok(firsts.any(|first| checksum(session, first, last_seq, stored) == crc).then_some(last_seq))
}

/// The place of the run before a place.
fn pos_before(connection: &Connection, pos: u64) -> Result<u64, ReadError> {
    let select = "SELECT max(pos) FROM run WHERE pos < ?1";
    let found = connection.query_row(select, [to_sql(pos)], |row| row.get::<_, Option<i64>>(0));
    Ok(read::unless_malformed(found)?.flatten().and_then(plausible).unwrap_or(0))
}

fn tenant(connection: &Connection, session: SessionId) -> Result<Option<Tenant>, ReadError> {
    let select = "SELECT tenant FROM run WHERE session = ?1 LIMIT 1";
    let found = connection
        .query_row(select, [session.as_bytes()], |row| Ok(row.get_ref(0)?.as_str().map(Tenant::new).ok()));
    Ok(read::unless_malformed(found.optional())?.flatten().flatten())
}

/// The last place that the table or the index has. Where rows are damaged the index is read through.
pub(super) fn max_pos(connection: &Connection, damaged: bool) -> Result<u64, rusqlite::Error> {
    let select = "SELECT pos, session, first_seq FROM run ORDER BY pos DESC LIMIT 1";
    let last = connection.query_row(select, [], |row| {
        Ok((row.get::<_, i64>(0)?, read::session_of(row, 1).ok(), row.get::<_, i64>(2).ok()))
    });
    let Some((pos, session, first_seq)) = last.optional()? else { return Ok(0) };
    let pos = plausible(pos);
    if let (Some(pos), Some(session), Some(first_seq), false) = (pos, session, first_seq, damaged) {
        let select = "SELECT pos FROM run INDEXED BY run_session WHERE session = ?1 AND first_seq = ?2";
        let run = params![session.as_bytes(), first_seq];
        if connection.query_row(select, run, |row| row.get(0)).optional()? == Some(to_sql(pos)) {
            return Ok(pos);
        }
    }
    tracing::error!(?pos, "the last runs of the log are damaged on disk");
    let select = "SELECT max(pos) FROM run INDEXED BY run_session WHERE +pos <= ?1";
    let indexed: Option<i64> = connection.query_row(select, [to_sql(MAX_PLAUSIBLE)], |row| row.get(0))?;
    Ok(indexed.and_then(plausible).max(pos).unwrap_or(0))
}
