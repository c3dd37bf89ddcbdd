//! The keys of `[agents.<name>]`: the table that reads, prints and documents them.

use super::agent::{Agent, Home, Launch};
use super::environment::Environment;
use super::error::ConfigError;
use super::kinds::{count, size, time};
use super::secret;
use super::section::{Field, Section};
use super::toml_text::list;
use crate::types::method_list::route_of;
use crate::types::{OnTimeout, Permissions, PoolSettings, ServedBy};

/// A key of an agent's entry, except `builtin`, `command` and `args`.
pub(super) struct AgentKey {
    pub(super) name: &'static str,
    /// The documentation of the key, on one line.
    pub(super) comment: &'static str,
    /// Reads the value and sets it.
    read: fn(&mut Agent, Field, &Environment) -> Result<(), ConfigError>,
    /// Returns the value in the syntax of the file.
    pub(super) show: fn(&Agent) -> String,
}

pub(super) const KEYS: [AgentKey; 13] = [
    AgentKey {
        name: "env",
        comment: "Variables of the agent. A value is a text, { from_env = \"NAME\" } or { from_file = \"/path\" }.",
        read: |agent, field, environment| {
            secret::read_all(field, environment, secret::is_variable_name).map(|value| agent.env = value)
        },
        show: |agent| secret::table(&agent.env),
    },
    AgentKey {
        name: "home",
        comment: "\"own\": a separate home directory. \"user\": the home directory and sign-ins of the operator.",
        read: |agent, field, _| field.choice(&HOME).map(|value| agent.home = value),
        show: |agent| word(&HOME, agent.home),
    },
    AgentKey {
        name: "files",
        comment: "The server of the agent's file requests: \"off\", \"client\" or \"gateway\".",
        read: |agent, field, _| field.choice(&SERVED_BY).map(|value| agent.settings.files = value),
        show: |agent| word(&SERVED_BY, agent.settings.files),
    },
    AgentKey {
        name: "terminals",
        comment: "The server of the agent's terminal requests: \"off\", \"client\" or \"gateway\".",
        read: |agent, field, _| field.choice(&SERVED_BY).map(|value| agent.settings.terminals = value),
        show: |agent| word(&SERVED_BY, agent.settings.terminals),
    },
    AgentKey {
        name: "permissions",
        comment: "Without an answer within `timeout`: \"reject\", or \"wait\" until the turn ends. `allow` has kinds of tools.",
        read: |agent, field, _| read_permissions(field).map(|value| agent.settings.permissions = value),
        show: |agent| show_permissions(&agent.settings.permissions),
    },
    AgentKey {
        name: "meta",
        comment: "Keys of `_meta` that clients may send when they create a session.",
        read: |agent, field, _| field.strings().map(|value| agent.settings.allowed_meta_keys = value),
        show: |agent| list(&agent.settings.allowed_meta_keys),
    },
    AgentKey {
        name: "rpc",
        comment: "Methods that clients may call. A name that ends in * is a prefix.",
        read: |agent, field, _| {
            agent.settings.allowed_rpc_methods =
                field.list()?.iter().map(read_method).collect::<Result<_, _>>()?;
            Ok(())
        },
        show: |agent| list(&agent.settings.allowed_rpc_methods),
    },
    AgentKey {
        name: "terminal_auth",
        comment: "Whether users may sign in to the agent in a terminal.",
        read: |agent, field, _| field.boolean().map(|value| agent.settings.terminal_auth = value),
        show: |agent| agent.settings.terminal_auth.to_string(),
    },
    AgentKey {
        name: "protocol",
        comment: "The version of ACP that the gateway requests: 1 or 2.",
        read: |agent, field, _| match field.count()? {
            version @ 1..=2 => {
                agent.settings.protocol = version;
                Ok(())
            }
            _ => Err(field.invalid("must be 1 or 2")),
        },
        show: |agent| agent.settings.protocol.to_string(),
    },
    AgentKey {
        name: "pool",
        comment: "The number of processes, the idle processes that the pool keeps ready, and the times before it reclaims them.",
        read: |agent, field, _| read_pool(field).map(|value| agent.settings.pool = value),
        show: |agent| show_pool(&agent.settings.pool),
    },
    AgentKey {
        name: "start_timeout",
        comment: "The time until the agent answers `initialize`. Then the start fails.",
        read: |agent, field, _| time::read(&field).map(|value| agent.settings.start_timeout = value),
        show: |agent| time::show(agent.settings.start_timeout),
    },
    AgentKey {
        name: "turn_idle_timeout",
        comment: "The time of a turn without an update or a request. Then the gateway cancels it.",
        read: |agent, field, _| time::read(&field).map(|value| agent.settings.turn_idle_timeout = value),
        show: |agent| time::show(agent.settings.turn_idle_timeout),
    },
    AgentKey {
        name: "max_line_bytes",
        comment: "The size of one message of the agent. A longer message ends the process.",
        read: |agent, field, _| match field.size()? {
            0..1024 => Err(field.invalid("must be at least 1KiB")),
            bytes => {
                agent.settings.max_line_bytes = bytes;
                Ok(())
            }
        },
        show: |agent| size::show(agent.settings.max_line_bytes),
    },
];

