//! Runs the programs of package managers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::process::{ChildIsolation, ChildSpec, ResolveError, SpawnError, Spawner, resolve};
use crate::types::Isolation;

/// The time for one program. An installation downloads its packages.
const TIMEOUT: Duration = Duration::from_mins(10);
/// The size of the output that is kept.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{program}: {source}; install it, or choose another distribution with --kind")]
    Missing {
        program: String,
        source: ResolveError,
    },
    #[error("could not start {program}")]
    Spawn { program: String, source: SpawnError },
    #[error("{program} did not end within {} minutes", TIMEOUT.as_secs() / 60)]
    Timeout { program: String },
    #[error("{program} failed: {output}")]
    Failed { program: String, output: String },
}

/// Starts programs with the rights of this process.
#[derive(Debug, Clone)]
pub struct Programs {
    pub spawner: Spawner,
    /// The environment of the programs, without variables of the gateway and without keys of agents.
    pub env: Vec<(OsString, OsString)>,
    pub path: OsString,
    pub home: PathBuf,
}

impl Programs {
    /// Whether the program is on `PATH`.
    pub(super) fn has(&self, program: &str) -> bool {
        resolve(program.as_ref(), &self.path).is_ok()
    }

    /// Runs a program in a folder to its end. Returns its output.
    pub(super) async fn run(
        &self,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<String, ProgramError> {
        let name = program.display().to_string();
        let resolved = resolve(program.as_os_str(), &self.path);
        let resolved = resolved.map_err(|source| ProgramError::Missing {
            program: name.clone(),
            source,
        })?;
        let spec = ChildSpec {
            program: resolved,
            args: arguments.iter().map(Into::into).collect(),
            env: self.env.clone(),
            home: self.home.clone(),
            cwd: Some(folder.to_owned()),
            secrets: Vec::new(),
            isolation: ChildIsolation {
                level: Isolation::Off,
                ..ChildIsolation::default()
            },
        };
        let spawned = self.spawner.spawn(spec).await;
        let mut child = spawned.map_err(|source| ProgramError::Spawn {
            program: name.clone(),
            source,
        })?;
        let mut stdout = child.take_stdout().expect("a new child has its stdout");
        let mut output = String::new();
        let ended = timeout(TIMEOUT, async {
            drop(
                (&mut stdout)
                    .take(MAX_OUTPUT_BYTES)
                    .read_to_string(&mut output)
                    .await,
            );
            // The program waits if its output is not read.
            drop(tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await);
            child.exited().await
        });
        let Ok(exit) = ended.await else {
            child.kill().await;
            return Err(ProgramError::Timeout { program: name });
        };
        if exit.code == Some(0) {
            return Ok(output);
        }
        let tail = child.stderr().tail();
        let output = if tail.trim().is_empty() { output } else { tail };
        Err(ProgramError::Failed {
            program: name,
            output: output.trim().to_owned(),
        })
    }
}
