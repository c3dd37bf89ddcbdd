//! The folders of processes that start before their session.
//!
//! Landlock cannot grant a folder to a running process. Therefore such a process starts with an empty folder of its own.
//! The rule of Landlock follows the folder when a session renames it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The folders of idle processes of this gateway, beside the folders of sessions.
#[derive(Debug, Clone)]
pub struct IdleFolders {
    root: PathBuf,
    /// Distinguishes the folders from those of other gateways with the same root.
    prefix: String,
}

impl IdleFolders {
    /// Removes the folders that an earlier process of this gateway left. `root` contains the folders of sessions. The
    /// data folder identifies the gateway. Blocks.
    pub fn new(root: &Path, data: &Path) -> io::Result<Self> {
        let (root, data) = (root.canonicalize()?, std::fs::metadata(data)?);
        let prefix = format!(".idle-{:x}-{:x}-", data.dev(), data.ino());
        for entry in std::fs::read_dir(&root)? {
            let entry = entry?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(prefix.as_bytes())
            {
                drop(IdleFolder {
                    path: Some(entry.path()),
                });
            }
        }
        Ok(Self { root, prefix })
    }

    /// Creates a folder. Blocks.
    pub fn create(&self) -> io::Result<IdleFolder> {
        let number = getrandom::u64().map_err(|error| io::Error::other(error.to_string()))?;
        let path = self.root.join(format!("{}{number:016x}", self.prefix));
        std::fs::create_dir(&path)?;
        Ok(IdleFolder { path: Some(path) })
    }
}

/// The folder of a process that has no session yet. Dropping it removes the folder, which blocks.
#[derive(Debug)]
pub struct IdleFolder {
    /// `None` after a session owns the folder.
    path: Option<PathBuf>,
}

impl IdleFolder {
    pub fn path(&self) -> &Path {
        self.path
            .as_deref()
            .expect("only the end of the value removes the path")
    }

    /// The path of the folder after [`IdleFolder::rename`].
    pub fn renamed_path(&self, name: &str) -> PathBuf {
        self.path().with_file_name(name)
    }

    /// Makes the folder that of a session with this name. From here on the session removes it. Blocks.
    pub fn rename(mut self, name: &str) -> io::Result<PathBuf> {
        let renamed = self.renamed_path(name);
        std::fs::rename(self.path(), &renamed)?;
        self.path = None;
        Ok(renamed)
    }
}

impl Drop for IdleFolder {
    fn drop(&mut self) {
        let Some(path) = &self.path else { return };
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %path.display(), %error, "could not remove the folder of an idle process");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn folder_is_removed_unless_a_session_owns_it() {
        let (root, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folders = IdleFolders::new(root.path(), data.path()).unwrap();
        let [unused, used] = [folders.create().unwrap(), folders.create().unwrap()];
        std::fs::write(unused.path().join("file"), "").unwrap();
        drop(unused);
        let path = used.renamed_path("session");
        assert_eq!(used.rename("session").unwrap(), path);
        assert_eq!(names(root.path()), ["session"]);
    }

    #[test]
    fn start_removes_the_folders_of_an_earlier_process_of_the_same_gateway() {
        let (root, data, other) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        let create = |data: &tempfile::TempDir| {
            let folder = IdleFolders::new(root.path(), data.path())
                .unwrap()
                .create()
                .unwrap();
            let path = folder.path().to_owned();
            // As a process that was killed.
            std::mem::forget(folder);
            path
        };
        let (_ours, foreign) = (create(&data), create(&other));
        std::fs::create_dir(root.path().join("session")).unwrap();
        IdleFolders::new(root.path(), data.path()).unwrap();
        assert_eq!(
            names(root.path()),
            [foreign.file_name().unwrap().to_str().unwrap(), "session"]
        );
    }
}
