//! Files and terminals that the member serves to one process of its agent, below its roots (ACP, File System, Terminals).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::gate::Roots;
use super::{Agent, OfferedTools};
use base::shutdown::Shutdown;
use base::types::TerminalId;
use children::Terminals;
use wire::acp::{self, CreateTerminal, Outcome, RequestKind, error_code, method};
use wire::jsonrpc;
use workspace::{
    self, AgentTerminals, FileError, OutputEvent, ScrollbackBudget, StartedTerminal, TerminalEvent,
    TerminalRequest,
};

const QUEUED: usize = 16;
// The bounds of the member are the defaults of the gateway.
/// The number of requests of the agent that may wait for an answer. Beyond it, the agent receives an error.
const MAX_PENDING_REQUESTS: usize = 64;
/// The number of concurrent file requests, with answers that the agent has not read. Further requests wait.
const MAX_FILE_REQUESTS: usize = 4;
/// The content in bytes of the waiting write requests. Beyond it, the agent receives an error.
const MAX_PENDING_WRITE_BYTES: usize = 64 << 20;
const MAX_FILE_BYTES: u64 = 16 << 20;
const MAX_TERMINALS: usize = 16;

#[derive(Debug)]
pub(super) struct AgentTools {
    serves: OfferedTools,
    roots: Roots,
    shutdown: Shutdown,
    /// Starts commands under the supervisor of the agent.
    commands: Terminals,
    terminals: AgentTerminals<()>,
    last_terminal: u32,
    events: mpsc::Receiver<TerminalEvent>,
    completion_sender: mpsc::Sender<(u64, Work)>,
    completions: mpsc::Receiver<(u64, Work)>,
    /// The requests that the agent waits for. Dropping one cancels its work.
    open: HashMap<u64, OpenRequest>,
    last_request: u64,
    /// Permits for files in progress and for responses that the agent has not read. Further requests wait.
    answers: Arc<Semaphore>,
    /// The KiB that the params of waiting file requests may use.
    waiting_kib: Arc<Semaphore>,
}

#[derive(Debug)]
struct OpenRequest {
    id: Box<RawValue>,
    _cancel: DropGuard,
}

#[derive(Debug)]
enum Work {
    /// The outcome for the agent. A file holds a permit until the agent has read it.
    Answer(Outcome, Option<OwnedSemaphorePermit>),
    Started(Box<StartedTerminal>, Option<u64>),
}

