//! The specification of a child. All of it comes from the operator's configuration, never from a client.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use crate::types::{Isolation, ResourceLimits};

/// A program to run. The child inherits nothing that is not specified here.
#[derive(Clone)]
pub struct ChildSpec {
    /// Absolute, see [`resolve`](super::resolve).
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    pub env: Vec<(OsString, OsString)>,
    /// The child's own HOME.
    pub home: PathBuf,
    /// The working directory. `None`: HOME.
    pub cwd: Option<PathBuf>,
    /// Values that are masked in stderr.
    pub secrets: Vec<String>,
    pub isolation: ChildIsolation,
}

/// The isolation of one child.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildIsolation {
    pub level: Isolation,
    /// The folders of the session, if it is known.
    pub folders: Vec<PathBuf>,
    /// Further folders from the configuration.
    pub configured: Vec<PathBuf>,
    pub limits: ResourceLimits,
}

impl fmt::Debug for ChildSpec {
    /// Shows only the number of arguments and variables, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("home", &self.home)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
