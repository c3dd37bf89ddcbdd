//! `[agents.<name>]`: a program that speaks ACP, and what it gets.

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
    /// It is a known agent that was found on PATH; no file configures it.
    pub discovered: bool,
    pub env: BTreeMap<String, Secret>,
    pub home: Home,
    pub files: ServedBy,
    pub terminals: ServedBy,
    pub permissions: Permissions,
    /// Keys of `_meta` that clients may send at set-up.
    pub meta: Vec<String>,
    /// Methods that clients may call through `/rpc`.
    pub rpc: Vec<String>,
    /// Whether people may sign in to it in a terminal.
    pub terminal_auth: bool,
    /// The version of ACP that is asked for.
    pub protocol: u64,
    pub pool: Pool,
    pub limits: AgentLimits,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A name on PATH or an absolute path.
    Command { command: String, args: Vec<String> },
    /// `builtin = "demo"`: this program's own `demo-agent`.
    Demo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// A folder of its own below the data folder.
    Private,
    /// The operator's, with the sign-ins that are there: one trust domain with the gateway.
    User,
}

/// What happens to a permission that nobody answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub on_timeout: OnTimeout,
    pub timeout: Duration,
    /// Kinds of tools that are allowed without asking.
    pub allow: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    Reject,
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Processes at a time.
    pub max_size: usize,
    /// Spares that wait, started.
    pub min_idle: usize,
    /// An agent that nobody has wanted for so long keeps no spares.
    pub min_idle_for: Duration,
    /// A process without a turn: then its lease goes back.
    pub idle_timeout: Duration,
    /// The same for an agent that can neither load nor resume a session.
    pub no_load_idle_timeout: Duration,
    /// The time for which a process of such an agent is idle before a full pool reclaims it.
    pub no_load_reclaim_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentLimits {
    /// From spawn to the answer of `initialize`.
    pub start_timeout: Duration,
    /// Bytes of one line.
    pub max_line_bytes: usize,
    /// A turn without a word, a request or a terminal: then it is cancelled.
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
        Self { start_timeout: Duration::from_mins(1), max_line_bytes: 16 << 20, turn_idle_timeout: Duration::from_mins(30) }
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

    /// The names of the variables that an agent found on PATH receives from the gateway's environment.
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
        if let Some(limits) = section.take("limits") {
            agent.limits = read_limits(limits)?;
        }
        agent.launch = read_launch(section)?;
        Ok(agent)
    }
}

/// Takes what is left: a command with arguments, or the name of what is built in.
fn read_launch(mut section: Section) -> Result<Launch, ConfigError> {
    let (builtin, command, args) = (section.take("builtin"), section.take("command"), section.take("args"));
    let launch = match (builtin, command, args) {
        (Some(builtin), None, None) => builtin.choice(&[("demo", ())]).map(|()| Launch::Demo)?,
        (Some(_), _, _) => return Err(section.invalid("builtin stands without command and args")),
        (None, Some(command), args) => Launch::Command {
            command: read_program(&command)?,
            args: args.map_or(Ok(Vec::new()), Field::strings)?,
        },
        (None, None, _) => return Err(section.missing("command")),
    };
    section.finish()?;
    Ok(launch)
}

/// A bare name, which is looked up on PATH, or an absolute path.
pub(super) fn read_program(field: &Field) -> Result<String, ConfigError> {
    let command = field.string()?;
    if command.is_empty() || (command.contains('/') && !Path::new(command).is_absolute()) {
        return Err(field.invalid("must be a name that is looked up on PATH, or an absolute path"));
    }
    Ok(command.to_owned())
}

/// Names of methods; one that ends in `*` stands for all that begin so.
fn read_methods(field: Field) -> Result<Vec<String>, ConfigError> {
    let method = |item: &Field| {
        let name = item.string()?;
        if let Some(route) = route_of(name) {
            return Err(item.invalid(format!("{name:?} never goes by name: {route}")));
        }
        let start = name.strip_suffix('*').unwrap_or(name);
        // A star that stood for everything would let in what nobody has thought of.
        if start.is_empty() || start.contains('*') {
            return Err(item.invalid("must be a method, or what methods begin with and a * at the end"));
        }
        Ok(name.to_owned())
    };
    field.list()?.iter().map(method).collect()
}

const SERVED_BY: [(&str, ServedBy); 3] =
    [("off", ServedBy::Off), ("client", ServedBy::Client), ("gateway", ServedBy::Gateway)];

/// ACP's kinds of tools.
const TOOL_KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

fn read_permissions(field: Field) -> Result<Permissions, ConfigError> {
    let mut section = field.section()?;
    let mut permissions = Permissions::default();
    if let Some(unanswered) = section.take("unanswered") {
        permissions.on_timeout =
            unanswered.choice(&[("reject", OnTimeout::Reject), ("wait", OnTimeout::Wait)])?;
    }
    if let Some(after) = section.take("after") {
        permissions.timeout = read_positive_duration(&after)?;
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
    if let Some(max) = section.take("max") {
        pool.max_size = max.count()?;
        if pool.max_size == 0 {
            return Err(max.invalid("must be more than 0"));
        }
    }
    match section.take("warm") {
        Some(warm) => {
            pool.min_idle = warm.count()?;
            if pool.min_idle > pool.max_size {
                return Err(warm.invalid(format!("must be at most max, which is {}", pool.max_size)));
            }
        }
        None => pool.min_idle = pool.min_idle.min(pool.max_size),
    }
    if let Some(warm_for) = section.take("warm_for") {
        pool.min_idle_for = read_positive_duration(&warm_for)?;
    }
    if let Some(idle) = section.take("idle") {
        pool.idle_timeout = read_positive_duration(&idle)?;
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

fn read_limits(field: Field) -> Result<AgentLimits, ConfigError> {
    let mut section = field.section()?;
    let mut limits = AgentLimits::default();
    if let Some(start) = section.take("start") {
        limits.start_timeout = read_positive_duration(&start)?;
    }
    if let Some(line) = section.take("line") {
        limits.max_line_bytes = line.size()?;
        if limits.max_line_bytes < 1024 {
            return Err(line.invalid("must be at least 1KiB"));
        }
    }
    if let Some(silence) = section.take("silence") {
        limits.turn_idle_timeout = read_positive_duration(&silence)?;
    }
    section.finish()?;
    Ok(limits)
}

fn read_positive_duration(field: &Field) -> Result<Duration, ConfigError> {
    let duration = field.duration()?;
    if duration.is_zero() { Err(field.invalid("must be more than 0")) } else { Ok(duration) }
}
