//! The entry of an agent: a program or a host that speaks ACP, with its environment and settings.

use std::collections::BTreeMap;
use std::path::Path;

use http::Uri;
use http::header::AUTHORIZATION;
use serde::Serialize;
use strum::VariantArray;

use super::environment::Environment;
use super::error::ConfigError;
use super::key::{
    Key, Kind, count, count_or_zero, key_table, read_keys, read_table, show_table, size, strings,
    switch, time, time_or_zero, word,
};
use super::secret::{self, Secret};
use super::section::{Field, Section};
use super::settings::{self, CaFile, real_folders};
use super::toml_text;
use agents::agent::{AgentSettings, Permissions, PoolSettings};
use base::types::{AgentDialect, AgentName, Isolation, ToolProvider};
use outgoing::{is_loopback_url, url_port};
use wire::acp::known_agents::{DEMO_NAME, KNOWN, privileged_modes};
use wire::acp::method_list::route_of;
use wire::acp::{DeniedModes, KnownAgent, tool_kind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub launch: Launch,
    /// True for a known agent that was found on PATH and has no entry in a file.
    pub discovered: bool,
    /// The variables that a known agent receives from the gateway's environment, because it was found on PATH or installed.
    /// `None`: any other agent.
    pub inherited: Option<Vec<&'static str>>,
    pub env: BTreeMap<String, Secret>,
    pub home: Home,
    pub settings: AgentSettings,
}

/// The program to run, or the host to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// A name on PATH, or an absolute path.
    Command {
        command: String,
        args: Vec<String>,
    },
    Remote(Box<Remote>),
    /// `builtin = "demo"`: the command `demo-agent` of this program.
    Demo,
}

impl Launch {
    /// Whether the agent is a child process of the gateway.
    pub fn is_child(&self) -> bool {
        !matches!(self, Self::Remote(_))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Home {
    /// A separate directory for each agent below the data directory.
    #[serde(rename = "own")]
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
        if !launch.is_child() {
            settings.isolation = Isolation::Off;
        }
        Self {
            launch,
            discovered: false,
            inherited: None,
            env: BTreeMap::new(),
            home: Home::Private,
            settings,
        }
    }

    /// The names of the variables that the agent receives from the gateway's environment.
    pub fn inherited_variables(&self) -> Option<String> {
        let names = self.inherited.as_ref()?;
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The known agent that the command runs.
    pub fn known(&self) -> Option<&'static KnownAgent> {
        match &self.launch {
            Launch::Command { command, args } => KnownAgent::find(command, args),
            Launch::Demo | Launch::Remote(_) => None,
        }
    }

    /// The registry id of an agent whose command is below the folder of installed agents.
    pub(super) fn installed_id(&self, agents: &Path) -> Option<&str> {
        let Launch::Command { command, .. } = &self.launch else {
            return None;
        };
        let below = Path::new(command).strip_prefix(agents).ok()?;
        below.iter().next()?.to_str()
    }

    /// Adds variables of the gateway's environment that the entry does not set.
    pub(super) fn inherit<'a>(
        &mut self,
        known: &'static KnownAgent,
        variables: impl Iterator<Item = (&'static str, &'a str)>,
    ) {
        let mut inherited = Vec::new();
        for (name, value) in variables {
            if !self.env.contains_key(name) {
                let hidden = known.secrets.contains(&name);
                let value = inherited_variable(name, value, hidden);
                self.env.insert(name.to_owned(), value);
                inherited.push(name);
            }
        }
        self.inherited = Some(inherited);
    }
}

/// An agent that is not a child process of the gateway: the gateway connects to its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub url: Uri,
    pub headers: BTreeMap<String, Secret>,
    /// The value of `Authorization: Bearer`.
    pub token: Option<Secret>,
    pub ca_file: Option<CaFile>,
    pub folders: Vec<String>,
    pub insecure_http: bool,
}

