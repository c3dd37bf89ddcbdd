//! Requests of the agent that the gateway serves itself: files and terminals. The actor starts the work and
//! receives its completion as an event; it never waits for the work.

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

/// The completion of a request.
#[derive(Debug)]
pub(super) struct Served {
    process: u64,
    incoming: IncomingId,
    done: Done,
}

/// The output of the work for a request.
#[derive(Debug)]
pub(super) enum Done {
    Answer(Outcome),
    /// The response holds its permit until the agent has read it.
    File(Outcome, OwnedSemaphorePermit),
    /// A checked elicitation that can be offered to clients.
    Elicit(Elicit),
    /// A started terminal, or the error.
    Terminal(Box<Result<NewTerminal, Box<RawValue>>>),
}

/// The requests being served, the channel for their completions, and their limits.
#[derive(Debug)]
pub(super) struct Serving {
    done: mpsc::Sender<Served>,
    /// The number of processes that this actor has had. The next process reuses request ids.
    process: u64,
    open: HashMap<IncomingId, Work>,
    pub(super) files: FileBounds,
}

/// The limits of file contents held in memory.
#[derive(Debug)]
pub(super) struct FileBounds {
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    pub(super) answers: Arc<Semaphore>,
    /// The KiB that the params of waiting requests may use.
    pub(super) wanted: Arc<Semaphore>,
}

/// The work for a request of the agent.
#[derive(Debug)]
enum Work {
    /// Work that stops when the guard is dropped.
    Droppable(#[expect(dead_code, reason = "it is dropped, not read")] DropGuard),
    /// Work that always runs to its end.
    Whole {
        /// False after the agent cancelled its request.
        wanted: bool,
    },
}

/// Rounds up to KiB. A configured limit may be larger than the maximum of `u32`.
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

    /// Discards the requests of a process that the session released.
    pub(super) fn forget(&mut self) {
        self.process += 1;
        self.open.clear();
    }

    /// Whether a request of this process is being served.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Actor {
    /// Runs `work` outside of the actor and sends its output to the agent. The work is dropped if the agent
    /// cancels its request or the session releases the process.
    pub(super) fn serve(&mut self, incoming: IncomingId, work: impl Future<Output = Done> + Send + 'static) {
        let dropped = CancellationToken::new();
        let guard = Work::Droppable(dropped.clone().drop_guard());
        self.start_work(incoming, guard, async move { dropped.run_until_cancelled_owned(work).await });
    }

    /// Runs `work` to its end, because the actor needs its output.
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
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are in progress");
        }
        let (served, process) = (self.serving.done.clone(), self.serving.process);
        self.serving.open.insert(incoming, entry);
        self.context.shutdown.spawn_confined(async move {
            if let Some(done) = work.await {
                // If the receiver is closed, the actor has stopped and has released its process.
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
            // The agent continues now, so its silence is measured from here.
            turn.active = Instant::now();
        }
        match done {
            Done::Answer(outcome) => self.send_answer(incoming, &outcome),
            Done::File(outcome, place) => self.send_file_answer(incoming, &outcome, place),
            Done::Elicit(elicit) => self.elicit(incoming, elicit),
            Done::Terminal(outcome) => self.terminal_started(incoming, *outcome),
        }
    }

    /// Cancels a request that is being served. The agent receives only the cancellation error.
    pub(super) fn stop_serving(&mut self, incoming: IncomingId) {
        match self.serving.open.get_mut(&incoming) {
            Some(Work::Droppable(_)) => drop(self.serving.open.remove(&incoming)),
            Some(Work::Whole { wanted }) => *wanted = false,
            None => return,
        }
        self.refuse(incoming, error_code::REQUEST_CANCELLED, "");
    }

    /// Whether the agent waits for the gateway. The silence of the agent does not count then.
    pub(super) fn owes_answers(&self) -> bool {
        !self.requests.is_empty() || self.serving.is_busy() || self.terminals.is_busy()
    }
}
