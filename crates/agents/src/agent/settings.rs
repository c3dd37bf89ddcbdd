//! The settings of an agent's entry that the modules use as the operator wrote them.

use std::path::PathBuf;
use std::time::Duration;

use base::types::{AgentDialect, Isolation, ToolProvider};
use children::ResourceLimits;
use events::api::{OnTimeout, SessionPolicy};
use wire::acp::DeniedModes;

/// The settings of an agent's entry, except its program, environment and home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Serves `fs/*`.
    pub files: ToolProvider,
    /// Serves `terminal/*`.
    pub terminals: ToolProvider,
    pub permissions: Permissions,
    /// The modes that no client can select.
    pub denied_modes: DeniedModes,
    /// Keys of `_meta` that clients may send at the set-up of a session.
    pub allowed_meta_keys: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub allowed_rpc_methods: Vec<String>,
    /// Whether users may sign in to the agent in a terminal.
    pub terminal_auth: bool,
    /// Whether processes get a token with which they send their telemetry to the gateway.
    pub telemetry: bool,
    pub dialect: AgentDialect,
    /// The version of ACP that the gateway requests: 1 or 2.
    pub protocol: u64,
    pub pool: PoolSettings,
    pub isolation: Isolation,
    /// Further folders that the agent may use.
    pub folders: Vec<PathBuf>,
    /// The command of the isolation level `strict`, which starts the agent.
    pub isolation_command: Vec<String>,
    pub resources: ResourceLimits,
    /// The time from the start of the process to the answer to `initialize`.
    pub start_timeout: Duration,
    /// The maximum size of one line in bytes.
    pub max_line_bytes: usize,
    /// The time for which a turn may continue without an update, a request or a terminal. When it expires,
    /// the gateway cancels the turn.
    pub turn_idle_timeout: Duration,
}

impl Default for AgentSettings {
    fn default() -> Self {
        Self {
            files: ToolProvider::Off,
            terminals: ToolProvider::Off,
            permissions: Permissions::default(),
            denied_modes: DeniedModes::default(),
            allowed_meta_keys: Vec::new(),
            allowed_rpc_methods: Vec::new(),
            terminal_auth: false,
            telemetry: false,
            dialect: AgentDialect::default(),
            protocol: 1,
            pool: PoolSettings::default(),
            isolation: Isolation::default(),
            folders: Vec::new(),
            isolation_command: Vec::new(),
            resources: ResourceLimits::default(),
            start_timeout: Duration::from_mins(1),
            max_line_bytes: 16 << 20,
            turn_idle_timeout: Duration::from_mins(30),
        }
    }
}

impl AgentSettings {
    /// The servers of the agent's files and terminals, restricted by the policy of a session.
    pub fn tool_providers(&self, policy: &SessionPolicy) -> (ToolProvider, ToolProvider) {
        let restrict = |allowed: ToolProvider, requested: Option<ToolProvider>| {
            requested.unwrap_or(allowed).min(allowed)
        };
        (
            restrict(self.files, policy.files),
            restrict(self.terminals, policy.terminals),
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub on_timeout: OnTimeout,
    pub timeout: Duration,
    /// Kinds of tools (ACP `kind`) that the gateway allows once without a question.
    pub allow: Vec<String>,
}

impl Default for Permissions {
    fn default() -> Self {
        Self {
            on_timeout: OnTimeout::Reject,
            timeout: Duration::from_mins(10),
            allow: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// The maximum number of processes, including processes that start or stop.
    pub max_size: usize,
    /// The number of processes that tasks leave to people.
    pub reserved: usize,
    /// The number of initialized processes that wait for a session.
    pub min_idle: usize,
    /// The pool keeps `min_idle` processes ready for this time after the last request for the agent.
    pub min_idle_for: Duration,
    /// A session without a turn releases its process after this time.
    pub idle_timeout: Duration,
    /// The same time for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    /// The idle time after which a full pool may reclaim a process of such an agent.
    pub no_load_reclaim_timeout: Duration,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            max_size: 8,
            reserved: Self::default_reserved(8),
            min_idle: 1,
            min_idle_for: Duration::from_hours(24),
            idle_timeout: Duration::from_mins(10),
            no_load_idle_timeout: Duration::from_hours(4),
            no_load_reclaim_timeout: Duration::from_mins(10),
        }
    }
}

impl PoolSettings {
    /// A quarter of the processes, but not all of them.
    pub fn default_reserved(max_size: usize) -> usize {
        max_size.div_ceil(4).min(max_size.saturating_sub(1))
    }
    /// The number of tasks that run at the same time.
    pub fn task_slots(&self) -> usize {
        self.max_size.saturating_sub(self.reserved).max(1)
    }
}
