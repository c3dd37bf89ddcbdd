//! The folders of processes that start before their session.
//!
//! Landlock cannot grant a folder to a running process. Therefore such a process starts with an empty folder of its own.
//! The rule of Landlock follows the folder when a session renames it.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

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
        let root = root.canonicalize()?;
        let data = std::fs::metadata(data)?;
        let prefix = format!(".idle-{:x}-{:x}-", data.dev(), data.ino());
        for entry in std::fs::read_dir(&root)? {
            let entry = entry?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
                let path = entry.path();
                if let Err(error) = std::fs::remove_dir_all(&path) {
                    tracing::warn!(folder = %path.display(), %error, "could not remove the folder of an idle process");
                }
            }
        }
        Ok(Self { root, prefix })
    }
    /// Creates a folder. Blocks.
    pub fn create(&self) -> io::Result<IdleFolder> {
        // The umask applies, as for the other folders of sessions.
        let permissions = std::fs::Permissions::from_mode(0o777);
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(&self.prefix).permissions(permissions);
        builder.tempdir_in(&self.root).map(IdleFolder)
    }
}

/// The folder of a process that has no session yet. Dropping it removes the folder, which blocks.
#[derive(Debug)]
pub struct IdleFolder(TempDir);
impl IdleFolder {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    pub fn renamed_path(&self, name: &str) -> PathBuf {
        self.path().with_file_name(name)
    }
    /// Renames the folder for the session with this name. The session then owns the folder and removes it. Blocks.
    pub fn rename(self, name: &str) -> io::Result<PathBuf> {
        let renamed = self.renamed_path(name);
        std::fs::rename(self.path(), &renamed)?;
        // The folder has moved, so there is nothing to remove at its previous path.
        let _ = self.0.keep();
        Ok(renamed)
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
        let root = tempfile::tempdir().unwrap();
        let data = tempfile::tempdir().unwrap();
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
        let root = tempfile::tempdir().unwrap();
        let data = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
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
        let _ours = create(&data);
        let foreign = create(&other);
        std::fs::create_dir(root.path().join("session")).unwrap();
        IdleFolders::new(root.path(), data.path()).unwrap();
        assert_eq!(
            names(root.path()),
            [foreign.file_name().unwrap().to_str().unwrap(), "session"]
        );
    }
}
