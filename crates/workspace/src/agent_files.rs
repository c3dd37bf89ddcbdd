//! `fs/*` requests of an agent (ACP, File System).

use serde_json::value::RawValue;

use super::error::FileError;
use super::roots::Workspace;
use super::text::LineRange;
use wire::acp::{self, error_code, method};

#[derive(Debug)]
pub enum FileRequestError {
    UnknownMethod(String),
    InvalidParams,
    File { path: String, error: FileError },
}

/// Serves a request for a file of at most `max_bytes`. `open` opens the folders of the agent. Blocks on the file system.
pub fn serve_file_request(
    open: impl FnOnce() -> Result<Workspace, FileError>,
    method: &str,
    params: &RawValue,
    max_bytes: u64,
) -> Result<Box<RawValue>, FileRequestError> {
    match method {
        method::FS_READ_TEXT_FILE => {
            let acp::ReadTextFile { path, line, limit } = parse(params)?;
            let range = LineRange { line, limit };
            let text = open().and_then(|found| found.read_text(&path, range, max_bytes));
            let text = text.map_err(|error| FileRequestError::file(&path, error))?;
            Ok(acp::read_text_file_result(&text))
        }
        method::FS_WRITE_TEXT_FILE => {
            let asked: acp::WriteTextFile<'_> = parse(params)?;
            let saved =
                open().and_then(|found| found.write_text(&asked.path, &asked.content, max_bytes));
            saved.map_err(|error| FileRequestError::file(&asked.path, error))?;
            Ok(acp::empty_result())
        }
        _ => Err(FileRequestError::UnknownMethod(method.to_owned())),
    }
}

/// Checks that a file that another program serves is in the folders. Blocks on the file system.
pub fn check_file_request(
    open: impl FnOnce() -> Result<Workspace, FileError>,
    params: &RawValue,
) -> Result<(), FileRequestError> {
    let asked: acp::FilePath<'_> = parse(params)?;
    let checked = open().and_then(|found| found.check_absolute(&asked.path));
    checked.map_err(|error| FileRequestError::file(&asked.path, error))
}

fn parse<'a, T: serde::Deserialize<'a>>(params: &'a RawValue) -> Result<T, FileRequestError> {
    acp::parse(params).map_err(|_| FileRequestError::InvalidParams)
}

impl FileRequestError {
    fn file(path: &str, error: FileError) -> Self {
        let path = path.to_owned();
        Self::File { path, error }
    }
    /// Whether the path is outside of the folders of the agent.
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::File { error, .. } if matches!(error, FileError::OutsideRoots))
    }

    pub fn response(&self) -> Box<RawValue> {
        match self {
            Self::UnknownMethod(method) => acp::method_not_found(method),
            Self::InvalidParams => acp::error(
                error_code::INVALID_PARAMS,
                "the params do not match this method",
            ),
            Self::File { path, error } => file_error(path, error),
        }
    }
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
        FileError::Changed
        | FileError::Exists
        | FileError::Unchanged
        | FileError::NotStored
        | FileError::PermissionDenied
        | FileError::DiskFull => error_code::INTERNAL,
    };
    acp::error(code, &error.to_string())
}
