//! The reader of a connection: splits the agent's bytes into lines and sends them as batches.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::batch::{Batch, Inbound};
use super::invalid_output::InvalidOutput;
use super::secrets::Secrets;
use crate::acp::UpdateLine;
use crate::jsonrpc::{self, IncomingId, LineDecoder, Message, PendingTables};
use crate::shutdown::lock_or_abort;
use crate::types::Limits;

/// The end of the agent's output, with a message for people if the agent caused it.
#[derive(Debug, Clone)]
pub(super) struct ReadEnd(pub(super) Option<String>);

/// The task that reads one connection.
pub(super) struct Reader {
    pub(super) tables: Arc<Mutex<PendingTables>>,
    pub(super) lines: LineDecoder,
    pub(super) batches: mpsc::Sender<Batch>,
    /// The invalid lines since the start of a period.
    pub(super) invalid_lines: (Instant, u32),
    pub(super) invalid_output: InvalidOutput,
    pub(super) secrets: Secrets,
    /// Bytes read before the agent's first response, which answers `initialize`. Until then launchers like
    /// npx may write any lines, up to a limit. Invalid lines do not count during this time.
    pub(super) startup_bytes: Option<usize>,
    /// The number of bytes in complete lines. `None`: the transport does not number the output.
    pub(super) offset: Option<u64>,
    pub(super) limits: Arc<Limits>,
}

impl Reader {
    const READ_BYTES: usize = 64 << 10;

    pub(super) async fn run(mut self, mut incoming: impl AsyncRead + Unpin) -> ReadEnd {
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
            drop(
                self.batches
                    .send(Batch {
                        messages: vec![invalid_line],
                        ..Batch::default()
                    })
                    .await,
            );
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
                    drop(self.batches.send(batch).await);
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
                    // The text before is no reason for a later silence.
                    self.invalid_output.clear();
                }
                batch.messages.push(message);
                if invalid
                    && self.startup_bytes.is_none()
                    && let Err(end) = count_invalid_line(&mut self.invalid_lines, &self.limits)
                {
                    let _ = self.batches.send(batch).await;
                    return Err(end);
                }
            }
            if batch.bytes >= self.limits.max_batch_bytes
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
        if !batch
            .messages
            .iter()
            .any(|message| matches!(message, Inbound::Update(_)))
        {
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
        let max_json_depth = self.limits.max_json_depth;
        if is_utf8 && let Some(update) = UpdateLine::scan(block, range.clone(), max_json_depth) {
            return Some(Inbound::Update(update));
        }
        let line = &block[range];
        let message = match jsonrpc::parse(line, max_json_depth) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(%error, bytes = line.len(), "invalid JSON-RPC line from the agent");
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
                None if tables.is_former_call(&id) => return None,
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

fn count_invalid_line((since, count): &mut (Instant, u32), limits: &Limits) -> Result<(), ReadEnd> {
    let (now, per_minute) = (Instant::now(), limits.max_invalid_lines_per_minute);
    if now - *since > Duration::from_mins(1) {
        (*since, *count) = (now, 0);
    }
    *count += 1;
    if *count <= per_minute {
        return Ok(());
    }
    let reason = format!("it wrote more than {per_minute} lines a minute that are not JSON-RPC");
    Err(ReadEnd(Some(reason)))
}
