//! How the gateway reaches an agent.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// The operator's definition of the way to an agent.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A child process with its program resolved.
    Command { program: PathBuf, args: Vec<OsString> },
    /// A process of the member of the fleet with the name of the entry.
    Member,
}

impl fmt::Debug for Endpoint {
    /// Omits arguments, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { program, .. } => {
                f.debug_struct("Command").field("program", program).finish_non_exhaustive()
            }
            Self::Member => f.write_str("Member"),
        }
    }
}
