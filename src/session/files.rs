//! `fs/*` requests of agents, served from the session's folders (ACP, File System).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

use super::actor::Actor;
use super::client_methods::{WorkOutput, kib};
use super::requests::Outcome;
use crate::acp::{self, error_code, method};
use crate::jsonrpc::IncomingId;
use crate::workspace::{FileError, LineRange, Workspace, Workspaces};

/// The data of the session that a file request needs. The request runs on a blocking thread.
struct FileAccess {
    workspaces: Workspaces,
    cwd: PathBuf,
    additional: Vec<PathBuf>,
    /// The maximum size of a file in bytes.
    max_bytes: u64,
}

impl Actor {
    /// Reads or writes a file for the agent. The caller has checked the session of the request.
    pub(super) fn serve_file(&mut self, incoming: IncomingId, method: &str, params: &RawValue) {
        let served = FileAccess {
            workspaces: self.context.workspaces.clone(),
            cwd: PathBuf::from(&self.record.cwd),
            additional: self.record.additional_directories.iter().map(PathBuf::from).collect(),
            max_bytes: self.context.limits.max_file_bytes,
        };
        let bounds = &self.client_methods.files;
        let Ok(wanted) = Arc::clone(&bounds.request_kib).try_acquire_many_owned(kib(params.get().len()))
        else {
            return self.refuse(incoming, error_code::INTERNAL, "too many bytes are waiting to be written");
        };
        let places = Arc::clone(&bounds.answers);
        let (method, params) = (method.to_owned(), params.to_owned());
        let shutdown = self.context.shutdown.clone();
        self.serve(incoming, async move {
            // The semaphore is never closed.
            let Ok(place) = places.acquire_owned().await else {
                return WorkOutput::Answer(Err(work_aborted()));
            };
            // The work continues after a cancellation and holds its permit until it ends.
            let work = shutdown.spawn_blocking(move || {
                let outcome = served.outcome(&method, &params);
                drop((params, wanted));
                WorkOutput::File(outcome, place)
            });
            work.await.unwrap_or_else(|_| WorkOutput::Answer(Err(work_aborted())))
        });
    }

    /// Sends the response, which may be large, and holds its permit until the agent has read it.
    pub(super) fn send_file_answer(
        &self,
        incoming: IncomingId,
        outcome: &Outcome,
        place: OwnedSemaphorePermit,
    ) {
        if let Some(lease) = &self.event_loop.lease {
            lease.process().answer_with_guard(incoming, outcome.as_deref().map_err(|error| &**error), place);
        }
    }
}

impl FileAccess {
    fn outcome(&self, method: &str, params: &RawValue) -> Outcome {
        match method {
            method::FS_READ_TEXT_FILE => self.read(params),
            method::FS_WRITE_TEXT_FILE => self.write(params),
            _ => Err(acp::method_not_found(method)),
        }
    }

    fn read(&self, params: &RawValue) -> Outcome {
        let asked = acp::parse_read_text_file(params).map_err(|_| invalid_params())?;
        let window = LineRange { line: asked.line, limit: asked.limit };
        let text =
            self.workspace().and_then(|workspace| workspace.read_text(&asked.path, window, self.max_bytes));
        text.map(|text| acp::read_text_file_result(&text)).map_err(|error| file_error(&asked.path, &error))
    }

    fn write(&self, params: &RawValue) -> Outcome {
        let asked = acp::parse_write_text_file(params).map_err(|_| invalid_params())?;
        let saved = self
            .workspace()
            .and_then(|workspace| workspace.write_text(&asked.path, &asked.content, self.max_bytes));
        saved.map(|_| acp::empty_result()).map_err(|error| file_error(&asked.path, &error))
    }

    fn workspace(&self) -> Result<Workspace, FileError> {
        self.workspaces.open(Path::new(&self.cwd), &self.additional)
    }
}

fn work_aborted() -> Box<RawValue> {
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
        FileError::Missing => acp::file_not_found(path),
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
