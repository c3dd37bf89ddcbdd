//! An agent's own command in a terminal, for a person who signs in to it (ACP, Authentication, type `terminal`).

use std::sync::Arc;

use super::failure::AgentFailure;
use super::process::{Launcher, child_spec, with_cause};
use super::spec::AgentSpec;
use crate::acp::auth::TerminalAuth;
use crate::process::{Exit, PtyChild, PtyReader, PtySize, PtyWriter};

/// The command while it runs. Dropping it ends it, with all that it started.
#[derive(Debug)]
pub struct Terminal {
    pub output: PtyReader,
    pub input: PtyWriter,
    pub command: SignInCommand,
}

/// The command itself.
#[derive(Debug)]
pub struct SignInCommand(PtyChild);

impl SignInCommand {
    /// Waits for its end and that of all it started.
    pub async fn exited(&self) -> Exit {
        self.0.exited().await
    }

    /// Tells it how many characters the window has.
    pub fn resize(&self, cols: u16, rows: u16) {
        // One that has ended has no window.
        drop(self.0.resize(PtySize { cols, rows }));
    }
}

impl Launcher {
    /// Runs the configured command with what the method adds to it, and never another one.
    pub async fn sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        method: &TerminalAuth,
        (cols, rows): (u16, u16),
    ) -> Result<Terminal, AgentFailure> {
        let mut child = child_spec(spec);
        child.args.extend(method.args.iter().map(Into::into));
        child.env.retain(|(name, _)| !method.env.iter().any(|(overlaid, _)| name == overlaid.as_str()));
        child.env.extend(method.env.iter().map(|(name, value)| (name.into(), value.into())));
        let spawned = self.spawner.spawn_pty(child, PtySize { cols, rows }).await;
        let mut child = spawned.map_err(|error| AgentFailure::Start { detail: with_cause(&error) })?;
        let output = child.take_reader().expect("a new child has its terminal");
        let input = child.take_writer().expect("a new child has its terminal");
        Ok(Terminal { output, input, command: SignInCommand(child) })
    }
}
