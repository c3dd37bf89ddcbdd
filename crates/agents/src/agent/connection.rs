//! A connection over a transport: lines out, batches in, and the pairing of requests with responses.
//!
//! One task reads the agent's lines in order and sends batches to the holder of the connection. If the holder is
//! slow, the batch channel fills, then the transport, then the agent blocks. No buffer grows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::Span;

use super::secrets::Secrets;
use super::spec::AgentSpec;
use super::transport::{Channel, Closed, LineWriter, Queueing, Transport};
use crate::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::QueuedLine;
use wire::acp::{AcpVersion, UpdateLine};
use wire::jsonrpc::{
    self, CallId, IncomingId, LineDecoder, MAX_DEPTH, Message, PendingTables, RpcError, plain_line,
};

/// The size in bytes of a batch from an agent to its session, and the number of waiting batches. Beyond it, the gateway
/// stops reading the agent's stdout.
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_QUEUED_BATCHES: usize = 8;

/// A cheap handle for messages to the agent.
#[derive(Debug, Clone)]
pub struct Connection {
    tables: Arc<Mutex<PendingTables>>,
    /// The values that are masked in the errors and the stderr of the agent.
    pub(super) secrets: Secrets,
    invalid_output: InvalidOutput,
    version: AcpVersion,
    outgoing: Arc<dyn LineWriter>,
    /// The span of log lines about the agent.
    pub(crate) span: Span,
    /// Why the reader stopped, once it has.
    pub(super) read_end: watch::Receiver<Option<ReadEnd>>,
}

impl Connection {
    /// Starts the reader. The receiver belongs to the holder of the connection.
    pub(super) fn start<R: AsyncRead + Send + Unpin + 'static>(
        channel: Channel<R>,
        spec: &AgentSpec,
        version: AcpVersion,
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> (Self, mpsc::Receiver<Batch>, Box<dyn Transport>) {
        let startup_bytes = channel.pending.is_none().then_some(0);
        let tables = Arc::new(Mutex::new(channel.pending.unwrap_or_default()));
        let (batches, receiver) = mpsc::channel(MAX_QUEUED_BATCHES);
        let (over, read_end) = watch::channel(None);
        let secrets = Secrets::new(&spec.secrets);
        let invalid_output = InvalidOutput::new(secrets.clone());
        let reader = Reader {
            tables: Arc::clone(&tables),
            lines: LineDecoder::new(spec.max_connection_line_bytes()),
            batches,
            invalid_lines: (Instant::now(), 0),
            invalid_output: invalid_output.clone(),
            secrets: secrets.clone(),
            startup_bytes,
            offset: channel.offset,
            limits: Arc::clone(limits),
            span: Span::current(),
        };
        let incoming = channel.incoming;
        shutdown.spawn_isolated(async move {
            let why = reader.run(incoming).await;
            over.send_replace(Some(why));
        });
        let connection = Self {
            tables,
            secrets,
            invalid_output,
            version,
            outgoing: channel.outgoing,
            span: Span::current(),
            read_end,
        };
        (connection, receiver, channel.transport)
    }

