//! The entry of an agent: a program or a host that speaks ACP, with its environment and settings.

use std::collections::BTreeMap;

use super::remote::Remote;
use super::secret::Secret;
use crate::types::known_agents::privileged_modes;
use crate::types::{AgentSettings, DeniedModes, Isolation, KnownAgent};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub launch: Launch,
    /// True for a known agent that was found on PATH and has no entry in a file.
    pub discovered: bool,
    pub env: BTreeMap<String, Secret>,
    pub home: Home,
    pub settings: AgentSettings,
}

/// The program to run, or the host to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A name on PATH, or an absolute path.
    Command { command: String, args: Vec<String> },
    /// An agent on another host.
    Remote(Box<Remote>),
    /// `builtin = "demo"`: the command `demo-agent` of this program.
    Demo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// A separate directory for each agent below the data directory.
    Private,
    /// The home directory of the operator, with its sign-ins. The agent is then in one trust domain with the
    /// gateway.
    User,
}

impl Agent {
    pub(super) fn new(launch: Launch) -> Self {
        let mut settings = AgentSettings::default();
        if let Launch::Command { command, args } = &launch {
            let known = KnownAgent::find(command, args);
            settings.denied_modes = DeniedModes::new(privileged_modes(known));
            settings.dialect = known.map(KnownAgent::dialect).unwrap_or_default();
        }
        if let Launch::Remote(_) = &launch {
            settings.isolation = Isolation::Off;
        }
        Self {
            launch,
            discovered: false,
            env: BTreeMap::new(),
            home: Home::Private,
            settings,
        }
    }

    /// Returns the names of the variables that a discovered agent receives from the environment of the
    /// gateway.
    pub fn inherited_variables(&self) -> Option<String> {
        let names: Vec<&str> = self.env.keys().map(String::as_str).collect();
        (self.discovered && !names.is_empty()).then(|| names.join(", "))
    }
}
