//! The failure of a supervisor.

use std::process::ExitCode;

use signal_hook::low_level::emulate_default_handler;

use crate::report::{Ended, Report};
use base::types::FolderError;

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
    pub(super) fn report(&self) -> Report {
        match FolderError::inside(&self.source) {
            Some(folder) => Report::Folder(folder.clone()),
            None => Report::SetupFailed(self.to_string()),
        }
    }

    pub(super) fn other(
        step: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            step,
            source: std::io::Error::other(source),
        }
    }

    pub(super) fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self {
            step,
            source: source.into(),
        }
    }
}

/// The base of a shell's exit codes for signals, for signals that a process cannot send to itself.
const SIGNAL_CODE_BASE: i32 = 128;

impl Ended {
    /// Exits as the child exited. The core limit is zero, so no core file is written.
    pub(super) fn exit_code(self) -> ExitCode {
        match self {
            Self::Unknown => ExitCode::from(EXIT_SETUP_FAILED),
            Self::Exited(status) => code(status),
            // Returns only for signals that do not end a process by default.
            Self::Killed(signal) => match emulate_default_handler(signal) {
                Ok(()) | Err(_) => code(SIGNAL_CODE_BASE + signal),
            },
        }
    }
}

fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(EXIT_SETUP_FAILED))
}
