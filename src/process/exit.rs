//! The exit of a child.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use signal_hook::low_level::{emulate_default_handler, signal_name};

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    /// The signal that ended it, as in `SIGKILL`.
    pub signal: Option<String>,
}

impl From<Option<ExitStatus>> for Exit {
    fn from(status: Option<ExitStatus>) -> Self {
        match status.and_then(|status| status.signal()) {
            Some(signal) => Self::killed_by(signal),
            None => Self {
                code: status.and_then(|status| status.code()),
                signal: None,
            },
        }
    }
}

impl Exit {
    /// Ends this process in the same way. Returns the exit code if there was no signal, or if the signal ends no process.
    pub fn repeat(&self) -> ExitCode {
        let is_named = |number: &i32| signal_name(*number) == self.signal.as_deref();
        if let Some(number) = self.signal.as_ref().and_then(|_| (1..=64).find(is_named)) {
            let _ = emulate_default_handler(number);
        }
        let code = self.code.and_then(|code| u8::try_from(code).ok());
        code.map_or(ExitCode::FAILURE, ExitCode::from)
    }

    pub(super) fn killed_by(signal: i32) -> Self {
        let name = signal_name(signal);
        let name = name.map_or_else(|| format!("SIG{signal}"), str::to_owned);
        Self {
            code: None,
            signal: Some(name),
        }
    }
}
