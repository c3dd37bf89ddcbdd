//! The write side of a stream.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::parked::Parked;
use crate::eventlog::DirectSink;

/// The client has disconnected.
#[derive(Debug)]
pub(crate) struct Disconnected;

/// The write side of a stream.
pub(crate) trait StreamSink {
    /// Queues a piece. The caller bounds the queue with [`is_full`](Self::is_full).
    fn push(&mut self, piece: Bytes);
    /// Whether the queued pieces must be flushed before more are pushed.
    fn is_full(&self) -> bool;
    /// Ends the body: the next flush also writes the end.
    fn end(&mut self);
    /// Ready when the kernel or the HTTP connection has accepted everything.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Disconnected>>;
    /// Whether the peer accepted bytes during a pending flush. `None` if the HTTP connection detects stalls.
    fn took_progress(&mut self) -> Option<bool>;
    /// Ready when the client has disconnected.
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// The sink for direct delivery while the task of the stream waits.
    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>>;
    /// Permits direct delivery. Nothing may be left to flush.
    fn park(&mut self, parked: Parked);
    /// Ends direct delivery. A part of the delivered bytes may remain to be flushed.
    fn unpark(&mut self) -> Option<Parked>;
    /// Releases the sink after the stream was written completely.
    fn finish(self);
}
