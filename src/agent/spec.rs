//! The operator's definition of an agent. Clients name an agent and never define one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::acp::{ClientCapabilities, McpServer};
use crate::types::{AgentName, Isolation, KnownAgent, ServedBy, Tenant};

/// One `[agents.<name>]` entry with its command resolved and its secrets read.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub name: AgentName,
    pub known: Option<Known>,
    /// The title in lists. The agent's own `agentInfo.title` has precedence.
    pub title: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The complete environment of the process except `HOME`.
    pub env: Vec<(OsString, OsString)>,
    /// Values that are masked in stderr, including those of `mcp`.
    pub secrets: Vec<String>,
    /// The MCP servers that its sessions may use, by name. A process receives only the servers of its own
    /// entry, because it does not mask the secrets of others.
    pub mcp: Arc<BTreeMap<String, McpServer>>,
    pub home: Home,
    pub isolation: Isolation,
    /// Serves `fs/*`.
    pub files: ServedBy,
    /// Serves `terminal/*`.
    pub terminals: ServedBy,
    pub permissions: Permissions,
    /// Keys of `_meta` that clients may send at set-up.
    pub allowed_meta_keys: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub allowed_rpc_methods: Vec<String>,
    /// Whether people may sign in to the agent in a terminal.
    pub terminal_auth: bool,
    /// The requested version of ACP: 1 or 2.
    pub protocol: u64,
    pub pool: PoolSpec,
    pub limits: AgentLimits,
}

impl AgentSpec {
    /// A placeholder for an entry that was removed from the configuration. Its sessions can be read but not prompted.
    pub fn removed(name: AgentName) -> Self {
        let hour = Duration::from_hours(1);
        Self {
            title: name.to_string(),
            name,
            known: None,
            program: PathBuf::new(),
            args: Vec::new(),
            env: Vec::new(),
            secrets: Vec::new(),
            mcp: Arc::default(),
            home: Home::Dedicated(PathBuf::new()),
            isolation: Isolation::default(),
            files: ServedBy::Off,
            terminals: ServedBy::Off,
            permissions: Permissions { on_timeout: OnTimeout::Reject, timeout: hour, allow: Vec::new() },
            allowed_meta_keys: Vec::new(),
            allowed_rpc_methods: Vec::new(),
            terminal_auth: false,
            protocol: 1,
            pool: PoolSpec {
                max_size: 0,
                min_idle: 0,
                min_idle_for: hour,
                idle_timeout: hour,
                no_load_idle_timeout: hour,
                no_load_reclaim_timeout: hour,
            },
            limits: AgentLimits { start_timeout: hour, max_line_bytes: 0, turn_idle_timeout: hour },
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
            Home::Dedicated(_) => DirBuilder::new().mode(0o700).recursive(true).create(self.home_of(tenant)),
            Home::User(_) => Ok(()),
        }
    }

    /// The client capabilities that the agent gets if the session does not restrict them.
    pub fn client_capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new(self.files, self.terminals)
    }
}

impl std::fmt::Debug for AgentSpec {
    /// Omits arguments and environment, because they may contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSpec")
            .field("name", &self.name)
            .field("program", &self.program)
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

/// The treatment of permission requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub on_timeout: OnTimeout,
    pub timeout: Duration,
    /// Kinds of tools (ACP `kind`) that are allowed once without a question.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// Rejects the request with the agent's own option after `timeout`.
    Reject,
    /// Waits until the turn ends.
    Wait,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// The maximum number of processes, including processes that start or stop.
    pub max_size: usize,
    /// The number of initialized processes that wait for a session.
    pub min_idle: usize,
    /// `min_idle` is 0 after this time without a request for the agent.
    pub min_idle_for: Duration,
    /// A session without a turn releases its process after this time.
    pub idle_timeout: Duration,
    /// The same for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    /// The minimum idle time of a process of such an agent before a full pool reclaims it.
    pub no_load_reclaim_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// The limit from spawn to the answer of `initialize`.
    pub start_timeout: Duration,
    /// The maximum size of one line, in bytes.
    pub max_line_bytes: usize,
    /// The maximum time of a turn without output and without an open request.
    pub turn_idle_timeout: Duration,
}
