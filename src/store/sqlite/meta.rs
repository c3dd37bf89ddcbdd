//! Single values of the file.

use rusqlite::{Connection, params};

use crate::types::Epoch;

use super::error::OpenError;
use super::row::{from_sql, to_sql};

pub(super) fn epoch(connection: &Connection) -> Result<Epoch, OpenError> {
    let select = "SELECT value FROM meta WHERE key = 'epoch'";
    let epoch: String = connection.query_row(select, [], |row| row.get(0))?;
    epoch.parse().map_err(|_| OpenError::NotALog)
}

pub(super) fn position(connection: &Connection, key: &str) -> Result<u64, rusqlite::Error> {
    let select = "SELECT value FROM meta WHERE key = ?1";
    connection
        .query_row(select, [key], |row| row.get(0))
        .map(from_sql)
}

pub(super) fn set_position(
    transaction: &Connection,
    key: &str,
    pos: u64,
) -> Result<(), rusqlite::Error> {
    transaction
        .execute(
            "UPDATE meta SET value = ?2 WHERE key = ?1",
            params![key, to_sql(pos)],
        )
        .map(drop)
}