/// Reads an entry.
pub(super) fn read(field: Field, environment: &Environment) -> Result<Agent, ConfigError> {
    let mut section = field.section()?;
    let mut agent = Agent::new(Launch::Demo);
    for key in &KEYS {
        if let Some(field) = section.take(key.name) {
            (key.read)(&mut agent, field, environment)?;
        }
    }
    agent.launch = read_launch(section)?;
    Ok(agent)
}

/// Reads the remaining keys: a command with arguments, or the name of a built-in agent.
fn read_launch(mut section: Section) -> Result<Launch, ConfigError> {
    let (builtin, command, args) = (section.take("builtin"), section.take("command"), section.take("args"));
    let launch = match (builtin, command, args) {
        (Some(builtin), None, None) => builtin.choice(&[("demo", ())]).map(|()| Launch::Demo)?,
        (Some(_), _, _) => return Err(section.invalid("builtin cannot be combined with command or args")),
        (None, Some(command), args) => Launch::Command {
            command: command.program()?,
            args: args.map_or(Ok(Vec::new()), Field::strings)?,
        },
        (None, None, _) => return Err(section.missing("command")),
    };
    section.finish()?;
    Ok(launch)
}

/// Reads the name of a method. A name that ends in `*` matches all methods with this prefix.
fn read_method(field: &Field) -> Result<String, ConfigError> {
    let name = field.string()?;
    if let Some(route) = route_of(name) {
        return Err(field.invalid(format!("{name:?} cannot be called by name: {route}")));
    }
    let start = name.strip_suffix('*').unwrap_or(name);
    // A bare star would allow methods that the operator does not know.
    if start.is_empty() || start.contains('*') {
        return Err(field.invalid("must be a method, or a prefix of methods followed by *"));
    }
    Ok(name.to_owned())
}

const HOME: [(&str, Home); 2] = [("own", Home::Private), ("user", Home::User)];
const SERVED_BY: [(&str, ServedBy); 3] =
    [("off", ServedBy::Off), ("client", ServedBy::Client), ("gateway", ServedBy::Gateway)];
const ON_TIMEOUT: [(&str, OnTimeout); 2] = [("reject", OnTimeout::Reject), ("wait", OnTimeout::Wait)];

/// Returns the word for a value, in quotes.
fn word<T: Copy + PartialEq>(words: &[(&str, T)], value: T) -> String {
    let found = words.iter().find(|(_, known)| *known == value);
    format!("\"{}\"", found.map_or("", |(word, _)| word))
}

/// The kinds of tools in ACP.
const TOOL_KINDS: [&str; 10] =
    ["read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"];

fn read_permissions(field: Field) -> Result<Permissions, ConfigError> {
    let mut section = field.section()?;
    let mut permissions = Permissions::default();
    if let Some(on_timeout) = section.take("on_timeout") {
        permissions.on_timeout = on_timeout.choice(&ON_TIMEOUT)?;
    }
    if let Some(timeout) = section.take("timeout") {
        permissions.timeout = time::read(&timeout)?;
    }
    if let Some(allow) = section.take("allow") {
        let kinds = TOOL_KINDS.map(|kind| (kind, kind));
        let kind = |item: &Field| item.choice(&kinds).map(str::to_owned);
        permissions.allow = allow.list()?.iter().map(kind).collect::<Result<_, _>>()?;
    }
    section.finish()?;
    Ok(permissions)
}

fn show_permissions(permissions: &Permissions) -> String {
    format!(
        "{{ on_timeout = {}, timeout = {}, allow = {} }}",
        word(&ON_TIMEOUT, permissions.on_timeout),
        time::show(permissions.timeout),
        list(&permissions.allow)
    )
}

fn read_pool(field: Field) -> Result<PoolSettings, ConfigError> {
    let mut section = field.section()?;
    let mut pool = PoolSettings::default();
    if let Some(max_size) = section.take("max_size") {
        pool.max_size = count::read(&max_size)?;
    }
    match section.take("min_idle") {
        Some(min_idle) => {
            pool.min_idle = min_idle.count()?;
            if pool.min_idle > pool.max_size {
                let reason = format!("must be at most `max_size`, which is {}", pool.max_size);
                return Err(min_idle.invalid(reason));
            }
        }
        None => pool.min_idle = pool.min_idle.min(pool.max_size),
    }
    if let Some(time) = section.take("min_idle_for") {
        pool.min_idle_for = time::read(&time)?;
    }
    if let Some(timeout) = section.take("idle_timeout") {
        pool.idle_timeout = time::read(&timeout)?;
    }
    if let Some(timeout) = section.take("no_load_idle_timeout") {
        pool.no_load_idle_timeout = time::read(&timeout)?;
    }
    if let Some(timeout) = section.take("no_load_reclaim_timeout") {
        pool.no_load_reclaim_timeout = timeout.duration()?;
    }
    section.finish()?;
    Ok(pool)
}

fn show_pool(pool: &PoolSettings) -> String {
    format!(
        "{{ max_size = {}, min_idle = {}, min_idle_for = {}, idle_timeout = {}, no_load_idle_timeout = {}, \
         no_load_reclaim_timeout = {} }}",
        pool.max_size,
        pool.min_idle,
        time::show(pool.min_idle_for),
        time::show(pool.idle_timeout),
        time::show(pool.no_load_idle_timeout),
        time::show(pool.no_load_reclaim_timeout)
    )
}
