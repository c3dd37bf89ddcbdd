//! Builds the catalogue from `[agents]` and `[mcp]`: resolves commands, builds environments and creates
//! homes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::{self, Config, Launch, Secret};
use agents::agent::{self, AgentSpec, Catalogue, Endpoint, RemoteEndpoint, RemoteFolders};
use base::types::{AgentName, OWN_PROGRAM, Tenant};
use wire::acp::{McpServer, McpTransport, NameValue};

#[derive(Debug, thiserror::Error)]
#[error("could not create the agent home {}", .0.display())]
pub struct HomeError(PathBuf, #[source] std::io::Error);

pub(super) fn build(config: &Config) -> Result<Catalogue, HomeError> {
    let servers = config
        .mcp
        .iter()
        .map(|(name, server)| (name.clone(), mcp_server(name, server)));
    let servers = Arc::new(servers.collect());
    let mut agents = Vec::new();
    for (name, agent) in &config.agents {
        agents.push(agent_spec(config, name, agent, &servers)?);
    }
    let invalid = config.invalid_agents.iter().cloned();
    agents.extend(invalid.map(|name| AgentSpec::invalid(name, config.data.homes())));
    Ok(Catalogue::new(agents))
}

fn agent_spec(
    config: &Config,
    name: &AgentName,
    agent: &config::Agent,
    servers: &Arc<BTreeMap<String, McpServer>>,
) -> Result<AgentSpec, HomeError> {
    let path = children::trusted_path(&config.child_environment.path);
    let endpoint = match &agent.launch {
        Launch::Remote(remote) => return Ok(remote_spec(config, name, agent, remote)),
        Launch::Demo => Endpoint::Command {
            program: OWN_PROGRAM.into(),
            args: vec!["demo-agent".into()],
        },
        Launch::Command { command, args } => {
            let found = children::resolve(command.as_ref(), &path);
            let program = found.unwrap_or_else(|error| {
                // The other agents still work. Every start of this agent reports the same error.
                tracing::warn!(agent = %name, %error, "could not resolve the command of an agent");
                PathBuf::from(command)
            });
            Endpoint::Command {
                program,
                args: args.iter().map(OsString::from).collect(),
            }
        }
    };
    let home = match user_home(config, agent) {
        Some(home) => agent::Home::User(home.clone()),
        None => agent::Home::Dedicated(config.data.homes()),
    };
    let spec = AgentSpec {
        name: name.clone(),
        known: known_agent(agent),
        title: name.to_string(),
        endpoint,
        env: variables(config, agent, path),
        secrets: masked_values(config, agent),
        mcp: Arc::clone(servers),
        home,
        settings: agent.settings.clone(),
    };
    let tenant = Tenant::default();
    let created = spec.create_home(&tenant);
    created.map_err(|error| HomeError(spec.home_of(&tenant), error))?;
    Ok(spec)
}

pub(super) fn user_home<'a>(config: &'a Config, agent: &config::Agent) -> Option<&'a PathBuf> {
    match agent.home {
        config::Home::User => config.child_environment.home.as_ref(),
        config::Home::Private => None,
    }
}

/// The environment of the agent of an entry, without `HOME`.
pub(super) fn variables(
    config: &Config,
    agent: &config::Agent,
    path: OsString,
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), path)];
    let own = &config.child_environment;
    for (name, value) in &own.shared {
        env.push((name.into(), value.clone()));
    }
    if user_home(config, agent).is_some() {
        for (name, value) in &own.user {
            env.push((name.into(), value.clone()));
        }
    }
    for (name, value) in &agent.env {
        env.push((name.into(), value.expose().into()));
    }
    env
}

