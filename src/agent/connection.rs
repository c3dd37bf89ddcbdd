//! A connection over a transport: lines in, lines out, and who waits for which answer.
//!
//! One task reads the agent's stdout, in order, and hands batches to the one who holds the connection. When that
//! one is slow the batches wait, then the pipe fills, then the agent waits: nothing grows.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::failure::without_secrets;
use crate::acp::UpdateLine;
use crate::jsonrpc::{self, CallId, IncomingId, Lines, Message, RpcError, Tables};
use crate::process::{StdinWriter, masked};
use crate::shutdown::{Shutdown, sound};
use crate::types::Limits;

/// What an agent said, in its order.
#[derive(Debug)]
pub enum Inbound {
    /// A `session/update` as nearly all are: its parts stand in the batch's own bytes.
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
    /// A line that is no JSON-RPC message, or an answer to nothing that we asked.
    Noise {
        bytes: usize,
    },
}

/// Messages that came in one read.
#[derive(Debug, Default)]
pub struct Batch {
    /// What was read, as whole lines.
    pub block: Bytes,
    pub messages: Vec<Inbound>,
    bytes: usize,
}

impl Batch {
    /// A part of the block, as one of its messages names it; such a part is JSON.
    pub fn raw(&self, part: &Range<usize>) -> Option<&RawValue> {
        serde_json::from_slice(self.block.get(part.clone())?).ok()
    }
}

/// A cheap handle on the way to the agent.
#[derive(Debug, Clone)]
pub struct Connection {
    tables: Arc<Mutex<Tables<()>>>,
    /// Values that no error of the agent may show.
    secrets: Arc<Mutex<Vec<String>>>,
    stdin: StdinWriter,
    /// Why the reader stopped, once it has.
    over: watch::Receiver<Option<Over>>,
}

/// Why there is nothing more to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    EndOfFile,
    LineTooLong {
        cap: usize,
    },
    BadLines {
        per_minute: u32,
    },
    /// Too many bytes before the first answer.
    StartOutput {
        cap: usize,
    },
}

impl Over {
    /// What a person should read, where it is the agent's fault.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::EndOfFile => None,
            Self::LineTooLong { cap } => Some(format!("a line on its stdout was longer than {cap} bytes")),
            Self::StartOutput { cap } => Some(format!(
                "it wrote more than {cap} bytes before it answered initialize (limits.start_output_bytes)"
            )),
            Self::BadLines { per_minute } => {
                Some(format!("it wrote more than {per_minute} lines a minute that are not JSON-RPC"))
            }
        }
    }
}

/// The agent cannot be written to: its stdin is closed, or it reads more slowly than it must.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent takes no more messages")]
pub struct Closed;

impl Connection {
    /// Starts the reader. The receiver goes to whoever owns the connection.
    pub fn start(
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stdin: StdinWriter,
        (line_cap, secrets): (usize, &[String]),
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> (Self, mpsc::Receiver<Batch>) {
        let tables = Arc::new(Mutex::new(Tables::default()));
        let (batches, receiver) = mpsc::channel(limits.batches);
        let (over, watch) = watch::channel(None);
        let secrets = Arc::new(Mutex::new(secrets.to_vec()));
        let reader = Reader {
            tables: Arc::clone(&tables),
            lines: Lines::new(line_cap),
            batches,
            bad: BadLines::new(limits.bad_lines_per_minute),
            secrets: Arc::clone(&secrets),
            unanswered: Some(0),
            limits: Arc::clone(limits),
        };
        shutdown.spawn_confined(async move {
            let why = reader.run(stdout).await;
            over.send_replace(Some(why));
        });
        (Self { tables, secrets, stdin, over: watch }, receiver)
    }

    fn tables(&self) -> MutexGuard<'_, Tables<()>> {
        sound(self.tables.lock())
    }

    /// Replaces further values in the errors and the stderr of this agent.
    pub fn hide(&self, secrets: Vec<String>) {
        sound(self.secrets.lock()).extend(secrets);
    }

    /// The text without the secrets that the process received, in its environment or in a sign-in.
    pub(super) fn masked(&self, text: &str) -> String {
        masked(text, &sound(self.secrets.lock()))
    }

    /// Sends a request; its answer comes in a batch.
    pub fn call(&self, method: &str, params: &RawValue) -> Result<CallId, Closed> {
        let id = self.tables().call(());
        if self.stdin.send(jsonrpc::request(id, method, params)).is_err() {
            self.forget(id);
            return Err(Closed);
        }
        Ok(id)
    }

    /// The answer is no longer wanted: when it comes it counts as noise.
    pub fn forget(&self, call: CallId) {
        self.tables().forget(call);
    }

    /// Sends a notification behind what was sent before, and before the answers that follow from it.
    pub fn notify(&self, method: &str, params: &RawValue) -> Result<(), Closed> {
        self.stdin.send_reserved(jsonrpc::notification(method, params)).map_err(|_| Closed)
    }

    /// Answers a request of the agent, once; what was answered before is left as it is.
    pub fn answer(
        &self,
        id: IncomingId,
        outcome: Result<&RawValue, &RawValue>,
        held: impl Send + 'static,
    ) -> Result<(), Closed> {
        let Some(raw) = self.tables().answer(id) else { return Ok(()) };
        let line = match outcome {
            Ok(result) => jsonrpc::result(&raw, result),
            Err(error) => jsonrpc::error(&raw, error),
        };
        self.stdin.send_reserved(Bytes::from_owner(Held { line, _held: held })).map_err(|_| Closed)
    }

