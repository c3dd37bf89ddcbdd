//! What the operator says about an agent. Clients name an agent; they never define one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::acp::{ClientCapabilities, McpServer};
use crate::types::{AgentName, KnownAgent, ServedBy};

/// One `[agents.<name>]` entry, with its command looked up and its secrets read.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentSpec {
    pub name: AgentName,
    pub known: Option<Known>,
    /// What a person reads in a list; the agent's own `agentInfo.title` outranks it.
    pub title: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the process but `HOME`.
    pub env: Vec<(OsString, OsString)>,
    /// Values that stderr must not show, those of `mcp` among them.
    pub secrets: Vec<String>,
    /// The MCP servers that its sessions may be given, by name. A process is told of those of its own entry alone,
    /// because of others it does not hide the secrets.
    pub mcp: Arc<BTreeMap<String, McpServer>>,
    pub home: Home,
    /// Who serves `fs/*`.
    pub files: ServedBy,
    /// Who serves `terminal/*`.
    pub terminals: ServedBy,
    pub permissions: Permissions,
    /// Keys of `_meta` that clients may send at set-up.
    pub meta: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub rpc: Vec<String>,
    /// Whether people may sign in to it in a terminal.
    pub terminal_auth: bool,
    /// The version of ACP that is asked for: 1 or 2.
    pub protocol: u64,
    pub pool: PoolSpec,
    pub limits: AgentLimits,
}

impl AgentSpec {
    /// Stands in for an entry that was taken out of the configuration: its sessions can be read, not prompted.
    pub fn gone(name: AgentName) -> Self {
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
            home: Home::Own(PathBuf::new()),
            files: ServedBy::Off,
            terminals: ServedBy::Off,
            permissions: Permissions { unanswered: Unanswered::Reject, after: hour, allow: Vec::new() },
            meta: Vec::new(),
            rpc: Vec::new(),
            terminal_auth: false,
            protocol: 1,
            pool: PoolSpec {
                max: 0,
                warm: 0,
                warm_for: hour,
                idle: hour,
                no_load_idle_timeout: hour,
                no_load_reclaim_timeout: hour,
            },
            limits: AgentLimits { start: hour, line: 0, silence: hour },
        }
    }

    /// True if the environment of its processes has the variable.
    pub fn has_variable(&self, name: &str) -> bool {
        self.env.iter().any(|(known, _)| known == name)
    }

    /// What the agent is offered where nobody narrows it.
    pub fn offers(&self) -> ClientCapabilities {
        ClientCapabilities::of(self.files, self.terminals)
    }
}

impl std::fmt::Debug for AgentSpec {
    /// Arguments and environment may hold secrets.
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
    /// The agent was found on PATH; no file configures it.
    pub found: bool,
}

/// Whose home folder the process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// `DIR/homes/<tenant>/<agent>`.
    Own(PathBuf),
    /// The operator's: one trust domain with the gateway.
    User(PathBuf),
}

impl Home {
    pub fn path(&self) -> &Path {
        let (Self::Own(path) | Self::User(path)) = self;
        path
    }
}

/// What happens to permission requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub unanswered: Unanswered,
    pub after: Duration,
    /// Kinds of tools (ACP `kind`) that are allowed once without asking.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// Answered with the agent's own way to say no, after `after`.
    Reject,
    /// Waits for as long as the turn does.
    Wait,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    /// Processes at a time, counted over everything that runs.
    pub max: usize,
    /// Processes that wait initialised.
    pub warm: usize,
    /// After so long without anybody who wants the agent, none waits.
    pub warm_for: Duration,
    /// A session without a turn gives its process up after this.
    pub idle: Duration,
    /// The same for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    /// The time for which a process of such an agent is idle before a full pool reclaims it.
    pub no_load_reclaim_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLimits {
    /// From spawn to the answer of `initialize`.
    pub start: Duration,
    /// Bytes of one line.
    pub line: usize,
    /// Without a byte in a turn, and with no request open.
    pub silence: Duration,
}
