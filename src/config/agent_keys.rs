//! The keys of `[agents.<name>]`: the table that reads, prints and documents them.

use std::collections::BTreeMap;

use super::agent::{Agent, Home, Launch};
use super::error::ConfigError;
use super::key::{Key, key_table, read_keys, read_table, show_table};
use super::kinds::{
    Kind, Words, count, count_or_zero, size, strings, switch, time, time_or_zero, word,
};
use super::remote;
use super::secret::{self, Secret};
use super::section::{Field, Section};
use super::settings::real_folders;
use super::toml_text;
use crate::types::method_list::route_of;
use crate::types::{
    AgentDialect, DeniedModes, Isolation, OnTimeout, Permissions, PoolSettings, ServedBy,
};

/// The keys of an agent's entry, except those of its launch: `builtin`, `command` and `args`, or `url` with the keys of
/// [`remote`].
pub(super) const KEYS: &[Key<Agent>] = key_table! { Agent:
    ["", local: false] {
        /// Variables of the agent. A value is a text, { from_env = "NAME" } or { from_file = "/path" }.
        env: variables => env;
        /// "own": a separate home directory. "user": the home directory and sign-ins of the operator.
        home: word => home;
        /// The server of the agent's file requests: "off", "client" or "gateway".
        files: word => settings.files;
        /// The server of the agent's terminal requests: "off", "client" or "gateway".
        terminals: word => settings.terminals;
        /// Without an answer within `timeout`: "reject", or "wait" until the turn ends. `allow` has kinds of tools.
        permissions: permissions => settings.permissions;
        /// `deny`: modes that no client can select. Some known agents add a name to the default.
        modes: modes => settings.denied_modes;
        /// Keys of `_meta` that clients may send when they create a session.
        meta: strings => settings.allowed_meta_keys;
        /// Methods that clients may call. A name that ends in * is a prefix.
        rpc: methods => settings.allowed_rpc_methods;
        /// Whether users may sign in to the agent in a terminal.
        terminal_auth: switch => settings.terminal_auth;
        /// The protocol of the agent: "acp", "stream-json" for the Claude Code CLI, or "early-acp" for agents older than ACP.
        dialect: word => settings.dialect;
        /// The version of ACP that the gateway requests: 1 or 2.
        protocol: protocol => settings.protocol;
        /// What the agent cannot access: "off", "private", "workspace", or "strict" with `isolation_command`.
        isolation: word => settings.isolation;
        /// The command that starts the agent at the level "strict", with {cwd} and {home}. The agent follows.
        isolation_command: strings => settings.isolation_command;
        /// Further folders that the agent may use. At the level "workspace" it can only read them.
        folders: real_folders => settings.folders;
        /// The processes and threads of the agent, with its commands.
        max_processes: count => settings.resources.max_processes;
        /// The memory of the agent with its commands. Without control groups it limits each of its processes.
        max_memory_bytes: memory_size => settings.resources.max_memory_bytes;
        /// The number of processes, the idle processes that the pool keeps ready, and the times before it reclaims them.
        pool: pool => settings.pool;
        /// The time until the agent answers `initialize`. Then the start fails.
        start_timeout: time => settings.start_timeout;
        /// The time of a turn without an update or a request. Then the gateway cancels it. Tool calls: [timeouts].
        turn_idle_timeout: time => settings.turn_idle_timeout;
        /// The size of one message of the agent. A longer message ends the process.
        max_line_bytes: line_size => settings.max_line_bytes;
    }
};

const PERMISSIONS: &[Key<Permissions>] = key_table! { Permissions:
    ["", local: false] {
        on_timeout: word => on_timeout;
        timeout: time => timeout;
        allow: tool_kinds => allow;
    }
};

const POOL: &[Key<PoolSettings>] = key_table! { PoolSettings:
    ["", local: false] {
        max_size: count => max_size;
        reserved: count_or_zero => reserved;
        min_idle: count_or_zero => min_idle;
        min_idle_for: time => min_idle_for;
        idle_timeout: time => idle_timeout;
        no_load_idle_timeout: time => no_load_idle_timeout;
        no_load_reclaim_timeout: time_or_zero => no_load_reclaim_timeout;
    }
};

/// Reads an entry.
pub(super) fn read(field: Field) -> Result<Agent, ConfigError> {
    let mut section = field.section()?;
    let launch = read_launch(&mut section)?;
    let has_launch = launch.is_some();
    // The defaults of some keys depend on the agent.
    let mut agent = Agent::new(launch.unwrap_or(Launch::Demo));
    let is_remote = matches!(agent.launch, Launch::Remote(_));
    if is_remote {
        reject_keys_of_children(&mut section)?;
    }
    read_keys(&mut section, KEYS, &mut agent)?;
    if is_remote && [agent.settings.files, agent.settings.terminals].contains(&ServedBy::Gateway) {
        return Err(section.invalid(
            "the agent runs on another host, so that files and terminals must be \"off\" or \"client\"",
        ));
    }
    if agent.settings.isolation == Isolation::Strict && agent.settings.isolation_command.is_empty()
    {
        return Err(section.missing("isolation_command"));
    }
    if agent.settings.dialect != AgentDialect::Acp && agent.settings.protocol != 1 {
        return Err(section.invalid("protocol = 2 requires dialect = \"acp\""));
    }
    if !has_launch {
        return Err(section.missing("command` or `url"));
    }
    section.finish()?;
    Ok(agent)
}

/// The keys that describe a child process.
pub(super) const KEYS_OF_CHILDREN: [&str; 9] = [
    "env",
    "home",
    "terminal_auth",
    "dialect",
    "isolation",
    "isolation_command",
    "folders",
    "max_processes",
    "max_memory_bytes",
];