    fn tables(&self) -> MutexGuard<'_, PendingTables> {
        lock_or_abort(self.tables.lock())
    }

    pub(super) fn version(&self) -> AcpVersion {
        self.version
    }

    /// The text without the secrets that the process received, in its environment or in a sign-in.
    pub(super) fn masked(&self, text: &str) -> String {
        self.secrets.mask(text)
    }

    /// The part of an error that shows the agent's last text on stdout that is not JSON-RPC. Empty if there is none.
    pub(super) fn invalid_output(&self) -> String {
        self.invalid_output.as_suffix()
    }

    /// Sends a request. The response arrives in a batch.
    pub fn call(&self, method: &str, params: &RawValue) -> Result<CallId, Closed> {
        let id = self.tables().register_call();
        self.send_call(id, method, params, Queueing::Ordinary)?;
        Ok(id)
    }
    /// Sends a request with an id that the caller has chosen. The agent receives it at most once, also if an earlier
    /// gateway process has sent it.
    pub fn call_once(&self, id: CallId, method: &str, params: &RawValue) -> Result<(), Closed> {
        self.tables().register_call_as(id);
        self.send_call(id, method, params, Queueing::Call(id.number()))
    }
    fn send_call(
        &self,
        id: CallId,
        method: &str,
        params: &RawValue,
        queueing: Queueing,
    ) -> Result<(), Closed> {
        let line = jsonrpc::request(id, method, params);
        let sent = self.outgoing.send(line.into(), queueing);
        sent.inspect_err(|_| self.forget(id))
    }

    /// The agent's id of an open request.
    pub fn raw_request(&self, id: IncomingId) -> Option<Box<RawValue>> {
        self.tables().raw_request(id).map(ToOwned::to_owned)
    }

    /// Forgets a call. A late response then counts as an invalid line.
    pub fn forget(&self, call: CallId) {
        self.tables().remove_call(call);
    }

    /// Sends a notification after all earlier messages, and before the answers that follow from it.
    pub fn notify(&self, method: &str, params: &RawValue) -> Result<(), Closed> {
        let line = jsonrpc::notification(method, params);
        self.outgoing.send(line.into(), Queueing::Reserved)
    }

    /// Sends a notification whose delivery is reported. The receiver completes when the pipe of a child, the host of a remote
    /// agent or the member of the fleet has the whole line. It fails if the agent ends before.
    pub fn notify_reported(
        &self,
        method: &str,
        params: &RawValue,
    ) -> Result<oneshot::Receiver<()>, Closed> {
        let (line, delivered) = QueuedLine::reported(jsonrpc::notification(method, params));
        self.outgoing.send(line, Queueing::Ordinary)?;
        Ok(delivered)
    }

    /// Answers a request of the agent, once. Does nothing if the request was already answered.
    pub fn answer(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) -> Result<(), Closed> {
        let Some(raw) = self.tables().resolve_request(id) else {
            return Ok(());
        };
        let line = match outcome {
            Ok(result) => jsonrpc::result(&raw, result),
            Err(error) => jsonrpc::error(&raw, error),
        };
        let line = Bytes::from_owner(GuardedLine { line, _guard: held });
        let queueing = Queueing::Answer(id.number());
        self.outgoing.send(line.into(), queueing)
    }

    pub fn find(&self, raw_id: &RawValue) -> Option<IncomingId> {
        self.tables().find_request(raw_id)
    }

    pub fn find_call(&self, raw_id: &RawValue) -> Option<CallId> {
        self.tables().find_call(raw_id)
    }

    /// Whether the agent has ended its output, or has lost its reader.
    pub fn has_ended(&self) -> bool {
        self.read_end.has_changed().is_err() || self.read_end.borrow().is_some()
    }
}

/// A line and a guard that is dropped after the line is written.
struct GuardedLine<T> {
    line: Bytes,
    _guard: T,
}

impl<T> AsRef<[u8]> for GuardedLine<T> {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

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
        /// Its start, without secrets and control characters.
        excerpt: Box<str>,
    },
}

/// The messages of one read, or a part of them: [`MAX_BATCH_BYTES`] splits a large read.
#[derive(Debug, Default)]
pub struct Batch {
    /// The bytes of the read, as whole lines.
    pub block: Bytes,
    pub messages: Vec<Inbound>,
    /// The offset in the output up to which the batch and all earlier ones contain it. `None`: it is not numbered.
    pub offset: Option<u64>,
    pub(super) bytes: usize,
}

impl Batch {
    /// A part of the block, as one of its messages refers to it. Such a part is JSON.
    pub fn raw(&self, part: &Range<usize>) -> Option<&RawValue> {
        serde_json::from_slice(self.block.get(part.clone())?).ok()
    }
}

/// The end of the agent's output, with a message for people if the agent caused it.
#[derive(Debug, Clone)]
pub(super) struct ReadEnd(pub(super) Option<String>);

struct Reader {
    tables: Arc<Mutex<PendingTables>>,
    lines: LineDecoder,
    batches: mpsc::Sender<Batch>,
    /// The invalid lines since the start of a period.
    invalid_lines: (Instant, u32),
    invalid_output: InvalidOutput,
    secrets: Secrets,
    /// Bytes read before the agent's first response, which answers `initialize`. Until then launchers like
    /// npx may write any lines, up to a limit. Invalid lines do not count during this time.
    startup_bytes: Option<usize>,
    /// The number of bytes in complete lines. `None`: the transport does not number the output.
    offset: Option<u64>,
    limits: Arc<Limits>,
    /// Not entered, because a reader rarely logs.
    span: Span,
}

impl Reader {
    const READ_BYTES: usize = 64 << 10;