    /// The open request that the agent itself calls `raw_id`.
    pub fn find(&self, raw_id: &RawValue) -> Option<IncomingId> {
        self.tables().find(raw_id)
    }

    /// The call of ours that goes by this id, while it is open.
    pub fn find_call(&self, raw_id: &RawValue) -> Option<CallId> {
        self.tables().find_call(raw_id)
    }

    /// Why the agent's stdout is over, once it is.
    pub fn over(&self) -> watch::Receiver<Option<Over>> {
        self.over.clone()
    }
}

/// A line with something that goes when the line has been written.
struct Held<T> {
    line: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        &self.line
    }
}

struct Reader {
    tables: Arc<Mutex<Tables<()>>>,
    lines: Lines,
    batches: mpsc::Sender<Batch>,
    bad: BadLines,
    secrets: Arc<Mutex<Vec<String>>>,
    /// Bytes that were read before the agent gave its first answer, which is the one to `initialize`. Until then
    /// launchers like npx may write any lines, up to a bound, and lines that are not JSON-RPC do not count.
    unanswered: Option<usize>,
    limits: Arc<Limits>,
}

impl Reader {
    const READ: usize = 64 << 10;

    async fn run(mut self, mut stdout: impl AsyncRead + Unpin) -> Over {
        loop {
            match stdout.read_buf(self.lines.space(Self::READ)).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            match self.drain().await {
                // An agent that floods must not keep a thread that others wait for.
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(over) => return over,
            }
        }
        if self.lines.rest() > 0 {
            let noise = Inbound::Noise { bytes: self.lines.rest() };
            // Whoever held the connection may be gone, and then nobody counts.
            drop(self.batches.send(Batch { messages: vec![noise], ..Batch::default() }).await);
        }
        Over::EndOfFile
    }

    /// Hands on what is whole. False when nobody holds the connection any more.
    async fn drain(&mut self) -> Result<bool, Over> {
        let block = self.lines.block();
        if let Some(bytes) = &mut self.unanswered {
            *bytes += block.len();
            if *bytes > self.limits.start_output_bytes {
                return Err(Over::StartOutput { cap: self.limits.start_output_bytes });
            }
        }
        // Once for all of its lines; if it is not, each line for itself.
        let text = std::str::from_utf8(&block).is_ok();
        let empty = || Batch { block: block.clone(), ..Batch::default() };
        let mut batch = empty();
        for line in self.lines.each(&block).chain(self.lines.check().err().map(Err)) {
            let line = match line {
                Ok(line) if line.is_empty() => continue,
                Ok(line) => line,
                Err(too_long) => {
                    drop(self.batches.send(batch).await);
                    return Err(Over::LineTooLong { cap: too_long.cap });
                }
            };
            batch.bytes += line.len();
            let update =
                if text { UpdateLine::scan(&block, line.clone(), self.limits.json_depth) } else { None };
            let message = update.map_or_else(|| self.message(&block[line]), Inbound::Update);
            let bad = matches!(message, Inbound::Noise { .. });
            if matches!(message, Inbound::Response { .. }) {
                self.unanswered = None;
            }
            batch.messages.push(message);
            if bad && self.unanswered.is_none() && !self.bad.one_more() {
                drop(self.batches.send(batch).await);
                return Err(Over::BadLines { per_minute: self.limits.bad_lines_per_minute });
            }
            if batch.bytes >= self.limits.batch_bytes
                && !self.send(std::mem::replace(&mut batch, empty())).await
            {
                return Ok(false);
            }
        }
        Ok(batch.messages.is_empty() || self.send(batch).await)
    }

    async fn send(&self, mut batch: Batch) -> bool {
        // What was parsed has its own bytes: a large line is not there twice while its batch waits.
        if !batch.messages.iter().any(|message| matches!(message, Inbound::Update(_))) {
            batch.block = Bytes::new();
        }
        self.batches.send(batch).await.is_ok()
    }

    fn message(&self, line: &[u8]) -> Inbound {
        let noise = Inbound::Noise { bytes: line.len() };
        let message = jsonrpc::parse(line, self.limits.json_depth);
        let mut tables = sound(self.tables.lock());
        match message {
            Ok(Message::Notification { method, params }) => Inbound::Notification { method, params },
            Ok(Message::Request { id, method, params }) => {
                Inbound::Request { id: tables.received(id), method, params }
            }
            Ok(Message::Response { id, outcome }) => match tables.answered(&id) {
                Some((call, ())) => {
                    let outcome =
                        outcome.map_err(|error| without_secrets(error, &sound(self.secrets.lock())));
                    Inbound::Response { call, outcome }
                }
                None => noise,
            },
            Err(error) => {
                tracing::debug!(%error, bytes = line.len(), "a line of the agent is not a message");
                noise
            }
        }
    }
}

/// Counts bad lines in windows of a minute.
struct BadLines {
    since: Instant,
    count: u32,
    max: u32,
}

impl BadLines {
    fn new(max: u32) -> Self {
        Self { since: Instant::now(), count: 0, max }
    }

    fn one_more(&mut self) -> bool {
        let now = Instant::now();
        if now - self.since > Duration::from_mins(1) {
            (self.since, self.count) = (now, 0);
        }
        self.count += 1;
        self.count <= self.max
    }
}
