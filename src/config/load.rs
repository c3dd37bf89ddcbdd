//! Converts the tree of values to the validated `Config`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::Uri;

use super::environment::{self, ChildEnvironment, Environment};
use super::error::{ConfigError, Origin, closest};
use super::file::ConfigFile;
use super::key::Key;
use super::node::{Node, Value, parse_file, parse_text};
use super::section::{Field, Section};
use super::settings::{self, Listen};
use super::{Config, DataDir, agent, keys, mcp, roles, secret};
#[cfg(debug_assertions)]
use super::{key::read_keys, limits};
use base::types::AgentName;
use outgoing::is_loopback_url;
use wire::acp::KnownAgent;

/// Reads and validates the whole configuration for the gateway. `on_path` returns true if a program with this
/// name exists; it is used if no agent is configured.
///
/// An error in the entry of an agent or an MCP server becomes a text in [`Config::errors`], because one missing variable must
/// not stop the other agents.
pub fn load(
    flags: &Flags,
    environment: &Environment,
    on_path: &dyn Fn(&str) -> bool,
) -> Result<Config, ConfigError> {
    let (file, tree) = merge_layers(flags, environment)?;
    let mut origins = BTreeMap::new();
    tree.origins("", &mut origins);
    let mut root = Field::new("", tree, environment).section()?;

    let mut config = read_settings(&mut root, environment, |_| true)?;
    config.origins = origins;
    add_workspaces(&mut config, flags, environment)?;
    for root in std::iter::once(&config.workspaces.root).chain(&config.workspaces.allow) {
        file.check_outside(root)?;
    }
    config.file = file;
    for (name, field) in root.take("mcp").map_or(Ok(Vec::new()), Field::entries)? {
        name.parse::<AgentName>().map_err(|_| field.invalid("a server's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit"))?;
        match mcp::read(field) {
            Ok(server) => {
                config.mcp.insert(name, server);
            }
            Err(error) => {
                config.errors.push(error.to_string());
                config.invalid_servers.insert(name);
            }
        }
    }
    for (name, field) in root.take("agents").map_or(Ok(Vec::new()), Field::entries)? {
        let name = name
            .parse::<AgentName>()
            .map_err(|error| field.invalid(error.to_string()))?;
        match agent::read(field) {
            Ok(agent) => {
                config.agents.insert(name, agent);
            }
            Err(error) => {
                config.errors.push(error.to_string());
                config.invalid_agents.insert(name);
            }
        }
    }
    check_telemetry(&mut config);
    add_unconfigured(&mut config, environment, on_path);
    root.finish().map_err(keys::suggest_section)?;
    config.admin_key = secret::read_admin_key(environment)?;
    config.child_environment = ChildEnvironment::from_environment(environment);
    config.proxies = environment.proxy_variables();
    check_exposure(&mut config)?;
    check_collector(&mut config);
    Ok(config)
}

/// Adds the default agents, unless the operator has written an entry. An installation must not remove the agents that the
/// gateway offered before.
fn add_unconfigured(
    config: &mut Config,
    environment: &Environment,
    on_path: &dyn Fn(&str) -> bool,
) {
    let is_local = !config.listen.is_exposed();
    let is_personal = config.is_personal();
    // The entries of installed agents have absolute paths.
    let folder = std::path::absolute(config.data.agents());
    let folder = folder.unwrap_or_else(|_| config.data.agents());
    let mut has_own = !config.invalid_agents.is_empty();
    for agent in config.agents.values_mut() {
        let id = agent.installed_id(&folder);
        has_own |= id.is_none();
        if is_personal && let Some(known) = id.and_then(KnownAgent::of_registry) {
            agent.inherit(known, agent::variables_of_installed(known, environment));
        }
    }
    config.offers_default_agents = !has_own;
    if !has_own {
        let mut agents = agent::default_agents(is_local, on_path, environment);
        agents.append(&mut config.agents);
        config.agents = agents;
    }
}

/// Reads the configuration of a command that runs next to a gateway: its address, data directory and limits.
/// Agents and servers are not read. Thus the command loads no secrets, and secrets that it does not need may be
/// absent.
pub fn load_local(flags: &Flags, environment: &Environment) -> Result<Config, ConfigError> {
    let (file, tree) = merge_layers(flags, environment)?;
    let mut root = Field::new("", tree, environment).section()?;
    let config = read_settings(&mut root, environment, |key| key.local)?;
    file.check_outside(&config.workspaces.root)?;
    Ok(Config { file, ..config })
}