    async fn run(mut self, mut incoming: impl AsyncRead + Unpin) -> ReadEnd {
        loop {
            let read = incoming
                .read_buf(self.lines.read_buffer(Self::READ_BYTES))
                .await;
            match read {
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
        if !self.lines.partial().is_empty() {
            let invalid_line = self.invalid_line(self.lines.partial());
            // The holder of the connection may have dropped the receiver.
            let batch = Batch {
                messages: vec![invalid_line],
                ..Batch::default()
            };
            let _ = self.batches.send(batch).await;
        }
        ReadEnd(None)
    }

    /// Sends the complete lines. Returns false if the holder has dropped the receiver.
    async fn deliver_lines(&mut self) -> Result<bool, ReadEnd> {
        let block = self.lines.take_block();
        if let Some(bytes) = &mut self.startup_bytes {
            *bytes += block.len();
            if *bytes > self.limits.max_start_output_bytes {
                let cap = self.limits.max_start_output_bytes;
                let reason =
                    format!("it wrote more than {cap} bytes before it answered initialize");
                return Err(ReadEnd(Some(reason)));
            }
        }
        // One check for all lines. If it fails, the parser checks each line.
        let is_utf8 = std::str::from_utf8(&block).is_ok();
        let begin = self.offset;
        self.offset = begin.map(|begin| begin + block.len() as u64);
        let empty = || Batch {
            block: block.clone(),
            ..Batch::default()
        };
        let mut batch = empty();
        for line in self
            .lines
            .line_ranges(&block)
            .chain(self.lines.check_length().err().map(Err))
        {
            let line = match line {
                Ok(line) if line.is_empty() => continue,
                Ok(line) => line,
                Err(too_long) => {
                    let _ = self.batches.send(batch).await;
                    let reason = format!(
                        "a line on its stdout was longer than {} bytes",
                        too_long.cap
                    );
                    return Err(ReadEnd(Some(reason)));
                }
            };
            batch.bytes += line.len();
            batch.offset = begin.map(|begin| begin + line.end as u64);
            let number = begin.map(|begin| begin + line.start as u64 + 1);
            if let Some(message) = self.message(&block, line, is_utf8, number) {
                let invalid = matches!(message, Inbound::InvalidLine { .. });
                if matches!(message, Inbound::Response { .. })
                    && self.startup_bytes.take().is_some()
                {
                    // Output before the first response does not explain why the agent is silent later.
                    self.invalid_output.clear();
                }
                batch.messages.push(message);
                if invalid && self.startup_bytes.is_none() {
                    let per_minute = self.limits.max_invalid_lines_per_minute;
                    let lines = count_invalid_line(&mut self.invalid_lines);
                    if lines == 1 {
                        // Their text is in the events of the session.
                        tracing::warn!(
                            parent: &self.span,
                            "the agent writes lines to stdout that are not JSON-RPC"
                        );
                    }
                    if lines > per_minute {
                        let reason = format!(
                            "it wrote more than {per_minute} lines a minute that are not JSON-RPC"
                        );
                        let _ = self.batches.send(batch).await;
                        return Err(ReadEnd(Some(reason)));
                    }
                }
            }
            if batch.bytes >= MAX_BATCH_BYTES
                && !self.send(std::mem::replace(&mut batch, empty())).await
            {
                return Ok(false);
            }
        }
        if self.startup_bytes.is_some() && !self.lines.partial().is_empty() {
            // A question of the agent often has no line break.
            self.invalid_output.note(self.lines.partial());
        }
        // The holder acknowledges numbered output also if there is no message.
        batch.offset = self.offset;
        Ok((batch.messages.is_empty() && batch.offset.is_none()) || self.send(batch).await)
    }

    async fn send(&self, mut batch: Batch) -> bool {
        // Parsed messages own their bytes. Dropping the block avoids a second copy of a large line in the queue.
        let is_update = |message: &Inbound| matches!(message, Inbound::Update(_));
        if !batch.messages.iter().any(is_update) {
            batch.block = Bytes::new();
        }
        self.batches.send(batch).await.is_ok()
    }

    /// Parses a line, and matches it with the open calls and requests. `number` is the position of the line in numbered
    /// output. `None`: the message has no receiver any more.
    fn message(
        &self,
        block: &[u8],
        range: Range<usize>,
        is_utf8: bool,
        number: Option<u64>,
    ) -> Option<Inbound> {
        if is_utf8 && let Some(update) = UpdateLine::scan(block, range.clone(), MAX_DEPTH) {
            return Some(Inbound::Update(update));
        }
        let line = &block[range];
        let message = match jsonrpc::parse(line, MAX_DEPTH) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(parent: &self.span, %error, bytes = line.len(), "invalid JSON-RPC line from the agent");
                return Some(self.invalid_line(line));
            }
        };
        let mut tables = lock_or_abort(self.tables.lock());
        Some(match message {
            Message::Notification { method, params } => Inbound::Notification { method, params },
            Message::Request { id, method, params } => {
                // The number is the same if the line is read again after a restart.
                let incoming = match number {
                    Some(number) => {
                        tables.register_request_as(IncomingId::new(number), id);
                        IncomingId::new(number)
                    }
                    None => tables.register_request(id),
                };
                Inbound::Request {
                    id: incoming,
                    method,
                    params,
                }
            }
            Message::Response { id, outcome } => match tables.resolve_call(&id) {
                Some(call) => {
                    let outcome = outcome.map_err(|error| self.secrets.mask_error(error));
                    Inbound::Response { call, outcome }
                }
                None if tables.is_earlier_call(&id) => return None,
                None => self.invalid_line(line),
            },
        })
    }

