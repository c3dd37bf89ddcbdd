//! The specification of a child. All of it comes from the operator's configuration, never from a client.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::isolation::ChildIsolation;

/// A program to run. The child inherits nothing that is not specified here.
#[derive(Clone)]
pub struct ChildSpec {
    /// Absolute, see [`resolve`](super::resolve).
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory: the child's own HOME, never a workspace.
    pub cwd: PathBuf,
    /// Values that are masked in stderr.
    pub secrets: Vec<String>,
    pub isolation: ChildIsolation,
}

impl fmt::Debug for ChildSpec {
    /// Shows only the number of arguments and variables, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
