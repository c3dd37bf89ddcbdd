//! `serve`: locks the data folder, binds the port, starts the gateway, prints its link and waits for its end.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::output::Failure;
use super::source::ConfigSource;
use super::startup::{Recorder, announce, report_ready};
use super::{agent, backup, lock};

use crate::app::{self, Gateway, Reloader};
use crate::config::{Config, DataDir, Environment, Flags, Listen, parse_duration};
use crate::registry::{Installations, Order, Outcome, Step};
use crate::server::{self, BoundListeners};
use crate::stream::StreamWorkers;
use base::shutdown::Shutdown;
use base::telemetry::{self, ErrorChain};
use base::types::Ids;
use base::types::text::strip_controls;
use children::SupervisorLock;

const EXTRA_PORTS: u16 = 20;
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a configured port may be in use at the start, and the time between two tries.
const PORT_RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
const PORT_RETRY: Duration = Duration::from_millis(10);
/// How long a thread for blocking calls waits for the next one. They come in bursts, so an idle gateway keeps no such thread.
const BLOCKING_THREAD_KEEP_ALIVE: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error(transparent)]
    Bind(#[from] server::BindError),
    #[error("no free port from {first} to {last}: set one with --listen ADDR")]
    NoFreePort { first: u16, last: u16 },
}

#[derive(Debug, Default, Args)]
pub(super) struct ServeArgs {
    /// Stop when nobody has used the gateway for this time, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_idle_time)]
    exit_when_idle: Option<Duration>,
    /// Migrate a log of an earlier version without keeping a copy of it
    #[arg(long)]
    no_backup: bool,
    /// Run in a session of its own, with a bounded log on stderr
    #[arg(long, hide = true)]
    detached: bool,
}

fn parse_idle_time(text: &str) -> Result<Duration, &'static str> {
    let time = parse_duration(text).filter(|time| !time.is_zero());
    time.ok_or("expected a duration such as 90s or 10m")
}

pub(super) fn run(args: &ServeArgs, flags: &Flags) -> Result<(), Failure> {
    if args.detached {
        // Signals of the terminal that started the command do not reach this process. This fails only for the leader of a
        // group, which a detached process is not.
        rustix::process::setsid()?;
    }
    let mut environment = Environment::from_process();
    if args.detached {
        // The process that starts this one is a program of an editor.
        environment = environment.without_current_folder();
    }
    let colors = environment.permits_colors();
    let source = ConfigSource::new(flags, environment);
    let config = source.load()?;
    let filter = config.log_filter.as_deref();
    if args.detached {
        telemetry::init_bounded(filter)?;
    } else {
        telemetry::init(filter, colors)?;
    }
    telemetry::metrics::init();
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    for error in &config.errors {
        tracing::error!(%error, "an entry of the configuration is not used; the others are");
    }
    for (agent, found) in &config.agents {
        if let Some(variables) = found.inherited_variables() {
            tracing::info!(%agent, variables, "an agent receives variables of the gateway's environment");
        }
    }
    let recorder = if args.detached {
        // Nobody reads the link of a detached gateway.
        Some(Recorder::File)
    } else if flags.print_link {
        None
    } else {
        Recorder::of_process(source.journal_stream())
    };
    lock::create_layout(&config.data)?;
    // Lock before binding the port or reading data: a second gateway must not change the data of the first.
    let lock = lock::acquire(&config.data)?;
    backup::remove_stale_parts(&config.data);
    migrate(&config.data, !args.no_backup)?;
    let supervisors = app::sweep(&config.data);
    let listeners = bind(&config.listen)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A busy tokio worker wakes another worker to look for more work. With few cores, that slows the agents
    // and the writer of the log. Long work runs on other threads, or yields.
    let workers = cores.saturating_sub(StreamWorkers::count()).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_keep_alive(BLOCKING_THREAD_KEEP_ALIVE)
        .enable_all()
        .build()?;
    let notify_socket = source.notify_socket().map(OsStr::to_owned);
    let announce = |address, gateway: &Gateway| {
        announce(gateway, address, recorder, &lock, args.exit_when_idle)?;
        if let Some(socket) = &notify_socket {
            report_ready(socket);
        }
        Ok(())
    };
    let ended = runtime.block_on(serve(source, config, listeners, supervisors, announce));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    // The store is closed now.
    drop(lock);
    ended
}