pub(super) fn read_remote(section: &mut Section, url: &Field) -> Result<Remote, ConfigError> {
    let insecure_http = section
        .take("insecure_http")
        .map_or(Ok(false), |field| field.boolean())?;
    let token = section.take("token").map(read_token).transpose()?;
    let headers = section
        .take("headers")
        .map_or(Ok(BTreeMap::new()), secret::read_headers)?;
    if token.is_some()
        && headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
    {
        return Err(
            section.invalid("has both token and the header Authorization; remove one of them")
        );
    }
    let Some(folders) = section.take("remote_folders") else {
        return Err(section.invalid(
            "needs remote_folders, the absolute folders of the agent's host in which sessions may work",
        ));
    };
    Ok(Remote {
        url: read_url(url, insecure_http)?,
        headers,
        token,
        ca_file: section
            .take("ca_file")
            .map(|field| settings::read_ca_file(&field))
            .transpose()?,
        folders: read_folders(folders)?,
        insecure_http,
    })
}

fn read_token(field: Field) -> Result<Secret, ConfigError> {
    let invalid = field.invalid("must have only visible ASCII characters");
    let token = Secret::read(field)?;
    let is_valid =
        !token.expose().is_empty() && token.expose().bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(token) } else { Err(invalid) }
}

fn read_folders(field: Field) -> Result<Vec<String>, ConfigError> {
    let wrong = field.invalid("needs at least one folder");
    let folders = field.each(|item| {
        let folder = item.string()?;
        let is_absolute =
            folder.starts_with('/') && !folder.split('/').any(|part| matches!(part, "." | ".."));
        if is_absolute {
            Ok(folder.to_owned())
        } else {
            Err(item.invalid("must be an absolute path without . and .."))
        }
    })?;
    if folders.is_empty() {
        Err(wrong)
    } else {
        Ok(folders)
    }
}

fn read_url(field: &Field, insecure_http: bool) -> Result<Uri, ConfigError> {
    let text = field.string()?;
    if text.contains('@') {
        return Err(field.invalid("must not contain credentials: use token or headers"));
    }
    let invalid =
        || field.invalid("not a URL such as https://HOST/acp or wss://HOST/acp, without a query");
    let url: Uri = text.parse().map_err(|_| invalid())?;
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    if !has_host || url.query().is_some() || text.contains('#') {
        return Err(invalid());
    }
    url_port(&url).map_err(|error| field.invalid(error.to_string()))?;
    match url.scheme_str() {
        Some("wss" | "https") => Ok(url),
        Some("ws" | "http") if insecure_http || is_loopback_url(&url) => Ok(url),
        Some("ws" | "http") => Err(field.invalid(
            "sends everything unencrypted to another host: use https:// or wss://, or set insecure_http = true",
        )),
        _ => Err(invalid()),
    }
}