/// Reads the wanted keys of all sections except agents and MCP servers. The other values are the defaults.
fn read_settings(
    root: &mut Section,
    environment: &Environment,
    filter: impl Fn(&Key<Config>) -> bool,
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    keys::read(root, &mut config, filter)?;
    for (name, field) in root.take("roles").map_or(Ok(Vec::new()), Field::entries)? {
        config
            .roles
            .insert(name.clone(), roles::read(&name, field)?);
    }
    #[cfg(debug_assertions)]
    if let Some(field) = root.take("testing") {
        let mut section = field.section()?;
        let keys = keys::of_section(limits::TESTING);
        read_keys(&mut section, keys, &mut config)?;
        section.finish()?;
    }
    // An empty path is no valid value. Thus it marks a directory that the configuration does not set.
    let unset = PathBuf::new();
    if config.data.path() == unset {
        config.data = default_data(environment)?;
    }
    if config.workspaces.root == unset {
        config.workspaces.root = config.data.workspaces();
    }
    Ok(config)
}

/// A listener that other machines can reach requires TLS in a proxy, or an explicit opt-out.
fn check_exposure(config: &mut Config) -> Result<(), ConfigError> {
    let Listen { address, .. } = config.listen;
    if !config.listen.is_exposed() {
        return Ok(());
    }
    // With `insecure_http` the gateway accepts every client, even if a proxy is configured.
    if config.insecure_http {
        config.warnings.push(format!(
            "{address} is reachable from other machines without TLS: anyone on the network path can read and use the keys"
        ));
        return Ok(());
    }
    if !config.trusted_proxies.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "{address} is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with \
         server.trusted_proxies = [\"10.0.0.1\"], or use --insecure-http to send keys unencrypted"
    );
    let origin = config
        .origins
        .get("server.listen")
        .cloned()
        .unwrap_or(Origin::Default);
    Err(ConfigError::Invalid {
        origin,
        key: "server.listen".to_owned(),
        reason,
    })
}

fn check_collector(config: &mut Config) {
    let is_readable = |url: &Uri| url.scheme_str() == Some("http") && !is_loopback_url(url);
    if !config.otlp_headers.is_empty()
        && let Some(url) = config.otlp_endpoint.as_ref().filter(|url| is_readable(url))
    {
        config.warnings.push(format!(
            "telemetry.otlp_headers are sent to {url} without TLS: anyone on the network path can read them"
        ));
    }
}

/// The telemetry of agents goes to the collector.
fn check_telemetry(config: &mut Config) {
    if config.otlp_endpoint.is_some() {
        return;
    }
    let agents = config.agents.iter();
    let invalid = agents.filter(|(_, agent)| agent.settings.telemetry);
    let invalid: Vec<AgentName> = invalid.map(|(name, _)| name.clone()).collect();
    for name in invalid {
        let key = format!("agents.{name}.telemetry");
        let error = ConfigError::Missing {
            origin: config.origins.get(&key).cloned().unwrap_or(Origin::Default),
            key,
            missing: "telemetry.otlp_endpoint",
        };
        config.errors.push(error.to_string());
        config.agents.remove(&name);
        config.invalid_agents.insert(name);
    }
}

fn default_data(environment: &Environment) -> Result<DataDir, ConfigError> {
    let folder = environment.folder("XDG_DATA_HOME").or_else(|| {
        environment
            .folder("HOME")
            .map(|home| home.join(".local/share"))
    });
    folder
        .map(|folder| DataDir::new(folder.join("acp-gateway")))
        .ok_or(ConfigError::NoDataFolder)
}

fn add_workspaces(
    config: &mut Config,
    flags: &Flags,
    environment: &Environment,
) -> Result<(), ConfigError> {
    for path in &flags.workspaces {
        let origin = Origin::Flag("--workspace");
        let node = Node {
            value: Value::String(path_text(path, "--workspace", "workspaces.allow")?),
            origin: origin.clone(),
        };
        let folder =
            settings::read_existing_folder(&Field::new("workspaces.allow", node, environment))?;
        config.workspaces.allow.push(folder);
        config
            .origins
            .entry("workspaces.allow".to_owned())
            .or_insert(origin);
    }
    Ok(())
}

