//! The folders of a session that its agent uses: `fs/*` requests (ACP, File System), and the folders of commands.

use std::path::PathBuf;

use serde_json::value::RawValue;

use base::shutdown::Shutdown;
use base::types::{AgentName, Ids, SessionId};
use events::event::RefuseReason;
use log::audit::CountedEvents;
use wire::acp::{self, CreateTerminal, Outcome, RequestKind, error_code, method};
use workspace::{
    FileError, FileRequestError, Workspace, Workspaces, check_file_request, serve_file_request,
};

/// The folders of the session, for a request that runs outside of the actor.
pub(crate) struct Folders {
    pub(crate) workspaces: Workspaces,
    pub(crate) cwd: PathBuf,
    pub(crate) additional: Vec<PathBuf>,
    /// Counts the requests for paths outside of the folders.
    pub(crate) refusals: CountedEvents,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) ids: Ids,
}

impl Folders {
    /// Counts a request for a path outside of the folders: its rejection is a decision about access.
    fn count_refusal(&self, method: &'static str) {
        let reason = RefuseReason::OutsideFolders;
        let now = self.ids.now();
        self.refusals
            .refused(&self.agent, self.session, method, reason, now);
    }

    /// Serves a request for a file of at most `max_bytes`. Blocks on the file system.
    pub(crate) fn serve(&self, method: &str, params: &RawValue, max_bytes: u64) -> Outcome {
        serve_file_request(|| self.open(), method, params, max_bytes)
            .map_err(|error| self.failed(method, &error))
    }

    /// Checks that a file that a client serves is in the folders. Blocks on the file system.
    pub(crate) fn check(&self, method: &str, params: &RawValue) -> Result<(), Box<RawValue>> {
        check_file_request(|| self.open(), params).map_err(|error| self.failed(method, &error))
    }

    fn failed(&self, method: &str, error: &FileRequestError) -> Box<RawValue> {
        if let Some(method) = RequestKind::from_method(method).served_method()
            && error.is_outside()
        {
            self.count_refusal(method);
        }
        error.response()
    }

    /// The folder in which a command runs. Fails with the error for the agent.
    pub(crate) async fn of_command(
        self,
        asked: &CreateTerminal,
        shutdown: &Shutdown,
    ) -> Result<PathBuf, Box<RawValue>> {
        let requested = asked.cwd.clone();
        let find = move || {
            let Some(requested) = requested else {
                return Ok(self.cwd);
            };
            let found = self
                .open()
                .and_then(|folders| folders.real_directory(&requested));
            if matches!(found, Err(FileError::OutsideRoots)) {
                self.count_refusal(method::TERMINAL_CREATE);
            }
            found
        };
        let found = shutdown
            .spawn_blocking(find)
            .await
            .map_err(|_| work_aborted())?;
        found.map_err(|error| acp::error(error_code::INVALID_PARAMS, &format!("cwd: {error}")))
    }

    fn open(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(&self.cwd, &self.additional)
    }
}

pub(crate) fn work_aborted() -> Box<RawValue> {
    acp::error(error_code::INTERNAL, "the work was aborted")
}
