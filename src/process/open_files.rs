//! The limit of open files: raised for this process, unchanged for its children.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit is low because programs that use `select` fail with more descriptors. The gateway does not
/// use `select`, but its children may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit of children. `None` means no limit.
    before: Option<u64>,
    /// The limit of this process.
    now: Option<u64>,
}

impl OpenFiles {
    /// Raises the soft limit to the hard one.
    pub fn raise() -> io::Result<Self> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        Ok(Self { before: current, now: maximum })
    }

    /// The limit, if `wanted` descriptors exceed it.
    pub fn too_few_for(&self, wanted: usize) -> Option<u64> {
        self.now.filter(|now| *now < wanted as u64)
    }

    /// The argument for a supervisor.
    pub(super) fn handed_down(self) -> String {
        self.before.map_or_else(|| KEEP.to_owned(), |before| before.to_string())
    }
}

/// Used instead of a number: the limit stays unchanged.
pub(super) const KEEP: &str = "-";

/// Applies the limit from the argument to this process and its descendants.
pub(super) fn take(handed_down: &str) -> io::Result<()> {
    if handed_down == KEEP {
        return Ok(());
    }
    let current = handed_down.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })?)
}
