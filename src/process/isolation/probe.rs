//! Finds the mechanisms of isolation that work on this machine, by using them once.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::types::{Mechanism, UserRange};

/// The mechanism that works, and what is missing for the best one.
#[derive(Debug, Clone, Default)]
pub(super) struct Probed {
    pub(super) mechanism: Mechanism,
    pub(super) shortcoming: Option<String>,
}

/// Tries the mechanisms for children with these users, the best one first.
pub(super) fn run(supervisor: &Path, users: Option<UserRange>) -> Probed {
    let user = users.map(|users| users.first().to_string());
    let attempt = |stage| attempt(supervisor, stage, user.as_deref());
    let namespaces = match attempt("probe-namespaces") {
        Ok(()) => return Probed { mechanism: Mechanism::Namespaces, shortcoming: None },
        Err(error) => format!("namespaces: {error}"),
    };
    match attempt("probe-landlock") {
        Ok(()) => Probed { mechanism: Mechanism::Landlock, shortcoming: Some(namespaces) },
        Err(error) => {
            let partial = attempt("probe-landlock-files").is_ok();
            let mechanism = if partial { Mechanism::Partial } else { Mechanism::None };
            Probed { mechanism, shortcoming: Some(format!("{namespaces}; landlock: {error}")) }
        }
    }
}

/// Runs a stage of the supervisor that uses a mechanism. The error is its first line of output.
#[expect(clippy::disallowed_methods, reason = "the probe runs before the gateway starts agents")]
fn attempt(supervisor: &Path, stage: &str, user: Option<&str>) -> Result<(), String> {
    let mut probe = Command::new(supervisor)
        .arg("supervisor")
        .arg(stage)
        .args(user)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut text = String::new();
    if let Some(stderr) = probe.stderr.take() {
        // The text only explains the failure. The exit code reports it.
        drop(stderr.take(1024).read_to_string(&mut text));
    }
    let ended = probe.wait().map_err(|error| error.to_string())?;
    if ended.success() { Ok(()) } else { Err(text.lines().next().unwrap_or("unknown").to_owned()) }
}
