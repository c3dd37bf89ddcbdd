//! How far a process of an agent is separated from the gateway and from other sessions.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::user_range::UserRange;

/// The level that the operator requests for an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// The process has all rights of its user.
    Off,
    /// The process cannot access the gateway, other agents, or the folders of other sessions.
    #[default]
    Private,
    /// As `private`. The process can write only to the folders of its session, its home and its temporary folder.
    Workspace,
    /// A command of the operator starts the process.
    Strict,
}

impl Isolation {
    /// Whether a process can access only the folders that it was granted.
    pub const fn restricts_folders(self) -> bool {
        match self {
            Self::Off => false,
            Self::Private | Self::Workspace | Self::Strict => true,
        }
    }
}

/// The means that applies the level. Without `namespaces`, sandboxes of agents that mount file systems fail at the
/// levels `private` and `workspace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// User, mount, PID and IPC namespaces, and a filter of system calls.
    Namespaces,
    /// Landlock rules and a filter of system calls. Metadata of files and command lines of processes stay visible.
    Landlock,
    /// Namespaces or Landlock, but a part of the level is not applied. The log names it.
    Partial,
    /// The command of the operator.
    Command,
    /// Nothing: the level is `off`, or the machine supports no mechanism.
    #[default]
    None,
}

impl Mechanism {
    /// Whether it applies all of a level.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Namespaces | Self::Landlock | Self::Command)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
            Self::Partial => "partial",
            Self::Command => "command",
            Self::None => "none",
        })
    }
}

/// The isolation of a process: the requested level and the means that applies it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedIsolation {
    pub level: Isolation,
    pub mechanism: Mechanism,
    /// True if the gateway has switched off the agent's own sandbox, because it fails with Landlock. Absent otherwise.
    #[serde(default, rename = "agentSandboxOff", skip_serializing_if = "is_false")]
    pub agent_sandbox_off: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The resources of one child with all its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Processes and threads.
    pub max_processes: u64,
    pub max_memory_bytes: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            max_processes: 4096,
            max_memory_bytes: 32 << 30,
        }
    }
}

/// The operator's requirements for all agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IsolationPolicy {
    /// A child whose level cannot be applied completely does not start.
    pub required: bool,
    /// Children may start with the rights of root.
    pub allow_root: bool,
    /// The users of children, if the gateway runs as root.
    pub run_as: Option<UserRange>,
}
