//! The specification of a child, and the errors of its start. All of the specification comes from the operator's configuration, never from a client.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use super::isolation::UserError;
use base::types::{FolderError, Isolation, Mechanism};

/// A program to run. The child inherits nothing that is not specified here.
#[derive(Clone, derive_more::Debug)]
pub struct ChildSpec {
    /// Absolute, see [`resolve`](super::resolve).
    pub program: PathBuf,
    // Arguments and variables may contain secrets.
    #[debug("{}", args.len())]
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    #[debug("{}", env.len())]
    pub env: Vec<(OsString, OsString)>,
    /// The child's own HOME.
    pub home: PathBuf,
    /// The working directory. `None`: HOME.
    pub cwd: Option<PathBuf>,
    /// Values that are masked in stderr.
    #[debug(skip)]
    pub secrets: Vec<String>,
    #[debug(skip)]
    pub isolation: ChildIsolation,
}

/// The resources of one child with all its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Processes and threads.
    pub max_processes: u64,
    pub max_memory_bytes: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            max_processes: 4096,
            max_memory_bytes: 32 << 30,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildIsolation {
    pub level: Isolation,
    /// The folders of the session, if it is known.
    pub folders: Vec<PathBuf>,
    /// Further folders from the configuration.
    pub configured: Vec<PathBuf>,
    pub limits: ResourceLimits,
}

/// The reason why a gateway of root starts no agents.
pub const NO_ROOT_AGENTS: &str = "the gateway runs as root, starts no agent with the rights of root, and cannot give agents \
    users of their own: a capability or a range of user ids is missing, which a start with `isolation.run_as` names. Run the \
    gateway as another user, or set `isolation.allow_root_agents`";

/// Why a spawn failed. No process of the attempt is left.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("could not execute the program {program:?}")]
    Program { program: PathBuf, source: io::Error },
    #[error("could not enter the directory {folder:?}")]
    Directory { folder: PathBuf, source: io::Error },
    /// A folder of the session cannot be used at its path.
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("could not start the supervisor")]
    Supervisor(#[source] io::Error),
    #[error("could not create the control group of the process")]
    ControlGroup(#[source] io::Error),
    #[error("the supervisor failed before the program started: {0}")]
    Setup(String),
    #[error("the supervisor did not start the program in time")]
    Timeout,
    #[error("{NO_ROOT_AGENTS}")]
    Root,
    #[error("the agent has no user")]
    User(#[from] UserError),
    #[error(
        "`isolation.required` is set, and this machine applies the isolation level {level:?} only as `{mechanism}`; the \
         log of the start names what is missing"
    )]
    Isolation {
        level: Isolation,
        mechanism: Mechanism,
    },
}
