//! The command of a translation.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::protocol::Launch;
use base::shutdown::Shutdown;
use base::types::{Isolation, Limits, OWN_PROGRAM};
use children::{Child, ChildIsolation, ChildSpec, SpawnError, Spawner};

/// The time for the output of the command with one argument, and its size.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);
const OUTPUT_BYTES: u64 = 1024;

/// The command of the agent. Its arguments and variables may contain secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct ChildCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    /// The working directory of the child, unless its session has another one.
    pub cwd: PathBuf,
}

/// The deadlines of a stop. A gateway stops the translation with the defaults, so the command has ended before the gateway
/// sends TERM, and before it sends KILL during its own end.
fn limits() -> Limits {
    Limits {
        stop_stdin_timeout: Duration::from_secs(3),
        stop_term_timeout: Duration::from_secs(1),
        drain_stdin_timeout: Duration::ZERO,
        drain_term_timeout: Duration::from_millis(700),
        stop_kill_timeout: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// Starts the command with the rights of this process. It writes to the stderr of this process.
pub(super) struct Launcher {
    spawner: Spawner,
    command: ChildCommand,
}

impl Launcher {
    pub(super) fn new(command: ChildCommand, shutdown: &Shutdown) -> Self {
        let limits = Arc::new(limits());
        let spawner = Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), limits);
        let spawner = spawner.with_inherited_stderr();
        Self { spawner, command }
    }

    pub(super) async fn start(&self, launch: Launch) -> Result<Child, SpawnError> {
        let mut command = self.command.clone();
        let arguments = launch.arguments.into_iter().map(OsString::from);
        command.args.extend(arguments);
        let spec = ChildSpec {
            program: command.program,
            args: command.args,
            env: command.env,
            home: launch.cwd.unwrap_or(command.cwd),
            cwd: None,
            secrets: Vec::new(),
            isolation: ChildIsolation {
                level: Isolation::Off,
                ..ChildIsolation::default()
            },
        };
        self.spawner.spawn(spec).await
    }

    /// The first output of the command with this argument. `None` if the command does not end in time.
    pub(super) async fn output(&self, cwd: Option<PathBuf>, argument: &str) -> Option<String> {
        let launch = Launch {
            cwd,
            arguments: vec![argument.to_owned()],
        };
        let output = async {
            let mut child = self.start(launch).await.ok()?;
            let mut stdout = child.take_stdout()?.take(OUTPUT_BYTES);
            let mut output = Vec::new();
            // The end of its input ends a command that does not know the argument.
            let (_, read) = tokio::join!(child.stop(), stdout.read_to_end(&mut output));
            read.ok()?;
            Some(String::from_utf8_lossy(&output).into_owned())
        };
        timeout(OUTPUT_TIMEOUT, output).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_ends_before_the_next_step_of_the_gateway() {
        let own = limits();
        let gateway = Limits::default();
        let total = own.stop_stdin_timeout + own.stop_term_timeout + own.stop_kill_timeout;
        assert!(total < gateway.stop_stdin_timeout);
        let drain = own.drain_stdin_timeout + own.drain_term_timeout;
        assert!(drain < gateway.drain_term_timeout);
    }
}
