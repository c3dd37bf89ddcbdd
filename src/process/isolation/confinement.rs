//! The instructions for the supervisor of a child.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::types::Mechanism;

/// The access rights of a child, its user, and its environment. All paths are absolute, and those of visible and writable
/// folders contain no symbolic link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::process) struct Confinement {
    /// How the supervisor applies the level: never [`Mechanism::Partial`].
    pub(in crate::process) mechanism: Mechanism,
    /// The mechanism does not apply a part of the level.
    pub(in crate::process) is_partial: bool,
    /// Folders that the child cannot see.
    pub(in crate::process) hidden: Vec<PathBuf>,
    /// The folders of the gateway among them. The child sees no part of them at another path either.
    pub(in crate::process) own: Vec<PathBuf>,
    /// Folders below hidden ones that the child can use.
    pub(in crate::process) visible: Vec<PathBuf>,
    /// Folders below hidden ones that the child can only read.
    pub(in crate::process) readable: Vec<Readable>,
    /// The folders that the child can change if `read_only` is set.
    pub(in crate::process) writable: Vec<PathBuf>,
    /// The child's own temporary folder, which replaces the shared ones.
    pub(in crate::process) temporary: Option<PathBuf>,
    /// The child can change nothing but its writable folders.
    pub(in crate::process) read_only: bool,
    /// The working directory, if it is not HOME. The program enters it with its own rights.
    pub(in crate::process) cwd: Option<PathBuf>,
    pub(in crate::process) maximum: ProcessLimits,
    /// The user and group of the child. `None`: those of the gateway.
    pub(in crate::process) user: Option<u32>,
    /// The environment of the program. The supervisors have none, because a variable can name a library that they would
    /// load before they isolate the program.
    pub(in crate::process) env: Vec<(OsString, OsString)>,
}

/// The resource limits of a child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::process) struct ProcessLimits {
    /// The number of processes and threads of the user, in the user namespace of the child.
    pub(in crate::process) processes: Option<u64>,
    /// The size of the data of each process.
    pub(in crate::process) data_bytes: Option<u64>,
}

/// A folder that the child can only read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::process) struct Readable {
    /// The path at which the child sees the folder.
    pub(in crate::process) path: PathBuf,
    /// The path of the folder, without symbolic links.
    pub(in crate::process) real: PathBuf,
}

impl Confinement {
    /// Changes the path of a folder.
    pub(in crate::process) fn rename_folder(&mut self, from: &Path, to: &Path) {
        for path in [&mut self.visible, &mut self.writable]
            .into_iter()
            .flatten()
            .filter(|path| *path == from)
        {
            to.clone_into(path);
        }
    }

    /// The mechanism that the gateway reports.
    pub(in crate::process) fn reported(&self) -> Mechanism {
        if self.is_partial {
            Mechanism::Partial
        } else {
            self.mechanism
        }
    }

    /// Whether the child has the rights of root.
    pub(in crate::process) fn child_is_root(&self) -> bool {
        self.user.is_none() && geteuid().is_root()
    }

    /// The instructions for a terminal with further variables.
    pub(in crate::process) fn for_terminal(&self, env: &[(String, String)], cwd: &Path) -> Self {
        let mut confinement = Self {
            cwd: Some(cwd.to_owned()),
            ..self.clone()
        };
        confinement
            .env
            .retain(|(name, _)| env.iter().all(|(other, _)| name != other.as_str()));
        confinement
            .env
            .extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        confinement
    }
    /// Writes the instructions to an anonymous file, so that they appear in no list of processes.
    pub(in crate::process) fn write(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("confinement", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        Ok(file.into())
    }

    /// Reads the file from its start: several stages share one offset.
    pub(in crate::process) fn read(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let mut text = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
        file.read_exact_at(&mut text, 0)?;
        Ok(serde_json::from_slice(&text)?)
    }
}
