//! The exit of a child.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use signal_hook::low_level::{emulate_default_handler, signal_name};
use tokio::sync::watch;

use super::report::Ended;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
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

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Exited(code) => Self {
                code: Some(code),
                signal: None,
            },
            Ended::Killed(signal) => Self::killed_by(signal),
            Ended::Unknown => Self::default(),
        }
    }
}

impl Exit {
    /// Ends this process in the same way. Returns the exit code if there was no signal, or if the signal ends no process.
    pub fn repeat(&self) -> ExitCode {
        let is_named = |number: &i32| signal_name(*number) == self.signal.as_deref();
        if self.signal.is_some()
            && let Some(number) = (1..=64).find(is_named)
        {
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

/// The handle's end of the channel to the [`Reaper`](super::reaper::Reaper): stop requests out, exit state
/// in. Dropping it requests a stop.
#[derive(Debug)]
pub(super) struct KillSwitch {
    pub(super) requests: watch::Sender<StopRequest>,
    pub(super) exit_state: watch::Receiver<ExitState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum StopReason {
    /// [`Child::stop`](super::Child::stop) or [`Child::kill`](super::Child::kill).
    #[display("the gateway stopped it")]
    Requested,
    #[display("the gateway stopped it")]
    Dropped,
    #[display("it read nothing from its stdin for too long")]
    StdinStalled,
    /// The gateway's hard stop.
    #[display("the gateway is stopping")]
    Shutdown,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ExitState {
    /// Set at the first step of a stop. Stays empty if the child ends by itself.
    pub(super) reason: Option<StopReason>,
    pub(super) exit: Option<Exit>,
    /// The limit of memory in bytes, if the kernel killed processes of the child because of it.
    pub(super) exceeded_memory: Option<u64>,
}

/// A request of the handle to the reaper, from the mildest to the hardest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopRequest {
    Run,
    Stop,
    /// Starts with TERM, for a child without a stdin pipe to close.
    Terminate,
    Kill,
}

impl KillSwitch {
    /// Sends a request. A milder request never replaces a harder one.
    pub(super) fn request(&self, request: StopRequest) {
        let harder = |current: &mut StopRequest| *current = request.max(*current);
        self.requests.send_modify(harder);
    }

    /// The reaper reports before it ends. A reaper that the runtime tore down has reported nothing.
    pub(super) fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut state = self.exit_state.clone();
        async move {
            let end = state.wait_for(|state| state.exit.is_some()).await;
            let exit = end.ok().and_then(|state| state.exit.clone());
            exit.unwrap_or_default()
        }
    }
}
