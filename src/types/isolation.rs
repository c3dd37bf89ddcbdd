//! The isolation of an agent's processes from the host.

/// The restrictions under which the supervisor runs a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Isolation {
    /// The process has all rights of the gateway's user.
    #[default]
    Off,
}

impl Isolation {
    /// Whether a process can access only the folders that were granted at its start.
    pub const fn restricts_folders(self) -> bool {
        match self {
            Self::Off => false,
        }
    }
}
