//! The reaper of one child: the task that owns the supervisor process and stops it gracefully.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::control_groups::ChildGroup;
use super::exit::{Exit, ExitState, StopReason, StopRequest};
use super::isolation::TemporaryFolder;
use super::procfs::ProcessTree;
use super::run_file::RunFile;
use crate::limits::Limits;
use base::shutdown::Shutdown;

/// The wait for a killed supervisor, and then for its stderr. Both end at once unless the kernel itself hangs.
const FINAL_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopStep {
    Running,
    ClosingStdin,
    Terminating,
    /// The supervisor was asked to kill all descendants.
    Killing,
    /// The gateway killed the descendants itself: the supervisor hangs, or a descendant suspends it again and again.
    KillingDescendants,
    /// The supervisor itself was killed. This is the last resort, since no process remains that finds its descendants.
    KillingSupervisor,
}

impl StopStep {
    fn next(self) -> Option<Self> {
        match self {
            Self::Running => Some(Self::ClosingStdin),
            Self::ClosingStdin => Some(Self::Terminating),
            Self::Terminating => Some(Self::Killing),
            Self::Killing => Some(Self::KillingDescendants),
            Self::KillingDescendants => Some(Self::KillingSupervisor),
            Self::KillingSupervisor => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Reaper {
    pub(super) supervisor: tokio::process::Child,
    pub(super) pid: Pid,
    pub(super) requests: watch::Receiver<StopRequest>,
    pub(super) pipes: Pipes,
    pub(super) exit_state: watch::Sender<ExitState>,
    pub(super) run_file: Option<RunFile>,
    pub(super) resources: Resources,
    pub(super) shutdown: Shutdown,
    pub(super) limits: Arc<Limits>,
}

/// The folder and the group that a child uses until its end. A drop removes both, which blocks.
#[derive(Debug, Default)]
pub(super) struct Resources {
    pub(super) _temporary: Option<TemporaryFolder>,
    pub(super) group: Option<ChildGroup>,
}

/// The reaper's view of the child's pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Requests the end of stdin.
    pub(super) close_stdin: CancellationToken,
    /// Reports that the child does not read its stdin.
    pub(super) stalled: CancellationToken,
    /// The task that drains stderr.
    pub(super) stderr: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy)]
struct StopProgress {
    step: StopStep,
    since: Instant,
}

impl Reaper {
    pub(super) async fn run(mut self) {
        let status = self.wait_for_exit().await;
        self.pipes.close_stdin.cancel();
        // A supervisor that hangs keeps its run file for the sweep of the next gateway process.
        if let (Some(run_file), Some(_)) = (self.run_file.take(), status) {
            run_file.remove().await;
        }
        let exceeded_memory = self.end_group().await;
        // The stderr tail is part of the report. All writers have ended, so the tail is complete.
        if timeout(FINAL_WAIT, &mut self.pipes.stderr).await.is_err() {
            self.pipes.stderr.abort();
        }
        self.exit_state.send_modify(|state| {
            state.exit = Some(Exit::from(status));
            state.exceeded_memory = exceeded_memory;
        });
        let resources = std::mem::take(&mut self.resources);
        let _ = self.shutdown.spawn_blocking(move || drop(resources)).await;
    }

    /// Ends processes that survived their supervisor. Returns the limit of memory for which the kernel killed a process.
    async fn end_group(&mut self) -> Option<u64> {
        let group = self.resources.group.take()?;
        let end = move || (group.end(), group);
        let ended = self.shutdown.spawn_blocking(end).await;
        let (exceeded_memory, group) = ended.ok()?;
        self.resources.group = Some(group);
        exceeded_memory
    }

