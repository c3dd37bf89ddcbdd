//! The composition root: builds every module from `Config`, from the store to the router.

mod agent_telemetry;
mod catalogue;
mod isolation;
mod local;
mod members;
mod metrics;
mod otlp;
mod reload;

use isolation::host_isolation;
pub use isolation::{command_isolation, failed_commands, scratch_home};

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::auth::{CreateKeyError, KeyHash, KeyText, Keys, Policy, PolicyOptions, Roles, Tickets};
use crate::config::{self, Config, DataDir};
use crate::registry::{Installations, Listing, Order, Permissions};
use crate::server::{BindError, BoundListeners, ConnectionUse};
use crate::stream::StreamWorkers;
use crate::{server, surface};
use agents::agent::{CurrentCatalogue, IdleFolders, Launcher, RemoteConnector};
use agents::pool::{AgentSources, Pool};
use base::shutdown::Shutdown;
use base::types::{Groups, Ids, OWN_PROGRAM, PrincipalLimits, Scope};
use children::{AgentUsers, HostIsolation, OpenFiles, Spawner, SupervisorLock, UsersError};
use events::event::{ActorKind, LinkPrinted};
use log::audit::{Audit, CountedEvents};
use log::eventlog::EventLog;
use log::store::{CheckError, CheckReport, OpenError, SqliteStore};
use sessions::session::{Baselines, Context, MayPrompt, SessionDirectory};
use sessions::task;
use sessions::webhooks;
use sessions::webhooks::WebhookOptions;
use wire::fleet::Fleet;
use workspace::Workspaces;

use agent_telemetry::Receiver;
use members::Publisher;
use metrics::Figures;
use otlp::Collector;
pub use reload::Reloader;

