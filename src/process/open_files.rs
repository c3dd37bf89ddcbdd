//! How many descriptors this process may hold: as many as it is allowed to, and its children as many as before.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit is low for programs that would choke on more (`select` and the like). This one does not; what it
/// starts might.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// What children get; `None` is no limit.
    inherited: Option<u64>,
    /// What this process has now.
    raised: Option<u64>,
}

impl OpenFiles {
    /// Raises the soft limit to the hard one.
    pub fn raise() -> io::Result<Self> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        Ok(Self { inherited: current, raised: maximum })
    }

    /// The limit, if so many descriptors are above it.
    pub fn insufficient_for(&self, wanted: usize) -> Option<u64> {
        self.raised.filter(|now| *now < wanted as u64)
    }

    /// As an argument of the keeper.
    pub(super) fn child_argument(self) -> String {
        self.inherited.map_or_else(|| UNCHANGED.to_owned(), |before| before.to_string())
    }
}

/// In the place of a number: the limit stays as it is.
pub(super) const UNCHANGED: &str = "-";

/// Takes the limit that was handed down, for this process and all that it starts.
pub(super) fn apply(handed_down: &str) -> io::Result<()> {
    if handed_down == UNCHANGED {
        return Ok(());
    }
    let current = handed_down.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })?)
}
