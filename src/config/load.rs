//! Converts the tree of values to the validated `Config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::agent::Agent;
use super::environment::{ChildEnvironment, Environment};
use super::error::ConfigError;
use super::layers::{Flags, merge_layers};
use super::listen::{self, Listen};
use super::node::{Node, Origin, Value};
use super::section::Field;
use super::{Config, DataDir, Workspaces, admin_key, known_agents, limits, mcp, origin};
use crate::types::{AgentName, Limits};

/// Reads and validates the whole configuration for the gateway. `on_path` returns true if a program with this
/// name exists; it is used if no agent is configured.
pub fn load(
    flags: &Flags,
    environment: &Environment,
    on_path: &dyn Fn(&str) -> bool,
) -> Result<Config, ConfigError> {
    let mut config = read(flags, environment, on_path)?;
    check_exposure(&mut config)?;
    Ok(config)
}

/// The configuration of a command that runs next to a gateway: its address, data directory and limits. Agents
/// and servers are not read. Thus the command loads no secrets, and secrets that it does not need may be
/// absent.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    pub listen: Listen,
    pub data: DataDir,
    pub limits: Limits,
}

/// Reads the configuration of a command that runs next to a gateway.
pub fn load_local(flags: &Flags, environment: &Environment) -> Result<LocalConfig, ConfigError> {
    let mut root = Field::new("", merge_layers(flags, environment)?).section()?;
    let data = read_data(root.take("data"), environment)?;
    let listen = read_listen(root.take("listen"))?;
    let limits = read_limits(root.take("limits"))?;
    Ok(LocalConfig { listen, data, limits })
}

fn read(
    flags: &Flags,
    environment: &Environment,
    on_path: &dyn Fn(&str) -> bool,
) -> Result<Config, ConfigError> {
    let tree = merge_layers(flags, environment)?;
    let mut origins = BTreeMap::new();
    tree.origins("", &mut origins);
    let mut root = Field::new("", tree).section()?;

    let data = read_data(root.take("data"), environment)?;
    let listen = read_listen(root.take("listen"))?;
    let public_url = root.take("public_url").map(|field| origin::read_public_url(&field)).transpose()?;
    let allowed_origins = parse_each(root.take("allowed_origins"), origin::read)?;
    let behind_proxy = parse_each(root.take("behind_proxy"), Field::parse)?;
    let insecure_http = root.take("insecure_http").map_or(Ok(false), |field| field.boolean())?;
    let workspaces = read_workspaces(root.take("workspaces"), flags, &data)?;
    let mut mcp = BTreeMap::new();
    for (name, field) in root.take("mcp").map_or(Ok(Vec::new()), Field::entries)? {
        name.parse::<AgentName>().map_err(|_| field.invalid("a server's name has 1 to 64 characters of a-z, 0-9, '_' and '-', and begins with a letter or a digit"))?;
        mcp.insert(name, mcp::read(field, environment)?);
    }
    let mut agents = BTreeMap::new();
    for (name, field) in root.take("agents").map_or(Ok(Vec::new()), Field::entries)? {
        let name = name.parse::<AgentName>().map_err(|error| field.invalid(error.to_string()))?;
        agents.insert(name, Agent::read(field, environment)?);
    }
    if agents.is_empty() {
        agents = known_agents::default_agents(!listen.is_exposed(), on_path, environment);
    }
    let limits = read_limits(root.take("limits"))?;
    let log = root.take("log").map(|field| field.string().map(str::to_owned)).transpose()?;
    root.finish()?;

    Ok(Config {
        listen,
        data,
        public_url,
        allowed_origins,
        behind_proxy,
        insecure_http,
        workspaces,
        mcp,
        agents,
        limits,
        admin_key: admin_key::read(environment)?,
        log,
        child_environment: ChildEnvironment::from_environment(environment),
        warnings: Vec::new(),
        origins,
    })
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
    if !config.behind_proxy.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "{address} is reachable from other machines, and the gateway itself has no TLS: configure the TLS proxy with \
         behind_proxy = [\"10.0.0.1\"], or use --insecure-http to send keys unencrypted"
    );
    let origin = config.origins.get("listen").cloned().unwrap_or(Origin::Default);
    Err(ConfigError::Invalid { origin, key: "listen".to_owned(), reason })
}

fn read_listen(field: Option<Field>) -> Result<Listen, ConfigError> {
    field.map_or(Ok(Listen::default()), |field| listen::read(&field))
}

fn read_limits(field: Option<Field>) -> Result<Limits, ConfigError> {
    field.map_or(Ok(Limits::default()), |field| limits::read(field.section()?))
}

fn read_data(field: Option<Field>, environment: &Environment) -> Result<DataDir, ConfigError> {
    match field {
        Some(field) => Ok(DataDir::new(read_folder(&field)?)),
        None => default_data(environment),
    }
}

fn default_data(environment: &Environment) -> Result<DataDir, ConfigError> {
    let folder = environment
        .folder("XDG_DATA_HOME")
        .or_else(|| environment.folder("HOME").map(|home| home.join(".local/share")));
    folder.map(|folder| DataDir::new(folder.join("acp-gateway"))).ok_or(ConfigError::NoDataFolder)
}

fn read_workspaces(field: Option<Field>, flags: &Flags, data: &DataDir) -> Result<Workspaces, ConfigError> {
    let mut workspaces = Workspaces { root: data.workspaces(), allow: Vec::new() };
    if let Some(field) = field {
        let mut section = field.section()?;
        if let Some(root) = section.take("root") {
            workspaces.root = read_folder(&root)?;
        }
        workspaces.allow = parse_each(section.take("allow"), read_existing_folder)?;
        section.finish()?;
    }
    for path in &flags.workspaces {
        let node = Node { value: Value::String(path_text(path)?), origin: Origin::Flag("--workspace") };
        workspaces.allow.push(read_existing_folder(&Field::new("workspaces.allow", node))?);
    }
    Ok(workspaces)
}

fn parse_each<T>(
    field: Option<Field>,
    read: impl Fn(&Field) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    field.map_or(Ok(Vec::new()), Field::list)?.iter().map(read).collect()
}

/// Reads a directory. A file requires an absolute path; a path on the command line is relative to the current
/// directory.
fn read_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = Path::new(field.string()?);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    if matches!(field.origin(), Origin::File { .. }) || path.as_os_str().is_empty() {
        return Err(field.invalid("must be an absolute path"));
    }
    std::path::absolute(path).map_err(|error| field.invalid(error.to_string()))
}

fn read_existing_folder(field: &Field) -> Result<PathBuf, ConfigError> {
    let path = read_folder(field)?;
    if path.is_dir() {
        Ok(path)
    } else {
        Err(field.invalid(format!("{} is not a directory", path.display())))
    }
}

fn path_text(path: &Path) -> Result<String, ConfigError> {
    path.to_str().map(str::to_owned).ok_or_else(|| ConfigError::Invalid {
        origin: Origin::Flag("--workspace"),
        key: "workspaces.allow".to_owned(),
        reason: "not UTF-8".to_owned(),
    })
}
