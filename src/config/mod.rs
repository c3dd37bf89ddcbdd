//! File, environment and flags become one checked `Config`. The only reader of the environment.
//!
//! It owns what may be said and what it means; every mistake is told with its key and its place. It must not
//! know what the values are used for: `app` turns them into what each module takes. Defaults < file <
//! environment < flags; nothing is read from the current folder.

mod admin_key;
mod agent;
mod restart_required;
mod environment;
mod error;
mod known_agents;
mod layers;
mod limits;
mod listen;
mod load;
mod mcp;
mod node;
mod origin;
mod secret;
mod section;
mod show;
mod units;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::types::{AgentName, Limits, Network};

pub use agent::{Agent, AgentLimits, Home, Launch, Permissions, Pool, OnTimeout};
pub use environment::{ChildEnvironment, Environment};
pub use error::ConfigError;
pub use layers::Flags;
pub use listen::Listen;
pub use load::{LocalConfig, load_local, load};
pub use mcp::McpServer;
pub use node::Origin;
pub use secret::{Secret, SecretText};
pub use show::show;

/// Everything that an operator may decide, checked.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Listen,
    pub data: DataDir,
    /// The origin under which a proxy shows the gateway, as a browser spells it.
    pub public_url: Option<String>,
    /// Origins of other pages that may use the gateway, as a browser spells them.
    pub allowed_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub behind_proxy: Vec<Network>,
    pub insecure_http: bool,
    pub workspaces: Workspaces,
    pub mcp: BTreeMap<String, McpServer>,
    pub agents: BTreeMap<AgentName, Agent>,
    pub limits: Limits,
    /// SHA-256 of the operator's own key. With it no link key is minted.
    pub admin_key: Option<[u8; 32]>,
    /// A filter for the log, as `tracing` reads it.
    pub log: Option<String>,
    /// What of our own environment children may see.
    pub child_environment: ChildEnvironment,
    /// What the operator should know although it is allowed.
    pub warnings: Vec<String>,
    /// Where each key that was set comes from, by its dotted name.
    origins: BTreeMap<String, Origin>,
}

/// Where sessions may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspaces {
    /// New folders are made here.
    pub root: PathBuf,
    /// Further roots.
    pub allow: Vec<PathBuf>,
}

/// The layout of the data folder. The gateway's own part lies apart from what agents see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir(PathBuf);

impl DataDir {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// For the gateway alone: log, keys, lock, run.
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

    /// Small files about children, for the sweep after a crash.
    pub fn run(&self) -> PathBuf {
        self.private().join("run")
    }

    pub fn workspaces(&self) -> PathBuf {
        self.0.join("workspaces")
    }

    /// Homes of agents: `homes/<tenant>/<agent>`.
    pub fn homes(&self) -> PathBuf {
        self.0.join("homes")
    }
}
