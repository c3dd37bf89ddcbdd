//! Response bodies that a future writes, with one allocation per stream and without a task.
//!
//! The future sends a chunk with [`ChunkSender::send`], which waits until the connection accepts the chunk.
//! If the client disconnects, the future is dropped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::sink::{Disconnected, StreamSink};
use crate::shutdown::lock_or_abort;

/// The chunks that the connection has not accepted yet.
type Chunks = Arc<Mutex<VecDeque<Bytes>>>;

/// The writing end of a body.
#[derive(Debug)]
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
    /// `None` after the future has completed.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A body that consists of the chunks that the future of `write` sends. It ends when the future completes.
pub(crate) fn body_from<F>(write: impl FnOnce(ChunkSender) -> F) -> FutureBody
where
    F: Future<Output = ()> + Send + 'static,
{
    let chunks = Chunks::default();
    let future = write(ChunkSender(Arc::clone(&chunks)));
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
mod tests {
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
