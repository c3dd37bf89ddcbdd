//! `fs/*` requests of agents, served from the session's folders (ACP, File System).

use std::path::{Path, PathBuf};

use serde_json::value::RawValue;

use crate::acp::{self, Outcome, error_code, method};
use crate::workspace::{FileError, LineRange, Workspace, Workspaces};

/// The data of the session that a file request needs. The request runs on a blocking thread.
#[derive(Debug)]
pub(in crate::session) struct FileAccess {
    pub(in crate::session) workspaces: Workspaces,
    pub(in crate::session) cwd: PathBuf,
    pub(in crate::session) additional: Vec<PathBuf>,
    /// The maximum size of a file in bytes.
    pub(in crate::session) max_bytes: u64,
}

impl FileAccess {
    /// Serves the request. Blocks on the file system.
    pub(in crate::session) fn serve(&self, method: &str, params: &RawValue) -> Outcome {
        match method {
            method::FS_READ_TEXT_FILE => self.read(params),
            method::FS_WRITE_TEXT_FILE => self.write(params),
            _ => Err(acp::method_not_found(method)),
        }
    }

    fn read(&self, params: &RawValue) -> Outcome {
        let asked: acp::ReadTextFile<'_> = acp::parse(params).map_err(|_| invalid_params())?;
        let window = LineRange { line: asked.line, limit: asked.limit };
        let text =
            self.workspace().and_then(|workspace| workspace.read_text(&asked.path, window, self.max_bytes));
        text.map(|text| acp::read_text_file_result(&text)).map_err(|error| file_error(&asked.path, &error))
    }

    fn write(&self, params: &RawValue) -> Outcome {
        let asked: acp::WriteTextFile<'_> = acp::parse(params).map_err(|_| invalid_params())?;
        let saved = self
            .workspace()
            .and_then(|workspace| workspace.write_text(&asked.path, &asked.content, self.max_bytes));
        saved.map(|_| acp::empty_result()).map_err(|error| file_error(&asked.path, &error))
    }

    fn workspace(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(Path::new(&self.cwd), &self.additional)
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
    if let FileError::Io(cause) = error {
        tracing::warn!(error = %cause, "could not read or write a file for the agent");
    }
    let message = error.to_string();
    match error {
        FileError::Missing => acp::resource_not_found(&acp::file_uri(path)),
        FileError::Malformed
        | FileError::Relative
        | FileError::OutsideRoots
        | FileError::NotAFile
        | FileError::NotADirectory
        | FileError::NotEmpty
        | FileError::TooLarge(_)
        | FileError::NotText => acp::error(error_code::INVALID_PARAMS, &message),
        FileError::Changed | FileError::PermissionDenied | FileError::DiskFull | FileError::Io(_) => {
            acp::error(error_code::INTERNAL, &message)
        }
    }
}
