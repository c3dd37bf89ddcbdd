//! Commands that the client runs for the agent.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, CreateTerminalResponse, EnvVariable, Error, KillTerminalRequest,
    ReleaseTerminalRequest, TerminalExitStatus, TerminalId, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use serde_json::Value;

use super::turn::{Step, Turn};

/// The number of bytes of output that the client keeps.
const OUTPUT_BYTES: u64 = 64 << 10;
/// The timeout of the release of terminals when a turn ends early.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

impl Turn {
    /// Starts a command in the session's directory. The end of the turn releases the terminal, if the scene
    /// has not done so.
    pub(super) async fn start_terminal(&mut self, words: &[String]) -> Step<Result<TerminalId, Error>> {
        let Some((command, args)) = words.split_first() else {
            return Ok(Err(Error::invalid_params().data("there is no command")));
        };
        let params = {
            let record = self.record();
            CreateTerminalRequest::new(record.session_id.clone(), command.clone())
                .args(args.to_vec())
                .env(vec![EnvVariable::new("ACP_DEMO", "1")])
                .cwd(record.place.cwd.clone())
                .output_byte_limit(OUTPUT_BYTES)
        };
        let created = self.request::<_, CreateTerminalResponse>("terminal/create", params).await?;
        if let Ok(terminal) = &created {
            self.terminals.push(terminal.terminal_id.clone());
        }
        Ok(created.map(|terminal| terminal.terminal_id))
    }

    pub(super) async fn terminal_output(
        &self,
        id: &TerminalId,
    ) -> Step<Result<TerminalOutputResponse, Error>> {
        let params = TerminalOutputRequest::new(self.record().session_id.clone(), id.clone());
        self.request("terminal/output", params).await
    }

    pub(super) async fn terminal_exit(&self, id: &TerminalId) -> Step<Result<TerminalExitStatus, Error>> {
        let params = WaitForTerminalExitRequest::new(self.record().session_id.clone(), id.clone());
        let exit = self.request::<_, WaitForTerminalExitResponse>("terminal/wait_for_exit", params).await?;
        Ok(exit.map(|exit| exit.exit_status))
    }

    pub(super) async fn kill_terminal(&self, id: &TerminalId) -> Step<Result<(), Error>> {
        let params = KillTerminalRequest::new(self.record().session_id.clone(), id.clone());
        Ok(self.request::<_, Value>("terminal/kill", params).await?.map(|_| ()))
    }

    pub(super) async fn release_terminal(&mut self, id: &TerminalId) -> Step<Result<(), Error>> {
        let params = ReleaseTerminalRequest::new(self.record().session_id.clone(), id.clone());
        let released = self.request::<_, Value>("terminal/release", params).await?;
        self.terminals.retain(|open| open != id);
        Ok(released.map(|_| ()))
    }

    /// Releases the terminals of a turn that ended early, also after a cancel.
    pub(super) async fn release_terminals(&mut self) {
        for id in std::mem::take(&mut self.terminals) {
            let params = ReleaseTerminalRequest::new(self.record().session_id.clone(), id);
            let released = self.peer.request::<_, Value>("terminal/release", params);
            // A client that does not answer keeps the terminal until the session ends.
            drop(tokio::time::timeout(RELEASE_TIMEOUT, released).await);
        }
    }
}
