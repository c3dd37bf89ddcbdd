//! The migration of a file of an earlier format.
//!
//! Each step changes one format into the next one. All steps of a migration are one transaction, so that a file always has one
//! format. The copy of the previous file is complete before the transaction begins.
//!
//! A change of the format adds a step here, raises [`VERSION`], and adds a file of the previous format to `tests/it/store/formats`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Transaction, TransactionBehavior};

use super::copy::{copy, remove_files};
use super::row::from_sql;
use super::schema::{
    self, OLDEST, OpenError, VERSION, folder_of, open_source, open_writer, sync, with_suffix,
};
use base::types::Ids;

type Step = fn(&Transaction<'_>, &Ids) -> Result<(), rusqlite::Error>;

/// The steps of the formats from [`OLDEST`] to the one before [`VERSION`].
const STEPS: [Step; 2] = [draw_shard, name_users];

/// The room that a migration needs besides the copy, for its changes.
const MARGIN_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct Migration {
    pub from: i32,
    pub to: i32,
    /// The copy of the file with its previous format.
    pub copy: Option<PathBuf>,
}

/// Changes the log to the format of this version. `None`: it has this format, or does not exist. No other process may use
/// the log. With `keeps_copy`, the previous file is copied first, and the disk must have room for the copy.
pub fn migrate(log: &Path, keeps_copy: bool, ids: &Ids) -> Result<Option<Migration>, OpenError> {
    let from = match schema::identify(log) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        identified => identified?,
    };
    if from == VERSION {
        return Ok(None);
    }
    // The part of a copy that was interrupted takes the room of the next one.
    let part = with_suffix(log, &format!(".format-{from}.part"));
    remove_files(&part);
    let copy = if keeps_copy {
        check_room(log)?;
        Some(copy_before(log, &part, from)?)
    } else {
        None
    };
    apply(log, from, ids)?;
    Ok(Some(Migration {
        from,
        to: VERSION,
        copy,
    }))
}

/// Changes a file of the format `from` in one transaction.
pub(super) fn apply(file: &Path, from: i32, ids: &Ids) -> Result<(), OpenError> {
    // The last process did not close the file, so the next start must check it.
    let is_unclean = with_suffix(file, "-wal").exists();
    let mut connection = open_writer(file)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_unclean)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (format, step) in (OLDEST..VERSION).zip(STEPS) {
        if format >= from {
            step(&transaction, ids)?;
        }
    }
    schema::set_version(&transaction)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Format 6: new session ids carry the number of the store (`SessionId::in_shard`).
fn draw_shard(transaction: &Transaction<'_>, ids: &Ids) -> Result<(), rusqlite::Error> {
    schema::insert_shard(transaction, ids.shard())
}

/// Format 7: sessions, tasks, webhooks and keys belong to a user of a tenant, and keys of records begin with both.
///
/// Earlier, a session named its tenant and the key that created it. The key of the configuration and the keys of `attach`
/// become keys of the user `owner`. Webhooks belonged to the tenant, and become those of `owner`.
fn name_users(transaction: &Transaction<'_>, _: &Ids) -> Result<(), rusqlite::Error> {
    transaction.execute_batch(include_str!("name_users.sql"))
}

fn check_room(log: &Path) -> Result<(), OpenError> {
    let source = open_source(log)?;
    let pages: i64 = source.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page_bytes: i64 = source.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let needed = from_sql(pages) * from_sql(page_bytes) + MARGIN_BYTES;
    let disk = rustix::fs::statvfs(folder_of(log)).map_err(io::Error::from)?;
    require_room(needed, disk.f_bavail.saturating_mul(disk.f_frsize))
}

fn require_room(needed: u64, free: u64) -> Result<(), OpenError> {
    if free < needed {
        return Err(OpenError::NoRoom { needed, free });
    }
    Ok(())
}

/// Copies the log to `log.sqlite.format-N`. This replaces the copy of an earlier migration, which was interrupted or whose file
/// an earlier version of the gateway has changed since.
fn copy_before(log: &Path, part: &Path, from: i32) -> Result<PathBuf, OpenError> {
    let kept = with_suffix(log, &format!(".format-{from}"));
    copy(log, part)?;
    fs::rename(part, &kept)?;
    sync(folder_of(log))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_room_is_named_in_bytes() {
        require_room(100, 100).unwrap();
        let error = require_room(100, 40).unwrap_err().to_string();
        assert!(error.contains("free 60 bytes more"), "{error}");
    }
}
