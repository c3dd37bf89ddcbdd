//! The gateway's hold on a child: its pipes, the order to stop, and the news of the end.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Pid;
use tokio::process::ChildStdout;
use tokio::sync::watch;

use super::{ProcessTree, StderrTail, StdinWriter, Terminals};

/// A running child. Dropping it is an order to stop, which is carried out in the background.
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

/// The two ends of what a child's holder and its guard say to each other.
#[derive(Debug)]
pub(super) struct KillSwitch {
    pub(super) requests: watch::Sender<StopRequest>,
    pub(super) exit_state: watch::Receiver<ExitState>,
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    /// The signal that ended it, spelled as in `SIGKILL`.
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

/// Why the gateway ends, or ended, a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// [`Child::stop`] or [`Child::kill`].
    Requested,
    /// Its holder dropped it.
    Dropped,
    /// It took nothing from its stdin for too long.
    StdinStalled,
    /// The gateway's hard stop.
    Shutdown,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requested | Self::Dropped => "the gateway stopped it",
            Self::StdinStalled => "it took nothing from its stdin for too long",
            Self::Shutdown => "the gateway is stopping",
        })
    }
}

/// What the guard reports.
#[derive(Debug, Clone, Default)]
pub(super) struct ExitState {
    /// Set at the first step of a stop; stays empty when the child ends by itself.
    pub(super) reason: Option<StopReason>,
    pub(super) exit: Option<Exit>,
}

/// What the holder asks of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StopRequest {
    Run,
    Stop,
    /// Where there is no stdin to close.
    Terminate,
    Kill,
}

impl Child {
    /// The program's own pid, for people. Signals go to the keeper alone.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The child and its descendants, also those that have lost their parents.
    pub fn tree(&self) -> ProcessTree {
        ProcessTree::of_supervisor(self.supervisor)
    }

    pub fn stdin(&self) -> StdinWriter {
        self.stdin.clone()
    }

    /// Given out once. It ends when the child and all its descendants have closed it.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// Starts terminals beside the child, under its keeper.
    pub fn terminals(&self) -> &Terminals {
        &self.terminals
    }

    pub fn stderr(&self) -> &StderrTail {
        &self.stderr
    }

    /// Walks the ladder and waits for the end: stdin is closed, then TERM, then KILL by the keeper. The
    /// steps are shorter while the gateway drains. A caller that stops waiting does not call it off.
    pub async fn stop(&self) -> Exit {
        self.kill_switch.request(StopRequest::Stop);
        self.exited().await
    }

    /// Orders the same and does not wait.
    pub fn begin_stop(&self) {
        self.kill_switch.request(StopRequest::Stop);
    }

    /// Kills the child and all its descendants, now.
    pub async fn kill(&self) -> Exit {
        self.kill_switch.request(StopRequest::Kill);
        self.exited().await
    }

    /// Waits for the end of the child and of all its descendants.
    pub async fn exited(&self) -> Exit {
        self.kill_switch.exited().await
    }

    /// The same for those who have no hold on the child.
    pub fn watch(&self) -> impl Future<Output = Exit> + Send + 'static {
        self.kill_switch.exited()
    }

    /// The end, if it has come.
    pub fn exit(&self) -> Option<Exit> {
        self.kill_switch.exit_state.borrow().exit.clone()
    }

    /// Why the gateway ends or ended it; nothing when it ended by itself.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.kill_switch.exit_state.borrow().reason
    }
}

impl KillSwitch {
    /// A harder order replaces a softer one, never the other way round.
    pub(super) fn request(&self, order: StopRequest) {
        self.requests.send_modify(|standing| *standing = order.max(*standing));
    }

    /// The guard reports before it ends; one that was torn down with the runtime has reported nothing.
    pub(super) fn exited(&self) -> impl Future<Output = Exit> + Send + 'static {
        let mut ending = self.exit_state.clone();
        async move {
            let end = ending.wait_for(|ending| ending.exit.is_some()).await;
            end.ok().and_then(|ending| ending.exit.clone()).unwrap_or(Exit::from(None))
        }
    }
}
