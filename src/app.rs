//! The composition root: `Config` becomes what each module takes, from the store up to the router.

mod catalogue;
mod reload;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::agent::{CurrentCatalogue, Launcher};
use crate::auth::{KeyHash, KeyText, Keys, Policy, PolicyOptions, Tickets};
use crate::config::{Config, DataDir};
use crate::eventlog::EventLog;
use crate::http;
use crate::pool::Pool;
use crate::process::{self, OpenFiles, Spawner};
use crate::session::{Context, MayPrompt, SessionRegistry, Workspaces};
use crate::shutdown::Shutdown;
use crate::store::{CheckError, CheckReport, EventStore, OpenError, SqliteStore};
use crate::types::{Ids, Limits, Scope};

pub use reload::Reloader;

/// How long the keepers of an earlier life have to end before the gateway opens.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
/// The file that runs as this process. A path on disk could lead to another version by the time that it is wanted.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Descriptors of one agent's process: its pipes, its keeper's sockets, its pidfd, and a terminal or two.
const FILES_PER_PROCESS: usize = 16;
/// Descriptors of all else: the store and its readers, the log of the start, sockets of the runtime.
const BASE_FILES: usize = 128;
/// What a drain may take beyond its own limits, for commits and connections.
const DRAIN_SLACK: Duration = Duration::from_secs(2);

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
    #[error("the threads for streams did not start")]
    StreamWorkers(#[source] std::io::Error),
    #[error("the listener cannot be used")]
    Listener(#[source] std::io::Error),
}

/// The log failed, and the gateway must not go on.
#[derive(Debug, thiserror::Error)]
#[error("the log failed: {0}")]
pub struct LogFailure(String);

/// A gateway that accepts connections.
#[derive(Debug)]
pub struct Gateway {
    link_key: Option<KeyText>,
    shutdown: Shutdown,
    limits: Arc<Limits>,
    log: EventLog,
    stream_workers: http::StreamWorkers,
    fatal: oneshot::Receiver<String>,
    reloader: Reloader,
}

/// The store in a data folder.
pub fn open_store(data: &DataDir, limits: &Limits, ids: &Ids) -> Result<Arc<SqliteStore>, StartError> {
    Ok(Arc::new(SqliteStore::open(&data.log(), ids.clone(), limits)?))
}

/// Whether the log in a data folder is one of an earlier version.
pub fn is_older_version(data: &DataDir) -> Result<bool, StartError> {
    Ok(SqliteStore::needs_migration(&data.log())?)
}

/// Checks a log that a dead gateway left open: before anything is served for as long as that takes a moment, then beside
/// it.
async fn check_after_unclean_shutdown(store: &Arc<SqliteStore>, limits: &Limits, shutdown: &Shutdown) -> Result<(), StartError> {
    if !store.unclean_shutdown() {
        return Ok(());
    }
    let bytes = store.size()?;
    let check_first = bytes <= limits.check_bytes;
    tracing::warn!(bytes, first = check_first, "the log was not closed; it is checked");
    let (started, stop) = oneshot::channel();
    let (long, is_long) = oneshot::channel();
    let (checked, max_bytes) = (Arc::clone(store), limits.check_bytes);
    let running = shutdown.spawn_blocking(move || {
        // Nobody waits for that any more when the gateway serves already.
        checked.check(|stop| drop(started.send(stop)), max_bytes, || long.send(()).unwrap_or_default())
    });
    let stopping = shutdown.clone();
    let report = async move {
        let mut running = running;
        let result = tokio::select! {
            result = &mut running => result,
            () = stopping.drain_started() => {
                if let Ok(stop) = stop.await {
                    stop();
                }
                running.await
            }
        };
        match result {
            Ok(Ok(CheckReport { runs, damaged, duration: took, .. })) => {
                let took = took.as_millis();
                tracing::info!(runs, damaged, took, "the log was checked, and is in order");
                Ok(())
            }
            // Broken off by a stop, or by a panic that was told already.
            Ok(Err(CheckError::Stopped)) | Err(_) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(%error, "the log is damaged");
                Err(OpenError::from(error).into())
            }
        }
    };
    let mut report = Box::pin(report);
    if check_first {
        tokio::select! {
            biased;
            Ok(()) = is_long => tracing::warn!("the log unpacks to much: the rest is checked while it is served"),
            result = &mut report => return result,
        }
    }
    // What it finds ends the gateway by the next commit, which the store refuses.
    shutdown.spawn(async move { drop(report.await) });
    Ok(())
}