/// The values for `check`, without secrets. A value that is not set is empty.
pub(super) fn shown_remote(remote: &Remote) -> [(&'static str, String); 5] {
    let token = remote
        .token
        .as_ref()
        .map_or(String::new(), |token| token.shown().to_owned());
    let ca_file = remote
        .ca_file
        .as_ref()
        .map(|file| super::toml_text::quoted(&file.path.to_string_lossy()));
    [
        ("token", token),
        ("headers", secret::show_all(&remote.headers)),
        ("ca_file", ca_file.unwrap_or_default()),
        ("remote_folders", (strings().show)(&remote.folders)),
        ("insecure_http", remote.insecure_http.to_string()),
    ]
}

/// The keys of an agent's entry, except those of its launch: `builtin`, `command` and `args`, or `url` with the keys of
/// [`Remote`].
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
        /// Whether the agent sends its telemetry (OTLP) to the gateway, which forwards it to telemetry.otlp_endpoint.
        telemetry: switch => settings.telemetry;
        /// The protocol of the agent: "acp", "stream-json" for the Claude Code CLI, or "early-acp" for agents older than ACP.
        dialect: word => settings.dialect;
        /// The version of ACP that the gateway requests: 1 or 2.
        protocol: protocol => settings.protocol;
        /// The level of isolation of the agent: "off", "private", "workspace", or "strict" with `isolation_command`.
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

pub(super) fn read(field: Field) -> Result<Agent, ConfigError> {
    let mut section = field.section()?;
    let launch = read_launch(&mut section)?;
    let has_launch = launch.is_some();
    // The defaults of some keys depend on the agent.
    let mut agent = Agent::new(launch.unwrap_or(Launch::Demo));
    let is_child = agent.launch.is_child();
    if !is_child {
        reject_keys_of_children(&mut section)?;
    }
    read_keys(&mut section, KEYS, &mut agent)?;
    if !is_child
        && [agent.settings.files, agent.settings.terminals].contains(&ToolProvider::Gateway)
    {
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
    let set = |name: &&String| name.starts_with(TELEMETRY_VARIABLES);
    if agent.settings.telemetry
        && let Some(name) = agent.env.keys().find(set)
    {
        return Err(section.invalid(format!(
            "telemetry = true sets the variables {TELEMETRY_VARIABLES}*: remove {name} from env, or remove telemetry"
        )));
    }
    if !has_launch {
        return Err(section.missing("command` or `url"));
    }
    section.finish()?;
    Ok(agent)
}

/// The start of the variables that name the receiver of telemetry, with a token.
const TELEMETRY_VARIABLES: &str = "OTEL_EXPORTER_OTLP_";

/// The keys that describe a child process.
pub(super) const KEYS_OF_CHILDREN: [&str; 10] = [
    "env",
    "home",
    "terminal_auth",
    "telemetry",
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
    let builtin = section.take("builtin");
    let command = section.take("command");
    let args = section.take("args");
    if let Some(url) = section.take("url") {
        if builtin.is_some() || command.is_some() || args.is_some() {
            return Err(section.invalid("url cannot be combined with builtin, command or args"));
        }
        return Ok(Some(Launch::Remote(Box::new(read_remote(section, &url)?))));
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

/// A name that ends in `*` matches all methods with this prefix.
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

fn tool_kinds() -> Kind<Vec<String>> {
    let read = |field: Field| {
        field.each(|item| item.choice(&tool_kind::ALL.map(|kind| (kind, kind.to_owned()))))
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
    let mut section = field.section()?;
    let mut pool = PoolSettings::default();
    let min_idle = section.take("min_idle");
    let reserved = section.take("reserved");
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

/// Returns the default agents. `on_path` returns true if a program exists; no program runs. Commands on PATH
/// are included only if `search` is true.
pub(super) fn default_agents(
    search: bool,
    on_path: &dyn Fn(&str) -> bool,
    environment: &Environment,
) -> BTreeMap<AgentName, Agent> {
    let name = |name: &str| {
        name.parse::<AgentName>()
            .expect("the names in the table are valid agent names")
    };
    let mut agents = BTreeMap::from([(name(DEMO_NAME), Agent::new(Launch::Demo))]);
    if search {
        let found = KNOWN.iter().filter_map(|known| {
            let command = known.commands.iter().find(|command| on_path(command))?;
            Some((
                name(known.name),
                discovered_agent(known, command, environment),
            ))
        });
        agents.extend(found);
    }
    agents
}

fn discovered_agent(known: &'static KnownAgent, command: &str, environment: &Environment) -> Agent {
    let args = known.args.iter().map(|arg| (*arg).to_owned()).collect();
    let mut agent = Agent::new(Launch::Command {
        command: command.to_owned(),
        args,
    });
    agent.discovered = true;
    // The agent's sign-ins are in the operator's home directory. The operator did not configure the agent, so
    // no process starts ahead of a request.
    agent.home = Home::User;
    agent.settings.pool.min_idle = 0;
    agent.inherit(known, variables_of(known, environment));
    agent
}

/// The variables of a known agent with a value in the environment.
pub fn variables_of<'a>(
    known: &'static KnownAgent,
    environment: &'a Environment,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    with_values(known.secrets.iter().chain(&known.settings), environment)
}

/// The variables that an installed agent receives: of the secrets only those that the page names before the installation.
pub fn variables_of_installed<'a>(
    known: &'static KnownAgent,
    environment: &'a Environment,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let names = known.suggested_variables.iter().chain(&known.settings);
    with_values(names, environment)
}

fn with_values(
    names: impl Iterator<Item = &'static &'static str>,
    environment: &Environment,
) -> impl Iterator<Item = (&'static str, &str)> {
    names.filter_map(|name| {
        let value = environment.get(name)?.to_str()?;
        (!value.is_empty()).then_some((*name, value))
    })
}

/// Reads a variable of the gateway's environment. A URL with user information may contain a password and
/// counts as a secret.
fn inherited_variable(name: &str, value: &str, secret: bool) -> Secret {
    let hidden = secret || (value.contains("://") && value.contains('@'));
    Secret::from_variable(name, value, hidden)
}