fn migrate(data: &DataDir, keeps_copy: bool) -> Result<(), Failure> {
    if let Some(migration) = log::store::migrate(&data.log(), keeps_copy, &Ids::system())? {
        let copy = migration.copy.as_deref().map(Path::display);
        tracing::info!(
            from = migration.from,
            to = migration.to,
            copy = copy.map(tracing::field::display),
            "migrated the log to the format of this version; an earlier version can read only the copy, which you may delete"
        );
    }
    Ok(())
}

async fn serve(
    source: ConfigSource,
    config: Config,
    listeners: BoundListeners,
    supervisors: Option<SupervisorLock>,
    announce: impl FnOnce(SocketAddr, &Gateway) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let signals = Signals::new()?;
    let reload = Arc::new(Notify::new());
    let run = async {
        let address = listeners.local_addr()?;
        let started = app::start(config, listeners, supervisors, shutdown.clone());
        let (gateway, orders) = started.await?;
        let (reloads, added) = mpsc::channel(1);
        let reloading = reload_on_request(
            source.clone(),
            Arc::clone(&reload),
            added,
            gateway.reloader(),
            shutdown.clone(),
        );
        shutdown.spawn(reloading);
        let installing = install_on_order(
            source,
            gateway.installations(),
            orders,
            reloads,
            shutdown.clone(),
        );
        shutdown.spawn(installing);
        announce(address, &gateway)?;
        Ok(gateway.wait_ended().await?)
    };
    tokio::select! {
        ended = run => ended,
        () = signals.forward(&shutdown, &reload) => Ok(()),
    }
}

/// Waits for the reload that follows a new entry. The result is the reason of a failure.
type Reloaded = oneshot::Sender<Result<(), String>>;

async fn reload_on_request(
    source: ConfigSource,
    requested: Arc<Notify>,
    mut added: mpsc::Receiver<Reloaded>,
    mut reloader: Reloader,
    shutdown: Shutdown,
) {
    loop {
        let waits = tokio::select! {
            () = shutdown.drain_started() => return,
            () = requested.notified() => None,
            Some(waits) = added.recv() => Some(waits),
        };
        let source = source.clone();
        let load = move || {
            source
                .load()
                .map_err(|error| ErrorChain(&*error).to_string())
        };
        let outcome = reloader.reload(load).await;
        if let Some(waits) = waits {
            // The receiver is gone if the gateway stops.
            let _ = waits.send(outcome);
        }
    }
}

/// The time for all steps of an installation. Each step has its own limit too.
const INSTALLATION_TIMEOUT: Duration = Duration::from_mins(30);
/// A reason can contain the output of a package manager, and stays in memory until the next installation.
const MAX_REASON_CHARS: usize = 4096;

/// Adds the agents that administrators order over HTTP, one after the other.
async fn install_on_order(
    source: ConfigSource,
    installations: Installations,
    mut orders: mpsc::Receiver<Order>,
    reloads: mpsc::Sender<Reloaded>,
    shutdown: Shutdown,
) {
    loop {
        let order = tokio::select! {
            () = shutdown.drain_started() => break,
            order = orders.recv() => order,
        };
        let Some(order) = order else { return };
        let outcome = match add(&source, &installations, &order, &shutdown).await {
            Some(Ok(added)) => Some(reload(&reloads).await.map(|()| added)),
            outcome => outcome,
        };
        if let Some(Err(reason)) = &outcome {
            tracing::warn!(agent = %order.agent, reason, "could not add an agent");
        }
        installations.end(order, outcome);
    }
    orders.close();
    while let Some(order) = orders.recv().await {
        installations.end(order, None);
    }
}

