//! The reaper of one child: the task that owns the supervisor process and stops it gracefully.

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

/// The wait for a killed supervisor, and then for its stderr. Both end at once unless the kernel itself hangs.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The progress of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Running,
    /// Stdin is closed.
    Closing,
    /// TERM was sent.
    Terminating,
    /// The supervisor was asked to kill all descendants.
    Killing,
    /// The supervisor itself was killed. This is the last resort, since no process remains that finds its descendants.
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

impl Pipes {
    /// A child in a pseudo terminal has no pipes.
    pub(super) fn none(shutdown: &Shutdown) -> Self {
        let (close_stdin, stalled) = (CancellationToken::new(), CancellationToken::new());
        Self { close_stdin, stalled, stderr: shutdown.spawn(std::future::ready(())) }
    }
}

/// The current step, and its start.
#[derive(Debug, Clone, Copy)]
struct Stand {
    step: Step,
    since: Instant,
}

impl Guard {
    pub(super) async fn run(mut self) {
        let status = self.attend().await;
        self.pipes.close_stdin.cancel();
        // A supervisor that hangs keeps its run file for the sweep of the next gateway process.
        if let (Some(run_file), Some(_)) = (self.run_file.take(), status) {
            run_file.remove().await;
        }
        // The stderr tail is part of the report. All writers have ended, so the tail is complete.
        if timeout(LAST_WAIT, &mut self.pipes.stderr).await.is_err() {
            self.pipes.stderr.abort();
        }
        self.ending.send_modify(|ending| ending.exit = Some(Exit::from(status)));
    }

    /// Waits for the supervisor's end and advances the stop as requested. Returns `None` if the supervisor
    /// survives even KILL.
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

    /// Advances to a step, unless it was already taken. The first reason stays.
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
                // A second TERM could be merged with the first one, so this sends QUIT.
                self.signal(Signal::QUIT);
                // A supervisor that was suspended must run to handle the signal.
                self.signal(Signal::CONT);
            }
            Step::Forsaken => {
                tracing::warn!(pid = self.pid.as_raw_pid(), "killing a supervisor that did not end in time");
                self.signal(Signal::KILL);
            }
        }
    }

    /// The timeout of a step.
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

    /// The pid stays valid until tokio has reaped the supervisor.
    fn signal(&self, signal: Signal) {
        if self.keeper.id().is_none() {
            return;
        }
        if let Err(error) = kill_process(self.pid, signal) {
            tracing::warn!(pid = self.pid.as_raw_pid(), ?signal, %error, "could not signal a supervisor");
        }
    }
}
