//! How far a process of an agent is separated from the gateway and from other sessions.

use std::ops::Not;

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

/// The level that the operator requests for an agent.
#[derive(Serialize, Deserialize, ToSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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
    pub fn restricts_folders(self) -> bool {
        self != Self::Off
    }
}

/// The means that applies the level. Without `namespaces`, sandboxes of agents that mount file systems fail at the
/// levels `private` and `workspace`.
#[derive(Serialize, Deserialize, ToSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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

/// The isolation of a process: the requested level and the means that applies it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppliedIsolation {
    pub level: Isolation,
    pub mechanism: Mechanism,
    /// True if the gateway has switched off the agent's own sandbox, because it fails with Landlock. Absent otherwise.
    #[serde(default, rename = "agentSandboxOff", skip_serializing_if = "Not::not")]
    pub agent_sandbox_off: bool,
}
