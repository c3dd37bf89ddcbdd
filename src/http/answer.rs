//! The body of a response in transmission, with a time limit for a stalled one.
//!
//! With HTTP/1.1, a peer that does not read shows at the socket. With HTTP/2, one stream can stall at its
//! flow-control window while pings keep the socket busy. Then hyper does not poll the body, so the body
//! cannot detect the stall. The task of the stream detects it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

use super::activity::RequestGuard;
use super::backlog::Unsent;
use super::connection::Unwritten;
use crate::shutdown::sound;

/// The largest part of a response that counts as progress: one HTTP/2 frame.
const PIECE: usize = 16 << 10;

tokio::task_local! {
    /// Set in the task of an HTTP/2 stream, which polls a body only for bytes that fit the flow-control
    /// window.
    static PROGRESS: Progress;
}

/// The time since which a response waits for its peer. `None` if it does not wait.
#[derive(Debug, Clone, Default)]
struct Progress(Arc<Mutex<Option<Instant>>>);

impl Progress {
    fn waits(&self, since: Option<Instant>) {
        *sound(self.0.lock()) = since;
    }

    /// Completes when the response has waited for `stall`.
    async fn stalled(&self, stall: Duration) {
        loop {
            let (since, now) = (*sound(self.0.lock()), Instant::now());
            let look = since.unwrap_or(now) + stall;
            if now >= look {
                return;
            }
            sleep_until(look).await;
        }
    }
}

/// Runs the task of an HTTP/2 stream. If its response stalls for `stall`, the task is dropped. This resets
/// the stream and keeps the other streams of the connection, which may belong to other users of a proxy.
pub(super) async fn unless_stalled<T>(stream: impl Future<Output = T>, stall: Duration) {
    let progress = Progress::default();
    tokio::select! {
        biased;
        _ = PROGRESS.scope(progress.clone(), stream) => {}
        () = progress.stalled(stall) => tracing::debug!("reset a stream because its peer does not read"),
    }
}

/// The body of a response. It keeps its request open.
#[derive(Debug)]
pub(super) struct Answer<B> {
    body: B,
    /// `None` with HTTP/1.1.
    progress: Option<Progress>,
    /// With HTTP/1.1: the bytes that the connection has not written.
    unwritten: Unwritten,
    /// The part of the last chunk that was not returned yet.
    rest: Bytes,
    unsent: Unsent,
    /// The body yields chunks, and only one of them is in memory at a time.
    chunked: bool,
    _open: RequestGuard,
}

impl<B> Answer<B> {
    /// Call this in the task that sends the body.
    pub(super) fn new(body: B, unwritten: Unwritten, open: RequestGuard) -> Self {
        let progress = PROGRESS.try_with(Clone::clone).ok();
        if let Some(progress) = &progress {
            progress.waits(Some(Instant::now()));
        }
        let (unsent, chunked) = (Unsent::uncounted(), false);
        Self { body, progress, unwritten, rest: Bytes::new(), unsent, chunked, _open: open }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Answer<B> {
    /// Counts the bytes of the response as unsent while they are in memory. A shared body is not counted.
    pub(super) fn counted(mut self, unsent: Unsent, shared: bool) -> Self {
        let size = self.body.size_hint().exact();
        (self.unsent, self.chunked) = (unsent, size.is_none() && !shared);
        if !shared {
            self.unsent.set(size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)));
        }
        self
    }

    /// Returns a complete chunk as soon as the earlier chunks are written.
    fn poll_whole(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.unwritten.is_full() {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.unwritten.add(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, progress: Some(progress), rest, unsent, chunked, .. } = &mut *self else {
            return self.poll_whole(context);
        };
        if rest.is_empty() {
            progress.waits(None);
            if *chunked {
                unsent.set(0);
            }
            match ready!(Pin::new(body).poll_frame(context)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => {
                    if *chunked {
                        unsent.set(data.len());
                    }
                    *rest = data;
                }
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        progress.waits(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(rest.split_to(rest.len().min(PIECE))))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tokio::time::sleep;

    use super::super::activity::Activity;
    use super::*;
    use crate::types::Limits;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_asked_for_more_stalls_and_each_piece_is_progress() {
        let activity = Activity::new();
        let whole = Bytes::from(vec![7; 5 * PIECE / 2]);
        let mut taken = Vec::new();
        let began = Instant::now();
        let stream = async {
            let mut body = Answer::new(
                Full::new(whole.clone()),
                Unwritten::default(),
                activity.begin(http::Version::HTTP_11, false),
            );
            assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
            for _ in 0..3 {
                sleep(STALL.mul_f32(0.9)).await;
                assert!(!body.is_end_stream());
                taken.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                assert_eq!(body.size_hint().exact(), Some((whole.len() - taken.len()) as u64));
            }
            assert_eq!(activity.until(&Limits::default(), false), None);
            std::future::pending::<()>().await;
        };
        unless_stalled(stream, STALL).await;
        let thrice_and_a_stall = STALL.mul_f32(3.7);
        assert!(
            began.elapsed().abs_diff(thrice_and_a_stall) < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(taken, whole);
        assert!(activity.until(&Limits::default(), false).is_some(), "the request has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_and_a_body_without_news_may_take_their_time() {
        let activity = Activity::new();
        let stream = async {
            sleep(STALL * 10).await;
            let body = http_body_util::StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, ()>>());
            let mut body =
                Answer::new(body, Unwritten::default(), activity.begin(http::Version::HTTP_11, false));
            assert!(tokio::time::timeout(STALL * 10, body.frame()).await.is_err());
        };
        let began = Instant::now();
        unless_stalled(stream, STALL).await;
        assert_eq!(began.elapsed(), STALL * 20);
    }

    #[tokio::test]
    async fn http_1_hands_over_whole_chunks() {
        let whole = Bytes::from(vec![7; 3 * PIECE]);
        let mut body = Answer::new(
            Full::new(whole.clone()),
            Unwritten::default(),
            Activity::new().begin(http::Version::HTTP_11, false),
        );
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), whole);
    }
}
