//! Requests of the agent that the gateway serves itself: files and terminals.
//!
//! The work runs outside of the actor, which receives its completion as an event and never waits for it. This part knows
//! which requests are being served and which terminals are open.

pub(super) mod files;
pub(super) mod terminals;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::terminals::{NewTerminal, Terminals};
use super::agent_requests::OfferedRequest;
use super::record::{StoredExit, TerminalRecord};
use super::serving_clients::ServingClient;
use crate::jsonrpc::IncomingId;
use crate::types::{Limits, PromptId, TerminalId, Timestamp};
use crate::workspace::TerminalRequest;

/// The requests being served, the open terminals, and the limits of file contents.
#[derive(Debug)]
pub(super) struct ClientMethods {
    completions: mpsc::Sender<Completion>,
    /// The number of processes that this actor has had. The next process reuses request ids.
    process: u64,
    open: HashMap<IncomingId, RunningWork>,
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    file_answers: Arc<Semaphore>,
    /// The KiB that the params of waiting file requests may use.
    file_request_kib: Arc<Semaphore>,
    terminals: Terminals,
}

/// The completion of a request.
#[derive(Debug)]
pub(super) struct Completion {
    process: u64,
    incoming: IncomingId,
    outcome: WorkOutcome,
}

/// The output of the work for a request, or the error for the agent.
pub(super) type WorkOutcome = Result<WorkOutput, Box<RawValue>>;

#[derive(Debug)]
pub(super) enum WorkOutput {
    /// The result for the agent. A large one holds a permit until the agent has read it.
    Result(Box<RawValue>, Option<OwnedSemaphorePermit>),
    /// A checked elicitation that can be offered to clients.
    Elicitation(OfferedRequest),
    /// A request for a file in the folders of the session, for this client.
    File(OfferedRequest, Arc<ServingClient>),
    Terminal(Box<NewTerminal>),
}

/// The permits of a file request.
#[derive(Debug)]
pub(super) struct FilePermits {
    /// Acquire it before the file is read.
    pub(super) answers: Arc<Semaphore>,
    /// Held until the params are dropped.
    pub(super) params: OwnedSemaphorePermit,
}

/// The work for a request of the agent.
#[derive(Debug)]
struct RunningWork {
    /// Stops the work when it is dropped. `None`: the work always runs to its end, because the actor needs its output.
    stop: Option<DropGuard>,
    /// False after the agent cancelled its request.
    awaited: bool,
}

/// Sends the completion of one request to the actor.
#[derive(Debug)]
pub(super) struct Completer {
    completions: mpsc::Sender<Completion>,
    process: u64,
    incoming: IncomingId,
}

impl Completer {
    pub(super) async fn complete(self, outcome: WorkOutcome) {
        let Self {
            completions,
            process,
            incoming,
        } = self;
        // If the receiver is closed, the actor has stopped and has released its process.
        drop(
            completions
                .send(Completion {
                    process,
                    incoming,
                    outcome,
                })
                .await,
        );
    }
}

