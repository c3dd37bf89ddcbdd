//! The errors of a start.

use std::io;
use std::path::PathBuf;

use super::isolation::UserError;
use crate::types::{FolderError, Isolation, Mechanism};

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
    #[error(
        "the gateway runs as root and does not start agents with the rights of root; run it as another user, or set \
         `isolation.run_as` or `isolation.allow_root_agents`"
    )]
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
