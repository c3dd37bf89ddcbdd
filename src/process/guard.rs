//! The guard of one child: the task that owns the keeper's process and walks the stop ladder.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::child::{Ending, Exit, Order, StopReason};
use super::run_file::RunFile;
use crate::shutdown::Shutdown;
use crate::types::Limits;

/// A keeper that was killed is waited for this long, and its stderr after it: both are gone at once
/// unless the kernel itself is stuck.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// How far the stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Running,
    /// Stdin is closed.
    Closing,
    /// TERM was sent.
    Terminating,
    /// The keeper was told to kill all.
    Killing,
    /// The keeper itself was killed: the last resort, since nobody is left to find its descendants.
    Forsaken,
}

impl Step {
    fn next(self) -> Option<Self> {
        match self {
            Self::Running => Some(Self::Closing),
            Self::Closing => Some(Self::Terminating),
            Self::Terminating => Some(Self::Killing),
            Self::Killing => Some(Self::Forsaken),
            Self::Forsaken => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Guard {
    pub(super) keeper: tokio::process::Child,
    pub(super) pid: Pid,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) pipes: Pipes,
    pub(super) ending: watch::Sender<Ending>,
    pub(super) run_file: Option<RunFile>,
    pub(super) shutdown: Shutdown,
    pub(super) limits: Arc<Limits>,
}

/// What the guard knows of the child's pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    /// Asks for the end of stdin.
    pub(super) close_stdin: CancellationToken,
    /// Says that the child takes nothing from its stdin.
    pub(super) stalled: CancellationToken,
    /// The drain of stderr.
    pub(super) stderr: JoinHandle<()>,
}

impl Pipes {
    /// A child in a pseudo terminal has none.
    pub(super) fn none(shutdown: &Shutdown) -> Self {
        let (close_stdin, stalled) = (CancellationToken::new(), CancellationToken::new());
        Self { close_stdin, stalled, stderr: shutdown.spawn(std::future::ready(())) }
    }
}

/// Where the guard stands on the ladder.
#[derive(Debug, Clone, Copy)]
struct Stand {
    step: Step,
    since: Instant,
}

impl Guard {
    pub(super) async fn run(mut self) {
        let status = self.attend().await;
        self.pipes.close_stdin.cancel();
        // A keeper that is stuck keeps its file, for the sweep of the next life.
        if let (Some(run_file), Some(_)) = (self.run_file.take(), status) {
            run_file.remove().await;
        }
        // The last words belong to the news of the end. All writers are gone, so they are all here.
        if timeout(LAST_WAIT, &mut self.pipes.stderr).await.is_err() {
            self.pipes.stderr.abort();
        }
        self.ending.send_modify(|ending| ending.exit = Some(Exit::from(status)));
    }

    /// Waits for the keeper's end and moves up the ladder as it was ordered; `None` when the keeper does
    /// not even end by KILL.
    async fn attend(&mut self) -> Option<ExitStatus> {
        let mut stand = Stand { step: Step::Running, since: Instant::now() };
        let (mut held, mut draining) = (true, false);
        loop {
            let deadline = stand.since + self.length(stand.step, draining);
            tokio::select! {
                biased;
                status = self.keeper.wait() => return status.ok(),
                order = self.orders.changed(), if held => {
                    held = order.is_ok();
                    let order = *self.orders.borrow_and_update();
                    match order {
                        Order::Kill => self.climb(&mut stand, Step::Killing, StopReason::Ordered),
                        Order::Terminate => self.climb(&mut stand, Step::Terminating, StopReason::Ordered),
                        Order::Stop => self.climb(&mut stand, Step::Closing, StopReason::Ordered),
                        Order::Run => self.climb(&mut stand, Step::Closing, StopReason::Dropped),
                    }
                }
                () = self.shutdown.hard(), if stand.step < Step::Killing => {
                    self.climb(&mut stand, Step::Killing, StopReason::Shutdown);
                }
                () = self.shutdown.soft(), if !draining => draining = true,
                () = self.pipes.stalled.cancelled(), if stand.step < Step::Terminating => {
                    self.climb(&mut stand, Step::Terminating, StopReason::StdinStalled);
                }
                () = sleep_until(deadline), if stand.step > Step::Running => match stand.step.next() {
                    Some(step) => self.climb(&mut stand, step, StopReason::Ordered),
                    None => return None,
                },
            }
        }
    }

    /// The first reason is the reason; a step that was taken is not taken again.
    fn climb(&self, stand: &mut Stand, step: Step, reason: StopReason) {
        if step <= stand.step {
            return;
        }
        *stand = Stand { step, since: Instant::now() };
        self.ending.send_if_modified(|ending| {
            let first = ending.reason.is_none();
            ending.reason.get_or_insert(reason);
            first
        });
        self.pipes.close_stdin.cancel();
        match step {
            Step::Running | Step::Closing => {}
            Step::Terminating => self.signal(Signal::TERM),
            Step::Killing => {
                // One QUIT and not a second TERM: two of the same signal may melt into one.
                self.signal(Signal::QUIT);
                // A keeper that somebody has stopped must run to obey.
                self.signal(Signal::CONT);
            }
            Step::Forsaken => {
                tracing::warn!(pid = self.pid.as_raw_pid(), "a keeper did not end in time and is killed");
                self.signal(Signal::KILL);
            }
        }
    }

    /// How long a step may last.
    fn length(&self, step: Step, draining: bool) -> Duration {
        let limits = &self.limits;
        match step {
            Step::Running => Duration::ZERO,
            Step::Closing if draining => limits.drain_stdin,
            Step::Closing => limits.stop_stdin,
            Step::Terminating if draining => limits.drain_term,
            Step::Terminating => limits.stop_term,
            Step::Killing => limits.stop_kill,
            Step::Forsaken => LAST_WAIT,
        }
    }

    /// The pid is the keeper's for as long as tokio has not reaped it.
    fn signal(&self, signal: Signal) {
        if self.keeper.id().is_none() {
            return;
        }
        if let Err(error) = kill_process(self.pid, signal) {
            tracing::warn!(pid = self.pid.as_raw_pid(), ?signal, %error, "a keeper could not be signalled");
        }
    }
}
