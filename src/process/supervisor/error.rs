//! The failure of a supervisor.

use crate::process::report;
use crate::types::FolderError;

/// The exit code of a supervisor that could not run the child.
pub(super) const EXIT_SETUP_FAILED: u8 = 125;

/// A failed step and its cause.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(super) struct SupervisorError {
    pub(super) step: &'static str,
    pub(super) source: std::io::Error,
}

impl SupervisorError {
    /// The report of this failure to the gateway.
    pub(super) fn report_line(&self) -> String {
        let folder = FolderError::inside(&self.source);
        folder.map_or_else(
            || report::setup_failed_line(&self.to_string()),
            report::folder_line,
        )
    }

    pub(super) fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self {
            step,
            source: source.into(),
        }
    }
}
