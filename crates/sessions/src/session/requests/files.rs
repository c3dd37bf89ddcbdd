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
    pub(crate) refusals: Refusals,
}

/// Counts the requests of a session's agent for paths outside of its folders.
pub(crate) struct Refusals {
    pub(crate) counted: CountedEvents,
    pub(crate) agent: AgentName,
    pub(crate) session: SessionId,
    pub(crate) ids: Ids,
}

impl Refusals {
    /// Counts the request if its error is a decision about access: the path is outside of the folders.
    fn note(&self, method: &'static str, is_outside: bool) {
        if is_outside {
            let refused = (method, RefuseReason::OutsideFolders);
            self.counted
                .refused(&self.agent, self.session, refused, self.ids.now());
        }
    }
}

impl Folders {
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
        if let Some(method) = RequestKind::from_method(method).served_method() {
            self.refusals.note(method, error.is_outside());
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
        let find = move || match requested {
            Some(requested) => {
                let found = self
                    .open()
                    .and_then(|folders| folders.real_directory(&requested));
                found.inspect_err(|error| {
                    self.refusals.note(
                        method::TERMINAL_CREATE,
                        matches!(error, FileError::OutsideRoots),
                    );
                })
            }
            None => Ok(self.cwd),
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
