//! A connection over a transport: lines in, lines out, and the pairing of requests with responses.
//!
//! One task reads the agent's stdout in order and sends batches to the holder of the connection. If the
//! holder is slow, the batch channel fills, then the pipe, then the agent blocks. No buffer grows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::secrets::Secrets;
use crate::acp::UpdateLine;
use crate::jsonrpc::{self, CallId, IncomingId, LineDecoder, Message, PendingTables, RpcError};
use crate::process::StdinWriter;
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::Limits;

/// A message from the agent, in its order.
#[derive(Debug)]
pub enum Inbound {
    /// A common `session/update`. Its parts are ranges of the batch's block.
    Update(UpdateLine),
    Notification {
        method: Box<str>,
        params: Box<RawValue>,
    },
    Request {
        id: IncomingId,
        method: Box<str>,
        params: Box<RawValue>,
    },
    Response {
        call: CallId,
        outcome: Result<Box<RawValue>, RpcError>,
    },
    /// A line that is not a JSON-RPC message, or a response to an unknown request.
    InvalidLine {
        bytes: usize,
    },
}

/// The messages of one read.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes of the read, as whole lines.
    pub block: Bytes,
    pub messages: Vec<Inbound>,
    bytes: usize,
}

impl Batch {
    /// A part of the block, as one of its messages refers to it. Such a part is JSON.
    pub fn raw(&self, part: &Range<usize>) -> Option<&RawValue> {
        serde_json::from_slice(self.block.get(part.clone())?).ok()
    }
}

/// A cheap handle for messages to the agent.
#[derive(Debug, Clone)]
pub struct Connection {
    tables: Arc<Mutex<PendingTables<()>>>,
    secrets: Secrets,
    stdin: StdinWriter,
    /// Why the reader stopped, once it has.
    read_end: watch::Receiver<Option<ReadEnd>>,
}

/// Why the reader stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadEnd {
    EndOfFile,
    LineTooLong {
        cap: usize,
    },
    TooManyInvalidLines {
        per_minute: u32,
    },
    /// Too many bytes before the first response.
    StartupOutputTooLarge {
        cap: usize,
    },
}

impl ReadEnd {
    /// A message for people, if the agent caused the end.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::EndOfFile => None,
            Self::LineTooLong { cap } => Some(format!("a line on its stdout was longer than {cap} bytes")),
            Self::StartupOutputTooLarge { cap } => {
                Some(format!("it wrote more than {cap} bytes before it answered initialize"))
            }
            Self::TooManyInvalidLines { per_minute } => {
                Some(format!("it wrote more than {per_minute} lines a minute that are not JSON-RPC"))
            }
        }
    }
}

/// The agent's stdin is closed, or the agent reads it too slowly.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent accepts no more messages")]
pub struct Closed;

impl Connection {
    /// Starts the reader. The receiver belongs to the holder of the connection.
    pub fn start(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: StdinWriter,
        (line_cap, secrets): (usize, &[String]),
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> (Self, mpsc::Receiver<Batch>) {
        let tables = Arc::new(Mutex::new(PendingTables::default()));
        let (batches, receiver) = mpsc::channel(limits.max_queued_batches);
        let (over, watch) = watch::channel(None);
        let secrets = Secrets::new(secrets);
        let reader = Reader {
            tables: Arc::clone(&tables),
            lines: LineDecoder::new(line_cap),
            batches,
            invalid_lines: InvalidLineLimiter::new(limits.max_invalid_lines_per_minute),
            secrets: secrets.clone(),
            startup_bytes: Some(0),
            limits: Arc::clone(limits),
        };
        shutdown.spawn_isolated(async move {
            let why = reader.run(stdout).await;
            over.send_replace(Some(why));
        });
        (Self { tables, secrets, stdin, read_end: watch }, receiver)
    }

    fn tables(&self) -> MutexGuard<'_, PendingTables<()>> {
        lock_or_abort(self.tables.lock())
    }

    /// Masks more values in the errors and the stderr of this agent.
    pub fn add_secrets(&self, secrets: Vec<String>) {
        self.secrets.add(secrets);
    }

    /// The text without the secrets that the process received, in its environment or in a sign-in.
    pub(super) fn masked(&self, text: &str) -> String {
        self.secrets.mask(text)
    }

    /// Sends a request. The response arrives in a batch.
    pub fn call(&self, method: &str, params: &RawValue) -> Result<CallId, Closed> {
        let id = self.tables().register_call(());
        if self.stdin.send(jsonrpc::request(id, method, params)).is_err() {
            self.forget(id);
            return Err(Closed);
        }
        Ok(id)
    }

    /// Forgets a call. A late response then counts as an invalid line.
    pub fn forget(&self, call: CallId) {
        self.tables().remove_call(call);
    }

    /// Sends a notification after all earlier messages, and before the answers that follow from it.
    pub fn notify(&self, method: &str, params: &RawValue) -> Result<(), Closed> {
        self.stdin.send_reserved(jsonrpc::notification(method, params)).map_err(|_| Closed)
    }

    /// Answers a request of the agent, once. Does nothing if the request was already answered.
    pub fn answer(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) -> Result<(), Closed> {
        let Some(raw) = self.tables().resolve_request(id) else { return Ok(()) };
        let line = match outcome {
            Ok(result) => jsonrpc::result(&raw, result),
            Err(error) => jsonrpc::error(&raw, error),
        };
        self.stdin.send_reserved(Bytes::from_owner(GuardedLine { line, _guard: held })).map_err(|_| Closed)
    }

