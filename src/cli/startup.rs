//! The output of `serve` when it accepts connections: its URL on stdout, and a summary on stderr with data folder,
//! agents, workspaces, and how to stop the gateway.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::geteuid;

use super::failure::Failure;
use super::link::{browser_url, link, page_url};
use super::lock::{self, DataLock};
use super::output;
use super::recorded::Recorder;
use crate::app::Gateway;
use crate::auth::CreateKeyError;
use crate::config::Config;
use crate::process::NO_ROOT_AGENTS;
use crate::types::text::one_line;
use crate::types::{Isolation, Mechanism, PublicUrl};

const STOP: &str = "SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once";

/// The output of a start, before the address is known.
#[derive(Debug)]
pub(super) struct Announcement {
    summary: Summary,
    public_url: Option<PublicUrl>,
    has_admin_key: bool,
    recorder: Option<Recorder>,
    lock: DataLock,
    exit_when_idle: Option<Duration>,
}

impl Announcement {
    /// `recorder` is the recorder of the output that must not have a key. `lock` is that of the data folder.
    pub(super) fn new(
        config: &Config,
        recorder: Option<Recorder>,
        lock: DataLock,
        exit_when_idle: Option<Duration>,
    ) -> Self {
        Self {
            summary: Summary::of(config),
            public_url: config.public_url.clone(),
            has_admin_key: config.admin_key.is_some(),
            recorder,
            lock,
            exit_when_idle,
        }
    }

    /// Starts the control socket, and prints the summary and the URL. The URL has a new key, unless the configuration sets the operator's key or
    /// the output is recorded.
    pub(super) fn publish(self, address: SocketAddr, gateway: &Gateway) -> Result<(), Failure> {
        lock::publish_url(&self.lock, &page_url(address, self.public_url.as_ref()))?;
        let url = browser_url(address, self.public_url.as_ref());
        if let Err(error) = gateway.serve_local(url.clone(), self.exit_when_idle) {
            tracing::warn!(%error, "no control socket in the data folder: attach needs --url and a key");
        }
        self.summary.report(gateway);
        let line = match self.recorder {
            _ if self.has_admin_key => format!("{url}/"),
            None => match gateway.create_link_key() {
                Ok(key) => {
                    gateway.link_printed(&key);
                    link(&url, &key)
                }
                // A start must not fail because people use their links.
                Err(error @ CreateKeyError::TooManyLinks(_)) => {
                    tracing::warn!(%error, "the start prints no link with a key");
                    format!("{url}/")
                }
                Err(error) => return Err(error.into()),
            },
            Some(recorder) => {
                tracing::info!(
                    "{recorder} keeps this output, so it has no key: run `acp-gateway link` for a link with a key, or \
                     start with --print-link"
                );
                format!("{url}/")
            }
        };
        Ok(output::write_line(&line)?)
    }
}

/// Values of the configuration that an operator checks after a start.
#[derive(Debug)]
struct Summary {
    data: String,
    agents: String,
    workspaces: String,
    run_as: Option<String>,
}

impl Summary {
    fn of(config: &Config) -> Self {
        let agents: Vec<String> = config.agents.keys().map(ToString::to_string).collect();
        let roots = std::iter::once(&config.workspaces.root).chain(&config.workspaces.allow);
        let workspaces: Vec<String> = roots.map(|root| root.display().to_string()).collect();
        let data = config.data.path().display().to_string();
        let run_as = match config.isolation.run_as {
            Some(users) => Some(users.to_string()),
            None if starts_no_agents(config) => Some(format!("not set: {NO_ROOT_AGENTS}")),
            None => None,
        };
        Self {
            data,
            agents: agents.join(", "),
            workspaces: workspaces.join(", "),
            run_as,
        }
    }

    /// Writes the summary to stderr: as text on a terminal, else as one record of the log, so that every line stays JSON.
    fn report(&self, gateway: &Gateway) {
        let Self {
            data,
            agents,
            workspaces,
            run_as,
        } = self;
        if io::stderr().is_terminal() {
            // A start does not fail because its terminal is gone.
            let sandbox = gateway.isolation().sandbox();
            let mechanism = sandbox.applied(Isolation::Private).mechanism;
            let isolation = isolation_text(mechanism, sandbox.shortcoming());
            drop(
                io::stderr()
                    .lock()
                    .write_all(self.text(&isolation).as_bytes()),
            );
        } else {
            let isolation = gateway
                .isolation()
                .sandbox()
                .applied(Isolation::Private)
                .mechanism;
            let control_groups = gateway.isolation().groups();
            tracing::info!(
                %data,
                %agents,
                %workspaces,
                %isolation,
                %control_groups,
                run_as = run_as.as_deref(),
                stop = STOP,
                "the gateway accepts connections"
            );
        }
    }

    fn text(&self, isolation: &str) -> String {
        let mut text = String::new();
        let lines = [
            ("data", Some(&*self.data)),
            ("agents", Some(&self.agents)),
            ("workspaces", Some(&self.workspaces)),
            ("isolation", Some(isolation)),
            ("run as", self.run_as.as_deref()),
            ("stop", Some(STOP)),
        ];
        for (name, value) in lines
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
        {
            let value = one_line(value);
            writeln!(text, "{name:<12}{value}").expect("writing to a string does not fail");
        }
        text
    }
}

/// Whether the gateway runs as root, and the configuration permits agents neither own users nor the rights of root.
pub(super) fn starts_no_agents(config: &Config) -> bool {
    geteuid().is_root() && config.isolation.run_as.is_none() && !config.isolation.allow_root
}

/// The mechanism that isolates agents. If it does not apply all of the levels: also the reason.
fn isolation_text(mechanism: Mechanism, shortcoming: Option<&str>) -> String {
    match shortcoming {
        Some(reason) if !mechanism.is_complete() => format!("{mechanism}: {reason}"),
        _ => mechanism.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_one_line_for_each_value() {
        let summary = Summary {
            data: "/data".to_owned(),
            agents: "claude, demo".to_owned(),
            workspaces: "/data/workspaces, /home/me/\u{1b}[2Jcode".to_owned(),
            run_as: Some("100000-165535".to_owned()),
        };
        let expected = "\
data        /data
agents      claude, demo
workspaces  /data/workspaces, /home/me/code
isolation   partial: no rules for signals
run as      100000-165535
stop        SIGINT (Ctrl-C) or SIGTERM; a second signal stops at once
";
        let reason = Some("no rules for signals");
        assert_eq!(
            summary.text(&isolation_text(Mechanism::Partial, reason)),
            expected
        );
        assert_eq!(isolation_text(Mechanism::Namespaces, None), "namespaces");
        assert_eq!(isolation_text(Mechanism::Landlock, reason), "landlock");
        assert_eq!(
            isolation_text(Mechanism::None, reason),
            "none: no rules for signals"
        );
    }
}
