//! `check`: prints the effective configuration, and tests the command of each agent.

use rustix::process::geteuid;

use super::failure::Failure;
use super::folder::{RemovedFolder, create_private};
use super::output;
use super::source::ConfigSource;
use super::startup::starts_no_agents;
use crate::app;
use crate::config::{self, Config, Flags, Launch, McpServer, Shown};
use crate::process::{self, NO_ROOT_AGENTS};
use crate::shutdown::Shutdown;
use crate::types::random_uuid;

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
    } else if config.isolation.run_as.is_none() {
        let failed = failed_commands(&config)?;
        config.warnings.extend(failed);
    }
    let shown = if all { Shown::All } else { Shown::Set };
    Ok(output::write_stdout(
        config::show(&config, shown).as_bytes(),
    )?)
}

/// Returns a warning for each agent whose command does not start in the isolation of its entry.
fn failed_commands(config: &Config) -> Result<Vec<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let scratch = std::env::temp_dir().join(format!("acp-gateway-check-{}", random_uuid()));
    create_private(&scratch.join("home"))?;
    let _removed = RemovedFolder(scratch.clone());
    let shutdown = Shutdown::new();
    Ok(runtime.block_on(app::failed_commands(config, &shutdown, &scratch))?)
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
