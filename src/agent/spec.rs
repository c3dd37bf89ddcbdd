//! The operator's definition of an agent. Clients name an agent and never define one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::endpoint::{Endpoint, RemoteFolders};
use crate::acp::{ClientCapabilities, McpServer};
use crate::types::{
    AgentDialect, AgentName, AgentSettings, Isolation, KnownAgent, PoolSettings, Tenant,
};

/// One `[agents.<name>]` entry with its endpoint resolved and its secrets read.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub name: AgentName,
    pub known: Option<Known>,
    /// The title in lists. The agent's own `agentInfo.title` has precedence.
    pub title: String,
    pub endpoint: Endpoint,
    /// The complete environment of the process except `HOME`.
    pub env: Vec<(OsString, OsString)>,
    /// Values that are masked in stderr, including those of `mcp`.
    pub secrets: Vec<String>,
    /// The MCP servers that its sessions may use, by name. A process receives only the servers of its own
    /// entry, because it does not mask the secrets of others.
    pub mcp: Arc<BTreeMap<String, McpServer>>,
    pub home: Home,
    pub settings: AgentSettings,
}

/// The reason why an agent cannot start whose entry has an error. Clients do not see the error itself, because it may quote
/// a value of the file.
pub const INVALID_ENTRY: &str = "its entry in the configuration is invalid: `acp-gateway check` and the gateway's log show the error";

impl AgentSpec {
    /// A placeholder for an entry that was removed from the configuration. Its sessions can be read but not prompted.
    pub fn removed(name: AgentName) -> Self {
        let pool = PoolSettings {
            max_size: 0,
            min_idle: 0,
            ..PoolSettings::default()
        };
        Self {
            title: name.to_string(),
            name,
            known: None,
            endpoint: Endpoint::Command {
                program: PathBuf::new(),
                args: Vec::new(),
            },
            env: Vec::new(),
            secrets: Vec::new(),
            mcp: Arc::default(),
            home: Home::Dedicated(PathBuf::new()),
            settings: AgentSettings {
                pool,
                ..AgentSettings::default()
            },
        }
    }

    /// The entry of a member of the fleet. The gateway starts no process for it, and serves neither files nor terminals.
    pub fn member(
        name: AgentName,
        capacity: usize,
        roots: Vec<String>,
        dialect: AgentDialect,
    ) -> Self {
        let pool = PoolSettings {
            max_size: capacity,
            reserved: PoolSettings::default_reserved(capacity),
            min_idle: 0,
            ..PoolSettings::default()
        };
        let settings = AgentSettings {
            pool,
            isolation: Isolation::Off,
            dialect,
            ..AgentSettings::default()
        };
        Self {
            endpoint: Endpoint::Member(RemoteFolders(roots)),
            settings,
            ..Self::removed(name)
        }
    }

    /// The entry of an agent whose configuration has an error. Its sessions can be read; every start fails.
    pub fn invalid(name: AgentName, homes: PathBuf) -> Self {
        let pool = PoolSettings {
            min_idle: 0,
            ..PoolSettings::default()
        };
        Self {
            endpoint: Endpoint::Invalid,
            home: Home::Dedicated(homes),
            settings: AgentSettings {
                pool,
                ..AgentSettings::default()
            },
            ..Self::removed(name)
        }
    }

    /// Whether a member of the fleet runs the agent.
    pub fn is_member(&self) -> bool {
        matches!(self.endpoint, Endpoint::Member(_))
    }

    /// The maximum size of a line on a connection. A translation checks the lines of its agent, and can repeat a content of a
    /// line: a file is a diff and the input of its tool.
    pub fn max_connection_line_bytes(&self) -> usize {
        let max = self.settings.max_line_bytes;
        if self.settings.dialect == AgentDialect::Acp {
            max
        } else {
            max.saturating_mul(4).saturating_add(1 << 20)
        }
    }

    /// Whether the environment of its processes has the variable.
    pub fn has_variable(&self, name: &str) -> bool {
        self.env.iter().any(|(known, _)| known == name)
    }

    /// The home directory of the processes of a tenant.
    pub fn home_of(&self, tenant: &Tenant) -> PathBuf {
        match &self.home {
            Home::Dedicated(folder) => folder.join(tenant.as_str()).join(self.name.as_str()),
            Home::User(path) => path.clone(),
        }
    }

    /// Creates the home directory of a tenant, unless it is the operator's own. Blocks on the file system.
    pub fn create_home(&self, tenant: &Tenant) -> std::io::Result<()> {
        match self.home {
            Home::Dedicated(_) => DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(self.home_of(tenant)),
            Home::User(_) => Ok(()),
        }
    }

    /// The client capabilities that the agent gets if the session does not restrict them.
    pub fn client_capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new(self.settings.files, self.settings.terminals)
    }
}

impl std::fmt::Debug for AgentSpec {
    /// Omits the environment, because it may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSpec")
            .field("name", &self.name)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The row of the table of known agents that describes an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub row: &'static KnownAgent,
    /// The agent was found on PATH, not in a configuration file.
    pub found: bool,
}

/// The home directory of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// `<folder>/<tenant>/<agent>`.
    Dedicated(PathBuf),
    /// The operator's own home: one trust domain with the gateway.
    User(PathBuf),
}
