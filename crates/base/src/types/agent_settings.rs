//! The settings of an agent's entry that the modules use as the operator wrote them.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::ToSchema;

use super::agent_dialect::AgentDialect;
use super::denied_modes::DeniedModes;
use super::{Isolation, ResourceLimits};

/// The settings of an agent's entry, except its program, environment and home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSettings {
    /// Serves `fs/*`.
    pub files: ServedBy,
    /// Serves `terminal/*`.
    pub terminals: ServedBy,
    pub permissions: Permissions,
    /// The modes that no client can select.
    pub denied_modes: DeniedModes,
    /// Keys of `_meta` that clients may send at the set-up of a session.
    pub allowed_meta_keys: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub allowed_rpc_methods: Vec<String>,
    /// Whether users may sign in to the agent in a terminal.
    pub terminal_auth: bool,
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
            files: ServedBy::Off,
            terminals: ServedBy::Off,
            permissions: Permissions::default(),
            denied_modes: DeniedModes::default(),
            allowed_meta_keys: Vec::new(),
            allowed_rpc_methods: Vec::new(),
            terminal_auth: false,
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

/// The action for a permission request that is not answered in time.
#[derive(Serialize, Deserialize, ToSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnTimeout {
    /// Rejects the request with the agent's own option.
    Reject,
    /// Waits until the turn ends.
    Wait,
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

/// The provider of an agent's file or terminal methods, the most restricted first.
#[derive(Serialize, Deserialize, ToSchema, VariantArray)]
#[serde(rename_all = "lowercase")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServedBy {
    /// No provider: the gateway does not offer the methods to the agent.
    #[default]
    Off,
    /// A client answers each request.
    Client,
    /// The gateway serves the methods in the workspace of the session.
    Gateway,
}

/// Where an agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AgentKind {
    /// A child process of the gateway.
    Local,
    /// An agent on another host, to which the gateway connects.
    Remote,
    /// A member of the fleet, which connects to the gateway.
    Fleet,
}

/// `[a-z0-9][a-z0-9_-]{0,63}`: safe in a URL, a path and a log line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub struct AgentName(Arc<str>);

#[derive(Debug, thiserror::Error)]
#[error(
    "an agent's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit"
)]
pub struct AgentNameError;

impl AgentName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = AgentNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let valid = bytes.first().is_some_and(plain)
            && bytes.len() <= 64
            && bytes.iter().all(|b| plain(b) || matches!(b, b'_' | b'-'));
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(AgentNameError)
        }
    }
}

text_form!(AgentName);

/// The current activity of an agent's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// The process starts, and has not answered `initialize`.
    Starting,
    /// The process has no turn, request or call. It can hold a session.
    Idle,
    /// A turn, a request or a call is open, or a session is being attached.
    Busy,
    /// The process releases its session, and can serve another one later.
    Releasing,
    /// The process is being stopped, or has ended.
    Stopping,
}

/// A mode of the agent, or a value of one of its options that selects a mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModeSelection {
    /// The id of the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode_id: Option<String>,
    /// The id of the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config_id: Option<String>,
    /// The value of the option. Absent for an option that is switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value: Option<String>,
}

impl ModeSelection {
    pub fn mode(id: &str) -> Self {
        Self {
            mode_id: Some(id.to_owned()),
            config_id: None,
            value: None,
        }
    }

    /// `value`: `None` for an option that is switched on.
    pub fn option(id: &str, value: Option<&str>) -> Self {
        Self {
            mode_id: None,
            config_id: Some(id.to_owned()),
            value: value.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod agent_dialect_tests {
    use super::*;

    #[test]
    fn command_of_another_protocol_runs_behind_a_translation() {
        let command = |dialect: AgentDialect, resume| {
            let (program, args) = dialect.command("/bin/a".into(), vec!["-x".into()], resume, 7);
            let args = args.iter().map(|word| word.to_str().unwrap());
            let words: Vec<&str> = std::iter::once(program.to_str().unwrap())
                .chain(args)
                .collect();
            words.join(" ")
        };
        assert_eq!(command(AgentDialect::Acp, Some("id")), "/bin/a -x");
        assert_eq!(
            command(AgentDialect::EarlyAcp, None),
            "/proc/self/exe translate --from=early-acp --max-line-bytes=7 --pass-environment -- /bin/a -x"
        );
        assert_eq!(
            command(AgentDialect::StreamJson, Some("-id")),
            "/proc/self/exe translate --from=stream-json --resume=-id --max-line-bytes=7 --pass-environment -- /bin/a -x"
        );
    }
}
