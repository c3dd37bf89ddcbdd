//! The isolation of children on this machine, and its test with the command of each agent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinError;

use super::catalogue::{masked_values, user_home, variables};
use crate::config::{self, Config, Launch};
use base::shutdown::Shutdown;
use base::telemetry::ErrorChain;
use base::types::{Isolation, OWN_PROGRAM, Tenant};
use children::{
    self, AgentUsers, ChildIsolation, ChildSpec, ControlGroups, Exit, HostIsolation, Sandbox,
    Spawner, UsersError,
};
use wire::jsonrpc::plain_line;

/// How a gateway isolates its children. The control groups come first: the gateway moves itself, and the probe starts
/// processes.
pub(super) fn host_isolation(config: &Config, users: Option<AgentUsers>) -> HostIsolation {
    let (hidden, home) = hidden(config);
    let policy = config.isolation;
    let temporary = config.data.temporary();
    let record = config.data.control_groups();
    HostIsolation::with_preparation(Sandbox::unavailable(policy), move || {
        let groups = ControlGroups::open(&record);
        let sandbox =
            Sandbox::probe(OWN_PROGRAM.as_ref(), hidden, home, temporary, policy).with_users(users);
        if let Some(missing) = sandbox.shortcoming() {
            let mechanism = sandbox.applied(Isolation::Private).mechanism;
            tracing::warn!(%mechanism, missing, "agents cannot be isolated completely");
        }
        (sandbox, groups)
    })
}

/// Why the commands of agents cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum CommandTestError {
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error("could not create a folder for the test of a command")]
    Folder(#[from] io::Error),
    #[error(transparent)]
    Preparation(#[from] JoinError),
}

/// The isolation of a child of a command, which may run beside a gateway: without control groups, and with its temporary folders
/// and its home ([`scratch_home`]) in `scratch`.
pub fn command_isolation(
    config: &Config,
    scratch: &Path,
) -> Result<HostIsolation, CommandTestError> {
    scratch_home(scratch)?;
    let (hidden, home) = hidden(config);
    let policy = config.isolation;
    let temporary = scratch.join("tmp");
    let users = policy.run_as.map(|range| {
        // The users of the agents' homes are in use.
        let in_use = config.data.homes().join(Tenant::default().as_str());
        AgentUsers::open(range, scratch, scratch.join("homes"), in_use)
    });
    let users = users.transpose()?;
    Ok(HostIsolation::with_preparation(
        Sandbox::unavailable(policy),
        move || {
            (
                Sandbox::probe(OWN_PROGRAM.as_ref(), hidden, home, temporary, policy)
                    .with_users(users),
                ControlGroups::default(),
            )
        },
    ))
}

/// Creates the home of a child of a command.
pub fn scratch_home(scratch: &Path) -> io::Result<PathBuf> {
    let home = scratch.join("homes/check/home");
    fs::create_dir_all(&home)?;
    Ok(home)
}

/// The folders that children do not see, and the home of the operator.
fn hidden(config: &Config) -> (Vec<PathBuf>, Option<PathBuf>) {
    let mut hidden = vec![
        config.data.path().to_owned(),
        config.workspaces.root.clone(),
    ];
    hidden.extend(config.workspaces.allow.iter().cloned());
    (hidden, config.child_environment.home.clone())
}

const PATIENCE: Duration = Duration::from_secs(3);
const OUTPUT_BYTES: usize = 300;

/// The commands that do not start, one sentence for each. `scratch`: an empty folder. A command at the level `strict` is not
/// tested, because the operator's own command isolates it.
///
/// A command that exists may still not start there: the isolation can hide its interpreter, or the version to which a
/// shim leads. The command runs with `--version` in place of its arguments, in an empty home.
pub async fn failed_commands(
    config: &Config,
    shutdown: &Shutdown,
    scratch: &Path,
) -> Result<Vec<String>, CommandTestError> {
    let isolation = command_isolation(config, scratch)?;
    isolation.prepare(shutdown).await?;
    let limits = Arc::new(children::Limits {
        stop_stdin_timeout: PATIENCE,
        stop_term_timeout: Duration::from_secs(1),
        ..children::Limits::default()
    });
    let spawner = Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), limits);
    let spawner = spawner.with_isolation(isolation);
    let mut failed = Vec::new();
    for (name, agent) in &config.agents {
        let level = agent.settings.isolation;
        if level == Isolation::Strict {
            continue;
        }
        let home = match user_home(config, agent) {
            Some(home) => home.clone(),
            None => scratch_home(scratch)?,
        };
        let run = async |level| {
            let spec = child(config, agent, &home, level)?;
            Some(version(&spawner, spec).await)
        };
        let Some(Err(error)) = run(level).await else {
            continue;
        };
        let key = format!("agents.{name}");
        if level.restricts_folders() && matches!(run(Isolation::Off).await, Some(Ok(()))) {
            failed.push(format!(
                "{key}.command: it starts without isolation, but not in the isolation of its entry: {error}; add the folders \
                 that it needs to {key}.folders"
            ));
        } else if error.is_certain {
            failed.push(format!("{key}.command: {error}"));
        }
    }
    Ok(failed)
}

/// `None` if the command is not found, or if the agent does not run on this machine.
fn child(
    config: &Config,
    agent: &config::Agent,
    home: &Path,
    level: Isolation,
) -> Option<ChildSpec> {
    let Launch::Command { command, .. } = &agent.launch else {
        return None;
    };
    let path = children::trusted_path(&config.child_environment.path);
    let program = children::resolve(command.as_ref(), &path).ok()?;
    let mut env = variables(config, agent, path);
    env.push(("HOME".into(), home.into()));
    Some(ChildSpec {
        program,
        args: vec!["--version".into()],
        env,
        home: home.to_owned(),
        cwd: Some(home.to_owned()),
        secrets: masked_values(config, agent),
        isolation: ChildIsolation {
            level,
            folders: vec![home.to_owned()],
            configured: agent.settings.folders.clone(),
            limits: agent.settings.resources,
        },
    })
}

#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct NotStarted {
    text: String,
    /// False: the program may have another reason, for example that it does not know the argument.
    is_certain: bool,
}

/// Runs a command until its end, or for a limited time. A command that has to be stopped has started.
async fn version(spawner: &Spawner, spec: ChildSpec) -> Result<(), NotStarted> {
    let mut child = spawner.spawn(spec).await.map_err(|error| NotStarted {
        text: ErrorChain(&error).to_string(),
        is_certain: true,
    })?;
    // It gets no input. A program that does not know the argument may wait, and is stopped.
    let mut stdout = child.take_stdout().expect("a new child has its stdout");
    let mut ignored = tokio::io::sink();
    let read = tokio::io::copy(&mut stdout, &mut ignored);
    let (Exit { code, signal }, _) = tokio::join!(child.stop(), read);
    let is_stopped = matches!(signal.as_deref(), Some("SIGTERM" | "SIGKILL"));
    if code == Some(0) || is_stopped {
        return Ok(());
    }
    let end = match (code, signal) {
        (Some(code), _) => format!("it exited with code {code}"),
        (None, signal) => format!("it was ended by {}", signal.unwrap_or_default()),
    };
    let output = plain_line(&child.stderr.tail(), OUTPUT_BYTES);
    let colon = if output.is_empty() { "" } else { ": " };
    Err(NotStarted {
        text: format!("{end}{colon}{output}"),
        // A shell or `env` does not find a program, or cannot execute it.
        is_certain: matches!(code, Some(126 | 127)),
    })
}
