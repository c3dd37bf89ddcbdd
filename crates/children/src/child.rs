//! The gateway's handle of a child: its pipes, stop requests, and its exit.

use rustix::process::Pid;
use tokio::process::ChildStdout;

use super::exit::{Exit, KillSwitch, StopReason, StopRequest};
use super::isolation::FolderGrants;
use super::{ProcessTree, StderrTail, StdinWriter, Terminals};
use base::types::AppliedIsolation;

/// A running child. Dropping it requests a stop, which runs in the background.
#[derive(Debug)]
pub struct Child {
    /// The program's own pid, for people. Signals go to the supervisor only.
    pub pid: u32,
    /// The user id of the child. `None` if the child runs as the gateway's user.
    pub user: Option<u32>,
    pub(super) supervisor: Pid,
    pub stdin: StdinWriter,
    pub(super) stdout: Option<ChildStdout>,
    pub stderr: StderrTail,
    /// Starts terminals beside the child, under its supervisor.
    pub terminals: Terminals,
    pub(super) kill_switch: KillSwitch,
    pub isolation: AppliedIsolation,
    /// Grants folders to the running child. `None` if its isolation cannot do that.
    pub folders: Option<FolderGrants>,
}
impl Child {
    /// The child and its descendants, also orphans.
    pub fn tree(&self) -> ProcessTree {
        ProcessTree::of_supervisor(self.supervisor)
    }
    /// Returns stdout once. It ends when the child and all its descendants have closed it.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
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

    pub async fn kill(&self) -> Exit {
        self.kill_switch.request(StopRequest::Kill);
        self.exited().await
    }

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
    pub fn exceeded_memory(&self) -> Option<u64> {
        self.kill_switch.exit_state.borrow().exceeded_memory
    }
    /// Why the gateway stops or stopped it, or `None` if it ended by itself.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.kill_switch.exit_state.borrow().reason
    }
}
