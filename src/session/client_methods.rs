//! Requests of the agent that the gateway serves itself: files and terminals. The owner starts the work and hears of
//! its end; it never waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::actor::Actor;
use super::elicitations::CheckedElicitation;
use super::requests::Outcome;
use super::terminals::NewTerminal;
use crate::acp::error_code;
use crate::jsonrpc::IncomingId;
use crate::types::Limits;

/// What came of a request.
#[derive(Debug)]
pub(super) struct Completion {
    process: u64,
    incoming: IncomingId,
    output: WorkOutput,
}

/// What comes of the work for a request.
#[derive(Debug)]
pub(super) enum WorkOutput {
    Answer(Outcome),
    /// The answer holds its place until the agent has taken it.
    File(Outcome, OwnedSemaphorePermit),
    /// An elicitation can be shown.
    Elicitation(CheckedElicitation),
    /// A terminal runs, or why not.
    Terminal(Box<Result<NewTerminal, Box<RawValue>>>),
}

/// Where what is served comes in, and how much of it is on its way.
#[derive(Debug)]
pub(super) struct ClientMethods {
    completions: mpsc::Sender<Completion>,
    /// Counts the processes that this owner had: numbers of requests mean others on the next one.
    process: u64,
    open: HashMap<IncomingId, RunningWork>,
    pub(super) files: FileBounds,
}

/// How much of the files that the agent reads and writes is held at a time.
#[derive(Debug)]
pub(super) struct FileBounds {
    /// Files that are read or written, or whose answers the agent has not taken. The others wait.
    pub(super) answers: Arc<Semaphore>,
    /// KiB of what the waiting ones want.
    pub(super) request_kib: Arc<Semaphore>,
}

/// Work for a request of the agent.
#[derive(Debug)]
enum RunningWork {
    /// It ends when this is dropped.
    Cancellable(#[expect(dead_code, reason = "it is dropped, not read")] DropGuard),
    /// It comes to its end in any case.
    Uncancellable {
        /// The agent has not taken its request back.
        awaited: bool,
    },
}

/// Rounded up; a limit of the configuration may be larger than what a count can be.
pub(super) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl ClientMethods {
    pub(super) fn new(done: mpsc::Sender<Completion>, limits: &Limits) -> Self {
        let files = FileBounds {
            answers: Arc::new(Semaphore::new(limits.file_answers.min(Semaphore::MAX_PERMITS))),
            request_kib: Arc::new(Semaphore::new(kib(limits.file_wanted_bytes) as usize)),
        };
        Self { completions: done, process: 0, open: HashMap::new(), files }
    }

    /// The process is gone; what is still served for it has nobody to hear of it.
    pub(super) fn clear(&mut self) {
        self.process += 1;
        self.open.clear();
    }

    /// Something of this process is being served.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Actor {
    /// Runs `work` beside the owner, and answers the agent with what comes of it. The work is dropped when the agent
    /// takes its request back, and when the process is gone.
    pub(super) fn serve(&mut self, incoming: IncomingId, work: impl Future<Output = WorkOutput> + Send + 'static) {
        let dropped = CancellationToken::new();
        let guard = RunningWork::Cancellable(dropped.clone().drop_guard());
        self.start_work(incoming, guard, async move { dropped.run_until_cancelled_owned(work).await });
    }

    /// Runs `work` that the owner goes on with, to its end: what it makes must come back here.
    pub(super) fn serve_to_completion(&mut self, incoming: IncomingId, work: impl Future<Output = WorkOutput> + Send + 'static) {
        self.start_work(incoming, RunningWork::Uncancellable { awaited: true }, async move { Some(work.await) });
    }

    fn start_work(
        &mut self,
        incoming: IncomingId,
        entry: RunningWork,
        work: impl Future<Output = Option<WorkOutput>> + Send + 'static,
    ) {
        if self.client_methods.open.len() >= self.context.limits.pending_requests {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are being served");
        }
        let (served, process) = (self.client_methods.completions.clone(), self.client_methods.process);
        self.client_methods.open.insert(incoming, entry);
        self.context.shutdown.spawn_isolated(async move {
            if let Some(done) = work.await {
                // An owner that has ended has given its process back.
                drop(served.send(Completion { process, incoming, output: done }).await);
            }
        });
    }

    pub(super) fn request_completed(&mut self, Completion { process, incoming, output: done }: Completion) {
        if process != self.client_methods.process {
            return;
        }
        match self.client_methods.open.remove(&incoming) {
            Some(RunningWork::Cancellable(_) | RunningWork::Uncancellable { awaited: true }) => {}
            Some(RunningWork::Uncancellable { awaited: false }) | None => return,
        }
        if let Some(turn) = &mut self.turn {
            // The agent goes on from here: its silence is counted anew.
            turn.last_activity = Instant::now();
        }
        match done {
            WorkOutput::Answer(outcome) => self.send_answer(incoming, &outcome),
            WorkOutput::File(outcome, place) => self.send_file_answer(incoming, &outcome, place),
            WorkOutput::Elicitation(elicit) => self.offer_elicitation(incoming, elicit),
            WorkOutput::Terminal(outcome) => self.terminal_started(incoming, *outcome),
        }
    }

    /// The agent took back what is being served: it hears so at once, and nothing more.
    pub(super) fn cancel_serving(&mut self, incoming: IncomingId) {
        match self.client_methods.open.get_mut(&incoming) {
            Some(RunningWork::Cancellable(_)) => drop(self.client_methods.open.remove(&incoming)),
            Some(RunningWork::Uncancellable { awaited: wanted }) => *wanted = false,
            None => return,
        }
        self.refuse(incoming, error_code::REQUEST_CANCELLED, "");
    }

    /// The agent waits for an answer or for a command that we run: its silence is ours.
    pub(super) fn agent_is_waiting(&self) -> bool {
        !self.requests.is_empty() || self.client_methods.is_busy() || self.terminals.is_busy()
    }
}