/// Builds everything and accepts connections. The data folder is the caller's: laid out and locked.
pub async fn start(config: Config, listener: TcpListener, shutdown: Shutdown) -> Result<Gateway, StartError> {
    let (ids, limits) = (Ids::system(), Arc::new(config.limits.clone()));
    let open_files = open_files(&config);
    let run_dir = config.data.run();
    let swept = shutdown.spawn_blocking(move || process::sweep(&run_dir, SWEEP_TIMEOUT)).await;
    if let Ok(Ok(swept @ 1..)) = swept {
        tracing::warn!(swept, "ended agents that an earlier gateway had left behind");
    }
    let store = open_store(&config.data, &limits, &ids)?;
    check_after_unclean_shutdown(&store, &limits, &shutdown).await?;
    let store: Arc<dyn EventStore> = store;
    let admin = config.admin_key.map(KeyHash::from_bytes);
    let keys = Keys::open(Arc::clone(&store), ids.clone(), &limits, admin)?;
    let link_key = if admin.is_none() { Some(keys.create_link_key()?) } else { None };
    shutdown.spawn(keys.clone().run(shutdown.clone()));
    let tickets = Tickets::open(Arc::clone(&store), ids.clone(), &limits, &keys)?;
    shutdown.spawn(tickets.clone().run(shutdown.clone()));
    let (failed, fatal) = oneshot::channel();
    let on_fatal = Box::new(move |reason: &str| drop(failed.send(reason.to_owned())));
    let log = EventLog::start(store, ids.clone(), Arc::clone(&limits), shutdown.clone(), on_fatal)?;

    let catalogue = Arc::new(catalogue::build(&config)?);
    let spawner = Spawner::new(OWN_PROGRAM.into(), config.data.run(), shutdown.clone(), Arc::clone(&limits));
    let spawner = spawner.with_open_files(open_files);
    let launcher = Launcher::new(spawner, Arc::clone(&limits), shutdown.clone(), env!("CARGO_PKG_VERSION"));
    let pool = Pool::new(&catalogue, launcher, (Arc::clone(&limits), keys.limits().clone()), &shutdown);
    let (catalogues, catalogue) = CurrentCatalogue::new(catalogue);
    let workspaces = Workspaces::new(&config.workspaces.root, &config.workspaces.allow);
    let workspaces = workspaces.map_err(StartError::Workspaces)?;
    let parts = (ids.clone(), Arc::clone(&limits), shutdown.clone());
    let prompt_keys = keys.clone();
    let may_prompt = MayPrompt::new(move |tenant, id| prompt_keys.principal_has_scope(tenant, id, Scope::Prompt));
    let context = Context::new(log.clone(), pool.clone(), catalogue.clone(), workspaces, may_prompt, parts);
    let sessions = SessionRegistry::start(context).await?;

    let bound = listener.local_addr().map_err(StartError::Listener)?;
    let principal_limits = keys.limits().clone();
    let policy =
        Arc::new(Policy::new(&policy_options(&config, bound), keys.clone(), tickets.clone(), &limits));
    let prestart_pool = pool.clone();
    let reloader = Reloader { catalogue_sender: catalogues, pool: pool.clone(), keys, shutdown: shutdown.clone(), config };
    let config = &reloader.config;
    let router = http::router(http::Gateway::new(http::GatewayParts {
        sessions,
        pool,
        catalogue,
        policy,
        tickets,
        ids,
        log: log.clone(),
        limits: Arc::clone(&limits),
        principal_limits,
        shutdown: shutdown.clone(),
    }));
    listener.set_nonblocking(true).map_err(StartError::Listener)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(StartError::Listener)?;
    let proxies = config.behind_proxy.clone();
    let lanes = http::StreamWorkers::start().map_err(StartError::StreamWorkers)?;
    let acceptor = http::Acceptor {
        limits: Arc::clone(&limits),
        // Who names no proxy and may listen nevertheless has said that the way is safe, or listens to this machine.
        require_proxy: !proxies.is_empty() && !config.insecure_http,
        proxies,
        stream_workers: lanes.clone(),
        shutdown: shutdown.clone(),
    };
    shutdown.spawn_critical(http::serve(listener, router, acceptor));
    // Only now: what starts beside us would keep the first who come waiting.
    prestart_pool.start_maintenance();
    Ok(Gateway { link_key, shutdown, limits, log, stream_workers: lanes, fatal, reloader })
}

/// Raises the limit of open files, and tells the operator when that is not enough.
fn open_files(config: &Config) -> Option<OpenFiles> {
    let raised = OpenFiles::raise();
    let raised =
        raised.inspect_err(|error| tracing::warn!(%error, "the limit of open files stays as it is")).ok()?;
    let processes = config.agents.values().map(|agent| agent.pool.max_size).sum::<usize>();
    let connections = config.limits.connections;
    let wanted = connections + processes * FILES_PER_PROCESS + BASE_FILES;
    if let Some(limit) = raised.insufficient_for(wanted) {
        tracing::warn!(
            limit,
            wanted,
            connections,
            processes,
            "the hard limit of open files is too low for the configured connections and agents: raise it (LimitNOFILE= of \
             systemd, --ulimit nofile= of a container, ulimit -Hn), or lower limits.connections"
        );
    }
    Some(raised)
}

impl Gateway {
    /// The key of this start's link; none when the operator has a key of their own.
    pub fn link_key(&self) -> Option<&KeyText> {
        self.link_key.as_ref()
    }

    /// What makes the running gateway take another configuration.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Returns when a stop was asked for and everything has ended, or when the log has failed.
    pub async fn wait_ended(self) -> Result<(), LogFailure> {
        let Self { shutdown, limits, log, stream_workers: lanes, mut fatal, .. } = self;
        tokio::select! {
            () = shutdown.drain_started() => {}
            Ok(reason) = &mut fatal => {
                shutdown.start_drain();
                shutdown.abort();
                lanes.stop(DRAIN_SLACK).await;
                return Err(LogFailure(reason));
            }
        }
        let drain = limits.drain + limits.drain_cancel + limits.drain_stdin + limits.drain_term + DRAIN_SLACK;
        if !shutdown.wait_for_tasks(drain).await {
            shutdown.abort();
            shutdown.wait_for_tasks(DRAIN_SLACK).await;
        }
        // Only now: what they write belongs to the drain.
        lanes.stop(DRAIN_SLACK).await;
        log.close().await;
        fatal.try_recv().map_or(Ok(()), |reason| Err(LogFailure(reason)))
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
