//! A connection over a transport: lines out, batches in, and the pairing of requests with responses.
//!
//! One task reads the agent's lines in order and sends batches to the holder of the connection. If the holder is
//! slow, the batch channel fills, then the transport, then the agent blocks. No buffer grows.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::AsyncRead;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::batch::Batch;
use super::invalid_output::InvalidOutput;
use super::reader::{ReadEnd, Reader};
use super::secrets::Secrets;
use super::transport::{Closed, LineWriter, Once, Origin};
use crate::acp::AcpVersion;
use crate::jsonrpc::{self, CallId, IncomingId, LineDecoder, PendingTables};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{Limits, QueuedLine};

/// A cheap handle for messages to the agent.
#[derive(Debug, Clone)]
pub struct Connection {
    tables: Arc<Mutex<PendingTables>>,
    secrets: Secrets,
    invalid_output: InvalidOutput,
    version: AcpVersion,
    outgoing: Arc<dyn LineWriter>,
    /// Whether the transport outlives the gateway, so that some lines need a key.
    outlives_gateway: bool,
    /// Why the reader stopped, once it has.
    read_end: watch::Receiver<Option<ReadEnd>>,
}

impl Connection {
    /// Starts the reader. The receiver belongs to the holder of the connection.
    pub(super) fn start(
        (incoming, origin): (impl AsyncRead + Send + Unpin + 'static, Origin),
        outgoing: Arc<dyn LineWriter>,
        version: AcpVersion,
        (line_cap, secrets): (usize, &[String]),
        limits: &Arc<Limits>,
        shutdown: &Shutdown,
    ) -> (Self, mpsc::Receiver<Batch>) {
        let startup_bytes = origin.pending.is_none().then_some(0);
        let tables = Arc::new(Mutex::new(origin.pending.unwrap_or_default()));
        let (batches, receiver) = mpsc::channel(limits.max_queued_batches);
        let (over, watch) = watch::channel(None);
        let secrets = Secrets::new(secrets);
        let invalid_output = InvalidOutput::new(secrets.clone());
        let reader = Reader {
            tables: Arc::clone(&tables),
            lines: LineDecoder::new(line_cap),
            batches,
            invalid_lines: (Instant::now(), 0),
            invalid_output: invalid_output.clone(),
            secrets: secrets.clone(),
            startup_bytes,
            offset: origin.offset,
            limits: Arc::clone(limits),
        };
        shutdown.spawn_isolated(async move {
            let why = reader.run(incoming).await;
            over.send_replace(Some(why));
        });
        let outlives_gateway = origin.offset.is_some();
        (
            Self {
                tables,
                secrets,
                invalid_output,
                version,
                outgoing,
                outlives_gateway,
                read_end: watch,
            },
            receiver,
        )
    }

    fn tables(&self) -> MutexGuard<'_, PendingTables> {
        lock_or_abort(self.tables.lock())
    }

    /// The version of ACP on the connection.
    pub(super) fn version(&self) -> AcpVersion {
        self.version
    }

    /// Masks more values in the errors and the stderr of this agent.
    pub fn add_secrets(&self, secrets: Vec<String>) {
        self.secrets.add(secrets);
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
        let sent = self.outgoing.send(jsonrpc::request(id, method, params));
        sent.inspect_err(|_| self.forget(id))?;
        Ok(id)
    }

    /// Sends a request with an id that the caller has chosen. The agent receives it at most once, also if an earlier
    /// gateway process has sent it.
    pub fn call_once(&self, id: CallId, method: &str, params: &RawValue) -> Result<(), Closed> {
        self.tables().register_call_as(id);
        let line = jsonrpc::request(id, method, params);
        let sent = self.outgoing.send_once(Once::Call(id.number()), line);
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
        self.outgoing
            .send_reserved(jsonrpc::notification(method, params))
    }

    /// Sends a notification whose delivery is reported. The receiver completes when the pipe of a child, the host of a remote
    /// agent or the member of the fleet has the whole line. It fails if the agent ends before.
    pub fn notify_reported(
        &self,
        method: &str,
        params: &RawValue,
    ) -> Result<oneshot::Receiver<()>, Closed> {
        let (line, delivered) = QueuedLine::reported(jsonrpc::notification(method, params));
        self.outgoing.send_reported(line)?;
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
        if self.outlives_gateway {
            self.outgoing.send_once(Once::Answer(id.number()), line)
        } else {
            self.outgoing.send_reserved(line)
        }
    }

    /// The open request with the agent's id `raw_id`.
    pub fn find(&self, raw_id: &RawValue) -> Option<IncomingId> {
        self.tables().find_request(raw_id)
    }

    /// The gateway's open call with this id.
    pub fn find_call(&self, raw_id: &RawValue) -> Option<CallId> {
        self.tables().find_call(raw_id)
    }

    /// Whether the agent has ended its output, or has lost its reader.
    pub fn has_ended(&self) -> bool {
        self.read_end.has_changed().is_err() || self.read_end.borrow().is_some()
    }

    /// Why the reader stopped, once it has.
    pub(super) fn read_end(&self) -> watch::Receiver<Option<ReadEnd>> {
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
