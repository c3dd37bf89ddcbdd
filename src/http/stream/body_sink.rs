//! The sink of a stream whose response has an ordinary body.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::write_loop::{Disconnected, Parked, StreamSink};
use crate::eventlog::DirectSink;
use crate::http::body::ChunkSender;

/// A sink that writes to the body of a response. The HTTP connection detects stalls and disconnects.
pub(super) struct BodySink {
    out: ChunkSender,
    pieces: VecDeque<Bytes>,
}

impl BodySink {
    pub(super) fn new(out: ChunkSender) -> Self {
        Self { out, pieces: VecDeque::new() }
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
        while self.out.poll_empty().is_ready() {
            match self.pieces.pop_front() {
                Some(piece) => self.out.put(piece),
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
