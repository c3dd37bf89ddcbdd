//! The composition root: `Config` becomes what each module takes, from the store up to the router.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acp::{McpServer, McpTransport, NameValue};
use crate::agent::{self, AgentSpec, Catalogue, Launcher};
use crate::auth::{KeyHash, KeyText, Keys, Policy, PolicyOptions, Tickets};
use crate::config::{self, Config, DataDir, Launch, Secret};
use crate::eventlog::EventLog;
use crate::http;
use crate::pool::Pool;
use crate::process::{self, Spawner};
use crate::session::{Context, SessionRegistry, Workspaces};
use crate::shutdown::Shutdown;
use crate::store::{EventStore, SqliteStore};
use crate::types::{AgentName, Ids, Limits, Tenant};

/// How long the keepers of an earlier life have to end before the gateway opens.
const SWEEP: Duration = Duration::from_secs(5);
/// The file that runs as this process. A path on disk could lead to another version by the time that it is wanted.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// What a drain may take beyond its own limits, for commits and connections.
const SLACK: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the log cannot be opened")]
    Store(#[from] crate::store::OpenError),
    #[error(transparent)]
    Keys(#[from] crate::auth::KeyStoreError),
    #[error(transparent)]
    Tickets(#[from] crate::auth::TicketStoreError),
    #[error(transparent)]
    Log(#[from] crate::eventlog::StartError),
    #[error("the sessions cannot be read from the log; the gateway's log says why")]
    Sessions(#[from] crate::session::Refusal),
    #[error("a workspace root cannot be used")]
    Workspaces(#[source] std::io::Error),
    #[error("{} cannot be made", path.display())]
    Home { path: PathBuf, source: std::io::Error },
    #[error("the listener cannot be used")]
    Listener(#[source] std::io::Error),
}

/// The log failed, and the gateway must not go on.
#[derive(Debug, thiserror::Error)]
#[error("the log failed: {0}")]
pub struct Fatal(String);

/// A gateway that accepts connections.
#[derive(Debug)]
pub struct Gateway {
    link_key: Option<KeyText>,
    shutdown: Shutdown,
    limits: Arc<Limits>,
    log: EventLog,
    fatal: oneshot::Receiver<String>,
}

/// The store in a data folder.
pub fn open_store(data: &DataDir, limits: &Limits, ids: &Ids) -> Result<Arc<dyn EventStore>, StartError> {
    Ok(Arc::new(SqliteStore::open(&data.log(), ids.clone(), limits)?))
}

/// Builds everything and accepts connections. The data folder is the caller's: laid out and locked.
pub async fn start(config: Config, listener: TcpListener, shutdown: Shutdown) -> Result<Gateway, StartError> {
    let (ids, limits) = (Ids::system(), Arc::new(config.limits.clone()));
    let run_dir = config.data.run();
    let swept = shutdown.spawn_blocking(move || process::sweep(&run_dir, SWEEP)).await;
    if let Ok(Ok(swept @ 1..)) = swept {
        tracing::warn!(swept, "ended agents that an earlier gateway had left behind");
    }
    let store = open_store(&config.data, &limits, &ids)?;
    let admin = config.admin_key.map(KeyHash::from_bytes);
    let keys = Keys::open(Arc::clone(&store), ids.clone(), &limits, admin)?;
    let link_key = if admin.is_none() { Some(keys.mint_link()?) } else { None };
    shutdown.spawn(keys.clone().follow(shutdown.clone()));
    let tickets = Tickets::open(Arc::clone(&store), ids.clone(), &limits, &keys)?;
    shutdown.spawn(tickets.clone().follow(shutdown.clone()));
    let (failed, fatal) = oneshot::channel();
    let on_fatal = Box::new(move |reason: &str| drop(failed.send(reason.to_owned())));
    let log = EventLog::start(store, ids.clone(), Arc::clone(&limits), shutdown.clone(), on_fatal)?;

    let catalogue = Arc::new(catalogue(&config)?);
    let spawner = Spawner::new(OWN_PROGRAM.into(), config.data.run(), shutdown.clone(), Arc::clone(&limits));
    let launcher = Launcher::new(spawner, Arc::clone(&limits), shutdown.clone(), env!("CARGO_PKG_VERSION"));
    let pool = Pool::start(&catalogue, launcher, Arc::clone(&limits), &shutdown);
    let workspaces = Workspaces::new(&config.workspaces.root, &config.workspaces.allow);
    let workspaces = workspaces.map_err(StartError::Workspaces)?;
    let parts = (ids.clone(), Arc::clone(&limits), shutdown.clone());
    let context = Context::new(log.clone(), pool.clone(), Arc::clone(&catalogue), workspaces, parts);
    let sessions = SessionRegistry::start(context).await?;

    let bound = listener.local_addr().map_err(StartError::Listener)?;
    let policy = Arc::new(Policy::new(&policy_options(&config, bound), keys, tickets.clone(), &limits));
    let router = http::router(http::Gateway::new(http::GatewayParts {
        sessions,
        pool,
        catalogue,
        policy,
        tickets,
        ids,
        log: log.clone(),
        limits: Arc::clone(&limits),
        shutdown: shutdown.clone(),
    }));
    listener.set_nonblocking(true).map_err(StartError::Listener)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::Listener)?;
    let proxies = config.behind_proxy.clone();
    let acceptor = http::Acceptor {
        limits: Arc::clone(&limits),
        // Who names no proxy and may listen nevertheless has said that the way is safe, or listens to this machine.
        only_proxies: !proxies.is_empty() && !config.insecure_http,
        proxies,
        shutdown: shutdown.clone(),
    };
    shutdown.spawn(http::serve(listener, router, acceptor));
    Ok(Gateway { link_key, shutdown, limits, log, fatal })
}

impl Gateway {
    /// The key of this start's link; none when the operator has a key of their own.
    pub fn link_key(&self) -> Option<&KeyText> {
        self.link_key.as_ref()
    }

    /// Returns when a stop was asked for and everything has ended, or when the log has failed.
    pub async fn ended(self) -> Result<(), Fatal> {
        let Self { shutdown, limits, log, mut fatal, .. } = self;
        tokio::select! {
            () = shutdown.soft() => {}
            Ok(reason) = &mut fatal => {
                shutdown.begin();
                shutdown.abort();
                return Err(Fatal(reason));
            }
        }
        let drain = limits.drain + limits.drain_cancel + limits.drain_stdin + limits.drain_term + SLACK;
        if !shutdown.finished(drain).await {
            shutdown.abort();
            shutdown.finished(SLACK).await;
        }
        log.close().await;
        fatal.try_recv().map_or(Ok(()), |reason| Err(Fatal(reason)))
    }
}

fn policy_options(config: &Config, bound: SocketAddr) -> PolicyOptions {
    PolicyOptions {
        bound,
        public_origin: config.public_url.clone(),
        allowed_origins: config.allowed_origins.clone(),
        proxies: config.behind_proxy.clone(),
    }
}

fn catalogue(config: &Config) -> Result<Catalogue, StartError> {
    let mut agents = Vec::new();
    for (name, agent) in &config.agents {
        agents.push(spec(config, name, agent)?);
    }
    let servers: BTreeMap<_, _> =
        config.mcp.iter().map(|(name, server)| (name.clone(), mcp_server(name, server))).collect();
    Ok(Catalogue::new(agents, servers))
}

fn spec(config: &Config, name: &AgentName, agent: &config::Agent) -> Result<AgentSpec, StartError> {
    let path = process::trusted_path(&config.children.path);
    let (program, args) = match &agent.launch {
        Launch::Demo => (OWN_PROGRAM.into(), vec!["demo-agent".into()]),
        Launch::Command { command, args } => {
            let found = process::resolve(command.as_ref(), &path);
            let program = found.unwrap_or_else(|error| {
                // The other agents still work; this one says the same each time that it is wanted.
                tracing::warn!(agent = %name, %error, "an agent's command cannot be run");
                PathBuf::from(command)
            });
            (program, args.iter().map(OsString::from).collect())
        }
    };
    let mut env: Vec<(OsString, OsString)> = vec![("PATH".into(), path)];
    let inherited = |pairs: &[(String, OsString)]| -> Vec<(OsString, OsString)> {
        pairs.iter().map(|(name, value)| (name.into(), value.clone())).collect()
    };
    env.extend(inherited(&config.children.all));
    let home = match (agent.home, &config.children.home) {
        (config::Home::User, Some(home)) => {
            env.extend(inherited(&config.children.user));
            agent::Home::User(home.clone())
        }
        (config::Home::Own, _) | (config::Home::User, None) => {
            let path = config.data.homes().join(Tenant::default().as_str()).join(name.as_str());
            let made = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
                .recursive(true)
                .create(&path);
            made.map_err(|source| StartError::Home { path: path.clone(), source })?;
            agent::Home::Own(path)
        }
    };
    env.extend(agent.env.iter().map(|(name, value)| (name.into(), value.expose().into())));
    Ok(AgentSpec {
        name: name.clone(),
        title: name.to_string(),
        program,
        args,
        env,
        secrets: secrets(config, agent),
        home,
        files: agent.files,
        terminals: agent.terminals,
        meta: agent.meta.clone(),
        rpc: agent.rpc.clone(),
        terminal_auth: agent.terminal_auth,
        protocol: agent.protocol,
        permissions: agent::Permissions {
            unanswered: match agent.permissions.unanswered {
                config::Unanswered::Reject => agent::Unanswered::Reject,
                config::Unanswered::Wait => agent::Unanswered::Wait,
            },
            after: agent.permissions.after,
            allow: agent.permissions.allow.clone(),
        },
        pool: agent::PoolSpec { max: agent.pool.max, warm: agent.pool.warm, idle: agent.pool.idle },
        limits: agent::AgentLimits {
            start: agent.limits.start,
            line: agent.limits.line,
            silence: agent.limits.silence,
        },
    })
}

/// What an agent's stderr must not show: the hidden values of its own environment, and those of every MCP server, since
/// any of its sessions may be given any of them. A text that stands in the file is no secret.
fn secrets(config: &Config, agent: &config::Agent) -> Vec<String> {
    let servers = config.mcp.values().flat_map(|server| match server {
        config::McpServer::Http { headers, .. } | config::McpServer::Sse { headers, .. } => headers.values(),
        config::McpServer::Stdio { env, .. } => env.values(),
    });
    let hidden = agent.env.values().chain(servers).filter(|value| value.is_hidden()).map(Secret::expose);
    // `Bearer TOKEN` is one value of a header, and the token alone is what a program complains about.
    let bare = |value: &str| match value.split_once(' ') {
        Some(("Bearer" | "Basic" | "Token", credentials)) => Some(credentials.trim().to_owned()),
        _ => None,
    };
    hidden.flat_map(|value| [Some(value.to_owned()), bare(value)]).flatten().collect()
}

fn mcp_server(name: &str, server: &config::McpServer) -> McpServer {
    let name = name.to_owned();
    let pairs = |pairs: &BTreeMap<String, Secret>| -> Vec<NameValue> {
        pairs.iter().map(|(n, v)| NameValue { name: n.clone(), value: v.expose().to_owned() }).collect()
    };
    let remote = |transport, url: &str, headers| McpServer::Remote {
        transport,
        name: name.clone(),
        url: url.to_owned(),
        headers: pairs(headers),
    };
    match server {
        config::McpServer::Http { url, headers } => remote(McpTransport::Http, url, headers),
        config::McpServer::Sse { url, headers } => remote(McpTransport::Sse, url, headers),
        config::McpServer::Stdio { command, args, env } => McpServer::Stdio {
            name: name.clone(),
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
    fn hidden_values_of_every_mcp_server_are_masked_for_every_agent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let text = "[agents.a]\ncommand = \"a\"\nenv = { A = { from_env = \"OWN\" }, B = \"plain\" }\n\
            [mcp.docs]\nurl = \"https://mcp.example\"\nheaders = { Authorization = { from_env = \"HEADER\" } }\n\
            [mcp.local]\ncommand = \"mcp\"\nenv = { C = { from_env = \"LOCAL\" }, D = \"plain too\" }\n";
        std::fs::write(&file, text).unwrap();
        let variables =
            [("OWN", "own-1"), ("HEADER", "Bearer remote-2"), ("LOCAL", "local 3"), ("HOME", "/")];
        let flags = config::Flags { config: Some(file), ..config::Flags::default() };
        let config = config::load(&flags, &variables.into_iter().collect(), &|_| false).unwrap();
        let secrets = secrets(&config, &config.agents[&"a".parse().unwrap()]);
        assert_eq!(secrets, ["own-1", "Bearer remote-2", "remote-2", "local 3"]);
    }
}
