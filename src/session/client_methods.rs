//! Requests of the agent that the gateway serves itself: files and terminals. The actor starts the work and
//! receives its completion as an event; it never waits for the work.

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

/// The completion of a request.
#[derive(Debug)]
pub(super) struct Completion {
    process: u64,
    incoming: IncomingId,
    output: WorkOutput,
}

/// The output of the work for a request.
#[derive(Debug)]
pub(super) enum WorkOutput {
    Answer(Outcome),
    /// The response holds its permit until the agent has read it.
    File(Outcome, OwnedSemaphorePermit),
    /// A checked elicitation that can be offered to clients.
    Elicitation(CheckedElicitation),
    /// A started terminal, or the error.
    Terminal(Box<Result<NewTerminal, Box<RawValue>>>),
}

/// The requests being served, the channel for their completions, and their limits.
#[derive(Debug)]
pub(super) struct ClientMethods {
    completions: mpsc::Sender<Completion>,
    /// The number of processes that this actor has had. The next process reuses request ids.
    process: u64,
    open: HashMap<IncomingId, RunningWork>,
    pub(super) files: FileBounds,
}

/// The limits of file contents held in memory.
#[derive(Debug)]
pub(super) struct FileBounds {
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    pub(super) answers: Arc<Semaphore>,
    /// The KiB that the params of waiting requests may use.
    pub(super) request_kib: Arc<Semaphore>,
}

/// The work for a request of the agent.
#[derive(Debug)]
enum RunningWork {
    /// Work that stops when the guard is dropped.
    Cancellable(#[expect(dead_code, reason = "it is dropped, not read")] DropGuard),
    /// Work that always runs to its end.
    Uncancellable {
        /// False after the agent cancelled its request.
        awaited: bool,
    },
}

/// Rounds up to KiB. A configured limit may be larger than the maximum of `u32`.
pub(super) fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl ClientMethods {
    pub(super) fn new(done: mpsc::Sender<Completion>, limits: &Limits) -> Self {
        let files = FileBounds {
            answers: Arc::new(Semaphore::new(limits.max_file_requests.min(Semaphore::MAX_PERMITS))),
            request_kib: Arc::new(Semaphore::new(kib(limits.max_pending_write_bytes) as usize)),
        };
        Self { completions: done, process: 0, open: HashMap::new(), files }
    }

    /// Discards the requests of a process that the session released.
    pub(super) fn clear(&mut self) {
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
    pub(super) fn serve(
        &mut self,
        incoming: IncomingId,
        work: impl Future<Output = WorkOutput> + Send + 'static,
    ) {
        let dropped = CancellationToken::new();
        let guard = RunningWork::Cancellable(dropped.clone().drop_guard());
        self.start_work(incoming, guard, async move { dropped.run_until_cancelled_owned(work).await });
    }

    /// Runs `work` to its end, because the actor needs its output.
    pub(super) fn serve_to_completion(
        &mut self,
        incoming: IncomingId,
        work: impl Future<Output = WorkOutput> + Send + 'static,
    ) {
        self.start_work(
            incoming,
            RunningWork::Uncancellable { awaited: true },
            async move { Some(work.await) },
        );
    }

    fn start_work(
        &mut self,
        incoming: IncomingId,
        entry: RunningWork,
        work: impl Future<Output = Option<WorkOutput>> + Send + 'static,
    ) {
        if self.client_methods.open.len() >= self.context.limits.max_pending_requests {
            return self.refuse(incoming, error_code::INTERNAL, "too many requests are in progress");
        }
        let (served, process) = (self.client_methods.completions.clone(), self.client_methods.process);
        self.client_methods.open.insert(incoming, entry);
        self.context.shutdown.spawn_isolated(async move {
            if let Some(done) = work.await {
                // If the receiver is closed, the actor has stopped and has released its process.
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
            // The agent continues now, so its silence is measured from here.
            turn.last_activity = Instant::now();
        }
        match done {
            WorkOutput::Answer(outcome) => self.send_answer(incoming, &outcome),
            WorkOutput::File(outcome, place) => self.send_file_answer(incoming, &outcome, place),
            WorkOutput::Elicitation(elicit) => self.offer_elicitation(incoming, elicit),
            WorkOutput::Terminal(outcome) => self.terminal_started(incoming, *outcome),
        }
    }

    /// Cancels a request that is being served. The agent receives only the cancellation error.
    pub(super) fn cancel_serving(&mut self, incoming: IncomingId) {
        match self.client_methods.open.get_mut(&incoming) {
            Some(RunningWork::Cancellable(_)) => drop(self.client_methods.open.remove(&incoming)),
            Some(RunningWork::Uncancellable { awaited: wanted }) => *wanted = false,
            None => return,
        }
        self.refuse(incoming, error_code::REQUEST_CANCELLED, "");
    }

    /// Whether the agent waits for the gateway. The silence of the agent does not count then.
    pub(super) fn agent_is_waiting(&self) -> bool {
        !self.requests.is_empty() || self.client_methods.is_busy() || self.terminals.is_busy()
    }
}
