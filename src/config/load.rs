//! Converts the tree of values to the validated `Config`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::environment::{ChildEnvironment, Environment};
use super::error::ConfigError;
use super::key::Key;
use super::layers::{Flags, merge_layers, path_text};
use super::listen::Listen;
use super::node::{Node, Value};
use super::origin::Origin;
use super::section::{Field, Section};
use super::{Config, DataDir, admin_key, agent_keys, keys, known_agents, mcp, settings};
#[cfg(debug_assertions)]
use super::{key::read_keys, limits};
use crate::types::AgentName;

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
    let tree = merge_layers(flags, environment)?;
    let mut origins = BTreeMap::new();
    tree.origins("", &mut origins);
    let mut root = Field::new("", tree, environment).section()?;

    let mut config = read_settings(&mut root, environment, |_| true)?;
    config.origins = origins;
    add_workspaces(&mut config, flags, environment)?;
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
        match agent_keys::read(field) {
            Ok(agent) => {
                config.agents.insert(name, agent);
            }
            Err(error) => {
                config.errors.push(error.to_string());
                config.invalid_agents.insert(name);
            }
        }
    }
    if config.agents.is_empty() && config.invalid_agents.is_empty() {
        config.agents =
            known_agents::default_agents(!config.listen.is_exposed(), on_path, environment);
    }
    root.finish().map_err(keys::suggest_section)?;
    config.admin_key = admin_key::read(environment)?;
    config.child_environment = ChildEnvironment::from_environment(environment);
    config.proxies = environment.proxy_variables();
    check_exposure(&mut config)?;
    Ok(config)
}

/// Reads the configuration of a command that runs next to a gateway: its address, data directory and limits.
/// Agents and servers are not read. Thus the command loads no secrets, and secrets that it does not need may be
/// absent.
pub fn load_local(flags: &Flags, environment: &Environment) -> Result<Config, ConfigError> {
    let mut root = Field::new("", merge_layers(flags, environment)?, environment).section()?;
    read_settings(&mut root, environment, |key| key.local)
}

/// Reads the wanted keys of all sections except agents and MCP servers. The other values are the defaults.
fn read_settings(
    root: &mut Section,
    environment: &Environment,
    filter: impl Fn(&Key<Config>) -> bool,
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    keys::read(root, &mut config, filter)?;
    #[cfg(debug_assertions)]
    if let Some(field) = root.take("testing") {
        let mut section = field.section()?;
        read_keys(&mut section, limits::TESTING, &mut config.limits)?;
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

/// Adds the directories of the command line.
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