fn reject_keys_of_children(section: &mut Section) -> Result<(), ConfigError> {
    let present = KEYS_OF_CHILDREN
        .into_iter()
        .find_map(|name| section.take(name));
    present.map_or(Ok(()), |field| {
        Err(field.invalid("is only for agents with a command: this agent runs on another host"))
    })
}

/// Reads a command with arguments, a URL, or the name of a built-in agent. `None` if there is neither.
fn read_launch(section: &mut Section) -> Result<Option<Launch>, ConfigError> {
    let (builtin, command, args) = (
        section.take("builtin"),
        section.take("command"),
        section.take("args"),
    );
    if let Some(url) = section.take("url") {
        if builtin.is_some() || command.is_some() || args.is_some() {
            return Err(section.invalid("url cannot be combined with builtin, command or args"));
        }
        return Ok(Some(Launch::Remote(Box::new(remote::read(section, &url)?))));
    }
    Ok(match (builtin, command, args) {
        (Some(builtin), None, None) => Some(builtin.choice(&[("demo", Launch::Demo)])?),
        (Some(_), _, _) => {
            return Err(section.invalid("builtin cannot be combined with command or args"));
        }
        (None, Some(command), args) => Some(Launch::Command {
            command: command.program()?,
            args: args.map_or(Ok(Vec::new()), strings().read)?,
        }),
        (None, None, _) => None,
    })
}

impl Words for Home {
    const WORDS: &[(&str, Self)] = &[("own", Self::Private), ("user", Self::User)];
}

impl Words for ServedBy {
    const WORDS: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("client", Self::Client),
        ("gateway", Self::Gateway),
    ];
}

impl Words for AgentDialect {
    const WORDS: &[(&str, Self)] = &[
        ("acp", Self::Acp),
        ("stream-json", Self::StreamJson),
        ("early-acp", Self::EarlyAcp),
    ];
}

impl Words for Isolation {
    const WORDS: &[(&str, Self)] = &[
        ("off", Self::Off),
        ("private", Self::Private),
        ("workspace", Self::Workspace),
        ("strict", Self::Strict),
    ];
}

impl Words for OnTimeout {
    const WORDS: &[(&str, Self)] = &[("reject", Self::Reject), ("wait", Self::Wait)];
}

fn variables() -> Kind<BTreeMap<String, Secret>> {
    Kind {
        read: |field| secret::read_all(field, secret::is_variable_name),
        show: secret::show_all,
    }
}

fn methods() -> Kind<Vec<String>> {
    Kind {
        read: |field| field.each(read_method),
        ..strings()
    }
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

fn protocol() -> Kind<u64> {
    let read = |field: Field| match field.count()? {
        version @ 1..=2 => Ok(version),
        _ => Err(field.invalid("must be 1 or 2")),
    };
    Kind { read, ..count() }
}

fn line_size() -> Kind<usize> {
    let read = |field: Field| match field.size()? {
        0..1024 => Err(field.invalid("must be at least 1KiB")),
        bytes => Ok(bytes),
    };
    Kind { read, ..size() }
}

/// No program starts with less.
fn memory_size() -> Kind<u64> {
    let read = |field: Field| match field.size()? {
        0..0x10_0000 => Err(field.invalid("must be at least 1MiB")),
        bytes => Ok(bytes),
    };
    Kind { read, ..size() }
}

/// The kinds of tools in ACP.
const TOOL_KINDS: [&str; 10] = [
    "read",
    "edit",
    "delete",
    "move",
    "search",
    "execute",
    "think",
    "fetch",
    "switch_mode",
    "other",
];

fn tool_kinds() -> Kind<Vec<String>> {
    let read = |field: Field| {
        field.each(|item| item.choice(&TOOL_KINDS.map(|kind| (kind, kind.to_owned()))))
    };
    Kind { read, ..strings() }
}

fn permissions() -> Kind<Permissions> {
    Kind {
        read: |field| read_table(field, PERMISSIONS),
        show: |value| show_table(value, PERMISSIONS),
    }
}

fn modes() -> Kind<DeniedModes> {
    Kind {
        read: read_modes,
        show: |value| toml_text::table([("deny", (strings().show)(&value.names()))]),
    }
}

fn read_modes(field: Field) -> Result<DeniedModes, ConfigError> {
    let mut section = field.section()?;
    let Some(deny) = section.take("deny") else {
        return Err(section.missing("deny"));
    };
    section.finish()?;
    let names = deny.each(|item| match item.string()? {
        name if name.chars().any(char::is_alphanumeric) => Ok(name.to_owned()),
        _ => Err(item.invalid("must have a letter or a digit")),
    });
    names.map(DeniedModes::new)
}

fn pool() -> Kind<PoolSettings> {
    Kind {
        read: read_pool,
        show: |value| show_table(value, POOL),
    }
}

fn read_pool(field: Field) -> Result<PoolSettings, ConfigError> {
    let (mut section, mut pool) = (field.section()?, PoolSettings::default());
    let (min_idle, reserved) = (section.take("min_idle"), section.take("reserved"));
    read_keys(&mut section, POOL, &mut pool)?;
    section.finish()?;
    pool.reserved = match reserved {
        Some(field) => match field.count()? {
            reserved if reserved < pool.max_size => reserved,
            _ => {
                let max = pool.max_size;
                return Err(field.invalid(format!("must be less than `max_size`, which is {max}")));
            }
        },
        None => PoolSettings::default_reserved(pool.max_size),
    };
    match min_idle {
        Some(field) => {
            pool.min_idle = field.count()?;
            if pool.min_idle > pool.max_size {
                return Err(field.invalid(format!(
                    "must be at most `max_size`, which is {}",
                    pool.max_size
                )));
            }
        }
        None => pool.min_idle = pool.min_idle.min(pool.max_size),
    }
    Ok(pool)
}
