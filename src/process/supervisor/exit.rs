//! How a child ended, and the exit of the supervisor in the same way.

use std::process::ExitCode;

use rustix::process::WaitStatus;
use signal_hook::low_level::emulate_default_handler;

use super::error::EXIT_SETUP_FAILED;

/// The base of a shell's exit codes for signals, for signals that a process cannot send to itself.
const SIGNAL_CODE_BASE: i32 = 128;

/// The end of a child.
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
        status
            .terminating_signal()
            .map_or_else(exited, Self::Killed)
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

/// Parses the line of [`exit_line`](crate::process::report::exit_line).
pub(super) fn parse(line: &str) -> Option<Ended> {
    match line.trim_end().split_once(' ')? {
        ("exited", code) => Some(Ended::Exited(code.parse().ok()?)),
        ("killed", signal) => Some(Ended::Killed(signal.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_init_process_are_parsed() {
        assert_eq!(parse("exited 3\n"), Some(Ended::Exited(3)));
        assert_eq!(parse("killed 9\n"), Some(Ended::Killed(9)));
        assert_eq!(parse("gone\n"), None);
        assert_eq!(parse(""), None);
    }
}
