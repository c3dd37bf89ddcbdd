//! The write side of a stream: a response body or a socket.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tracing::Instrument;

use super::chunk::ChunkWriter;
use super::encoder::Encoder;
use super::feed::Feed;
use super::keep_alive::{KeepAlive, Timer};
use base::shutdown::lock_or_abort;
use log::eventlog::{DirectSink, NotReady, TailCursor};

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

    fn poll_disconnected(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>> {
        None
    }

    /// Permits direct delivery. Nothing may be left to flush.
    fn park(&mut self, _: Parked) {}

    /// Ends direct delivery. A part of the delivered bytes may remain to be flushed.
    fn unpark(&mut self) -> Option<Parked> {
        None
    }

    fn finish(self)
    where
        Self: Sized,
    {
    }
}

/// The position and the timer of a parked stream: its task waits, and direct delivery writes its events.
///
/// | state | events are written by | next state |
/// |---|---|---|
/// | reading | the task: `step` gathers events at the tail, `flush` writes them | `parked` at the tail, `loading`, `ended` |
/// | loading | none: the task waits for the store | `reading` |
/// | parked | the notifier, through a [`DirectSink`] | `reading`, `ended` |
/// | ended | none: the socket returns to its owner, or closes | |
///
/// A stream can park if its client receives the stored bytes of all events. The task moves `Parked` to the socket, and removes
/// it when the task wakes: if direct delivery cannot continue (a partial write, an event that only the store has, the end of the
/// session), at a signal, for a keep-alive, and if the client disconnects. So the position has one owner.
pub(crate) struct Parked {
    pub(super) cursor: TailCursor,
    pub(super) timer: Timer,
}

impl Parked {
    /// `None` if only the task can write the events of the stream.
    pub(super) fn new(feed: &Feed, encoder: &dyn Encoder, keep_alive: &KeepAlive) -> Option<Self> {
        let cursor = feed.tail_cursor(encoder)?;
        Some(Self {
            cursor,
            timer: Timer::clone(keep_alive),
        })
    }

    /// Moves events at the tail to the chunk. Returns the reason why no event follows, or `None` if the chunk
    /// is full.
    pub(super) fn fill(&mut self, chunk: &mut ChunkWriter) -> Option<NotReady> {
        while !chunk.is_full() {
            match self.cursor.try_next() {
                Ok(run) => chunk.push(run.frames),
                Err(reason) => return Some(reason),
            }
        }
        None
    }
}

/// The chunks that the connection has not accepted yet.
type Chunks = Arc<Mutex<VecDeque<Bytes>>>;

pub(crate) struct ChunkSender(Chunks);

impl ChunkSender {
    /// Sends a chunk, and waits until the connection accepts it.
    pub(crate) async fn send(&mut self, chunk: Bytes) {
        self.push(chunk);
        // The connection polls the future again when it asks for the next chunk. Therefore no waker is needed.
        poll_fn(|_| {
            if self.is_full() {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
    }
}

impl StreamSink for ChunkSender {
    fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            lock_or_abort(self.0.lock()).push_back(chunk);
        }
    }

    fn is_full(&self) -> bool {
        !lock_or_abort(self.0.lock()).is_empty()
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        if self.is_full() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(()))
        }
    }
}

pub(crate) struct FutureBody {
    chunks: Chunks,
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A body that consists of the chunks that the future of `write` sends. It ends when the future completes.
///
/// It needs one allocation per stream and no task. If the client disconnects, the future is dropped.
pub(crate) fn body_from<F>(write: impl FnOnce(ChunkSender) -> F) -> FutureBody
where
    F: Future<Output = ()> + Send + 'static,
{
    let chunks = Chunks::default();
    // The span of the request is left before the body is written.
    let future = write(ChunkSender(Arc::clone(&chunks))).in_current_span();
    FutureBody {
        chunks,
        future: Some(Box::pin(future)),
    }
}

impl Body for FutureBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(future) = &mut self.future
            && future.as_mut().poll(context).is_ready()
        {
            self.future = None;
        }
        let chunk = lock_or_abort(self.chunks.lock()).pop_front();
        match chunk {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None if self.future.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.future.is_none() && lock_or_abort(self.chunks.lock()).is_empty()
    }
}

#[cfg(test)]
mod body_tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn chunks_keep_order_and_the_body_ends_with_its_future() {
        let body = body_from(|mut out| async move {
            for n in 0..3 {
                out.send(Bytes::from(format!("{n};"))).await;
                tokio::task::yield_now().await;
            }
            out.send(Bytes::new()).await;
        });
        assert_eq!(body.collect().await.unwrap().to_bytes(), "0;1;2;");
    }
}
