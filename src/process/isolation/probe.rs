//! Finds the mechanisms of isolation that work on this machine, by using them once.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::types::{Mechanism, UserRange};

/// The longest run of one attempt. Starts of agents wait for the probe.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The mechanism that works, and what is missing for the best one.
#[derive(Debug, Clone, Default)]
pub(super) struct Probed {
    /// The namespaces, Landlock, or nothing.
    pub(super) mechanism: Mechanism,
    /// The mechanism does not apply a part of the levels.
    pub(super) is_partial: bool,
    pub(super) shortcoming: Option<String>,
    /// A child can connect to socket files in hidden folders.
    pub(super) leaves_sockets_open: bool,
}

impl Probed {
    /// The mechanism that the gateway reports.
    pub(super) fn reported(&self) -> Mechanism {
        if self.is_partial {
            Mechanism::Partial
        } else {
            self.mechanism
        }
    }

    /// The mechanism works, but does not apply a part of the levels.
    pub(super) fn limit(&mut self, shortcoming: &str) {
        self.is_partial = true;
        let known = self.shortcoming.take().map(|known| format!("{known}; "));
        self.shortcoming = Some(format!("{}{shortcoming}", known.unwrap_or_default()));
    }
}

/// Tries the mechanisms for children with these users, the best one first. `folder` is for files of the probe.
pub(super) fn run(supervisor: &Path, folder: &Path, users: Option<UserRange>) -> Probed {
    let user = users.map(|users| users.first().to_string());
    let attempt = |stage| attempt(supervisor, stage, folder, user.as_deref());
    let Err(error) = attempt("probe-namespaces") else {
        return Probed {
            mechanism: Mechanism::Namespaces,
            ..Probed::default()
        };
    };
    let namespaces = match attempt("probe-namespaces-partial") {
        Ok(()) => {
            let mut probed = Probed {
                mechanism: Mechanism::Namespaces,
                ..Probed::default()
            };
            probed.limit(&format!(
                "agents can connect to abstract sockets of other processes: {error}"
            ));
            return probed;
        }
        Err(error) => {
            format!("namespaces: {error}; sandboxes of agents that mount file systems fail")
        }
    };
    match attempt("probe-landlock") {
        Ok(()) => {
            let leaves_sockets_open = attempt("probe-landlock-sockets").is_err();
            let mechanism = Mechanism::Landlock;
            Probed {
                mechanism,
                is_partial: false,
                shortcoming: Some(namespaces),
                leaves_sockets_open,
            }
        }
        Err(error) => {
            let is_partial = attempt("probe-landlock-partial").is_ok();
            let mechanism = if is_partial {
                Mechanism::Landlock
            } else {
                Mechanism::None
            };
            let shortcoming = Some(format!("{namespaces}; landlock: {error}"));
            Probed {
                mechanism,
                is_partial,
                shortcoming,
                leaves_sockets_open: true,
            }
        }
    }
}

/// Runs a stage of the supervisor that uses a mechanism. The error is its first line of output.
#[expect(
    clippy::disallowed_methods,
    reason = "the probe runs before the gateway starts agents"
)]
fn attempt(
    supervisor: &Path,
    stage: &str,
    folder: &Path,
    user: Option<&str>,
) -> Result<(), String> {
    let mut probe = Command::new(supervisor)
        .arg("supervisor")
        .arg(stage)
        .args(user)
        .env_clear()
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    if !ends(&probe, TIMEOUT).unwrap_or(true) {
        probe.kill().map_err(|error| error.to_string())?;
        probe.wait().map_err(|error| error.to_string())?;
        return Err(format!("no result within {TIMEOUT:?}"));
    }
    if probe.wait().map_err(|error| error.to_string())?.success() {
        return Ok(());
    }
    let mut text = String::new();
    if let Some(stderr) = probe.stderr.take() {
        // The text only explains the failure. The exit code reports it.
        drop(stderr.take(1024).read_to_string(&mut text));
    }
    Err(text.lines().next().unwrap_or("unknown").to_owned())
}

/// Waits until the child ends. Returns false after the timeout.
fn ends(child: &Child, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child of the test")]
    fn attempt_without_a_result_ends_at_the_timeout() {
        let mut sleeping = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!ends(&sleeping, Duration::from_millis(20)).unwrap());
        sleeping.kill().unwrap();
        assert!(ends(&sleeping, Duration::from_secs(20)).unwrap());
        sleeping.wait().unwrap();
    }
}
