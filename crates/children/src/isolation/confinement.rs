//! The instructions for the supervisor of a child.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use base::types::Mechanism;

/// The access rights of a child, its user, and its environment. All paths are absolute, and those of visible and writable
/// folders contain no symbolic link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// How the supervisor applies the level: never [`Mechanism::Partial`].
    pub(crate) mechanism: Mechanism,
    /// The mechanism does not apply a part of the level.
    pub(crate) is_partial: bool,
    pub(crate) hidden: Vec<PathBuf>,
    /// The folders of the gateway among them. The child sees no part of them at another path either.
    pub(crate) own: Vec<PathBuf>,
    /// Folders below hidden ones that the child can use.
    pub(crate) visible: Vec<PathBuf>,
    /// Folders below hidden ones that the child can only read.
    pub(crate) readable: Vec<Readable>,
    /// The folders that the child can change if `read_only` is set.
    pub(crate) writable: Vec<PathBuf>,
    /// The child's own temporary folder, which replaces the shared ones.
    pub(crate) temporary: Option<PathBuf>,
    /// The child can change nothing but its writable folders.
    pub(crate) read_only: bool,
    /// The working directory, if it is not HOME. The program enters it with its own rights.
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) maximum: ProcessLimits,
    /// The user and group of the child. `None`: those of the gateway.
    pub(crate) user: Option<u32>,
    /// The environment of the program. The supervisors have none, because a variable can name a library that they would
    /// load before they isolate the program.
    pub(crate) env: Vec<(OsString, OsString)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessLimits {
    /// The number of processes and threads of the user, in the user namespace of the child.
    pub(crate) processes: Option<u64>,
    pub(crate) data_bytes: Option<u64>,
}

/// A folder that the child can only read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Readable {
    /// The path at which the child sees the folder.
    pub(crate) path: PathBuf,
    /// The path of the folder, without symbolic links.
    pub(crate) real: PathBuf,
}

/// The mechanism in events and in the API: a partial confinement is reported as [`Mechanism::Partial`].
pub(super) const fn reported(mechanism: Mechanism, is_partial: bool) -> Mechanism {
    if is_partial {
        Mechanism::Partial
    } else {
        mechanism
    }
}

impl Confinement {
    pub(crate) fn rename_folder(&mut self, from: &Path, to: &Path) {
        let folders = self.visible.iter_mut().chain(&mut self.writable);
        for path in folders.filter(|path| *path == from) {
            to.clone_into(path);
        }
    }

    pub(crate) fn reported(&self) -> Mechanism {
        reported(self.mechanism, self.is_partial)
    }

    pub(crate) fn child_is_root(&self) -> bool {
        self.user.is_none() && geteuid().is_root()
    }

    /// The instructions for a terminal with further variables.
    pub(crate) fn for_terminal(&self, env: &[(String, String)], cwd: &Path) -> Self {
        let mut confinement = Self {
            cwd: Some(cwd.to_owned()),
            ..self.clone()
        };
        let is_kept = |name: &OsString| env.iter().all(|(other, _)| name != other.as_str());
        confinement.env.retain(|(name, _)| is_kept(name));
        let added = env.iter().map(|(name, value)| (name.into(), value.into()));
        confinement.env.extend(added);
        confinement
    }
}

/// Writes instructions for a supervisor to an anonymous file. Therefore they appear in no list of processes and need no
/// space in a socket buffer.
pub(crate) fn write_instructions(instructions: &impl Serialize) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("instructions", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(instructions)?)?;
    Ok(file.into())
}

/// Reads the file from its start: several stages share one offset.
pub(crate) fn read_instructions<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    let file = File::from(file);
    let mut text = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut text, 0)?;
    Ok(serde_json::from_slice(&text)?)
}

/// The shared folders for temporary files. The child's own folder replaces them.
pub(super) const TEMPORARY_FOLDERS: [&str; 2] = ["/tmp", "/var/tmp"];

/// The folder for shared memory. An empty file system replaces it.
const SHARED_MEMORY: &str = "/dev/shm";

/// The existing folders of [`TEMPORARY_FOLDERS`], without symbolic links.
pub(crate) fn temporary_folders() -> impl Iterator<Item = PathBuf> {
    let real = TEMPORARY_FOLDERS.into_iter().filter_map(real_folder);
    real.collect::<std::collections::BTreeSet<_>>().into_iter()
}

/// The folder for shared memory, without symbolic links.
pub(crate) fn shared_memory() -> Option<PathBuf> {
    real_folder(SHARED_MEMORY)
}

/// The existing shared folders that the folders of this child replace.
pub(crate) fn replaced_folders(confinement: &Confinement) -> Vec<PathBuf> {
    if confinement.temporary.is_some() {
        shared_folders().collect()
    } else {
        Vec::new()
    }
}

/// All folders that a child can have of its own.
pub(crate) fn shared_folders() -> impl Iterator<Item = PathBuf> {
    temporary_folders().chain(shared_memory())
}

fn real_folder(path: &str) -> Option<PathBuf> {
    let path = Path::new(path).canonicalize().ok()?;
    path.is_dir().then_some(path)
}

/// The rights of the child at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
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

#[derive(Debug, Clone)]
pub(crate) struct AccessModel {
    rules: HashMap<PathBuf, Access>,
    read_only: bool,
}

impl AccessModel {
    pub(crate) fn new(confinement: &Confinement) -> Self {
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
                model.rules.insert(path.clone(), Access::Visible);
            }
        }
        model
    }

    pub(crate) fn grant(&mut self, folder: &Path) {
        self.rules.insert(folder.to_owned(), Access::Writable);
    }

    pub(crate) fn at(&self, path: &Path) -> Access {
        let mut innermost = path.ancestors();
        let access = innermost.find_map(|folder| self.rules.get(folder));
        access.copied().unwrap_or(Access::Open)
    }

    /// Whether a mount at this path must be read-only.
    pub(crate) fn is_read_only(&self, path: &Path) -> bool {
        match self.at(path) {
            Access::Hidden | Access::ReadOnly => true,
            Access::Own | Access::Writable => false,
            Access::Open | Access::Visible => self.read_only,
        }
    }
}

#[cfg(test)]
mod access_tests {
    use super::*;
    use crate::isolation::Readable;

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
