//! Response bodies that a future writes, with one allocation per stream and without a task or a queue.
//!
//! The future sends a chunk with [`ChunkSender::send`], which waits until the connection accepts the chunk.
//! If the client disconnects, the future is dropped.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::shutdown::lock_or_abort;

/// Holds the one chunk that the connection has not accepted yet.
#[derive(Debug, Clone, Default)]
struct ChunkSlot(Arc<Mutex<Option<Bytes>>>);

impl ChunkSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        lock_or_abort(self.0.lock())
    }
}

/// The writing end of a body.
#[derive(Debug)]
pub(crate) struct ChunkSender(ChunkSlot);

impl ChunkSender {
    /// Sends a chunk, and waits until the connection accepts it.
    pub(crate) async fn send(&mut self, chunk: Bytes) {
        self.put(chunk);
        poll_fn(|_| self.poll_empty()).await;
    }

    /// Stores a chunk without waiting. The slot must be empty.
    pub(crate) fn put(&mut self, chunk: Bytes) {
        *self.0.lock() = Some(chunk).filter(|chunk| !chunk.is_empty());
    }

    /// Ready when the slot is empty. The body polls the future again when the connection asks for the next
    /// chunk. Therefore no waker is needed.
    pub(crate) fn poll_empty(&self) -> Poll<()> {
        if self.0.lock().is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

pub(crate) struct FutureBody {
    slot: ChunkSlot,
    /// `None` after the future has completed.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A body that consists of the chunks that the future of `write` sends. It ends when the future completes.
pub(crate) fn body_from<F>(write: impl FnOnce(ChunkSender) -> F) -> FutureBody
where
    F: Future<Output = ()> + Send + 'static,
{
    let slot = ChunkSlot::default();
    let future = write(ChunkSender(slot.clone()));
    FutureBody { slot, future: Some(Box::pin(future)) }
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
        let chunk = self.slot.lock().take();
        match chunk {
            Some(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None if self.future.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.future.is_none() && self.slot.lock().is_none()
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
