//! Bodies that are written by a future: one allocation for a stream, no task and no queue.
//!
//! The future hands over a chunk with [`Out::send`] and goes on only after the connection has taken it. It is dropped,
//! with all that it holds, when the client goes away.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;

use crate::shutdown::lock_or_abort;

/// The place of the one chunk that is on its way.
#[derive(Debug, Clone, Default)]
struct ChunkSlot(Arc<Mutex<Option<Bytes>>>);

impl ChunkSlot {
    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        lock_or_abort(self.0.lock())
    }
}

/// Where the future writes.
#[derive(Debug)]
pub(crate) struct ChunkSender(ChunkSlot);

impl ChunkSender {
    /// Resolves when the connection has taken the chunk.
    pub(crate) async fn send(&mut self, chunk: Bytes) {
        self.put(chunk);
        poll_fn(|_| self.poll_empty()).await;
    }

    /// Hands a chunk over, once the one before was taken.
    pub(crate) fn put(&mut self, chunk: Bytes) {
        *self.0.lock() = Some(chunk).filter(|chunk| !chunk.is_empty());
    }

    /// Ready when the connection has what was given. The body polls the future again when it is asked for the next
    /// chunk, so no waker is needed.
    pub(crate) fn poll_empty(&self) -> Poll<()> {
        if self.0.lock().is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

struct FutureBody {
    slot: ChunkSlot,
    /// `None` once it has returned.
    future: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A body of what `write` sends. It ends when the future does.
pub(crate) fn body_from<F>(write: impl FnOnce(ChunkSender) -> F) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let slot = ChunkSlot::default();
    let future = write(ChunkSender(slot.clone()));
    Body::new(FutureBody { slot, future: Some(Box::pin(future)) })
}

impl http_body::Body for FutureBody {
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
