//! Sessions on disk: one small JSON file each, replaced as a whole.
//!
//! Without a directory nothing is stored, and sessions end with the process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Entry, Record};

/// The maximum size of a session's file. A larger session loses its oldest turns.
const FILE_MAX: usize = 1 << 20;
/// The maximum number of sessions on disk. The oldest are deleted.
const SESSIONS_MAX: usize = 2000;

#[derive(Debug)]
pub(super) struct Store {
    folder: Option<PathBuf>,
    max: usize,
    writes: AtomicU64,
}

impl Store {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            max: SESSIONS_MAX,
            writes: AtomicU64::new(0),
        }
    }

    /// Writes a session. A history that is too large loses its oldest turns.
    pub(super) fn save(&self, record: &mut Record) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let Some(path) = self.path(&record.entry.session_id) else {
            return Ok(());
        };
        let mut bytes = serde_json::to_vec(record)?;
        while bytes.len() > FILE_MAX && record.history.drop_oldest_turn() {
            bytes = serde_json::to_vec(record)?;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_extension(format!("{}-{number}.draft", std::process::id()));
        let written = write_new(&draft, &bytes).and_then(|()| fs::rename(&draft, &path));
        if written.is_err() {
            // The temporary file may not exist. The error above is the relevant one.
            drop(fs::remove_file(&draft));
        }
        written
    }

    pub(super) fn load(&self, id: &str) -> Option<Record> {
        let bytes = fs::read(self.path(id)?).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    pub(super) fn delete(&self, id: &str) -> io::Result<()> {
        let Some(path) = self.path(id) else {
            return Ok(());
        };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All sessions on disk by last use, latest first. Skips foreign files.
    pub(super) fn list(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self
            .files()
            .filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok())
            .collect();
        entries.sort_by(|a, b| (b.updated_at, &b.session_id).cmp(&(a.updated_at, &a.session_id)));
        entries
    }

    /// Deletes the oldest files to make space for a new session.
    pub(super) fn prune(&self) -> io::Result<()> {
        let mut files: Vec<_> = self
            .files()
            .filter_map(|file| {
                Some((
                    file.metadata()
                        .and_then(|metadata| metadata.modified())
                        .ok()?,
                    file.path(),
                ))
            })
            .collect();
        let surplus = (files.len() + 1).saturating_sub(self.max);
        files.sort();
        files
            .iter()
            .take(surplus)
            .try_for_each(|(_, path)| fs::remove_file(path))
    }

    fn files(&self) -> impl Iterator<Item = fs::DirEntry> {
        let files = self
            .folder
            .as_ref()
            .and_then(|folder| fs::read_dir(folder).ok());
        files
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter(|file| {
                file.path()
                    .extension()
                    .is_some_and(|extension| extension == "json")
            })
    }

    /// The file of a session. Only ids in the format of this agent have one, so that no id can name another path.
    fn path(&self, id: &str) -> Option<PathBuf> {
        let id: crate::types::SessionId = id.parse().ok()?;
        Some(self.folder.as_ref()?.join(format!("{id}.json")))
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::record::Workspace;
    use super::*;
    use crate::types::Ids;

    fn record(ids: &Ids) -> Record {
        let workspace = Workspace {
            cwd: "/w".into(),
            ..Workspace::default()
        };
        Record::new(ids.session().to_string(), workspace, ids.now())
    }

    fn text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn stored_session_is_restored_and_foreign_ids_have_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path().join("state")));
        let mut record = record(&Ids::system());
        record.entry.title = Some("hello".to_owned());
        record.history.prompt(&[text("hi")], "u");
        store.save(&mut record).unwrap();
        assert_eq!(store.load(&record.entry.session_id), Some(record.clone()));
        assert_eq!(store.list(), [record.entry.clone()]);
        for foreign in ["../state", "x", ""] {
            assert_eq!(store.path(foreign), None);
        }
        store.delete(&record.entry.session_id).unwrap();
        store.delete(&record.entry.session_id).unwrap();
        assert!(store.list().is_empty());
    }

    #[test]
    fn oversized_store_drops_the_oldest() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store {
            max: 20,
            ..Store::new(Some(folder.path().to_owned()))
        };
        let ids = Ids::system();
        let mut long = record(&ids);
        for turn in 0..20 {
            let prompt = [text(&format!("{turn} {}", "x".repeat(60 << 10)))];
            long.history.prompt(&prompt, &format!("u{turn}"));
            long.history
                .push(&json!({ "sessionUpdate": "plan", "entries": [] }));
        }
        store.save(&mut long).unwrap();
        let bytes = fs::metadata(store.path(&long.entry.session_id).unwrap())
            .unwrap()
            .len();
        assert!(
            bytes <= FILE_MAX as u64 && bytes > FILE_MAX as u64 / 2,
            "{bytes}"
        );

        for _ in 0..store.max + 2 {
            store.prune().unwrap();
            store.save(&mut record(&ids)).unwrap();
        }
        assert_eq!(store.list().len(), store.max);
        assert_eq!(
            store.load(&long.entry.session_id),
            None,
            "the oldest went first"
        );
    }
}
