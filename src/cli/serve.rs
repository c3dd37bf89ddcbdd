//! `serve`: locks the data folder, binds the port, starts the gateway, prints its link and waits for its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::Notify;

use super::failure::Failure;
use super::recorded::Recorder;
use super::signals::Signals;
use super::source::ConfigSource;
use super::startup::Announcement;
use super::{backup, lock};
use crate::app::{self, Reloader};
use crate::config::{Config, Flags, Listen, parse_duration};
use crate::process::SupervisorLock;
use crate::server::{self, BoundListeners};
use crate::shutdown::Shutdown;
use crate::stream::StreamWorkers;
use crate::telemetry::{self, ErrorChain};

/// How many ports above the default to try if no address is configured.
const EXTRA_PORTS: u16 = 20;
/// How long blocking tasks have to end when the runtime shuts down.
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
    let source = ConfigSource::new(flags);
    let config = source.load()?;
    let filter = config.log_filter.as_deref();
    let init = if args.detached {
        telemetry::init_bounded
    } else {
        telemetry::init
    };
    init(filter)?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    for error in &config.errors {
        tracing::error!(%error, "an entry of the configuration is not used; the others are");
    }
    for (agent, found) in &config.agents {
        if let Some(variables) = found.inherited_variables() {
            tracing::info!(%agent, variables, "an agent found on PATH receives variables of the gateway's environment");
        }
    }
    let recorder = Recorder::of_process(source.journal_stream()).filter(|_| !flags.print_link);
    // Nobody reads the link of a detached gateway.
    let recorder = if args.detached {
        Some(Recorder::File)
    } else {
        recorder
    };
    lock::create_layout(&config.data)?;
    // Lock before binding the port or reading data: a second gateway must not change the data of the first.
    let lock = lock::acquire(&config.data)?;
    backup::remove_stale_parts(&config.data);
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
    let announcement = Announcement::new(&config, recorder, lock.try_clone()?, args.exit_when_idle);
    let ended = runtime.block_on(serve(
        source,
        config,
        (listeners, supervisors),
        announcement,
    ));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    // The store is closed now.
    drop(lock);
    ended
}

async fn serve(
    source: ConfigSource,
    config: Config,
    held: (BoundListeners, Option<SupervisorLock>),
    announcement: Announcement,
) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let signals = Signals::new()?;
    let reload = Arc::new(Notify::new());
    let reloads = (source, Arc::clone(&reload));
    tokio::select! {
        ended = start_and_wait(config, held, shutdown.clone(), reloads, announcement) => ended,
        () = signals.forward(&shutdown, &reload) => Ok(()),
    }
}

/// Reloads the configuration on request.
async fn reload_on_request(
    (source, requested): (ConfigSource, Arc<Notify>),
    mut reloader: Reloader,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            () = shutdown.drain_started() => return,
            () = requested.notified() => {}
        }
        let source = source.clone();
        reloader
            .reload(move || {
                source
                    .load()
                    .map_err(|error| ErrorChain(&*error).to_string())
            })
            .await;
    }
}

async fn start_and_wait(
    config: Config,
    held: (BoundListeners, Option<SupervisorLock>),
    shutdown: Shutdown,
    reloads: (ConfigSource, Arc<Notify>),
    announcement: Announcement,
) -> Result<(), Failure> {
    let address = held.0.local_addr()?;
    let gateway = app::start(config, held, shutdown.clone()).await?;
    shutdown.spawn(reload_on_request(
        reloads,
        gateway.reloader(),
        shutdown.clone(),
    ));
    announcement.publish(address, &gateway)?;
    Ok(gateway.wait_ended().await?)
}

/// Binds the address, or the next free port of the default address.
///
/// The kernel closes the files of a process one after another. So a supervisor of an earlier gateway process that ends can
/// hold the port for a moment after it has released its lock.
fn bind(listen: &Listen) -> Result<BoundListeners, BindError> {
    let released = Instant::now() + PORT_RELEASE_TIMEOUT;
    let mut address = listen.address;
    let (first, last) = (address.port(), address.port().saturating_add(EXTRA_PORTS));
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
        assert_eq!(asked.to_string(), format!("could not bind {address}"));
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