    /// Waits for the supervisor's end and advances the stop as requested. Returns `None` if the supervisor
    /// survives even KILL.
    async fn wait_for_exit(&mut self) -> Option<ExitStatus> {
        let mut progress = StopProgress {
            step: StopStep::Running,
            since: Instant::now(),
        };
        let mut has_handle = true;
        let mut draining = false;
        loop {
            let deadline = progress.since + self.step_timeout(progress.step, draining);
            tokio::select! {
                biased;
                status = self.supervisor.wait() => return status.ok(),
                request = self.requests.changed(), if has_handle => {
                    has_handle = request.is_ok();
                    let (step, reason) = match *self.requests.borrow_and_update() {
                        StopRequest::Kill => (StopStep::Killing, StopReason::Requested),
                        StopRequest::Terminate => (StopStep::Terminating, StopReason::Requested),
                        StopRequest::Stop => (StopStep::ClosingStdin, StopReason::Requested),
                        StopRequest::Run => (StopStep::ClosingStdin, StopReason::Dropped),
                    };
                    self.advance_to(&mut progress, step, reason);
                }
                () = self.shutdown.abort_started(), if progress.step < StopStep::Killing => {
                    self.advance_to(&mut progress, StopStep::Killing, StopReason::Shutdown);
                }
                () = self.shutdown.drain_started(), if !draining => draining = true,
                () = self.pipes.stalled.cancelled(), if progress.step < StopStep::Terminating => {
                    self.advance_to(&mut progress, StopStep::Terminating, StopReason::StdinStalled);
                }
                () = sleep_until(deadline), if progress.step > StopStep::Running => match progress.step.next() {
                    Some(step) => self.advance_to(&mut progress, step, StopReason::Requested),
                    None => return None,
                },
            }
        }
    }

    /// Advances to a step, unless it was already taken. The first reason stays.
    fn advance_to(&self, progress: &mut StopProgress, step: StopStep, reason: StopReason) {
        if step <= progress.step {
            return;
        }
        *progress = StopProgress {
            step,
            since: Instant::now(),
        };
        self.exit_state.send_if_modified(|state| {
            let first = state.reason.is_none();
            state.reason.get_or_insert(reason);
            first
        });
        self.pipes.close_stdin.cancel();
        match step {
            StopStep::Running | StopStep::ClosingStdin => {}
            StopStep::Terminating => {
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
            }
            StopStep::Killing => {
                // A second TERM could be merged with the first one, so this sends QUIT.
                self.signal(Signal::QUIT);
                // A supervisor that was suspended must run to handle the signal.
                self.signal(Signal::CONT);
                if let Some(group) = &self.resources.group {
                    group.kill();
                }
            }
            StopStep::KillingDescendants => {
                if self.supervisor.id().is_some() {
                    ProcessTree::of_supervisor(self.pid).kill();
                }
                self.signal(Signal::CONT);
            }
            StopStep::KillingSupervisor => {
                let supervisor = self.pid.as_raw_pid();
                tracing::warn!(supervisor, "killing a supervisor that did not end in time");
                self.signal(Signal::KILL);
            }
        }
    }

    fn step_timeout(&self, step: StopStep, draining: bool) -> Duration {
        let limits = &self.limits;
        match step {
            StopStep::Running => Duration::ZERO,
            StopStep::ClosingStdin if draining => limits.drain_stdin_timeout,
            StopStep::ClosingStdin => limits.stop_stdin_timeout,
            StopStep::Terminating if draining => limits.drain_term_timeout,
            StopStep::Terminating => limits.stop_term_timeout,
            StopStep::Killing => limits.stop_kill_timeout,
            StopStep::KillingDescendants | StopStep::KillingSupervisor => FINAL_WAIT,
        }
    }

    /// The pid stays valid until tokio has reaped the supervisor.
    fn signal(&self, signal: Signal) {
        if self.supervisor.id().is_none() {
            return;
        }
        if let Err(error) = kill_process(self.pid, signal) {
            let supervisor = self.pid.as_raw_pid();
            tracing::warn!(supervisor, ?signal, %error, "could not signal a supervisor");
        }
    }
}
