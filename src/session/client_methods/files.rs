//! The folders of a session that its agent uses: `fs/*` requests (ACP, File System), and the folders of commands.

use std::path::PathBuf;

use serde_json::value::RawValue;

use crate::acp::{self, CreateTerminal, Outcome, error_code, method};
use crate::audit::CountedEvents;
use crate::event::RefuseReason;
use crate::shutdown::Shutdown;
use crate::types::{AgentName, Ids, SessionId};
use crate::workspace::{FileError, LineRange, Workspace, Workspaces};

/// The folders of the session, for a request that runs outside of the actor.
#[derive(Debug)]
pub(in crate::session) struct Folders {
    pub(in crate::session) workspaces: Workspaces,
    pub(in crate::session) cwd: PathBuf,
    pub(in crate::session) additional: Vec<PathBuf>,
    pub(in crate::session) refusals: Refusals,
}

/// Counts the requests of a session's agent for paths outside of its folders.
#[derive(Debug)]
pub(in crate::session) struct Refusals {
    pub(in crate::session) counted: CountedEvents,
    pub(in crate::session) agent: AgentName,
    pub(in crate::session) session: SessionId,
    pub(in crate::session) ids: Ids,
}

impl Refusals {
    /// Counts the request if the error is a decision about access.
    fn note(&self, method: &'static str, error: &FileError) {
        if matches!(error, FileError::OutsideRoots) {
            let refused = (method, RefuseReason::OutsideFolders);
            self.counted.refused(&self.agent, self.session, refused, self.ids.now());
        }
    }
}

impl Folders {
    /// Serves a request for a file of at most `max_bytes`. Blocks on the file system.
    pub(in crate::session) fn serve(&self, method: &str, params: &RawValue, max_bytes: u64) -> Outcome {
        match method {
            method::FS_READ_TEXT_FILE => {
                let asked: acp::ReadTextFile<'_> = acp::parse(params).map_err(|_| invalid_params())?;
                let window = LineRange { line: asked.line, limit: asked.limit };
                let text = self.open().and_then(|found| found.read_text(&asked.path, window, max_bytes));
                let text =
                    text.map_err(|error| self.failed(method::FS_READ_TEXT_FILE, &asked.path, &error))?;
                Ok(acp::read_text_file_result(&text))
            }
            method::FS_WRITE_TEXT_FILE => {
                let asked: acp::WriteTextFile<'_> = acp::parse(params).map_err(|_| invalid_params())?;
                let saved =
                    self.open().and_then(|found| found.write_text(&asked.path, &asked.content, max_bytes));
                saved.map_err(|error| self.failed(method::FS_WRITE_TEXT_FILE, &asked.path, &error))?;
                Ok(acp::empty_result())
            }
            _ => Err(acp::method_not_found(method)),
        }
    }

    /// Checks that a file that a client serves is in the folders. Blocks on the file system.
    pub(in crate::session) fn check(&self, method: &str, params: &RawValue) -> Result<(), Box<RawValue>> {
        let method = match method {
            method::FS_READ_TEXT_FILE => method::FS_READ_TEXT_FILE,
            _ => method::FS_WRITE_TEXT_FILE,
        };
        let asked: acp::FilePath<'_> = acp::parse(params).map_err(|_| invalid_params())?;
        let checked = self.open().and_then(|found| found.check_absolute(&asked.path));
        checked.map_err(|error| self.failed(method, &asked.path, &error))
    }

    /// The error for the agent.
    fn failed(&self, method: &'static str, path: &str, error: &FileError) -> Box<RawValue> {
        self.refusals.note(method, error);
        file_error(path, error)
    }

    /// The folder in which a command runs. Fails with the error for the agent.
    pub(in crate::session) async fn of_command(
        self,
        asked: &CreateTerminal,
        shutdown: &Shutdown,
    ) -> Result<PathBuf, Box<RawValue>> {
        let requested = asked.cwd.clone();
        let find = move || match requested {
            Some(requested) => {
                let found = self.open().and_then(|folders| folders.real_directory(&requested));
                found.inspect_err(|error| self.refusals.note(method::TERMINAL_CREATE, error))
            }
            None => Ok(self.cwd),
        };
        let found = shutdown.spawn_blocking(find).await.map_err(|_| work_aborted())?;
        found.map_err(|error| acp::error(error_code::INVALID_PARAMS, &format!("cwd: {error}")))
    }

    fn open(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(&self.cwd, &self.additional)
    }
}

/// The response if the work for a request was aborted.
pub(in crate::session) fn work_aborted() -> Box<RawValue> {
    acp::error(error_code::INTERNAL, "the work was aborted")
}

fn invalid_params() -> Box<RawValue> {
    acp::error(error_code::INVALID_PARAMS, "the params do not match this method")
}

fn file_error(path: &str, error: &FileError) -> Box<RawValue> {
    let code = match error {
        FileError::Missing => return acp::resource_not_found(&acp::file_uri(path)),
        FileError::Malformed
        | FileError::Relative
        | FileError::OutsideRoots
        | FileError::NotAFile
        | FileError::NotADirectory
        | FileError::NotEmpty
        | FileError::TooLarge(_)
        | FileError::NotText => error_code::INVALID_PARAMS,
        FileError::Io(cause) => {
            tracing::warn!(error = %cause, "could not read or write a file for the agent");
            error_code::INTERNAL
        }
        FileError::Changed | FileError::PermissionDenied | FileError::DiskFull => error_code::INTERNAL,
    };
    acp::error(code, &error.to_string())
}