/// A line that holds a permit until it is written.
struct GuardedLine {
    line: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for GuardedLine {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

fn kib(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

fn internal(detail: &str) -> Box<RawValue> {
    acp::error(error_code::INTERNAL, detail)
}

fn aborted() -> Box<RawValue> {
    internal("the work was aborted")
}

impl AgentTools {
    pub(super) fn new(agent: &Agent, commands: Terminals, shutdown: Shutdown) -> Self {
        let (sender, events) = mpsc::channel(QUEUED);
        let (completion_sender, completions) = mpsc::channel(QUEUED);
        Self {
            serves: agent.serves,
            roots: agent.roots.clone(),
            shutdown,
            commands,
            terminals: AgentTerminals::new(sender, ScrollbackBudget::default()),
            last_terminal: 0,
            events,
            completion_sender,
            completions,
            open: HashMap::new(),
            last_request: 0,
            answers: Arc::new(Semaphore::new(MAX_FILE_REQUESTS)),
            waiting_kib: Arc::new(Semaphore::new(kib(MAX_PENDING_WRITE_BYTES) as usize)),
        }
    }

    pub(super) fn serves(&self, method: &str) -> bool {
        match RequestKind::from_method(method) {
            RequestKind::ReadFile | RequestKind::WriteFile => self.serves.files,
            RequestKind::CreateTerminal
            | RequestKind::TerminalOutput
            | RequestKind::WaitForExit
            | RequestKind::EndTerminal => self.serves.terminals,
            RequestKind::Permission | RequestKind::Elicitation | RequestKind::Extension => false,
        }
    }

    /// Begins to serve a request. The error is the answer to a request that is not served.
    pub(super) fn request(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: Box<RawValue>,
        folder: PathBuf,
    ) -> Result<(), Box<RawValue>> {
        if self.open.len() >= MAX_PENDING_REQUESTS {
            return Err(internal("too many requests are in progress"));
        }
        match method {
            method::FS_READ_TEXT_FILE | method::FS_WRITE_TEXT_FILE => self.file(id, method, params),
            method::TERMINAL_CREATE => self.create_terminal(id, &params, folder),
            _ => {
                let request = TerminalRequest::from_method(method);
                let request = request.ok_or_else(|| acp::method_not_found(method))?;
                let acp::TerminalParams { terminal_id } = acp::parse(&params)
                    .map_err(|_| acp::error(error_code::INVALID_PARAMS, "expected a terminalId"))?;
                let work = self.terminals.serve(&terminal_id, request);
                let work = work.ok_or_else(|| acp::resource_not_found(&terminal_id))?;
                self.spawn(id, async { Work::Answer(Ok(work.await), None) });
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<(), Box<RawValue>> {
        let waiting = Arc::clone(&self.waiting_kib).try_acquire_many_owned(kib(params.get().len()));
        let waiting = waiting.map_err(|_| internal("too many bytes are waiting to be written"))?;
        let roots = self.roots.clone();
        let shutdown = self.shutdown.clone();
        let answers = Arc::clone(&self.answers);
        let method = method.to_owned();
        self.spawn(id, async move {
            let Ok(permit) = answers.acquire_owned().await else {
                return Work::Answer(Err(aborted()), None);
            };
            let work = shutdown.spawn_blocking(move || {
                let open = || roots.workspace();
                let outcome = workspace::serve_file_request(open, &method, &params, MAX_FILE_BYTES);
                drop((params, waiting));
                outcome.map_err(|error| error.response())
            });
            Work::Answer(work.await.unwrap_or_else(|_| Err(aborted())), Some(permit))
        });
        Ok(())
    }

    fn create_terminal(
        &mut self,
        id: Box<RawValue>,
        params: &RawValue,
        folder: PathBuf,
    ) -> Result<(), Box<RawValue>> {
        let asked = acp::parse::<CreateTerminal>(params).map_err(|_| {
            let detail = "expected a command, and args, env, cwd, outputByteLimit as in ACP";
            acp::error(error_code::INVALID_PARAMS, detail)
        })?;
        self.check_terminal_limit()?;
        let roots = self.roots.clone();
        let commands = self.commands.clone();
        let shutdown = self.shutdown.clone();
        self.spawn(id, async move {
            let requested = asked.cwd.clone();
            let find = move || match requested {
                Some(requested) => roots.workspace()?.real_directory(&requested),
                None => Ok(folder),
            };
            let cwd: Result<PathBuf, FileError> = match shutdown.spawn_blocking(find).await {
                Ok(found) => found,
                Err(_) => return Work::Answer(Err(aborted()), None),
            };
            let started = match cwd {
                Ok(cwd) => workspace::start_terminal(&commands, &asked, cwd).await,
                Err(error) => {
                    let error = acp::error(error_code::INVALID_PARAMS, &format!("cwd: {error}"));
                    return Work::Answer(Err(error), None);
                }
            };
            match started {
                Ok(started) => Work::Started(Box::new(started), asked.output_byte_limit),
                Err(error) => Work::Answer(Err(error.response()), None),
            }
        });
        Ok(())
    }

    fn check_terminal_limit(&self) -> Result<(), Box<RawValue>> {
        if self.terminals.count() < MAX_TERMINALS {
            return Ok(());
        }
        Err(internal("too many terminals are open; release some first"))
    }

    /// Runs the work for a request outside of the task of the process.
    fn spawn(&mut self, id: Box<RawValue>, work: impl Future<Output = Work> + Send + 'static) {
        self.last_request += 1;
        let request = self.last_request;
        let cancelled = CancellationToken::new();
        let open = OpenRequest {
            id,
            _cancel: cancelled.clone().drop_guard(),
        };
        self.open.insert(request, open);
        let completions = self.completion_sender.clone();
        self.shutdown.spawn_isolated(async move {
            if let Some(work) = cancelled.run_until_cancelled_owned(work).await {
                // The process has ended.
                let _ = completions.send((request, work)).await;
            }
        });
    }

    /// Cancels a request that is being served. Returns its answer. `None`: the member does not serve it.
    pub(super) fn cancel(&mut self, params: &RawValue) -> Option<Bytes> {
        let cancel: acp::CancelRequest<'_> = acp::parse(params).ok()?;
        let is_meant = |open: &mut OpenRequest| open.id.get() == cancel.request_id.get();
        let (_, OpenRequest { id, .. }) = self.open.extract_if(|_, open| is_meant(open)).next()?;
        let error = acp::error(error_code::REQUEST_CANCELLED, "");
        Some(jsonrpc::error(&id, &error))
    }

    /// Waits for the next answer to the agent. Cancel-safe.
    pub(super) async fn next_answer(&mut self) -> Bytes {
        loop {
            tokio::select! {
                Some(event) = self.events.recv() => {
                    if let TerminalEvent { terminal, event: OutputEvent::Exited(exit) } = event {
                        self.terminals.ended(terminal, exit);
                    }
                }
                Some((request, work)) = self.completions.recv() => {
                    if let Some(line) = self.completed(request, work) {
                        return line;
                    }
                }
            }
        }
    }

    fn completed(&mut self, request: u64, work: Work) -> Option<Bytes> {
        // Dropping a started terminal kills its command: the agent has cancelled the request.
        let OpenRequest { id, .. } = self.open.remove(&request)?;
        let (outcome, permit) = match work {
            Work::Answer(outcome, permit) => (outcome, permit),
            Work::Started(started, kept) => (self.terminal_started(*started, kept), None),
        };
        let line = jsonrpc::response(&id, outcome.as_deref());
        Some(Bytes::from_owner(GuardedLine {
            line,
            _permit: permit,
        }))
    }

    fn terminal_started(&mut self, started: StartedTerminal, kept: Option<u64>) -> Outcome {
        self.check_terminal_limit()?;
        self.last_terminal += 1;
        let id = TerminalId::new(self.last_terminal);
        // No event of the output is used, so none is logged.
        let ((), follower) = self.terminals.open(id, (), started, kept, 0);
        self.shutdown.spawn_isolated(follower);
        Ok(acp::create_terminal_result(id))
    }
}