// The flags of all subcommands. (A doc comment would replace the help text of the program.)
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Flags {
    /// The configuration file (TOML) [default: the first of ./acp-gateway.toml,
    /// ~/.config/acp-gateway/acp-gateway.toml and /etc/acp-gateway/acp-gateway.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The folder for the log, keys, workspaces and homes of agents [default: ~/.local/share/acp-gateway]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The address to listen on [default: 127.0.0.1:8080 or the next free port]
    #[arg(long, global = true, value_name = "ADDR")]
    pub listen: Option<String>,
    /// A folder in which sessions may work, in addition to the workspaces in the data folder; repeatable
    #[arg(long = "workspace", global = true, value_name = "DIR")]
    pub workspaces: Vec<PathBuf>,
    /// Listen on a non-loopback address without TLS; anyone who can read the traffic can use the keys
    #[arg(long, global = true)]
    pub insecure_http: bool,
    /// Print the link with a key also if a journal, the log of a container or a file records the output
    #[arg(long, global = true)]
    pub print_link: bool,
}

impl Flags {
    pub fn to_args(&self) -> Vec<OsString> {
        let Self {
            config,
            data,
            listen,
            workspaces,
            insecure_http,
            print_link,
        } = self;
        let paths = [("--config", config), ("--data", data)];
        let paths = paths
            .into_iter()
            .filter_map(|(flag, path)| Some((flag, path.as_deref()?.as_os_str())));
        let listen = listen.iter().map(|listen| ("--listen", listen.as_ref()));
        let workspaces = workspaces
            .iter()
            .map(|folder| ("--workspace", folder.as_os_str()));
        let pairs = paths.chain(listen).chain(workspaces);
        let mut args: Vec<OsString> = pairs
            .flat_map(|(flag, value)| [OsStr::new(flag).to_owned(), value.to_owned()])
            .collect();
        args.extend(insecure_http.then(|| "--insecure-http".into()));
        args.extend(print_link.then(|| "--print-link".into()));
        args
    }
}

/// The prefix of variables for keys of the file: `ACP_GATEWAY__SECTION__NAME`.
const KEY_PREFIX: &str = "ACP_GATEWAY__";
const VARIABLE_PREFIX: &str = "ACP_GATEWAY_";
const LOG_FILTER: &str = "telemetry.log_filter";
/// Variables with a short name, and their keys.
const SHORT_VARIABLES: [(&str, &str); 3] = [
    ("ACP_GATEWAY_DATA", "server.data_dir"),
    ("ACP_GATEWAY_LISTEN", "server.listen"),
    ("ACP_GATEWAY_LOG", LOG_FILTER),
];
/// Variables of other conventions, and their keys.
const FOREIGN_VARIABLES: [(&str, &str); 2] = [
    ("RUST_LOG", LOG_FILTER),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.otlp_endpoint"),
];
/// Variables that set no key.
const OTHER_VARIABLES: [&str; 4] = [
    environment::CONFIG_VARIABLE,
    secret::ADMIN_KEY_FILE_VARIABLE,
    secret::ADMIN_KEY_HASH_VARIABLE,
    environment::CLIENT_KEY_VARIABLE,
];
/// The prefixes of the variables that Kubernetes sets for a service named `acp-gateway`.
const SERVICE_LINKS: [&str; 2] = ["ACP_GATEWAY_SERVICE_", "ACP_GATEWAY_PORT"];

/// Merges all layers, and returns the tree with the file that was read. Flags that set a key of the file become part of the
/// tree. `--workspace` adds to the file's list and is read separately.
fn merge_layers(
    flags: &Flags,
    environment: &Environment,
) -> Result<(ConfigFile, Node), ConfigError> {
    let mut tree = Node::table(Origin::Default);
    let (file, text) = ConfigFile::read(flags.config.as_deref(), environment)?;
    if let (Some(path), Some(text)) = (&file.path, text) {
        tree.merge(parse_file(&text, path)?);
    }
    tree.merge(from_environment(environment)?);
    tree.merge(from_flags(flags)?);
    Ok((file, tree))
}

