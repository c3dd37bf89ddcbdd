//! Files and terminals that the member serves to one process of its agent, below its roots (ACP, File System, Terminals).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::gate::Roots;
use super::{Agent, Serves};
use base::shutdown::Shutdown;
use base::types::{Limits, TerminalId};
use children::Terminals;
use wire::acp::{self, CreateTerminal, Outcome, RequestKind, error_code, method};
use wire::jsonrpc;
use workspace::{
    self, AgentTerminals, FileError, OutputEvent, ScrollbackBudget, StartedTerminal, TerminalEvent,
    TerminalRequest,
};

const QUEUED: usize = 16;

#[derive(Debug)]
pub(super) struct Serving {
    serves: Serves,
    roots: Roots,
    limits: Arc<Limits>,
    shutdown: Shutdown,
    /// Starts commands under the supervisor of the agent.
    commands: Terminals,
    terminals: AgentTerminals<()>,
    last_terminal: u32,
    events: mpsc::Receiver<TerminalEvent>,
    completions: (mpsc::Sender<Completion>, mpsc::Receiver<Completion>),
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
struct Completion {
    request: u64,
    work: Work,
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

impl Serving {
    pub(super) fn new(agent: &Agent, commands: Terminals, shutdown: Shutdown) -> Self {
        let limits = Arc::clone(&agent.limits);
        let (sender, events) = mpsc::channel(QUEUED);
        let budget = ScrollbackBudget::new(limits.max_total_terminal_bytes);
        Self {
            serves: agent.serves,
            roots: agent.roots.clone(),
            shutdown,
            commands,
            terminals: AgentTerminals::new(sender, budget),
            last_terminal: 0,
            events,
            completions: mpsc::channel(QUEUED),
            open: HashMap::new(),
            last_request: 0,
            answers: Arc::new(Semaphore::new(
                limits.max_file_requests.min(Semaphore::MAX_PERMITS),
            )),
            waiting_kib: Arc::new(Semaphore::new(kib(limits.max_pending_write_bytes) as usize)),
            limits,
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

    pub(super) fn request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: Box<RawValue>,
        folder: PathBuf,
    ) -> Option<Bytes> {
        let begun = self.begin(id.to_owned(), method, params, folder);
        begun.err().map(|error| jsonrpc::error(id, &error))
    }

    fn begin(
        &mut self,
        id: Box<RawValue>,
        method: &str,
        params: Box<RawValue>,
        folder: PathBuf,
    ) -> Result<(), Box<RawValue>> {
        if self.open.len() >= self.limits.max_pending_requests {
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
        let max_bytes = self.limits.max_file_bytes;
        let shutdown = self.shutdown.clone();
        let answers = Arc::clone(&self.answers);
        let method = method.to_owned();
        self.spawn(id, async move {
            let Ok(permit) = answers.acquire_owned().await else {
                return Work::Answer(Err(aborted()), None);
            };
            let work = shutdown.spawn_blocking(move || {
                let open = || roots.workspace();
                let outcome = workspace::serve_file_request(open, &method, &params, max_bytes);
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
        if self.terminals.count() < self.limits.max_terminals {
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
        let completions = self.completions.0.clone();
        self.shutdown.spawn_isolated(async move {
            if let Some(work) = cancelled.run_until_cancelled_owned(work).await {
                // The process has ended.
                let _ = completions.send(Completion { request, work }).await;
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
                        self.terminals.ended(terminal, (exit.code, exit.signal));
                    }
                }
                Some(completion) = self.completions.1.recv() => {
                    if let Some(line) = self.completed(completion) {
                        return line;
                    }
                }
            }
        }
    }

    fn completed(&mut self, Completion { request, work }: Completion) -> Option<Bytes> {
        // Dropping a started terminal kills its command: the agent has cancelled the request.
        let OpenRequest { id, .. } = self.open.remove(&request)?;
        let (outcome, permit) = match work {
            Work::Answer(outcome, permit) => (outcome, permit),
            Work::Started(started, kept) => (self.terminal_started(*started, kept), None),
        };
        let line = match &outcome {
            Ok(result) => jsonrpc::result(&id, result),
            Err(error) => jsonrpc::error(&id, error),
        };
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
        let limits = (&*self.limits, 0);
        let ((), follower) = self.terminals.open((id, ()), started, kept, limits);
        self.shutdown.spawn_isolated(follower);
        Ok(acp::create_terminal_result(id))
    }
}
