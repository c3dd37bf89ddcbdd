//! Requests of the agent that the gateway serves itself: files and terminals. The owner starts the work and hears of
//! its end; it never waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::actor::Actor;
use super::elicitations::Elicit;
use super::requests::Outcome;
use super::terminals::NewTerminal;
use crate::acp::error_code;
use crate::jsonrpc::IncomingId;
use crate::types::Limits;

/// What came of a request.
#[derive(Debug)]
pub(super) struct Served {
    process: u64,
    incoming: IncomingId,
    done: Done,
}

/// What comes of the work for a request.
#[derive(Debug)]
pub(super) enum Done {
    Answer(Outcome),
    /// The answer holds its place until the agent has taken it.
    File(Outcome, OwnedSemaphorePermit),
    /// An elicitation can be shown.
    Elicit(Elicit),
    /// A terminal runs, or why not.
    Terminal(Box<Result<NewTerminal, Box<RawValue>>>),
}

/// Where what is served comes in, and how much of it is on its way.
#[derive(Debug)]
pub(super) struct Serving {
    done: mpsc::Sender<Served>,
    /// Counts the processes that this owner had: numbers of requests mean others on the next one.
    process: u64,
    open: HashMap<IncomingId, Work>,
    pub(super) files: FileBounds,
}

/// How much of the files that the agent reads and writes is held at a time.
#[derive(Debug)]
pub(super) struct FileBounds {
    /// Files that are read or written, or whose answers the agent has not taken. The others wait.
    pub(super) answers: Arc<Semaphore>,
    /// KiB of what the waiting ones want.
    pub(super) wanted: Arc<Semaphore>,
}

/// Work for a request of the agent.
#[derive(Debug)]
enum Work {
    /// It ends when this is dropped.
    Droppable(#[expect(dead_code, reason = "it is dropped, not read")] DropGuard),
    /// It comes to its end in any case.
    Whole {
        /// The agent has not taken its request back.
        wanted: bool,
    },
}

/// Rounded up; a limit of the configuration may be larger than what a count can be.
pub(super) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl Serving {
    pub(super) fn new(done: mpsc::Sender<Served>, limits: &Limits) -> Self {
        let files = FileBounds {
            answers: Arc::new(Semaphore::new(limits.file_answers.min(Semaphore::MAX_PERMITS))),
            wanted: Arc::new(Semaphore::new(kib(limits.file_wanted_bytes) as usize)),
        };
        Self { done, process: 0, open: HashMap::new(), files }
    }

    /// The process is gone; what is still served for it has nobody to hear of it.
    pub(super) fn forget(&mut self) {
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
    pub(super) fn serve(&mut self, incoming: IncomingId, work: impl Future<Output = Done> + Send + 'static) {
        let dropped = CancellationToken::new();
        let guard = Work::Droppable(dropped.clone().drop_guard());
        self.start_work(incoming, guard, async move { dropped.run_until_cancelled_owned(work).await });
    }

    /// Runs `work` that the owner goes on with, to its end: what it makes must come back here.
    pub(super) fn beside(&mut self, incoming: IncomingId, work: impl Future<Output = Done> + Send + 'static) {
        self.start_work(incoming, Work::Whole { wanted: true }, async move { Some(work.await) });
    }

    fn start_work(
        &mut self,
        incoming: IncomingId,
        entry: Work,
        work: impl Future<Output = Option<Done>> + Send + 'static,
    ) {
        if self.serving.open.len() >= self.context.limits.pending_requests {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are being served");
        }
        let (served, process) = (self.serving.done.clone(), self.serving.process);
        self.serving.open.insert(incoming, entry);
        self.context.shutdown.spawn_confined(async move {
            if let Some(done) = work.await {
                // An owner that has ended has given its process back.
                drop(served.send(Served { process, incoming, done }).await);
            }
        });
    }

    pub(super) fn served(&mut self, Served { process, incoming, done }: Served) {
        if process != self.serving.process {
            return;
        }
        match self.serving.open.remove(&incoming) {
            Some(Work::Droppable(_) | Work::Whole { wanted: true }) => {}
            Some(Work::Whole { wanted: false }) | None => return,
        }
        if let Some(turn) = &mut self.turn {
            // The agent goes on from here: its silence is counted anew.
            turn.active = Instant::now();
        }
        match done {
            Done::Answer(outcome) => self.send_answer(incoming, &outcome),
            Done::File(outcome, place) => self.send_file_answer(incoming, &outcome, place),
            Done::Elicit(elicit) => self.elicit(incoming, elicit),
            Done::Terminal(outcome) => self.terminal_started(incoming, *outcome),
        }
    }

    /// The agent took back what is being served: it hears so at once, and nothing more.
    pub(super) fn stop_serving(&mut self, incoming: IncomingId) {
        match self.serving.open.get_mut(&incoming) {
            Some(Work::Droppable(_)) => drop(self.serving.open.remove(&incoming)),
            Some(Work::Whole { wanted }) => *wanted = false,
            None => return,
        }
        self.refuse(incoming, error_code::REQUEST_CANCELLED, "");
    }

    /// The agent waits for an answer or for a command that we run: its silence is ours.
    pub(super) fn owes_answers(&self) -> bool {
        !self.requests.is_empty() || self.serving.is_busy() || self.terminals.is_busy()
    }
}
