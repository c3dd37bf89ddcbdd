//! The exit of a child.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

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
    pub(super) fn killed_by(signal: i32) -> Self {
        let name = signal_hook::low_level::signal_name(signal);
        let name = name.map_or_else(|| format!("SIG{signal}"), str::to_owned);
        Self {
            code: None,
            signal: Some(name),
        }
    }
}
