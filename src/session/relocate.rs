//! The folders of sessions after a restore into another data directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::record::{self, SessionRecord};
use crate::eventlog::Records;
use crate::store::{Batch, CommitError, ReadError, RecordStore, Table};

/// The sessions of one commit.
const PAGE_SIZE: usize = 500;

/// Why the folders of sessions could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum RelocateError {
    #[error("could not read the sessions")]
    Read(#[from] ReadError),
    #[error("could not decode a session")]
    Decode(#[from] serde_json::Error),
    #[error("could not write the sessions")]
    Write(#[from] CommitError),
}

/// Sets the path of each folder that the gateway created for a session: its name below `root`. Returns the folders of
/// sessions that do not exist on this machine. Blocks; no gateway may use the store.
pub fn relocate_folders(
    store: &dyn RecordStore,
    root: &Path,
) -> Result<BTreeSet<PathBuf>, RelocateError> {
    let mut missing = BTreeSet::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = store.scan(Table::Session, b"", after.as_deref(), PAGE_SIZE)?;
        let mut changed = Records::default();
        for (_, stored) in &page {
            let mut session: SessionRecord = record::decode(stored)?;
            if session.remote_folders {
                continue;
            }
            let own = root.join(session.folder_id().to_string());
            if session.own_folder && Path::new(&session.cwd) != own {
                session.cwd = own.to_string_lossy().into_owned();
                let key = session.index_key();
                session.put(Some(&key), &mut changed);
            }
            let folders = std::iter::once(&session.cwd).chain(&session.additional_directories);
            missing.extend(folders.map(PathBuf::from).filter(|folder| !folder.is_dir()));
        }
        if !changed.puts.is_empty() {
            store.commit(&Batch {
                puts: changed.puts,
                ..Batch::default()
            })?;
        }
        match page.last() {
            Some((key, _)) if page.len() == PAGE_SIZE => after = Some(key.clone()),
            _ => return Ok(missing),
        }
    }
}