/// `None`: the gateway stops.
async fn add(
    source: &ConfigSource,
    installations: &Installations,
    order: &Order,
    shutdown: &Shutdown,
) -> Option<Outcome> {
    let source = source.clone();
    let installations = installations.clone();
    let order = order.clone();
    let stops = shutdown.clone();
    // An installation writes, hashes and deletes many files, which would block a worker.
    let work = move || {
        let show = Rc::new(move |step: Step<'_>| installations.show(step));
        let add = agent::add_ordered(&order, &source, show, stops.clone());
        Handle::current().block_on(async {
            tokio::select! {
                () = stops.drain_started() => None,
                added = timeout(INSTALLATION_TIMEOUT, add) => Some(added),
            }
        })
    };
    let added = shutdown.spawn_blocking(work).await;
    let reason = match added {
        Ok(None) => return None,
        Ok(Some(Ok(Ok(added)))) => return Some(Ok(added)),
        Ok(Some(Ok(Err(failure)))) => ErrorChain(&*failure).to_string(),
        Ok(Some(Err(_))) => {
            let minutes = INSTALLATION_TIMEOUT.as_secs() / 60;
            format!("the installation did not end within {minutes} minutes")
        }
        Err(panic) => panic.to_string(),
    };
    let reason = strip_controls(&reason);
    Some(Err(reason.chars().take(MAX_REASON_CHARS).collect()))
}

async fn reload(reloads: &mpsc::Sender<Reloaded>) -> Result<(), String> {
    let (waits, reloaded) = oneshot::channel();
    // The other task ends only when the gateway stops.
    let _ = reloads.send(waits).await;
    let reloaded = reloaded.await;
    let reloaded = reloaded.unwrap_or_else(|_| Err("the gateway stops".to_owned()));
    reloaded.map_err(|error| {
        format!("the agent has an entry, but the configuration was not reloaded: {error}")
    })
}

/// Binds the address, or the next free port of the default address.
///
/// The kernel closes the files of a process one after another. So a supervisor of an earlier gateway process that ends can
/// hold the port for a moment after it has released its lock.
fn bind(listen: &Listen) -> Result<BoundListeners, BindError> {
    let released = Instant::now() + PORT_RELEASE_TIMEOUT;
    let mut address = listen.address;
    let first = address.port();
    let last = address.port().saturating_add(EXTRA_PORTS);
    loop {
        match BoundListeners::bind(address) {
            Ok(listeners) => return Ok(listeners),
            Err(error) if error.is_in_use() && !listen.explicit => {
                if address.port() == last {
                    return Err(BindError::NoFreePort { first, last });
                }
                address.set_port(address.port() + 1);
            }
            Err(error) if error.is_in_use() && Instant::now() < released => {
                std::thread::sleep(PORT_RETRY);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

const ABORT_GRACE: Duration = Duration::from_secs(1);
/// A terminal or a service manager can signal all processes of a command, and the launcher of the npm package passes signals on.
/// So one request to stop can arrive more than once.
const SAME_STOP: Duration = Duration::from_secs(1);

/// The signals that the gateway handles. Once this exists, they no longer kill the process.
///
/// The first TERM or INT begins a graceful stop; another one after `SAME_STOP` stops at once. HUP reloads the configuration.
/// If the gateway runs in a terminal, HUP means that the terminal was closed, and has the effect of TERM.
pub(super) struct Signals {
    stops: [Signal; 2],
    hangup: Signal,
    hangup_stops: bool,
}

impl Signals {
    /// Must be called inside the runtime.
    pub(super) fn new() -> io::Result<Self> {
        // Read this before `signal` replaces the disposition of HUP.
        // Closing the controlling terminal sends HUP.
        let hangup_stops = File::open("/dev/tty").is_ok()
            && !is_hangup_ignored(&std::fs::read_to_string("/proc/self/status")?);
        let stops = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ];
        Ok(Self {
            stops,
            hangup: signal(SignalKind::hangup())?,
            hangup_stops,
        })
    }

    /// Turns signals into a reload or a stop. Completes a grace period after the second stop signal.
    pub(super) async fn forward(mut self, shutdown: &Shutdown, reload: &Notify) {
        loop {
            tokio::select! {
                () = next_stop(&mut self.stops) => break,
                _ = self.hangup.recv() => if self.hangup_stops { break },
            }
            tracing::info!("reloading the configuration");
            reload.notify_one();
        }
        tracing::info!("draining; a second signal stops at once");
        let began = Instant::now();
        shutdown.start_drain();
        // A closing terminal sends HUP more than once, so a second HUP does not stop at once.
        loop {
            next_stop(&mut self.stops).await;
            if began.elapsed() >= SAME_STOP {
                break;
            }
        }
        tracing::warn!("second signal: stopping at once");
        shutdown.abort();
        tokio::time::sleep(ABORT_GRACE).await;
    }
}

async fn next_stop([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Whether HUP was ignored at the start, as with `nohup`. The operator then expects the gateway to survive its
/// terminal.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn skips_used_port_unless_configured() {
        let occupied = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = occupied.local_addr().unwrap();
        let asked = bind(&Listen {
            address,
            explicit: true,
        })
        .unwrap_err();
        let expected = format!("could not bind {address} (--listen ADDR sets another address)");
        assert_eq!(asked.to_string(), expected);
        let other = bind(&Listen {
            address,
            explicit: false,
        })
        .unwrap()
        .local_addr()
        .unwrap();
        assert!(other.port() > address.port(), "{other}");
    }
}

#[cfg(test)]
mod signals_tests {
    use super::*;

    #[test]
    fn detects_hangup_ignored_by_nohup() {
        assert!(is_hangup_ignored("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!is_hangup_ignored("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!is_hangup_ignored(""));
    }
}
