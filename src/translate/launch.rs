//! The child of a translation.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::process::{Child, ChildIsolation, ChildSpec, SpawnError, Spawner};
use crate::shutdown::Shutdown;
use crate::types::{Isolation, Limits};

/// The file of this program, which is also the supervisor.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The command of the agent.
#[derive(Clone)]
pub struct ChildCommand {
    /// Absolute.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment of the child.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory of the child, unless its session has another one.
    pub cwd: PathBuf,
}

impl fmt::Debug for ChildCommand {
    /// Shows only the number of arguments and variables, because they may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildCommand")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .finish()
    }
}

/// Starts children with the rights of this process. They write to its stderr.
#[derive(Debug)]
pub(super) struct Launch {
    spawner: Spawner,
    command: ChildCommand,
}

impl Launch {
    pub(super) fn new(command: ChildCommand, shutdown: &Shutdown) -> Self {
        let limits = Arc::new(Limits::default());
        let spawner = Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), limits)
            .with_inherited_stderr();
        Self { spawner, command }
    }

    /// Starts the child. `arguments` follow those of the command.
    pub(super) async fn start(
        &self,
        cwd: Option<PathBuf>,
        arguments: Vec<String>,
    ) -> Result<Child, SpawnError> {
        let ChildCommand {
            program,
            args,
            env,
            cwd: own,
        } = self.command.clone();
        let args = args
            .into_iter()
            .chain(arguments.into_iter().map(OsString::from))
            .collect();
        let isolation = ChildIsolation {
            level: Isolation::Off,
            ..ChildIsolation::default()
        };
        let home = cwd.unwrap_or(own);
        let spec = ChildSpec {
            program,
            args,
            env,
            home,
            cwd: None,
            secrets: Vec::new(),
            isolation,
        };
        self.spawner.spawn(spec).await
    }
}