/// An agent on another host. It gets no variables and no MCP servers of the configuration, because these contain secrets
/// and commands of this host.
fn remote_spec(
    config: &Config,
    name: &AgentName,
    agent: &config::Agent,
    remote: &config::Remote,
) -> AgentSpec {
    let mut headers = HeaderMap::new();
    let token = remote
        .token
        .iter()
        .map(|token| ("Authorization", format!("Bearer {}", token.expose())));
    let others = remote
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose().to_owned()));
    for (name, value) in token.chain(others) {
        // The configuration has checked the names and the values.
        if let (Ok(name), Ok(mut value)) =
            (HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    let endpoint = RemoteEndpoint {
        url: remote.url.clone(),
        headers,
        ca_certificates: remote
            .ca_file
            .as_ref()
            .map(|file| file.certificates.clone()),
        folders: RemoteFolders(remote.folders.clone()),
    };
    let secrets = remote
        .token
        .iter()
        .chain(remote.headers.values())
        .filter(|value| value.is_hidden());
    AgentSpec {
        name: name.clone(),
        known: None,
        title: name.to_string(),
        endpoint: Endpoint::Remote(Arc::new(endpoint)),
        env: Vec::new(),
        secrets: secrets.flat_map(masked_forms).collect(),
        mcp: Arc::default(),
        home: agent::Home::Dedicated(config.data.homes()),
        settings: agent.settings.clone(),
    }
}

fn known_agent(agent: &config::Agent) -> Option<agent::Known> {
    Some(agent::Known {
        row: agent.known()?,
        inherits: agent.inherited.is_some(),
    })
}

/// The secrets to mask in an agent's stderr: those of its environment and of every MCP server, because any of
/// its sessions can use any MCP server. A plain string in the configuration file is not a secret.
pub(super) fn masked_values(config: &Config, agent: &config::Agent) -> Vec<String> {
    let servers = config.mcp.values().flat_map(|server| match server {
        config::McpServer::Remote { headers, .. } => headers.values(),
        config::McpServer::Stdio { env, .. } => env.values(),
    });
    let hidden = agent
        .env
        .values()
        .chain(servers)
        .filter(|value| value.is_hidden());
    hidden.flat_map(masked_forms).collect()
}

/// The value, and the token in it: the value of a header is `Bearer TOKEN`, but a program may print only the token.
fn masked_forms(secret: &Secret) -> Vec<String> {
    let value = secret.expose();
    let bare = match value.split_once(' ') {
        Some(("Bearer" | "Basic" | "Token", credentials)) => Some(credentials.trim().to_owned()),
        _ => None,
    };
    std::iter::once(value.to_owned()).chain(bare).collect()
}

fn mcp_server(name: &str, server: &config::McpServer) -> McpServer {
    let name = name.to_owned();
    let pairs = |pairs: &BTreeMap<String, Secret>| -> Vec<NameValue> {
        pairs
            .iter()
            .map(|(n, v)| NameValue {
                name: n.clone(),
                value: v.expose().to_owned(),
            })
            .collect()
    };
    match server {
        config::McpServer::Remote { sse, url, headers } => McpServer::Remote {
            transport: if *sse {
                McpTransport::Sse
            } else {
                McpTransport::Http
            },
            name,
            url: url.clone(),
            headers: pairs(headers),
        },
        config::McpServer::Stdio { command, args, env } => McpServer::Stdio {
            transport: None,
            name,
            command: command.clone(),
            args: args.clone(),
            env: pairs(env),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_values_of_all_mcp_servers_are_masked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let text = "[agents.a]\ncommand = \"a\"\nenv = { A = { from_env = \"OWN\" }, B = \"plain\" }\n\
            [mcp.docs]\nurl = \"https://mcp.example\"\nheaders = { Authorization = { from_env = \"HEADER\" } }\n\
            [mcp.local]\ncommand = \"mcp\"\nenv = { C = { from_env = \"LOCAL\" }, D = \"plain too\" }\n";
        std::fs::write(&file, text).unwrap();
        let variables = [
            ("OWN", "own-1"),
            ("HEADER", "Bearer remote-2"),
            ("LOCAL", "local 3"),
            ("HOME", "/"),
        ];
        let flags = config::Flags {
            config: Some(file),
            ..config::Flags::default()
        };
        let config = config::load(&flags, &variables.into_iter().collect(), &|_| false).unwrap();
        let secrets = masked_values(&config, &config.agents[&"a".parse().unwrap()]);
        assert_eq!(secrets, ["own-1", "Bearer remote-2", "remote-2", "local 3"]);
    }
}
