//! `[agents.<name>]`: a program that speaks ACP, with its environment, permissions and limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::environment::Environment;
use super::error::ConfigError;
use super::secret::{self, Secret};
use super::section::{Field, Section};
use crate::types::ServedBy;
use crate::types::method_list::route_of;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub launch: Launch,
    /// True for a known agent that was found on PATH and has no entry in a file.
    pub discovered: bool,
    pub env: BTreeMap<String, Secret>,
    pub home: Home,
    pub files: ServedBy,
    pub terminals: ServedBy,
    pub permissions: Permissions,
    /// Keys of `_meta` that clients may send at the set-up of a session.
    pub meta: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub rpc: Vec<String>,
    /// Whether users may sign in to the agent in a terminal.
    pub terminal_auth: bool,
    /// The version of ACP that the gateway requests.
    pub protocol: u64,
    pub pool: Pool,
    pub limits: AgentLimits,
}

/// The program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A name on PATH, or an absolute path.
    Command { command: String, args: Vec<String> },
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

/// The policy for permission requests without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub on_timeout: OnTimeout,
    pub timeout: Duration,
    /// Kinds of tools that the gateway allows without a question.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    Reject,
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The maximum number of processes.
    pub max_size: usize,
    /// The number of idle processes that the pool keeps ready.
    pub min_idle: usize,
    /// The time for which an unused agent keeps its idle processes.
    pub min_idle_for: Duration,
    /// The time that a process may be without a turn before the pool reclaims its lease.
    pub idle_timeout: Duration,
    /// The same time for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    /// The idle time after which a full pool may reclaim a process of such an agent.
    pub no_load_reclaim_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// The time from the start of the process to the answer to `initialize`.
    pub start_timeout: Duration,
    /// The size of one line in bytes.
    pub max_line_bytes: usize,
    /// The time for which a turn may continue without an update, a request or a terminal. When it expires,
    /// the gateway cancels the turn.
    pub turn_idle_timeout: Duration,
}

impl Default for Permissions {
    fn default() -> Self {
        Self { on_timeout: OnTimeout::Reject, timeout: Duration::from_mins(10), allow: Vec::new() }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            max_size: 8,
            min_idle: 1,
            min_idle_for: Duration::from_hours(24),
            idle_timeout: Duration::from_mins(10),
            no_load_idle_timeout: Duration::from_hours(4),
            no_load_reclaim_timeout: Duration::from_mins(10),
        }
    }
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_mins(1),
            max_line_bytes: 16 << 20,
            turn_idle_timeout: Duration::from_mins(30),
        }
    }
}

impl Agent {
    pub(super) fn new(launch: Launch) -> Self {
        Self {
            launch,
            discovered: false,
            env: BTreeMap::new(),
            home: Home::Private,
            files: ServedBy::Off,
            terminals: ServedBy::Off,
            permissions: Permissions::default(),
            meta: Vec::new(),
            rpc: Vec::new(),
            terminal_auth: false,
            protocol: 1,
            pool: Pool::default(),
            limits: AgentLimits::default(),
        }
    }

    /// Returns the names of the variables that a discovered agent receives from the environment of the
    /// gateway.
    pub fn inherited_variables(&self) -> Option<String> {
        let names: Vec<&str> = self.env.keys().map(String::as_str).collect();
        (self.discovered && !names.is_empty()).then(|| names.join(", "))
    }

    pub(super) fn read(field: Field, environment: &Environment) -> Result<Self, ConfigError> {
        let mut section = field.section()?;
        let mut agent = Self::new(Launch::Demo);
        if let Some(env) = section.take("env") {
            agent.env = secret::read_all(env, environment, secret::is_variable_name)?;
        }
        if let Some(home) = section.take("home") {
            agent.home = home.choice(&[("own", Home::Private), ("user", Home::User)])?;
        }
        if let Some(files) = section.take("files") {
            agent.files = files.choice(&SERVED_BY)?;
        }
        if let Some(terminals) = section.take("terminals") {
            agent.terminals = terminals.choice(&SERVED_BY)?;
        }
        if let Some(permissions) = section.take("permissions") {
            agent.permissions = read_permissions(permissions)?;
        }
        if let Some(meta) = section.take("meta") {
            agent.meta = meta.strings()?;
        }
        if let Some(rpc) = section.take("rpc") {
            agent.rpc = read_methods(rpc)?;
        }
        if let Some(terminal_auth) = section.take("terminal_auth") {
            agent.terminal_auth = terminal_auth.boolean()?;
        }
        if let Some(protocol) = section.take("protocol") {
            agent.protocol = match protocol.count()? {
                1 => 1,
                2 => 2,
                _ => return Err(protocol.invalid("must be 1 or 2")),
            };
        }
        if let Some(pool) = section.take("pool") {
            agent.pool = read_pool(pool)?;
        }
        agent.limits = read_limits(&mut section)?;
        agent.launch = read_launch(section)?;
        Ok(agent)
    }
}

