//! The model of the file system that an isolated child sees: the rights at each path.
//!
//! The innermost folder decides. The data folder, a workspace root or a session can be below `/tmp`, `/var/tmp` or
//! `/dev/shm`. The child then sees its granted folders in its own `/tmp`. Their parents are empty folders: the real
//! ones contain files of other programs.

use std::path::{Path, PathBuf};

use super::confinement::Confinement;

/// The shared folders for temporary files. The child's own folder replaces them.
pub(super) const TEMPORARY_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// The folder for shared memory. An empty file system replaces it.
const SHARED_MEMORY: &str = "/dev/shm";

/// The existing folders of [`TEMPORARY_FOLDERS`], without symbolic links.
pub(in crate::process) fn temporary_folders() -> impl Iterator<Item = PathBuf> {
    let real = TEMPORARY_FOLDERS.into_iter().filter_map(real_folder);
    real.collect::<std::collections::BTreeSet<_>>().into_iter()
}

/// The folder for shared memory, without symbolic links.
pub(in crate::process) fn shared_memory() -> Option<PathBuf> {
    real_folder(SHARED_MEMORY)
}

/// The existing shared folders that the folders of this child replace.
pub(in crate::process) fn replaced_folders(confinement: &Confinement) -> Vec<PathBuf> {
    if confinement.temporary.is_some() {
        shared_folders().collect()
    } else {
        Vec::new()
    }
}

/// All folders that a child can have of its own.
pub(in crate::process) fn shared_folders() -> impl Iterator<Item = PathBuf> {
    temporary_folders().chain(shared_memory())
}

fn real_folder(path: &str) -> Option<PathBuf> {
    Path::new(path)
        .canonicalize()
        .ok()
        .filter(|path| path.is_dir())
}

/// The rights of the child at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::process) enum Access {
    /// The child has the rights of its user. With `read_only`, it cannot write.
    Open,
    /// The child sees only the names that lead to other places.
    Hidden,
    /// The folder is empty at the start of the child and belongs to it.
    Own,
    /// The child has the rights of its user, below a hidden folder. With `read_only`, it cannot write.
    Visible,
    ReadOnly,
    Writable,
}

/// The rights at each path. The innermost folder decides.
#[derive(Debug, Clone)]
pub(in crate::process) struct AccessModel {
    rules: Vec<(PathBuf, Access)>,
    read_only: bool,
}

impl AccessModel {
    pub(in crate::process) fn new(confinement: &Confinement) -> Self {
        let temporary: Vec<PathBuf> = match &confinement.temporary {
            Some(own) => temporary_folders().chain([own.clone()]).collect(),
            None => Vec::new(),
        };
        let own = temporary.into_iter().chain(shared_memory());
        let all = |access| move |path: &PathBuf| (path.clone(), access);
        let readable = confinement.readable.iter().map(|folder| &folder.path);
        let rules = confinement.hidden.iter().map(all(Access::Hidden));
        let rules = rules
            .chain(own.map(|path| (path, Access::Own)))
            .chain(readable.map(all(Access::ReadOnly)))
            .chain(confinement.writable.iter().map(all(Access::Writable)));
        let mut model = Self {
            rules: rules.collect(),
            read_only: confinement.read_only,
        };
        for path in &confinement.visible {
            // A folder in a writable one is writable.
            if model.at(path) != Access::Writable {
                model.rules.push((path.clone(), Access::Visible));
            }
        }
        model
    }

    /// Adds a folder of the session.
    pub(in crate::process) fn grant(&mut self, folder: &Path) {
        self.rules.push((folder.to_owned(), Access::Writable));
    }

    pub(in crate::process) fn at(&self, path: &Path) -> Access {
        let around = self
            .rules
            .iter()
            .filter(|(folder, _)| path.starts_with(folder));
        // The last one of equal paths.
        around
            .max_by_key(|(folder, _)| folder.components().count())
            .map_or(Access::Open, |(_, access)| *access)
    }

    /// Whether a mount at this path must be read-only.
    pub(in crate::process) fn is_read_only(&self, path: &Path) -> bool {
        match self.at(path) {
            Access::Hidden | Access::ReadOnly => true,
            Access::Own | Access::Writable => false,
            Access::Open | Access::Visible => self.read_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::isolation::Readable;

    #[test]
    fn innermost_folder_decides() {
        let folder = |path: &str| PathBuf::from(path);
        let confinement = Confinement {
            hidden: vec![folder("/home"), folder("/home/u/data"), folder("/tmp/a/b")],
            visible: ["/home/u", "/tmp/a/configured", "/home/u/project/in"]
                .map(folder)
                .to_vec(),
            writable: vec![folder("/home/u/project"), folder("/tmp/a/b/session")],
            readable: vec![Readable {
                path: folder("/home/tools"),
                real: folder("/home/tools"),
            }],
            temporary: Some(folder("/home/u/data/tmp")),
            read_only: true,
            ..Confinement::default()
        };
        let model = AccessModel::new(&confinement);
        for (path, access, is_read_only) in [
            ("/opt", Access::Open, true),
            ("/home", Access::Hidden, true),
            ("/home/tools/bin", Access::ReadOnly, true),
            ("/home/u/file", Access::Visible, true),
            ("/home/u/data", Access::Hidden, true),
            ("/home/u/data/tmp/file", Access::Own, false),
            ("/home/u/project/file", Access::Writable, false),
            ("/home/u/project/in/file", Access::Writable, false),
            ("/tmp/a", Access::Own, false),
            ("/tmp/a/b", Access::Hidden, true),
            ("/tmp/a/b/session/file", Access::Writable, false),
            ("/tmp/a/configured/file", Access::Visible, true),
            ("/dev/shm/file", Access::Own, false),
        ] {
            let path = Path::new(path);
            assert_eq!(model.at(path), access, "{}", path.display());
            assert_eq!(model.is_read_only(path), is_read_only, "{}", path.display());
        }
    }
}