/// Rounds up to KiB. A configured limit may be larger than the maximum of `u32`.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl ClientMethods {
    pub(super) fn new(
        completions: mpsc::Sender<Completion>,
        terminals: Terminals,
        limits: &Limits,
    ) -> Self {
        let answers = limits.max_file_requests.min(Semaphore::MAX_PERMITS);
        Self {
            completions,
            process: 0,
            open: HashMap::new(),
            file_answers: Arc::new(Semaphore::new(answers)),
            file_request_kib: Arc::new(
                Semaphore::new(kib(limits.max_pending_write_bytes) as usize),
            ),
            terminals,
        }
    }

    /// Discards the requests of a process that the session releases.
    pub(super) fn process_released(&mut self) {
        self.process += 1;
        self.open.clear();
    }

    /// Whether a request is being served or a command runs.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty() || self.terminals.is_busy()
    }

    /// The work for a request of the agent for one of its terminals, or `None` if the agent has no such terminal.
    pub(super) fn serve_terminal(
        &mut self,
        id: &str,
        request: TerminalRequest,
    ) -> Option<impl Future<Output = Box<RawValue>> + Send + use<>> {
        self.terminals.serve(id, request)
    }

    /// The number of terminals that the agent has not released or whose commands run.
    pub(super) fn terminal_count(&self) -> usize {
        self.terminals.len()
    }

    /// Opens a started terminal. The caller completes its record. The returned future delivers its output and its exit
    /// as events.
    pub(super) fn open_terminal(
        &mut self,
        id: TerminalId,
        new: NewTerminal,
        prompt: Option<PromptId>,
        created_at: Timestamp,
        limits: &Limits,
    ) -> (&mut TerminalRecord, impl Future<Output = ()> + Send + use<>) {
        self.terminals.open(id, new, prompt, created_at, limits)
    }

    /// Whether the agent has a terminal with this id.
    pub(super) fn has_terminal(&self, id: &str) -> bool {
        self.terminals.has(id)
    }

    /// The record of a terminal whose command runs.
    pub(super) fn running_terminal(&self, id: TerminalId) -> Option<&TerminalRecord> {
        self.terminals.running(id)
    }

    /// Whether a command runs whose process is alive.
    pub(super) fn has_live_terminal(&self) -> bool {
        self.terminals.is_alive()
    }

    /// Ends a terminal and notifies the requests that wait for it. Returns its record with the exit status.
    pub(super) fn end_terminal(
        &mut self,
        id: TerminalId,
        exit: StoredExit,
    ) -> Option<TerminalRecord> {
        self.terminals.ended(id, exit)
    }

    /// Ends the next running terminal, because the session releases its process. Call it until it returns `None`.
    pub(super) fn end_next_terminal(&mut self) -> Option<TerminalRecord> {
        self.terminals.end_next()
    }

    /// Kills a command. The agent keeps its terminal.
    pub(super) fn kill_terminal(&mut self, id: TerminalId) {
        self.terminals.kill(id);
    }

    /// Kills the commands of a turn, or all commands. The agent keeps its terminals. Returns the ids.
    pub(super) fn kill_terminals(&mut self, of_turn: Option<PromptId>) -> Vec<TerminalId> {
        self.terminals.kill_all(of_turn)
    }

    /// The permits for a file request, or `None` if too many bytes are waiting.
    pub(super) fn file_permits(&self, params: &RawValue) -> Option<FilePermits> {
        let request_kib = Arc::clone(&self.file_request_kib);
        let params = request_kib
            .try_acquire_many_owned(kib(params.get().len()))
            .ok()?;
        Some(FilePermits {
            answers: Arc::clone(&self.file_answers),
            params,
        })
    }

    /// Registers work for a request. The token stops work that is `cancellable` when the agent cancels its request or the
    /// session releases the process. `None` if `max` requests are being served.
    pub(super) fn begin(
        &mut self,
        incoming: IncomingId,
        cancellable: bool,
        max: usize,
    ) -> Option<(Completer, CancellationToken)> {
        if self.open.len() >= max {
            return None;
        }
        let cancelled = CancellationToken::new();
        let stop = cancellable.then(|| cancelled.clone().drop_guard());
        self.open.insert(
            incoming,
            RunningWork {
                stop,
                awaited: true,
            },
        );
        let completions = self.completions.clone();
        Some((
            Completer {
                completions,
                process: self.process,
                incoming,
            },
            cancelled,
        ))
    }

    /// Ends a request. Returns its output if the agent still waits for the answer.
    pub(super) fn completed(
        &mut self,
        completion: Completion,
    ) -> Option<(IncomingId, WorkOutcome)> {
        let Completion {
            process,
            incoming,
            outcome,
        } = completion;
        if process != self.process {
            return None;
        }
        self.open
            .remove(&incoming)?
            .awaited
            .then_some((incoming, outcome))
    }

    /// Cancels a request. Returns whether the agent must receive the cancellation error.
    pub(super) fn cancel(&mut self, incoming: IncomingId) -> bool {
        let Some(work) = self.open.get_mut(&incoming) else {
            return false;
        };
        work.awaited = false;
        if work.stop.is_some() {
            self.open.remove(&incoming);
        }
        true
    }
}
