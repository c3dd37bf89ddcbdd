//! The sink of a stream whose response has an ordinary body.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::body::ChunkSender;
use super::parked::Parked;
use super::sink::{Disconnected, StreamSink};
use crate::eventlog::DirectSink;

/// A sink that writes to the body of a response. The HTTP connection detects stalls and disconnects.
pub(crate) struct BodySink {
    sender: ChunkSender,
    pieces: VecDeque<Bytes>,
}

impl BodySink {
    pub(crate) fn new(sender: ChunkSender) -> Self {
        Self { sender, pieces: VecDeque::new() }
    }
}

impl StreamSink for BodySink {
    fn push(&mut self, piece: Bytes) {
        self.pieces.push_back(piece);
    }

    fn is_full(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn end(&mut self) {}

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        while self.sender.poll_empty().is_ready() {
            match self.pieces.pop_front() {
                Some(piece) => self.sender.put(piece),
                None => return Poll::Ready(Ok(())),
            }
        }
        Poll::Pending
    }

    fn took_progress(&mut self) -> Option<bool> {
        None
    }

    fn poll_disconnected(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>> {
        None
    }

    fn park(&mut self, _: Parked) {}

    fn unpark(&mut self) -> Option<Parked> {
        None
    }

    fn finish(self) {}
}
