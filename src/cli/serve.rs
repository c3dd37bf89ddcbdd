//! `serve`: locks the data folder, binds, starts the gateway, prints its link and waits for its end.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::lock::DataLock;
use super::signals::Signals;
use super::source::Source;
use super::startup::Summary;
use super::{Failure, Options, backup, lock, output, told};
use crate::app::{self, Reloader};
use crate::config::{Config, Listen};
use crate::http::Lanes;
use crate::shutdown::Shutdown;
use crate::telemetry;

/// How many ports above the default are tried when none was asked for.
const PORTS: u16 = 20;
/// What blocks may take at the very end.
const LAST: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum BindError {
    #[error("{address} cannot be bound")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("no free port from {first} to {last}; choose one with --listen ADDR")]
    NoneFree { first: u16, last: u16 },
}

pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let source = options.source();
    let config = source.load()?;
    telemetry::start(config.log.as_deref())?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    for (agent, found) in &config.agents {
        if let Some(variables) = found.passed_variables() {
            tracing::info!(%agent, variables, "an agent found on PATH receives variables of the gateway's environment");
        }
    }
    lock::lay_out(&config.data)?;
    // Before the port is bound and anything is swept or read: a second gateway must not touch what the first has.
    let lock = lock::take(&config.data)?;
    backup::sweep(&config.data);
    let listener = bind(&config.listen)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A worker that finds work wakes another one to look for more, which is in the way of agents and of the log's writer
    // where there are few cores. What takes long runs elsewhere, or lets others run in between.
    let workers = cores.saturating_sub(Lanes::count()).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
    let ended = runtime.block_on(serve(source, config, listener));
    runtime.shutdown_timeout(LAST);
    release(lock);
    ended
}

async fn serve(source: Source, config: Config, listener: TcpListener) -> Result<(), Failure> {
    let shutdown = Shutdown::new();
    let signals = Signals::new()?;
    let reload = Arc::new(Notify::new());
    let reloads = Reloads { source, wanted: Arc::clone(&reload) };
    tokio::select! {
        ended = start_and_wait(config, listener, shutdown.clone(), reloads) => ended,
        () = signals.pass_on(&shutdown, &reload) => Ok(()),
    }
}

/// Reads the configuration again each time that somebody asks for it.
struct Reloads {
    source: Source,
    wanted: Arc<Notify>,
}

impl Reloads {
    async fn follow(self, mut reloader: Reloader, shutdown: Shutdown) {
        loop {
            tokio::select! {
                () = shutdown.soft() => return,
                () = self.wanted.notified() => {}
            }
            let source = self.source.clone();
            reloader.reload(move || source.load().map_err(|error| told(&*error))).await;
        }
    }
}

async fn start_and_wait(
    config: Config,
    listener: TcpListener,
    shutdown: Shutdown,
    reloads: Reloads,
) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    let public_url = config.public_url.clone();
    let summary = Summary::of(&config);
    let gateway = app::start(config, listener, shutdown.clone()).await?;
    shutdown.spawn(reloads.follow(gateway.reloader(), shutdown.clone()));
    summary.report();
    let url = link(address, public_url.as_deref());
    match gateway.link_key() {
        Some(key) => output::line(&format!("{url}/#key={}", key.expose()))?,
        None => output::line(&format!("{url}/"))?,
    }
    Ok(gateway.ended().await?)
}

/// The lock is held until here: after the store was closed.
fn release(lock: DataLock) {
    drop(lock);
}

fn bind(listen: &Listen) -> Result<TcpListener, BindError> {
    let mut address = listen.address;
    let (first, last) = (address.port(), address.port().saturating_add(PORTS));
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && !listen.asked => {
                if address.port() == last {
                    return Err(BindError::NoneFree { first, last });
                }
                address.set_port(address.port() + 1);
            }
            Err(source) => return Err(BindError::Bind { address, source }),
        }
    }
}

/// Where a person's browser finds the gateway.
fn link(bound: SocketAddr, public_url: Option<&str>) -> String {
    match (bound.ip(), public_url) {
        (ip, Some(url)) if !ip.is_loopback() => url.to_owned(),
        (IpAddr::V4(ip), _) if ip.is_unspecified() => format!("http://127.0.0.1:{}", bound.port()),
        (IpAddr::V6(ip), _) if ip.is_unspecified() => format!("http://[::1]:{}", bound.port()),
        _ => format!("http://{bound}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_leads_where_a_browser_can_go() {
        let link = |bound: &str, public| link(bound.parse().unwrap(), public);
        assert_eq!(link("127.0.0.1:8080", None), "http://127.0.0.1:8080");
        assert_eq!(link("127.0.0.1:8080", Some("https://g.example")), "http://127.0.0.1:8080");
        assert_eq!(link("[::1]:8080", None), "http://[::1]:8080");
        assert_eq!(link("0.0.0.0:8080", None), "http://127.0.0.1:8080");
        assert_eq!(link("0.0.0.0:8080", Some("https://g.example")), "https://g.example");
        assert_eq!(link("10.0.0.5:80", None), "http://10.0.0.5:80");
    }

    #[test]
    fn a_taken_port_is_passed_over_unless_it_was_asked_for() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let asked = bind(&Listen { address, asked: true }).unwrap_err();
        assert_eq!(asked.to_string(), format!("{address} cannot be bound"));
        let other = bind(&Listen { address, asked: false }).unwrap().local_addr().unwrap();
        assert!(other.port() > address.port(), "{other}");
    }
}
