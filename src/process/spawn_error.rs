//! The errors of a start.

use std::io;
use std::path::PathBuf;

/// Why a spawn failed. No process of the attempt is left.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("could not execute the program {program:?}")]
    Program { program: PathBuf, source: io::Error },
    #[error("could not enter the directory {folder:?}")]
    Directory { folder: PathBuf, source: io::Error },
    #[error("could not start the supervisor")]
    Supervisor(#[source] io::Error),
    #[error("the supervisor failed before the program started: {0}")]
    Setup(String),
    #[error("the supervisor did not start the program in time")]
    Timeout,
}