    /// The open request with the agent's id `raw_id`.
    pub fn find(&self, raw_id: &RawValue) -> Option<IncomingId> {
        self.tables().find_request(raw_id)
    }

    /// The gateway's open call with this id.
    pub fn find_call(&self, raw_id: &RawValue) -> Option<CallId> {
        self.tables().find_call(raw_id)
    }

    /// Why the agent's stdout ended, once it has.
    pub fn read_end(&self) -> watch::Receiver<Option<ReadEnd>> {
        self.read_end.clone()
    }
}

/// A line with a value that is dropped after the line was written.
struct GuardedLine<T> {
    line: Bytes,
    _guard: T,
}

impl<T> AsRef<[u8]> for GuardedLine<T> {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

struct Reader {
    tables: Arc<Mutex<PendingTables<()>>>,
    lines: LineDecoder,
    batches: mpsc::Sender<Batch>,
    invalid_lines: InvalidLineLimiter,
    secrets: Secrets,
    /// Bytes read before the agent's first response, which answers `initialize`. Until then launchers like
    /// npx may write any lines, up to a limit. Invalid lines do not count during this time.
    startup_bytes: Option<usize>,
    limits: Arc<Limits>,
}

impl Reader {
    const READ_BYTES: usize = 64 << 10;

    async fn run(mut self, mut stdout: impl AsyncRead + Unpin) -> ReadEnd {
        loop {
            match stdout.read_buf(self.lines.read_buffer(Self::READ_BYTES)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            match self.deliver_lines().await {
                // A flooding agent must not occupy a worker thread that other tasks need.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(over) => return over,
            }
        }
        if self.lines.partial_len() > 0 {
            let invalid_line = Inbound::InvalidLine { bytes: self.lines.partial_len() };
            // The holder of the connection may have dropped the receiver.
            drop(self.batches.send(Batch { messages: vec![invalid_line], ..Batch::default() }).await);
        }
        ReadEnd::EndOfFile
    }

    /// Sends the complete lines. Returns false if the holder has dropped the receiver.
    async fn deliver_lines(&mut self) -> Result<bool, ReadEnd> {
        let block = self.lines.take_block();
        if let Some(bytes) = &mut self.startup_bytes {
            *bytes += block.len();
            if *bytes > self.limits.max_start_output_bytes {
                return Err(ReadEnd::StartupOutputTooLarge { cap: self.limits.max_start_output_bytes });
            }
        }
        // One check for all lines. If it fails, the parser checks each line.
        let text = std::str::from_utf8(&block).is_ok();
        let empty = || Batch { block: block.clone(), ..Batch::default() };
        let mut batch = empty();
        for line in self.lines.line_ranges(&block).chain(self.lines.check_length().err().map(Err)) {
            let line = match line {
                Ok(line) if line.is_empty() => continue,
                Ok(line) => line,
                Err(too_long) => {
                    drop(self.batches.send(batch).await);
                    return Err(ReadEnd::LineTooLong { cap: too_long.cap });
                }
            };
            batch.bytes += line.len();
            let update =
                if text { UpdateLine::scan(&block, line.clone(), self.limits.max_json_depth) } else { None };
            let message = update.map_or_else(|| self.parse_line(&block[line]), Inbound::Update);
            let bad = matches!(message, Inbound::InvalidLine { .. });
            if matches!(message, Inbound::Response { .. }) {
                self.startup_bytes = None;
            }
            batch.messages.push(message);
            if bad && self.startup_bytes.is_none() && !self.invalid_lines.record() {
                drop(self.batches.send(batch).await);
                return Err(ReadEnd::TooManyInvalidLines {
                    per_minute: self.limits.max_invalid_lines_per_minute,
                });
            }
            if batch.bytes >= self.limits.max_batch_bytes
                && !self.send(std::mem::replace(&mut batch, empty())).await
            {
                return Ok(false);
            }
        }
        Ok(batch.messages.is_empty() || self.send(batch).await)
    }

    async fn send(&self, mut batch: Batch) -> bool {
        // Parsed messages own their bytes. Dropping the block avoids a second copy of a large line in the queue.
        if !batch.messages.iter().any(|message| matches!(message, Inbound::Update(_))) {
            batch.block = Bytes::new();
        }
        self.batches.send(batch).await.is_ok()
    }

    fn parse_line(&self, line: &[u8]) -> Inbound {
        let invalid_line = Inbound::InvalidLine { bytes: line.len() };
        let message = jsonrpc::parse(line, self.limits.max_json_depth);
        let mut tables = lock_or_abort(self.tables.lock());
        match message {
            Ok(Message::Notification { method, params }) => Inbound::Notification { method, params },
            Ok(Message::Request { id, method, params }) => {
                Inbound::Request { id: tables.register_request(id), method, params }
            }
            Ok(Message::Response { id, outcome }) => match tables.resolve_call(&id) {
                Some((call, ())) => {
                    let outcome = outcome.map_err(|error| self.secrets.mask_error(error));
                    Inbound::Response { call, outcome }
                }
                None => invalid_line,
            },
            Err(error) => {
                tracing::debug!(%error, bytes = line.len(), "invalid JSON-RPC line from the agent");
                invalid_line
            }
        }
    }
}

/// Counts invalid lines per minute.
struct InvalidLineLimiter {
    since: Instant,
    count: u32,
    max: u32,
}

impl InvalidLineLimiter {
    fn new(max: u32) -> Self {
        Self { since: Instant::now(), count: 0, max }
    }

    fn record(&mut self) -> bool {
        let now = Instant::now();
        if now - self.since > Duration::from_mins(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        self.count <= self.max
    }
}