fn from_flags(flags: &Flags) -> Result<Node, ConfigError> {
    let data = flags
        .data
        .as_deref()
        .map(|data| path_text(data, "--data", "server.data_dir"));
    let data = data.transpose()?.map(Value::String);
    let listen = flags.listen.clone().map(Value::String);
    let insecure = flags.insecure_http.then_some(Value::Boolean(true));
    let mut tree = Node::table(Origin::Default);
    for (key, flag, value) in [
        ("server.data_dir", "--data", data),
        ("server.listen", "--listen", listen),
        ("server.insecure_http", "--insecure-http", insecure),
    ] {
        if let Some(value) = value {
            insert(&mut tree, &dotted(key), value, Origin::Flag(flag))?;
        }
    }
    Ok(tree)
}

pub(super) fn path_text(path: &Path, flag: &'static str, key: &str) -> Result<String, ConfigError> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| not_utf8(Origin::Flag(flag), key.to_owned()))
}

fn not_utf8(origin: Origin, key: String) -> ConfigError {
    ConfigError::Invalid {
        origin,
        key,
        reason: "not UTF-8".to_owned(),
    }
}

fn from_environment(environment: &Environment) -> Result<Node, ConfigError> {
    let mut tree = Node::table(Origin::Default);
    for (name, key) in FOREIGN_VARIABLES {
        if let Some(text) = environment.get(name).and_then(|text| text.to_str()) {
            let origin = Origin::Environment(name.into());
            insert(
                &mut tree,
                &dotted(key),
                Value::Untyped(text.to_owned()),
                origin,
            )?;
        }
    }
    for (name, value) in environment
        .iter()
        .filter(|(name, _)| name.starts_with(VARIABLE_PREFIX))
    {
        if OTHER_VARIABLES.contains(&name)
            || SERVICE_LINKS.iter().any(|link| name.starts_with(link))
        {
            continue;
        }
        let origin = Origin::Environment(Arc::from(name));
        let key = match name.strip_prefix(KEY_PREFIX) {
            Some(key) => segments(key),
            None => SHORT_VARIABLES
                .iter()
                .find(|(short, _)| *short == name)
                .map(|(_, key)| dotted(key)),
        };
        let Some(key) = key else {
            return Err(ConfigError::UnknownVariable {
                origin,
                suggestion: similar_variable(name),
            });
        };
        let Some(text) = value.to_str() else {
            return Err(not_utf8(origin, key.join(".")));
        };
        insert(&mut tree, &key, Value::Untyped(text.to_owned()), origin)?;
    }
    Ok(tree)
}

/// Returns the known variable with the most similar name. The common prefix does not count, because it would
/// make all names similar.
fn similar_variable(name: &str) -> Option<String> {
    let known = OTHER_VARIABLES
        .into_iter()
        .chain(SHORT_VARIABLES.map(|(short, _)| short));
    let endings = known.filter_map(|name| name.strip_prefix(VARIABLE_PREFIX));
    let ending = closest(name.strip_prefix(VARIABLE_PREFIX)?, endings)?;
    Some(format!("{VARIABLE_PREFIX}{ending}"))
}

/// Converts `SERVER__MAX_BODY_BYTES` to `server.max_body_bytes`. Names below `env` and `headers` keep their case.
fn segments(key: &str) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = Some(key);
    while let Some(text) = rest {
        let verbatim = names.len() == 3 && matches!(names[2].as_str(), "env" | "headers");
        let split = if verbatim {
            None
        } else {
            text.split_once("__")
        };
        let name = split.map_or(text, |(name, _)| name);
        if name.is_empty() {
            return None;
        }
        names.push(if verbatim {
            name.to_owned()
        } else {
            name.to_ascii_lowercase()
        });
        rest = split.map(|(_, after)| after);
    }
    Some(names)
}

fn dotted(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

fn insert(
    tree: &mut Node,
    key: &[String],
    value: Value,
    origin: Origin,
) -> Result<(), ConfigError> {
    let mut target = tree;
    for name in key {
        if let Value::Untyped(text) = &target.value {
            target.value =
                parse_text(text, &target.origin).unwrap_or(Value::Unsupported("a string"));
        }
        let Value::Table(entries) = &mut target.value else {
            let reason = format!("{} is not a table", target.origin);
            return Err(ConfigError::Invalid {
                origin,
                key: key.join("."),
                reason,
            });
        };
        target = entries
            .entry(name.clone())
            .or_insert_with(|| Node::table(origin.clone()));
    }
    *target = Node { value, origin };
    Ok(())
}
