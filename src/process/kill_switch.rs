//! The channel between a handle and the reaper of its child.

use std::fmt;

use tokio::sync::watch;

use super::exit::Exit;

/// The handle's end of the channel to the [`Reaper`](super::reaper::Reaper): stop requests out, exit state
/// in. Dropping it requests a stop.
#[derive(Debug)]
pub(super) struct KillSwitch {
    pub(super) requests: watch::Sender<StopRequest>,
    pub(super) exit_state: watch::Receiver<ExitState>,
}

/// Why the gateway stops or stopped a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// [`Child::stop`](super::Child::stop) or [`Child::kill`](super::Child::kill).
    Requested,
    /// Its handle was dropped.
    Dropped,
    /// It read nothing from its stdin for too long.
    StdinStalled,
    /// The gateway's hard stop.
    Shutdown,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested | Self::Dropped => "the gateway stopped it",
            Self::StdinStalled => "it read nothing from its stdin for too long",
            Self::Shutdown => "the gateway is stopping",
        })
    }
}

/// The state that the reaper reports.
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
        self.requests
            .send_modify(|current| *current = request.max(*current));
    }

    /// The reaper reports before it ends. A reaper that the runtime tore down has reported nothing.
    pub(super) fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut state = self.exit_state.clone();
        async move {
            let end = state.wait_for(|state| state.exit.is_some()).await;
            end.ok()
                .and_then(|state| state.exit.clone())
                .unwrap_or(Exit::from(None))
        }
    }
}
