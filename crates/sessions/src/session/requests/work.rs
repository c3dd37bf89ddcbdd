//! The requests of the agent that the gateway handles itself (ACP, File System, Terminals).
//!
//! The work runs outside of the actor, which receives its completion as an event and never waits for it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client_tools::ToolClient;
use super::offer::Offer;
use crate::limits::Limits;
use wire::acp::CreateTerminal;
use wire::jsonrpc::IncomingId;
use workspace::StartedTerminal;

pub(crate) struct Work {
    completions: mpsc::Sender<Completion>,
    /// The number of processes that this actor has had. The next process reuses request ids.
    process: u64,
    open: HashMap<IncomingId, RunningWork>,
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    file_answers: Arc<Semaphore>,
    /// The KiB that the params of waiting file requests may use.
    file_request_kib: Arc<Semaphore>,
}

pub(crate) struct Completion {
    process: u64,
    incoming: IncomingId,
    outcome: WorkOutcome,
}

/// The output of the work for a request, or the error for the agent.
pub(crate) type WorkOutcome = Result<WorkOutput, Box<RawValue>>;

#[derive(Debug)]
pub(crate) enum WorkOutput {
    /// The result for the agent. A large one holds a permit until the agent has read it.
    Result(Box<RawValue>, Option<OwnedSemaphorePermit>),
    Elicitation(Offer),
    /// A request for a file in the folders of the session, for this client.
    File(Offer, Arc<ToolClient>),
    Terminal(Box<NewTerminal>),
}

#[derive(Debug)]
pub(crate) struct NewTerminal {
    pub(crate) started: StartedTerminal,
    pub(crate) asked: CreateTerminal,
    pub(crate) cwd: String,
}

pub(crate) struct FilePermits {
    /// Acquire it before the file is read.
    pub(crate) answers: Arc<Semaphore>,
    /// Held until the params are dropped.
    pub(crate) params: OwnedSemaphorePermit,
}

struct RunningWork {
    /// Stops the work when it is dropped. `None`: the work always runs to its end, because the actor needs its output.
    stop: Option<DropGuard>,
    /// False after the agent cancelled its request.
    awaited: bool,
}

pub(crate) struct Completer {
    completions: mpsc::Sender<Completion>,
    process: u64,
    incoming: IncomingId,
}

impl Completer {
    pub(crate) async fn complete(self, outcome: WorkOutcome) {
        let completion = Completion {
            process: self.process,
            incoming: self.incoming,
            outcome,
        };
        // If the receiver is closed, the actor has stopped and has released its process.
        let _ = self.completions.send(completion).await;
    }
}

/// Rounds up to KiB. A configured limit may be larger than the maximum of `u32`.
fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl Work {
    pub(crate) fn new(completions: mpsc::Sender<Completion>, limits: &Limits) -> Self {
        let answers = limits.max_file_requests.min(Semaphore::MAX_PERMITS);
        Self {
            completions,
            process: 0,
            open: HashMap::new(),
            file_answers: Arc::new(Semaphore::new(answers)),
            file_request_kib: Arc::new(
                Semaphore::new(kib(limits.max_pending_write_bytes) as usize),
            ),
        }
    }

    /// Discards the requests of a process that the session releases.
    pub(crate) fn process_released(&mut self) {
        self.process += 1;
        self.open.clear();
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.open.is_empty()
    }

    /// The permits for a file request, or `None` if too many bytes are waiting.
    pub(crate) fn file_permits(&self, params: &RawValue) -> Option<FilePermits> {
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
    pub(crate) fn begin(
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
        let completer = Completer {
            completions: self.completions.clone(),
            process: self.process,
            incoming,
        };
        Some((completer, cancelled))
    }

    /// Ends a request. Returns its output if the agent still waits for the answer.
    pub(crate) fn completed(
        &mut self,
        completion: Completion,
    ) -> Option<(IncomingId, WorkOutcome)> {
        if completion.process != self.process {
            return None;
        }
        let work = self.open.remove(&completion.incoming)?;
        work.awaited
            .then_some((completion.incoming, completion.outcome))
    }

    /// Cancels a request. Returns whether the agent must receive the cancellation error.
    pub(crate) fn cancel(&mut self, incoming: IncomingId) -> bool {
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
