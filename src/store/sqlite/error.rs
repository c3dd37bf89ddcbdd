//! Failures to open a file.

use std::io;

use rusqlite::ErrorCode;

use super::super::error::BoxError;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the file is not an event log of acp-gateway")]
    NotALog,
    #[error(
        "the file has format {found}, and this version reads format {known} only; it was not touched"
    )]
    OtherVersion { found: i32, known: i32 },
    #[error("a restore was interrupted before it replaced the log: repeat the restore")]
    RestoreInterrupted,
    #[error("the file system does not support a write-ahead log: use a local disk")]
    NoWal,
    #[error(
        "the log is damaged and was not changed: restore a backup with `acp-gateway restore FILE`"
    )]
    Damaged(#[source] BoxError),
    #[error("could not open the file")]
    Io(#[from] io::Error),
    #[error("could not open the file")]
    Sqlite(#[source] rusqlite::Error),
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(error.into())
            }
            _ => Self::Sqlite(error),
        }
    }
}
