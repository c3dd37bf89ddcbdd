//! The limit of open files: raised for this process, unchanged for its children.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit is low because programs that use `select` fail with more descriptors. The gateway does not
/// use `select`, but its children may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// The limit of children. `None` means no limit.
    inherited: Option<u64>,
    raised: Option<u64>,
}

impl OpenFiles {
    /// Raises the soft limit to the hard one.
    pub fn raise() -> io::Result<Self> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Nofile, raised)?;
        Ok(Self {
            inherited: current,
            raised: maximum,
        })
    }

    /// The limit, if `wanted` descriptors exceed it.
    pub fn insufficient_for(&self, required: usize) -> Option<u64> {
        self.raised.filter(|now| *now < required as u64)
    }

    pub(super) fn child_argument(self) -> String {
        self.inherited
            .map_or_else(|| UNCHANGED.to_owned(), |before| before.to_string())
    }
}

/// Used instead of a number: the limit stays unchanged.
pub(super) const UNCHANGED: &str = "-";

/// Applies the limit from the argument to this process and its descendants.
pub(super) fn apply(argument: &str) -> io::Result<()> {
    if argument == UNCHANGED {
        return Ok(());
    }
    let current = argument.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: Some(current),
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}
