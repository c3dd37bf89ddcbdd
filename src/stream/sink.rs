//! The write side of a stream.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::parked::Parked;
use crate::eventlog::DirectSink;

/// The client has disconnected.
#[derive(Debug)]
pub(crate) struct Disconnected;

/// The write side of a stream. The default methods are for a response body, whose HTTP connection detects
/// stalls and disconnects and ends the body.
pub(crate) trait StreamSink {
    /// Queues a piece. The caller bounds the queue with [`is_full`](Self::is_full).
    fn push(&mut self, piece: Bytes);

    /// Whether the queued pieces must be flushed before more are pushed.
    fn is_full(&self) -> bool;

    /// Ready when the kernel or the HTTP connection has accepted everything.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Disconnected>>;

    /// Ends the body: the next flush also writes the end.
    fn end(&mut self) {}

    /// Whether the peer accepted bytes during a pending flush. `None` if the HTTP connection detects stalls.
    fn took_progress(&mut self) -> Option<bool> {
        None
    }

    /// Ready when the client has disconnected.
    fn poll_disconnected(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// The sink for direct delivery while the stream is parked.
    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>> {
        None
    }

    /// Permits direct delivery. Nothing may be left to flush.
    fn park(&mut self, _: Parked) {}

    /// Ends direct delivery. A part of the delivered bytes may remain to be flushed.
    fn unpark(&mut self) -> Option<Parked> {
        None
    }

    /// Releases the sink after the stream was written completely.
    fn finish(self)
    where
        Self: Sized,
    {
    }
}
