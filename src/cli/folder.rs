//! Folders of commands that end with the command.

use std::path::{Path, PathBuf};

/// A folder that is removed with its content.
pub(super) struct RemovedFolder(pub(super) PathBuf);

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(super) fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(folder)
}
