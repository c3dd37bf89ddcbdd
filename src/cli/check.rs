//! `check`: prints the effective configuration.

use rustix::process::geteuid;

use super::failure::Failure;
use super::output;
use super::source::ConfigSource;
use super::startup::starts_no_agents;
use crate::config::{self, Config, Flags, Launch, McpServer, Shown};
use crate::process::{self, NO_ROOT_AGENTS};

pub(super) fn run(flags: &Flags, all: bool, sample: bool) -> Result<(), Failure> {
    if sample {
        return Ok(output::write_stdout(config::sample().as_bytes())?);
    }
    let mut config = ConfigSource::new(flags).load()?;
    if !config.errors.is_empty() {
        return Err(config.errors.join("\nacp-gateway: ").into());
    }
    let unresolved = unresolved_commands(&config);
    config.warnings.extend(unresolved);
    if config.isolation.run_as.is_some() && !geteuid().is_root() {
        let warning = "isolation.run_as: only a gateway that runs as root starts with this key";
        config.warnings.push(warning.to_owned());
    }
    if starts_no_agents(&config) {
        config.warnings.push(NO_ROOT_AGENTS.to_owned());
    }
    let shown = if all { Shown::All } else { Shown::Set };
    Ok(output::write_stdout(
        config::show(&config, shown).as_bytes(),
    )?)
}

/// Returns a warning for each agent and MCP server whose command is not found. All others still work, so it is no
/// error.
fn unresolved_commands(config: &Config) -> Vec<String> {
    let path = process::trusted_path(&config.child_environment.path);
    let agents = config
        .agents
        .iter()
        .filter_map(|(name, agent)| match &agent.launch {
            Launch::Command { command, .. } => Some((format!("agents.{name}"), command)),
            Launch::Demo | Launch::Remote(_) => None,
        });
    let servers = config.mcp.iter().filter_map(|(name, server)| match server {
        McpServer::Stdio { command, .. } => Some((format!("mcp.{name}"), command)),
        McpServer::Remote { .. } => None,
    });
    let warning = |(key, command): (String, &String)| {
        let error = process::resolve(command.as_ref(), &path).err()?;
        Some(format!("{key}.command: {command}: {error}"))
    };
    agents.chain(servers).filter_map(warning).collect()
}