/// How long a start waits for the supervisors of an earlier gateway process to end.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(5);
/// File descriptors for one agent process: pipes, sockets of the supervisor, the pidfd, and one or two
/// terminals.
const FILES_PER_PROCESS: usize = 16;
/// File descriptors for everything else: the store and its readers, logs, and sockets of the runtime.
const BASE_FILES: usize = 128;
const DRAIN_SLACK: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("could not open the log")]
    Store(#[from] log::store::OpenError),
    #[error(transparent)]
    Keys(#[from] crate::auth::KeyStoreError),
    #[error(transparent)]
    Tickets(#[from] crate::auth::TicketStoreError),
    #[error(transparent)]
    Log(#[from] log::eventlog::StartError),
    #[error("could not read the members of the fleet")]
    Members(#[source] log::store::ReadError),
    #[error("could not read the audit log")]
    Audit(#[source] log::eventlog::ReadError),
    #[error("could not read the sessions from the log: see the gateway's log output for the cause")]
    Sessions(#[from] sessions::session::SessionError),
    #[error(transparent)]
    Webhooks(#[from] sessions::webhooks::OpenError),
    #[error(transparent)]
    Tasks(#[from] task::OpenError),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error("could not open a workspace root")]
    Workspaces(#[source] std::io::Error),
    #[error(transparent)]
    Home(#[from] catalogue::HomeError),
    #[error("could not start the threads for streams")]
    StreamWorkers(#[source] std::io::Error),
    #[error("could not copy the lock of the supervisors")]
    SupervisorLock(#[source] std::io::Error),
    #[error("could not use the listener")]
    Listener(#[source] std::io::Error),
    #[error("could not use the collector of telemetry.otlp_endpoint")]
    Collector(#[source] outgoing::TlsError),
    #[error("could not open the receiver for telemetry of agents")]
    TelemetryReceiver(#[source] BindError),
}

#[derive(Debug, thiserror::Error)]
#[error("the log failed: {0}")]
pub struct LogFailure(String);

pub struct Gateway {
    keys: Keys,
    sessions: SessionDirectory,
    store: Arc<SqliteStore>,
    shutdown: Shutdown,
    /// The longest time for the end of all turns and agents at a stop.
    drain_timeout: Duration,
    log: EventLog,
    audit: Audit,
    stream_workers: StreamWorkers,
    connection_use: ConnectionUse,
    fatal: oneshot::Receiver<String>,
    reloader: Reloader,
    installations: Installations,
    isolation: HostIsolation,
    /// Scrapes read them until the end of the gateway.
    _figures: Arc<Figures>,
}

pub fn open_store(
    data: &DataDir,
    limits: &log::limits::Limits,
    ids: &Ids,
) -> Result<Arc<SqliteStore>, StartError> {
    Ok(Arc::new(SqliteStore::open(
        &data.log(),
        ids.clone(),
        limits,
    )?))
}

/// Checks the log after an unclean shutdown. A small log is checked before the gateway accepts requests, a large log in
/// the background.
async fn check_after_unclean_shutdown(
    store: &Arc<SqliteStore>,
    limits: &log::limits::Limits,
    shutdown: &Shutdown,
) -> Result<(), StartError> {
    if !store.unclean_shutdown() {
        return Ok(());
    }
    let bytes = store.size()?;
    let check_first = bytes <= limits.max_start_check_bytes;
    tracing::warn!(
        bytes,
        check_before_start = check_first,
        "the log was not closed cleanly; checking it"
    );
    let (started, stop) = oneshot::channel();
    let (long, is_long) = oneshot::channel();
    let checked = Arc::clone(store);
    let max_bytes = limits.max_start_check_bytes;
    let running = shutdown.spawn_blocking(move || {
        // The receiver is gone if the gateway already serves.
        checked.check(
            |stop| {
                let _ = started.send(stop);
            },
            max_bytes,
            || long.send(()).unwrap_or_default(),
        )
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
            Ok(Ok(CheckReport {
                runs,
                damaged,
                duration: took,
                ..
            })) => {
                let took = took.as_millis();
                tracing::info!(runs, damaged, took, "checked the log and found no damage");
                Ok(())
            }
            // A stop has ended the check, or a panic, which is already in the log output.
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
            Ok(()) = is_long => tracing::warn!("the log is large when decompressed; serving it while the check continues"),
            result = &mut report => return result,
        }
    }
    // After damage is found, the store rejects the next commit, which stops the gateway.
    shutdown.spawn(async move {
        let _ = report.await;
    });
    Ok(())
}

/// Builds all modules and accepts connections. The caller has created and locked the data folder, and runs the orders of
/// installations.
pub async fn start(
    config: Config,
    listeners: BoundListeners,
    supervisors: Option<SupervisorLock>,
    shutdown: Shutdown,
) -> Result<(Gateway, mpsc::Receiver<Order>), StartError> {
    let collector = Collector::new(&config).map_err(StartError::Collector)?;
    let ids = Ids::system_with(config.limits.clock.clone());
    let limits = Arc::new(config.limits.clone());
    let log_limits = Arc::new(limits.log.clone());
    let agents_limits = Arc::new(limits.agents.clone());
    let drain_timeout = limits.sessions.drain_timeout
        + limits.sessions.drain_cancel_timeout
        + limits.children.drain_stdin_timeout
        + limits.children.drain_term_timeout
        + DRAIN_SLACK;
    let users = config.isolation.run_as.map(|range| {
        let root = config.workspaces.root.clone();
        AgentUsers::open(range, config.data.path(), config.data.homes(), root)
    });
    let users = users.transpose()?;
    let open_files = open_files(&config);
    let isolation = host_isolation(&config, users.clone());
    let store = open_store(&config.data, &log_limits, &ids)?;
    check_after_unclean_shutdown(&store, &log_limits, &shutdown).await?;
    let admin = config.admin_key.map(KeyHash::from_bytes);
    let keys = Keys::open(
        store.clone(),
        ids.clone(),
        &limits.auth,
        PrincipalLimits::new(&limits.per_key),
        admin,
    )?;
    keys.set_roles(Roles::with(&config.roles));
    keys.reload()?;
    shutdown.spawn(keys.clone().run(shutdown.clone()));
    let tickets = Tickets::open(store.clone(), ids.clone(), &limits.auth, &keys)?;
    shutdown.spawn(tickets.clone().run(shutdown.clone()));
    let (log, audit, fatal) = start_log(store.clone(), &ids, &log_limits, &shutdown).await?;

    let configured = catalogue::build(&config)?;
    let fleet = Fleet::new(limits.agents.member_return_timeout, shutdown.clone());
    // The members of an earlier gateway process.
    let restored = members::restore(&fleet, &log, &keys).await;
    restored.map_err(StartError::Members)?;
    let catalogue = Arc::new(members::with_members(configured.clone(), &fleet));
    let run_files = config.data.run();
    let mut spawner = Spawner::new(
        OWN_PROGRAM.into(),
        run_files,
        shutdown.clone(),
        Arc::new(limits.children.clone()),
    )
    .with_isolation(isolation.clone());
    spawner.open_files = open_files;
    let receiver = Receiver::bind(&config, collector.as_ref(), &ids);
    let receiver = receiver.map_err(StartError::TelemetryReceiver)?;
    let mut held = held_by_supervisors(&listeners, supervisors)?;
    if let Some(receiver) = &receiver {
        held.extend(receiver.copies().map_err(StartError::Listener)?);
    }
    spawner.held = held.into();
    let workspaces = Workspaces::new(&config.workspaces.root, &config.workspaces.allow);
    let workspaces = workspaces
        .map_err(StartError::Workspaces)?
        .with_users(users.clone());
    let version = env!("CARGO_PKG_VERSION");
    let idle_folders = IdleFolders::new(&config.workspaces.root, config.data.path());
    let launcher = Launcher::new(
        spawner,
        Arc::clone(&agents_limits),
        shutdown.clone(),
        audit.clone(),
        version,
        idle_folders.map_err(StartError::Workspaces)?,
        receiver.as_ref().map(|receiver| receiver.sources.clone()),
    );
    let remote = RemoteConnector {
        fleet: fleet.clone(),
        proxies: config.proxies.clone(),
        limits: Arc::clone(&agents_limits),
        shutdown: shutdown.clone(),
        version,
    };
    let pool = Pool::new(
        &catalogue,
        AgentSources { launcher, remote },
        agents_limits,
        keys.limits().clone(),
        &shutdown,
    );
    let (catalogues, catalogue) = CurrentCatalogue::new(catalogue);
    let prompt_keys = keys.clone();
    let may_prompt = MayPrompt::new(move |user| prompt_keys.may(user, Scope::Prompt));
    let context = Context::new(
        log.clone(),
        audit.clone(),
        pool.clone(),
        catalogue.clone(),
        workspaces,
        Baselines::new(config.data.changes()),
        may_prompt,
        ids.clone(),
        Arc::new(limits.sessions.clone()),
        shutdown.clone(),
    );
    let sessions = SessionDirectory::start(context).await?;
    let mut groups = keys.watch_groups();
    let current = groups.borrow_and_update().clone();
    sessions.set_groups(current).await;
    let follow = follow_groups(groups, sessions.clone(), shutdown.clone());
    shutdown.spawn(follow);
    let ca_file = config.webhooks.ca_file.as_ref();
    let webhook_options = WebhookOptions {
        allowed_hosts: config.webhooks.allowed_hosts.clone(),
        ca_certificates: ca_file.map(|file| file.certificates.clone()),
        proxies: config.proxies.clone(),
        secret_file: config.data.webhook_secret(),
    };
    let webhooks = webhooks::start(
        webhook_options,
        log.clone(),
        ids.clone(),
        &limits.sessions,
        &shutdown,
    )
    .await?;
    let tasks = task::start(sessions.clone(), webhooks.clone(), keys.limits().clone()).await?;

    let bound = listeners.local_addr().map_err(StartError::Listener)?;
    let principal_limits = keys.limits().clone();
    let options = PolicyOptions {
        bound,
        public_url: config.public_url.clone(),
        allowed_hosts: config.allowed_hosts.clone(),
        allowed_origins: config.allowed_origins.clone(),
        frame_ancestors: config.frame_ancestors.clone(),
        proxies: config.trusted_proxies.clone(),
    };
    let policy = Arc::new(Policy::new(
        options,
        keys.clone(),
        tickets,
        &limits.auth,
        audit.counted().clone(),
        ids.clone(),
    ));
    let publisher = Publisher {
        configured: Arc::new(Mutex::new(configured)),
        sender: catalogues,
        pool: pool.clone(),
        fleet: fleet.clone(),
        keys: keys.clone(),
    };
    publisher.start(&log, &audit, &shutdown);
    let (reported, configuration) = watch::channel(config::report(&config));
    let reloader = Reloader {
        publisher,
        pool: pool.clone(),
        keys: keys.clone(),
        audit: audit.clone(),
        shutdown: shutdown.clone(),
        config,
        reported,
    };
    let figures = Arc::new(Figures {
        pool: pool.clone(),
        log: log.clone(),
        fleet: fleet.clone(),
        tasks: tasks.clone(),
        webhooks: webhooks.clone(),
    });
    figures.register();
    let config = &reloader.config;
    let is_personal = config.is_personal();
    let permissions = Permissions {
        registry: is_personal || config.registry_source.is_some(),
        path: is_personal.then(|| children::trusted_path(&config.child_environment.path)),
    };
    let (installations, orders) = Installations::new(permissions, audit.clone());
    let router = surface::router(surface::AppState::new(surface::AppParts {
        sessions: sessions.clone(),
        registry: Listing::new(config.registry_source.as_deref(), config.proxies.clone()),
        installations: installations.clone(),
        catalogue,
        policy,
        fleet,
        tasks,
        webhooks,
        ids,
        audit: audit.clone(),
        limits: Arc::clone(&limits),
        configuration,
        data: config.data.path().to_owned(),
        principal_limits,
        shutdown: shutdown.clone(),
    }));
    let listeners = listeners.register().map_err(StartError::Listener)?;
    let stream_workers = StreamWorkers::start().map_err(StartError::StreamWorkers)?;
    let connection_use = ConnectionUse::default();
    let proxies = config.trusted_proxies.clone();
    let acceptor = server::Acceptor {
        limits: Arc::new(limits.server.clone()),
        stream_limits: Arc::new(limits.stream.clone()),
        // Without proxies, the listener is on loopback or the operator has set `insecure_http`.
        require_proxy: !proxies.is_empty() && !config.insecure_http,
        proxies,
        stream_workers: stream_workers.clone(),
        connection_use: connection_use.clone(),
        shutdown: shutdown.clone(),
    };
    if let Some(receiver) = receiver {
        receiver.serve(&acceptor).map_err(StartError::Listener)?;
    }
    if let Some(collector) = &collector {
        collector.start_export(&shutdown);
    }
    shutdown.spawn_critical(server::serve(listeners, router, acceptor));
    // The isolation and idle processes follow the listener, so that they do not delay the first requests.
    let isolated = isolation.prepare(&shutdown);
    let pool = reloader.pool.clone();
    shutdown.spawn(async move {
        // The panic of a preparation is in the log.
        let _ = isolated.await;
        pool.start_maintenance();
    });
    let gateway = Gateway {
        keys,
        sessions,
        store,
        shutdown,
        drain_timeout,
        log,
        audit,
        stream_workers,
        connection_use,
        fatal,
        reloader,
        installations,
        isolation,
        _figures: figures,
    };
    Ok((gateway, orders))
}

/// The descriptors of which each supervisor holds copies. The lock comes first: Linux closes the descriptors of an ended
/// process from the last to the first, so the port is free before the lock.
/// Gives the sessions the groups of all users after each change.
async fn follow_groups(
    mut groups: watch::Receiver<Groups>,
    sessions: SessionDirectory,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            () = shutdown.drain_started() => return,
            // The keys own the sender until the process ends.
            Ok(()) = groups.changed() => {}
        }
        let current = groups.borrow_and_update().clone();
        sessions.set_groups(current).await;
    }
}

fn held_by_supervisors(
    listeners: &BoundListeners,
    lock: Option<SupervisorLock>,
) -> Result<Vec<OwnedFd>, StartError> {
    let copy = lock.map(|lock| lock.copy()).transpose();
    let mut held = Vec::from_iter(copy.map_err(StartError::SupervisorLock)?);
    held.extend(listeners.copies().map_err(StartError::Listener)?);
    Ok(held)
}

/// Starts the log and the audit log. The receiver completes if the log fails.
async fn start_log(
    store: Arc<SqliteStore>,
    ids: &Ids,
    limits: &Arc<log::limits::Limits>,
    shutdown: &Shutdown,
) -> Result<(EventLog, Audit, oneshot::Receiver<String>), StartError> {
    let (failed, fatal) = oneshot::channel();
    let on_fatal = Box::new(move |reason: &str| {
        let _ = failed.send(reason.to_owned());
    });
    let log = EventLog::start(
        store,
        ids.clone(),
        Arc::clone(limits),
        shutdown.clone(),
        on_fatal,
    )?;
    let counted = CountedEvents::default();
    let audit = Audit::open(log.clone(), counted, ids.clone(), Arc::clone(limits)).await;
    let audit = audit.map_err(StartError::Audit)?;
    shutdown.spawn(audit.clone().run(shutdown.clone()));
    Ok((log, audit, fatal))
}

/// Stops the agents of an earlier gateway process. Their supervisors keep the port of that process bound, so the
/// caller binds it later. Returns the lock for the supervisors of this process. Blocks. The caller has locked the data
/// folder.
pub fn sweep(data: &DataDir) -> Option<SupervisorLock> {
    match children::sweep_groups(&data.control_groups(), SWEEP_TIMEOUT) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(
                "ended processes of agents of an earlier gateway process by their control groups"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "could not remove the control groups of an earlier gateway process");
        }
    }
    if let Ok(swept @ 1..) = children::sweep(&data.run(), SWEEP_TIMEOUT) {
        tracing::warn!(swept, "stopped agents of an earlier gateway process");
    }
    match SupervisorLock::acquire(&data.supervisors(), SWEEP_TIMEOUT) {
        Ok(Some(lock)) => return Some(lock),
        Ok(None) => tracing::warn!("a supervisor of an earlier gateway process still runs"),
        Err(error) => tracing::warn!(%error, "could not lock the file of the supervisors"),
    }
    None
}

fn open_files(config: &Config) -> Option<OpenFiles> {
    let raised = OpenFiles::raise();
    let raised = raised
        .inspect_err(|error| tracing::warn!(%error, "could not raise the limit of open files"))
        .ok()?;
    let processes = config
        .agents
        .values()
        .map(|agent| agent.settings.pool.max_size)
        .sum::<usize>();
    let connections = config.limits.server.max_connections;
    let sockets = connections + server::max_waiting_sockets(connections);
    let required = sockets + processes * FILES_PER_PROCESS + BASE_FILES;
    if let Some(limit) = raised.insufficient_for(required) {
        tracing::warn!(
            limit,
            required,
            connections,
            processes,
            "the hard limit of open files is too low for the configured connections and agents: raise it (LimitNOFILE= of \
             systemd, --ulimit nofile= of a container, ulimit -Hn), or lower server.max_connections"
        );
    }
    Some(raised)
}

impl Gateway {
    /// Creates the key of the link that a start prints. Blocks on the store.
    pub fn create_link_key(&self) -> Result<KeyText, CreateKeyError> {
        let config = self.config();
        // The page of a new gateway adds its first agents.
        let sets_up = config.is_personal() && config.offers_default_agents;
        let key = self.keys.create_start_link_key(sets_up)?;
        let key_id = KeyHash::of(key.expose()).id().to_string();
        self.audit
            .append(ActorKind::Gateway, LinkPrinted { key_id });
        Ok(key)
    }

    pub fn isolation(&self) -> &HostIsolation {
        &self.isolation
    }

    pub fn config(&self) -> &Config {
        &self.reloader.config
    }

    pub fn installations(&self) -> Installations {
        self.installations.clone()
    }

    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Completes when a requested stop is complete. Fails if the log has failed.
    pub async fn wait_ended(self) -> Result<(), LogFailure> {
        let Self {
            shutdown,
            stream_workers: workers,
            mut fatal,
            isolation,
            ..
        } = self;
        tokio::select! {
            () = shutdown.drain_started() => {}
            Ok(reason) = &mut fatal => {
                shutdown.start_drain();
                shutdown.abort();
                workers.stop(DRAIN_SLACK).await;
                close_groups(isolation, &shutdown).await;
                return Err(LogFailure(reason));
            }
        }
        if !shutdown.wait_for_tasks(self.drain_timeout).await {
            shutdown.abort();
            shutdown.wait_for_tasks(DRAIN_SLACK).await;
        }
        close_groups(isolation, &shutdown).await;
        // The stream workers still send events during the drain, so they end after it.
        workers.stop(DRAIN_SLACK).await;
        self.audit.finish().await;
        self.log.close().await;
        fatal
            .try_recv()
            .map_or(Ok(()), |reason| Err(LogFailure(reason)))
    }
}

/// Removes the control groups after the end of all agents. If this fails, the next start removes them.
async fn close_groups(isolation: HostIsolation, shutdown: &Shutdown) {
    let _ = shutdown
        .spawn_blocking(move || isolation.groups().close())
        .await;
}