/// Reads the remaining keys: a command with arguments, or the name of a built-in agent.
fn read_launch(mut section: Section) -> Result<Launch, ConfigError> {
    let (builtin, command, args) = (section.take("builtin"), section.take("command"), section.take("args"));
    let launch = match (builtin, command, args) {
        (Some(builtin), None, None) => builtin.choice(&[("demo", ())]).map(|()| Launch::Demo)?,
        (Some(_), _, _) => return Err(section.invalid("builtin cannot be combined with command or args")),
        (None, Some(command), args) => Launch::Command {
            command: read_program(&command)?,
            args: args.map_or(Ok(Vec::new()), Field::strings)?,
        },
        (None, None, _) => return Err(section.missing("command")),
    };
    section.finish()?;
    Ok(launch)
}

/// Reads a program: a name to look up on PATH, or an absolute path.
pub(super) fn read_program(field: &Field) -> Result<String, ConfigError> {
    let command = field.string()?;
    if command.is_empty() || (command.contains('/') && !Path::new(command).is_absolute()) {
        return Err(field.invalid("must be the name of a program on PATH, or an absolute path"));
    }
    Ok(command.to_owned())
}

/// Reads names of methods. A name that ends in `*` matches all methods with this prefix.
fn read_methods(field: Field) -> Result<Vec<String>, ConfigError> {
    let method = |item: &Field| {
        let name = item.string()?;
        if let Some(route) = route_of(name) {
            return Err(item.invalid(format!("{name:?} cannot be called by name: {route}")));
        }
        let start = name.strip_suffix('*').unwrap_or(name);
        // A bare star would allow methods that the operator does not know.
        if start.is_empty() || start.contains('*') {
            return Err(item.invalid("must be a method, or a prefix of methods followed by *"));
        }
        Ok(name.to_owned())
    };
    field.list()?.iter().map(method).collect()
}

const SERVED_BY: [(&str, ServedBy); 3] =
    [("off", ServedBy::Off), ("client", ServedBy::Client), ("gateway", ServedBy::Gateway)];

/// The kinds of tools in ACP.
const TOOL_KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

fn read_permissions(field: Field) -> Result<Permissions, ConfigError> {
    let mut section = field.section()?;
    let mut permissions = Permissions::default();
    if let Some(on_timeout) = section.take("on_timeout") {
        permissions.on_timeout =
            on_timeout.choice(&[("reject", OnTimeout::Reject), ("wait", OnTimeout::Wait)])?;
    }
    if let Some(timeout) = section.take("timeout") {
        permissions.timeout = read_positive_duration(&timeout)?;
    }
    if let Some(allow) = section.take("allow") {
        let kinds = TOOL_KINDS.map(|kind| (kind, kind));
        let kind = |item: &Field| item.choice(&kinds).map(str::to_owned);
        permissions.allow = allow.list()?.iter().map(kind).collect::<Result<_, _>>()?;
    }
    section.finish()?;
    Ok(permissions)
}

fn read_pool(field: Field) -> Result<Pool, ConfigError> {
    let mut section = field.section()?;
    let mut pool = Pool::default();
    if let Some(max_size) = section.take("max_size") {
        pool.max_size = max_size.count()?;
        if pool.max_size == 0 {
            return Err(max_size.invalid("must be more than 0"));
        }
    }
    match section.take("min_idle") {
        Some(min_idle) => {
            pool.min_idle = min_idle.count()?;
            if pool.min_idle > pool.max_size {
                return Err(
                    min_idle.invalid(format!("must be at most `max_size`, which is {}", pool.max_size))
                );
            }
        }
        None => pool.min_idle = pool.min_idle.min(pool.max_size),
    }
    if let Some(time) = section.take("min_idle_for") {
        pool.min_idle_for = read_positive_duration(&time)?;
    }
    if let Some(timeout) = section.take("idle_timeout") {
        pool.idle_timeout = read_positive_duration(&timeout)?;
    }
    if let Some(timeout) = section.take("no_load_idle_timeout") {
        pool.no_load_idle_timeout = read_positive_duration(&timeout)?;
    }
    if let Some(timeout) = section.take("no_load_reclaim_timeout") {
        pool.no_load_reclaim_timeout = timeout.duration()?;
    }
    section.finish()?;
    Ok(pool)
}

fn read_limits(section: &mut Section) -> Result<AgentLimits, ConfigError> {
    let mut limits = AgentLimits::default();
    if let Some(timeout) = section.take("start_timeout") {
        limits.start_timeout = read_positive_duration(&timeout)?;
    }
    if let Some(bytes) = section.take("max_line_bytes") {
        limits.max_line_bytes = bytes.size()?;
        if limits.max_line_bytes < 1024 {
            return Err(bytes.invalid("must be at least 1KiB"));
        }
    }
    if let Some(timeout) = section.take("turn_idle_timeout") {
        limits.turn_idle_timeout = read_positive_duration(&timeout)?;
    }
    Ok(limits)
}

fn read_positive_duration(field: &Field) -> Result<Duration, ConfigError> {
    let duration = field.duration()?;
    if duration.is_zero() { Err(field.invalid("must be more than 0")) } else { Ok(duration) }
}
