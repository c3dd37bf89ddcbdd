//! The gateway's handle of a child: its pipes, stop requests, and its exit.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Pid;
use tokio::process::ChildStdout;
use tokio::sync::watch;

use super::{ProcessTree, StderrTail, StdinWriter, Terminals};

/// A running child. Dropping it requests a stop, which runs in the background.
#[derive(Debug)]
pub struct Child {
    pub(super) pid: u32,
    pub(super) supervisor: Pid,
    pub(super) stdin: StdinWriter,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: StderrTail,
    pub(super) terminals: Terminals,
    pub(super) kill_switch: KillSwitch,
}

/// The handle's end of the channel to the [`Reaper`](super::reaper::Reaper): stop requests out, exit state
/// in. Dropping it requests a stop.
#[derive(Debug)]
pub(super) struct KillSwitch {
    pub(super) requests: watch::Sender<StopRequest>,
    pub(super) exit_state: watch::Receiver<ExitState>,
}

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
            None => Self { code: status.and_then(|status| status.code()), signal: None },
        }
    }
}

impl Exit {
    pub(super) fn killed_by(signal: i32) -> Self {
        let name = signal_hook::low_level::signal_name(signal);
        let name = name.map_or_else(|| format!("SIG{signal}"), str::to_owned);
        Self { code: None, signal: Some(name) }
    }
}

/// Why the gateway stops or stopped a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// [`Child::stop`] or [`Child::kill`].
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

impl Child {
    /// The program's own pid, for people. Signals go to the supervisor only.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The child and its descendants, also orphans.
    pub fn tree(&self) -> ProcessTree {
        ProcessTree::of_supervisor(self.supervisor)
    }

    pub fn stdin(&self) -> StdinWriter {
        self.stdin.clone()
    }

    /// Returns stdout once. It ends when the child and all its descendants have closed it.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Starts terminals beside the child, under its supervisor.
    pub fn terminals(&self) -> &Terminals {
        &self.terminals
    }

    pub fn stderr(&self) -> &StderrTail {
        &self.stderr
    }

    /// Stops the child gracefully and waits for its end: closes stdin, sends TERM, then has the supervisor send KILL.
    /// The timeouts are shorter while the gateway drains. The stop continues if the caller stops waiting.
    pub async fn stop(&self) -> Exit {
        self.kill_switch.request(StopRequest::Stop);
        self.exited().await
    }

    /// Requests the same stop and does not wait.
    pub fn begin_stop(&self) {
        self.kill_switch.request(StopRequest::Stop);
    }

    /// Kills the child and all its descendants immediately.
    pub async fn kill(&self) -> Exit {
        self.kill_switch.request(StopRequest::Kill);
        self.exited().await
    }

    /// Waits for the end of the child and of all its descendants.
    pub async fn exited(&self) -> Exit {
        self.kill_switch.exited().await
    }

    /// The same future without a borrow of the child.
    pub fn watch(&self) -> impl Future<Output = Exit> + Send + 'static {
        self.kill_switch.exited()
    }

    /// How the child ended, or `None` while it runs.
    pub fn exit(&self) -> Option<Exit> {
        self.kill_switch.exit_state.borrow().exit.clone()
    }

    /// Why the gateway stops or stopped it, or `None` if it ended by itself.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.kill_switch.exit_state.borrow().reason
    }
}

impl KillSwitch {
    /// Sends a request. A milder request never replaces a harder one.
    pub(super) fn request(&self, order: StopRequest) {
        self.requests.send_modify(|standing| *standing = order.max(*standing));
    }

    /// The reaper reports before it ends. A reaper that the runtime tore down has reported nothing.
    pub(super) fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut ending = self.exit_state.clone();
        async move {
            let end = ending.wait_for(|ending| ending.exit.is_some()).await;
            end.ok().and_then(|ending| ending.exit.clone()).unwrap_or(Exit::from(None))
        }
    }
}