    fn invalid_line(&self, line: &[u8]) -> Inbound {
        Inbound::InvalidLine {
            bytes: line.len(),
            excerpt: self.invalid_output.note(line),
        }
    }
}

/// Returns the number of invalid lines in the last minute.
fn count_invalid_line(counted: &mut (Instant, u32)) -> u32 {
    if counted.0.elapsed() > Duration::from_mins(1) {
        *counted = (Instant::now(), 0);
    }
    counted.1 += 1;
    counted.1
}

const EXCERPT_BYTES: usize = 300;
/// The part of a line in which secrets are masked. An excerpt is much shorter, so no part of a cut secret is in it.
const MASKED_BYTES: usize = 64 << 10;

/// The last such text of one process. A cheap handle.
#[derive(Debug, Clone)]
pub(super) struct InvalidOutput {
    secrets: Secrets,
    last: Arc<Mutex<Box<str>>>,
}

impl InvalidOutput {
    pub(super) fn new(secrets: Secrets) -> Self {
        Self {
            secrets,
            last: Arc::default(),
        }
    }

    /// Forgets the text: the agent has answered.
    pub(super) fn clear(&self) {
        *lock_or_abort(self.last.lock()) = Box::default();
    }

    /// Notes a line, or the beginning of one. Returns its start as text without secrets and control characters.
    pub(super) fn note(&self, line: &[u8]) -> Box<str> {
        let line = String::from_utf8_lossy(&line[..line.len().min(MASKED_BYTES)]);
        let excerpt: Box<str> = plain_line(&self.secrets.mask(&line), EXCERPT_BYTES).into();
        if !excerpt.is_empty() {
            *lock_or_abort(self.last.lock()) = excerpt.clone();
        }
        excerpt
    }

    pub(super) fn as_suffix(&self) -> String {
        let last = lock_or_abort(self.last.lock());
        if last.is_empty() {
            String::new()
        } else {
            format!("; the last text on its stdout, which is not JSON-RPC: {last}")
        }
    }
}

#[cfg(test)]
mod invalid_output_tests {
    use super::*;

    #[test]
    fn each_line_of_a_secret_is_masked() {
        let key = "-----BEGIN KEY-----\nMC4CAQAwBQYDK2Vw\n-----END KEY-----\n";
        let output = InvalidOutput::new(Secrets::new(&[key.to_owned()]));
        for line in key.lines() {
            assert_eq!(&*output.note(line.as_bytes()), "[secret]");
        }
        output.clear();
        assert_eq!(output.as_suffix(), "");
    }

    #[test]
    fn the_last_text_is_short_and_has_no_secret() {
        let output = InvalidOutput::new(Secrets::new(&["hunter2".to_owned()]));
        assert_eq!(output.as_suffix(), "");
        let line = b"\x1b[1mkey\thunter2\xff\r";
        assert_eq!(&*output.note(line), "key [secret]\u{fffd}");
        assert_eq!(&*output.note(b" \t"), "");
        assert!(
            output
                .as_suffix()
                .ends_with("JSON-RPC: key [secret]\u{fffd}")
        );
        let excerpt = output.note("hunter2".repeat(100_000).as_bytes());
        assert!(excerpt.len() > 200 && excerpt.len() < 310, "{excerpt}");
        assert!(!excerpt.contains("hunter"), "{excerpt}");
    }
}
