//! The specification of a child. All of it comes from the operator's configuration, never from a client.

use std::ffi::OsString;
use std::path::PathBuf;

use base::types::{Isolation, ResourceLimits};

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

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChildIsolation {
    pub level: Isolation,
    /// The folders of the session, if it is known.
    pub folders: Vec<PathBuf>,
    /// Further folders from the configuration.
    pub configured: Vec<PathBuf>,
    pub limits: ResourceLimits,
}
