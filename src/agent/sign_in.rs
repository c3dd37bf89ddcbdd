//! An agent's own command in a terminal, for a person who signs in (ACP, Authentication, type `terminal`).

use std::sync::Arc;

use super::failure::AgentFailure;
use super::launcher::Launcher;
use super::spec::AgentSpec;
use crate::acp::auth::TerminalAuth;
use crate::process::{Exit, PtyChild, PtyReader, PtySize, PtyWriter};
use crate::types::Tenant;

/// The running command. Dropping it stops it and all its descendants.
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
    /// Waits for its end and the end of all its descendants.
    pub async fn exited(&self) -> Exit {
        self.0.exited().await
    }

    /// Sets the size of the window in characters.
    pub fn resize(&self, cols: u16, rows: u16) {
        // A command that has ended has no window.
        drop(self.0.resize(PtySize { cols, rows }));
    }
}

impl Launcher {
    /// Runs the configured command with the additions of the method, and never another command.
    pub async fn run_sign_in(
        &self,
        spec: &Arc<AgentSpec>,
        tenant: &Tenant,
        method: &TerminalAuth,
        (cols, rows): (u16, u16),
    ) -> Result<Terminal, AgentFailure> {
        let mut child = self.child_spec(spec, tenant, Vec::new()).await?;
        child.args.extend(method.args.iter().map(Into::into));
        child.env.retain(|(name, _)| {
            !method
                .env
                .iter()
                .any(|(overlaid, _)| name == overlaid.as_str())
        });
        child.env.extend(
            method
                .env
                .iter()
                .map(|(name, value)| (name.into(), value.into())),
        );
        let spawned = self.spawner.spawn_pty(child, PtySize { cols, rows }).await;
        let mut child = spawned.map_err(AgentFailure::from)?;
        let output = child.take_reader().expect("a new child has its terminal");
        let input = child.take_writer().expect("a new child has its terminal");
        Ok(Terminal {
            output,
            input,
            command: SignInCommand(child),
        })
    }
}
