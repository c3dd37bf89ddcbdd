//! Preparation of the file before it is opened: creation, or migration of an earlier version in one
//! transaction, after a copy of the file was made.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use crate::types::Epoch;

use super::connection::{folder_of, open_writer, with_suffix};
use super::copy;
use super::error::OpenError;
use super::schema::{self, MIGRATIONS, Migration};

/// Checks, creates or migrates the file. A foreign or newer file is not changed.
pub(super) fn prepare(path: &Path, epoch: impl FnOnce() -> Epoch) -> Result<(), OpenError> {
    let version = match schema::read_version(path) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            if schema::restored_path(path).exists() {
                return Err(OpenError::RestoreInterrupted);
            }
            return schema::create(path, &epoch());
        }
        version => version?,
    };
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    to_newest(path, version, &MIGRATIONS)
}

/// Migrates a file of `version` to the newest version. `steps[0]` leads from version 1 to version 2. A copy
/// of the old file stays beside it, named after its version, until an operator deletes it.
fn to_newest(path: &Path, version: i32, steps: &[Migration]) -> Result<(), OpenError> {
    let done = usize::try_from(version - 1).unwrap_or_default();
    let Some(steps) = steps.get(done..).filter(|steps| !steps.is_empty()) else { return Ok(()) };
    let kept = with_suffix(path, &format!(".version-{version}"));
    // The copy has a temporary name until it is complete.
    let new = with_suffix(path, ".copy");
    copy::remove_files(&new);
    copy::snapshot(path, &new)?;
    fs::rename(&new, &kept)?;
    fs::File::open(folder_of(path))?.sync_all()?;
    let newest = version + i32::try_from(steps.len()).unwrap_or_default();
    tracing::info!(version, newest, kept = %kept.display(), "migrating the log to the newest version");
    let mut file: Connection = open_writer(path)?;
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", newest)?;
    Ok(transaction.commit()?)
}

#[cfg(test)]
mod tests {
    use super::super::super::contract::{append, run, seqs, session};
    use super::super::super::{EventStore, SqliteStore};
    use super::*;
    use crate::types::{Ids, Limits};

    const STEPS: [Migration; 2] = [
        "ALTER TABLE meta ADD COLUMN note TEXT",
        "CREATE TABLE added (name TEXT); INSERT INTO added SELECT key FROM meta",
    ];

    /// A log of the first version with three events.
    fn first_version(path: &Path) -> Epoch {
        let store = SqliteStore::open(path, Ids::system(), &Limits::default()).unwrap();
        append(&store, vec![run(1, 1..=3)]);
        let epoch = store.epoch();
        drop(store);
        let file = Connection::open(path).unwrap();
        file.execute_batch("DROP TABLE log; DELETE FROM meta WHERE key LIKE 'summed%'").unwrap();
        file.pragma_update(None, "user_version", 1).unwrap();
        epoch
    }

    fn version(path: &Path) -> i32 {
        let file = Connection::open(path).unwrap();
        file.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    #[test]
    fn migration_applies_missing_steps_and_keeps_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let epoch = first_version(&path);
        to_newest(&path, 1, &STEPS[..1]).unwrap();
        assert_eq!(version(&path), 2);
        to_newest(&path, 2, &STEPS).unwrap();
        assert_eq!(version(&path), 3);
        to_newest(&path, 3, &STEPS).unwrap();
        let file = Connection::open(&path).unwrap();
        let names: i64 = file.query_row("SELECT count(*) FROM added", [], |row| row.get(0)).unwrap();
        assert_eq!(names, 3);
        assert_eq!(version(&with_suffix(&path, ".version-2")), 2);
        let kept = with_suffix(&path, ".version-1");
        let store = SqliteStore::open(&kept, Ids::system(), &Limits::default()).unwrap();
        assert_eq!((seqs(&store.read(session(1), 0, 1000).unwrap()), store.epoch()), (vec![1, 2, 3], epoch));
    }

    #[test]
    fn failed_migration_leaves_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        first_version(&path);
        let there = std::fs::read(&path).unwrap();
        to_newest(&path, 1, &[STEPS[1], "NOT SQL"]).unwrap_err();
        assert_eq!(version(&path), 1);
        let store = SqliteStore::open(&path, Ids::system(), &Limits::default()).unwrap();
        assert_eq!(seqs(&store.read(session(1), 0, 1000).unwrap()), [1, 2, 3]);
        drop(store);
        assert_eq!(version(&with_suffix(&path, ".version-1")), 1);
        std::fs::write(&path, there).unwrap();
        to_newest(&path, 1, &STEPS).unwrap();
        assert_eq!((version(&path), version(&with_suffix(&path, ".version-1"))), (3, 1));
    }
}
