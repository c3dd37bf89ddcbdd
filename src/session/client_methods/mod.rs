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
use crate::acp::Outcome;
use crate::jsonrpc::IncomingId;
use crate::types::{Limits, PromptId};
use crate::workspace::TerminalEvent;

/// The requests being served, the open terminals, and the limits of file contents.
#[derive(Debug)]
pub(super) struct ClientMethods {
    completions: mpsc::Sender<Completion>,
    /// The number of processes that this actor has had. The next process reuses request ids.
    process: u64,
    open: HashMap<IncomingId, RunningWork>,
    files: FileBounds,
    pub(super) terminals: Terminals,
}

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

/// A checked elicitation that can be offered to clients.
#[derive(Debug)]
pub(super) struct CheckedElicitation {
    pub(super) params: Box<RawValue>,
    pub(super) prompt: Option<PromptId>,
    pub(super) subagent: Option<String>,
}

/// The limits of file contents held in memory.
#[derive(Debug)]
struct FileBounds {
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    answers: Arc<Semaphore>,
    /// The KiB that the params of waiting requests may use.
    request_kib: Arc<Semaphore>,
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
enum RunningWork {
    /// Work that stops when the guard is dropped.
    Cancellable(#[expect(dead_code, reason = "it is dropped, not read")] DropGuard),
    /// Work that always runs to its end, because the actor needs its output.
    Uncancellable {
        /// False after the agent cancelled its request.
        awaited: bool,
    },
}

/// Sends the completion of one request to the actor.
#[derive(Debug)]
pub(super) struct Completer {
    completions: mpsc::Sender<Completion>,
    process: u64,
    incoming: IncomingId,
}

impl Completer {
    pub(super) async fn complete(self, output: WorkOutput) {
        let Self { completions, process, incoming } = self;
        // If the receiver is closed, the actor has stopped and has released its process.
        drop(completions.send(Completion { process, incoming, output }).await);
    }
}

/// Rounds up to KiB. A configured limit may be larger than the maximum of `u32`.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl ClientMethods {
    pub(super) fn new(
        completions: mpsc::Sender<Completion>,
        terminal_events: mpsc::Sender<TerminalEvent>,
        limits: &Limits,
    ) -> Self {
        let files = FileBounds {
            answers: Arc::new(Semaphore::new(limits.max_file_requests.min(Semaphore::MAX_PERMITS))),
            request_kib: Arc::new(Semaphore::new(kib(limits.max_pending_write_bytes) as usize)),
        };
        let terminals = Terminals::new(terminal_events);
        Self { completions, process: 0, open: HashMap::new(), files, terminals }
    }

    /// Discards the requests of a process that the session releases.
    pub(super) fn process_released(&mut self) {
        self.process += 1;
        self.open.clear();
    }

    /// Whether a request of this process is being served.
    pub(super) fn is_serving(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether a request is being served or a command runs.
    pub(super) fn is_busy(&self) -> bool {
        self.is_serving() || self.terminals.is_busy()
    }

    /// The permits for a file request, or `None` if too many bytes are waiting.
    pub(super) fn file_permits(&self, params: &RawValue) -> Option<FilePermits> {
        let request_kib = Arc::clone(&self.files.request_kib);
        let params = request_kib.try_acquire_many_owned(kib(params.get().len())).ok()?;
        Some(FilePermits { answers: Arc::clone(&self.files.answers), params })
    }

    /// Registers work that is dropped when the agent cancels its request or the session releases the process. `None` if
    /// `max` requests are being served.
    pub(super) fn begin(
        &mut self,
        incoming: IncomingId,
        max: usize,
    ) -> Option<(Completer, CancellationToken)> {
        let cancelled = CancellationToken::new();
        let work = RunningWork::Cancellable(cancelled.clone().drop_guard());
        self.register(incoming, work, max).map(|completer| (completer, cancelled))
    }

    /// Registers work that runs to its end. `None` if `max` requests are being served.
    pub(super) fn begin_uncancellable(&mut self, incoming: IncomingId, max: usize) -> Option<Completer> {
        self.register(incoming, RunningWork::Uncancellable { awaited: true }, max)
    }

    fn register(&mut self, incoming: IncomingId, work: RunningWork, max: usize) -> Option<Completer> {
        if self.open.len() >= max {
            return None;
        }
        self.open.insert(incoming, work);
        Some(Completer { completions: self.completions.clone(), process: self.process, incoming })
    }

    /// Ends a request. Returns its output if the agent still waits for the answer.
    pub(super) fn completed(&mut self, completion: Completion) -> Option<(IncomingId, WorkOutput)> {
        let Completion { process, incoming, output } = completion;
        if process != self.process {
            return None;
        }
        match self.open.remove(&incoming)? {
            RunningWork::Cancellable(_) | RunningWork::Uncancellable { awaited: true } => {
                Some((incoming, output))
            }
            RunningWork::Uncancellable { awaited: false } => None,
        }
    }

    /// Cancels a request. Returns whether the agent must receive the cancellation error.
    pub(super) fn cancel(&mut self, incoming: IncomingId) -> bool {
        match self.open.get_mut(&incoming) {
            Some(RunningWork::Cancellable(_)) => drop(self.open.remove(&incoming)),
            Some(RunningWork::Uncancellable { awaited }) => *awaited = false,
            None => return false,
        }
        true
    }
}
