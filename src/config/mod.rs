//! Reads file, environment and flags into one validated `Config`. No other module reads the environment.
//!
//! The module owns the keys, their syntax and their validation. Every error names the key and its location.
//! The module must not know how values are used: `app` converts them for each module.
//!
//! The order of precedence is defaults < file < environment < flags. `file` finds the file.
//!
//! Read `load` first, then `node` and `section`. `key` (kinds of values) and `keys` define the table of keys, whose rows
//! are in `settings` and in the tables of limits that `limits` collects. `agent` is the table for the entries of agents. `show` prints both
//! tables, and `report` without secrets in plain text. The other modules read single sections and values.
//!
//! A limit is a key only if an operator has a reason to change its value. All other limits are constants in the
//! modules that enforce them. These keys have reasons that are not obvious:
//!
//! - `auth.frame_ancestors`, `server.allowed_hosts`: only the operator knows the embedding pages and the host names.
//! - `isolation.required`, `isolation.allow_root_agents`, `isolation.run_as`: the gateway cannot derive these values
//!   from the machine.
//! - `webhooks.allowed_hosts`, `webhooks.ca_file`: only the operator knows the hosts that webhooks may reach, and their
//!   certificate authorities.
//! - `registry.source`: the operator selects the source of programs that the gateway installs, and lets keys with the scope
//!   `admin` install them.
//! - `telemetry.otlp_endpoint`, `telemetry.otlp_headers`: only the operator knows the collector and its key.
//! - `timeouts.tool_call_idle_timeout`: builds and tests of agents can run for a long time without output.
//! - `auth.max_users_per_program`: only the operator knows the number of people that a program serves.
//! - `server.max_body_memory_bytes`: the value depends on the memory of the machine.
//! - `limits.per_key.max_fleet_members`, `limits.per_key.max_queued_task_bytes`: only the operator knows the number of
//!   machines with one key, and the acceptable size of a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use http::Uri;

use crate::auth::Network;
use base::types::{AgentName, Scopes};
use children::IsolationPolicy;
use events::api::PublicUrl;
use outgoing::{HostPattern, ProxyVariables};

pub use agent::{Agent, Home, Launch, Remote, variables_of, variables_of_installed};
pub use agent_entry::{AgentEntry, EntryError, EntryFile};
pub use environment::{CLIENT_KEY_VARIABLE, ChildEnvironment, Environment};
pub use error::{ConfigError, Origin};
pub use file::ConfigFile;
pub use limits::Limits;
pub use load::{Flags, load, load_local};
pub use mcp::McpServer;
pub use report::report;
pub use secret::Secret;
pub use settings::{CaFile, Listen};
pub use show::{Shown, ShownConfig, reference, sample, show};
pub use toml_text::parse_duration;

mod agent;
mod agent_entry;
mod environment;
mod error;
mod file;
mod key;
mod keys;
mod limits;
mod load;
mod mcp;
mod node;
mod report;
mod roles;
mod secret;
mod section;
mod settings;
mod show;
mod toml_text;

