//! The failure of a supervisor.

use std::process::ExitCode;

use rustix::process::WaitStatus;
use signal_hook::low_level::emulate_default_handler;

use crate::report;
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
    pub(super) fn report_line(&self) -> String {
        match FolderError::inside(&self.source) {
            Some(folder) => report::folder_line(folder),
            None => report::setup_failed_line(&self.to_string()),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Exited(i32),
    Killed(i32),
    /// The child did not end, or not in time.
    Unknown,
}

impl From<Option<WaitStatus>> for Ended {
    fn from(status: Option<WaitStatus>) -> Self {
        let Some(status) = status else {
            return Self::Unknown;
        };
        let exited = || status.exit_status().map_or(Self::Unknown, Self::Exited);
        let killed = status.terminating_signal();
        killed.map_or_else(exited, Self::Killed)
    }
}

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

/// Parses the line of [`exit_line`](crate::report::exit_line).
pub(super) fn parse_exit(line: &str) -> Option<Ended> {
    match line.trim_end().split_once(' ')? {
        ("exited", code) => Some(Ended::Exited(code.parse().ok()?)),
        ("killed", signal) => Some(Ended::Killed(signal.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod exit_tests {
    use super::*;

    #[test]
    fn lines_of_the_init_process_are_parsed() {
        assert_eq!(parse_exit("exited 3\n"), Some(Ended::Exited(3)));
        assert_eq!(parse_exit("killed 9\n"), Some(Ended::Killed(9)));
        assert_eq!(parse_exit("gone\n"), None);
        assert_eq!(parse_exit(""), None);
    }
}
