//! `check`: prints the effective configuration, and tests the command of each agent. `healthcheck`: sends GET /readyz.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::geteuid;

use super::link::connect_address;
use super::output::{self, Failure, multi_thread_runtime, private_folder};
use super::source::{ConfigSource, local_config};
use super::startup::starts_no_agents;

use crate::app;
use crate::config::{self, Config, Environment, Flags, Launch, McpServer, Shown};
use base::shutdown::Shutdown;
use base::types::text::strip_controls;
use children::NO_ROOT_AGENTS;

pub(super) fn run(flags: &Flags, all: bool, sample: bool, json: bool) -> Result<(), Failure> {
    if sample {
        return Ok(output::write_stdout(config::sample())?);
    }
    let mut config = ConfigSource::new(flags, Environment::from_process()).load()?;
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
    } else if config.isolation.run_as.is_none() || geteuid().is_root() {
        let failed = failed_commands(&config)?;
        config.warnings.extend(failed);
    }
    let shown = if all { Shown::All } else { Shown::Set };
    output::write_result(&config::show(&config, shown), json)
}

fn failed_commands(config: &Config) -> Result<Vec<String>, Failure> {
    let runtime = multi_thread_runtime()?;
    let scratch = private_folder("acp-gateway-check-", &std::env::temp_dir())?;
    let shutdown = Shutdown::new();
    Ok(runtime.block_on(app::failed_commands(config, &shutdown, scratch.path()))?)
}

/// Returns a warning for each agent and MCP server whose command is not found. All others still work, so it is no
/// error.
fn unresolved_commands(config: &Config) -> Vec<String> {
    let path = children::trusted_path(&config.child_environment.path);
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
        let error = children::resolve(command.as_ref(), &path).err()?;
        Some(format!("{key}.command: {command}: {error}"))
    };
    agents.chain(servers).filter_map(warning).collect()
}

const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error("no response from {0}")]
    Unreachable(SocketAddr, #[source] std::io::Error),
    #[error("not ready: {0}")]
    NotReady(String),
}

pub(super) fn healthcheck(flags: &Flags) -> Result<(), Failure> {
    let address = connect_address(local_config(flags)?.listen.address);
    let status = request_readyz(address);
    let status = status.map_err(|error| HealthError::Unreachable(address, error))?;
    match status.split_whitespace().nth(1) {
        Some("200") => Ok(()),
        _ => Err(HealthError::NotReady(strip_controls(status.trim_end()).into_owned()).into()),
    }
}

fn request_readyz(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut line = Vec::new();
    BufReader::new(stream.take(256)).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}