/// The validated configuration. The default has no agent, and empty paths instead of directories.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub file: ConfigFile,
    pub listen: Listen,
    pub data: DataDir,
    /// The public origin of the gateway behind a proxy, in the form of a browser.
    pub public_url: Option<PublicUrl>,
    /// Further host names of the gateway.
    pub allowed_hosts: Vec<HostPattern>,
    /// Origins of other pages that may use the gateway, in the form of a browser.
    pub allowed_origins: Vec<String>,
    /// Origins of pages that may show the chat page in a frame.
    pub frame_ancestors: Vec<String>,
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<Network>,
    pub insecure_http: bool,
    pub workspaces: Workspaces,
    pub isolation: IsolationPolicy,
    pub webhooks: WebhookSettings,
    pub registry_source: Option<String>,
    /// The scopes of the operator's own roles.
    pub roles: BTreeMap<String, Scopes>,
    pub mcp: BTreeMap<String, McpServer>,
    pub agents: BTreeMap<AgentName, Agent>,
    /// Whether the default agents are among them, because the operator has written no entry.
    pub offers_default_agents: bool,
    /// The agents whose entries have an error. They are listed, but cannot be used.
    pub invalid_agents: BTreeSet<AgentName>,
    /// The MCP servers whose entries have an error. No session gets them.
    invalid_servers: BTreeSet<String>,
    pub limits: Limits,
    /// SHA-256 of the operator's admin key. If it is set, a start creates no link key.
    pub admin_key: Option<[u8; 32]>,
    /// The log filter in the syntax of `tracing`.
    pub log_filter: Option<String>,
    /// The collector of OTLP over HTTP, without the path of a signal.
    pub otlp_endpoint: Option<Uri>,
    /// The headers of requests to the collector.
    pub otlp_headers: BTreeMap<String, Secret>,
    /// The part of the gateway's environment that children may receive.
    pub child_environment: ChildEnvironment,
    /// The proxies of outgoing connections.
    pub proxies: ProxyVariables,
    /// Warnings about permitted but risky settings.
    pub warnings: Vec<String>,
    /// The errors in the entries of agents and MCP servers. The other entries still work.
    pub errors: Vec<String>,
    /// The origin of each key that is set, by its dotted name.
    origins: BTreeMap<String, Origin>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workspaces {
    /// The parent directory of new workspaces.
    pub root: PathBuf,
    /// Further roots.
    pub allow: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The hosts to which webhooks may send. Without one, webhooks are disabled.
    pub allowed_hosts: Vec<HostPattern>,
    /// Certificate authorities beside those of the system.
    pub ca_file: Option<CaFile>,
}

impl Config {
    /// Whether the gateway is for its operator alone: only programs of this machine reach it, and no proxy makes it public.
    pub fn is_personal(&self) -> bool {
        !self.listen.is_exposed()
            && self.public_url.is_none()
            && self.allowed_hosts.is_empty()
            && self.trusted_proxies.is_empty()
    }

    /// Applies the parts of `next` that change at a reload, except limits. An entry that has an error in `next` keeps its
    /// previous version.
    pub fn replace_entries(&mut self, next: Self) {
        let previous_agents = std::mem::replace(&mut self.agents, next.agents);
        let previous_servers = std::mem::replace(&mut self.mcp, next.mcp);
        self.invalid_agents = next.invalid_agents;
        self.invalid_servers = next.invalid_servers;
        for (name, agent) in previous_agents {
            if self.invalid_agents.remove(&name) {
                self.agents.insert(name, agent);
            }
        }
        for (name, server) in previous_servers {
            if self.invalid_servers.remove(&name) {
                self.mcp.insert(name, server);
            }
        }
        self.roles = next.roles;
        self.admin_key = next.admin_key;
        self.warnings = next.warnings;
        self.errors = next.errors;
    }
}

/// The layout of the data directory. Agents have no access to the gateway's private part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataDir(PathBuf);

impl DataDir {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The private directory of the gateway: log, keys, lock and `run`.
    pub fn private(&self) -> PathBuf {
        self.0.join("private")
    }

    /// The database of events and records.
    pub fn log(&self) -> PathBuf {
        self.private().join("log.sqlite")
    }

    pub fn lock(&self) -> PathBuf {
        self.private().join("lock")
    }

    /// The log of a gateway that a command started without a terminal.
    pub fn gateway_log(&self) -> PathBuf {
        self.private().join("gateway.log")
    }

    /// State files about children, for the clean-up after a crash.
    pub fn run(&self) -> PathBuf {
        self.private().join("run")
    }

    /// The lock of the supervisors of the running gateway.
    pub fn supervisors(&self) -> PathBuf {
        self.private().join("supervisors")
    }

    /// The secret from which the secrets that sign webhooks are derived.
    pub fn webhook_secret(&self) -> PathBuf {
        self.private().join("webhook-secret")
    }

    /// The files at the start of each session.
    pub fn changes(&self) -> PathBuf {
        self.private().join("changes")
    }

    /// Names the control groups of the running gateway, for the clean-up after a crash.
    pub fn control_groups(&self) -> PathBuf {
        self.private().join("control-groups")
    }

    /// The temporary folders of running agents.
    pub fn temporary(&self) -> PathBuf {
        self.0.join("tmp")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.0.join("workspaces")
    }

    /// Installed agents: `agents/<id>/<version>`.
    pub fn agents(&self) -> PathBuf {
        self.0.join("agents")
    }

    /// The home directories of agents: `homes/<tenant>/<agent>`.
    pub fn homes(&self) -> PathBuf {
        self.0.join("homes")
    }
}
