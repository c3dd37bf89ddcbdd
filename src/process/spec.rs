//! What to run. All of it comes from the operator's configuration, never from a client.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// A program to run, complete: nothing is inherited that does not stand here.
#[derive(Clone)]
pub struct ChildSpec {
    /// Absolute, see [`resolve`](super::resolve).
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it stands in: its own home, never a workspace.
    pub cwd: PathBuf,
    /// Values that its stderr must not show.
    pub secrets: Vec<String>,
}

impl fmt::Debug for ChildSpec {
    /// Arguments and environment may hold secrets, so only their number shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}
