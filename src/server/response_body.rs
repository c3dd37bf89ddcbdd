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
use super::backlog::UnsentBytes;
use super::connection_io::SendBacklog;
use crate::shutdown::lock_or_abort;

/// The largest part of a response that counts as progress: one HTTP/2 frame.
const MAX_FRAME_BYTES: usize = 16 << 10;

tokio::task_local! {
    /// Set in the task of an HTTP/2 stream, which polls a body only for bytes that fit the flow-control
    /// window.
    static STALL_CLOCK: StallClock;
}

/// The time since which a response waits for its peer. `None` if it does not wait.
#[derive(Debug, Clone, Default)]
struct StallClock(Arc<Mutex<Option<Instant>>>);

impl StallClock {
    fn set_waiting_since(&self, since: Option<Instant>) {
        *lock_or_abort(self.0.lock()) = since;
    }

    /// Completes when the response has waited for `stall`.
    async fn stalled(&self, stall: Duration) {
        loop {
            let (since, now) = (*lock_or_abort(self.0.lock()), Instant::now());
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
pub(super) async fn run_until_stalled<T>(stream: impl Future<Output = T>, stall: Duration) {
    let progress = StallClock::default();
    tokio::select! {
        biased;
        _ = STALL_CLOCK.scope(progress.clone(), stream) => {}
        () = progress.stalled(stall) => tracing::debug!("reset a stream because its peer does not read"),
    }
}

/// The body of a response. It keeps its request open.
#[derive(Debug)]
pub(super) struct ResponseBody<B> {
    body: B,
    /// `None` with HTTP/1.1.
    stall_clock: Option<StallClock>,
    /// With HTTP/1.1: the bytes that the connection has not written.
    send_backlog: SendBacklog,
    /// The part of the last chunk that was not returned yet.
    remainder: Bytes,
    unsent: UnsentBytes,
    /// The body yields chunks, and only one of them is in memory at a time.
    chunked: bool,
    _request: RequestGuard,
}

impl<B> ResponseBody<B> {
    /// Call this in the task that sends the body.
    pub(super) fn new(body: B, send_backlog: SendBacklog, open: RequestGuard) -> Self {
        let progress = STALL_CLOCK.try_with(Clone::clone).ok();
        if let Some(progress) = &progress {
            progress.set_waiting_since(Some(Instant::now()));
        }
        let (unsent, chunked) = (UnsentBytes::uncounted(), false);
        Self {
            body,
            stall_clock: progress,
            send_backlog,
            remainder: Bytes::new(),
            unsent,
            chunked,
            _request: open,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> ResponseBody<B> {
    /// Counts the bytes of the response as unsent while they are in memory. A shared body is not counted.
    pub(super) fn count_unsent(mut self, unsent: UnsentBytes, shared: bool) -> Self {
        let size = self.body.size_hint().exact();
        (self.unsent, self.chunked) = (unsent, size.is_none() && !shared);
        if !shared {
            self.unsent
                .set(size.map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)));
        }
        self
    }

    /// Returns a complete chunk as soon as the earlier chunks are written.
    fn poll_whole_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.send_backlog.is_full() {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            self.send_backlog
                .add(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self {
            body,
            stall_clock: Some(progress),
            remainder: rest,
            unsent,
            chunked,
            ..
        } = &mut *self
        else {
            return self.poll_whole_chunk(context);
        };
        if rest.is_empty() {
            progress.set_waiting_since(None);
            if *chunked {
                unsent.set(0);
            }
            match ready!(Pin::new(body).poll_frame(context))
                .transpose()?
                .map(Frame::into_data)
            {
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
        progress.set_waiting_since(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(
            rest.split_to(rest.len().min(MAX_FRAME_BYTES)),
        ))))
    }

    fn is_end_stream(&self) -> bool {
        self.remainder.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.remainder.len() as u64, self.body.size_hint());
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
    use crate::server::connection_limit::ConnectionPermit;
    use crate::types::Limits;

    const STALL: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_polled_stalls_and_each_frame_is_progress() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        let whole = Bytes::from(vec![7; 5 * MAX_FRAME_BYTES / 2]);
        let mut received = Vec::new();
        let began = Instant::now();
        let stream = async {
            let mut body = ResponseBody::new(
                Full::new(whole.clone()),
                SendBacklog::default(),
                activity.begin(http::Version::HTTP_11, false),
            );
            assert_eq!(body.size_hint().exact(), Some(whole.len() as u64));
            for _ in 0..3 {
                sleep(STALL.mul_f32(0.9)).await;
                assert!(!body.is_end_stream());
                received
                    .extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
                assert_eq!(
                    body.size_hint().exact(),
                    Some((whole.len() - received.len()) as u64)
                );
            }
            assert_eq!(activity.request_deadline(&Limits::default(), false), None);
            std::future::pending::<()>().await;
        };
        run_until_stalled(stream, STALL).await;
        let thrice_and_a_stall = STALL.mul_f32(3.7);
        assert!(
            began.elapsed().abs_diff(thrice_and_a_stall) < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(received, whole);
        assert!(
            activity
                .request_deadline(&Limits::default(), false)
                .is_some(),
            "the request has ended"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_handlers_and_idle_bodies_do_not_stall() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        let stream = async {
            sleep(STALL * 10).await;
            let body = http_body_util::StreamBody::new(tokio_stream::pending::<
                Result<Frame<Bytes>, ()>,
            >());
            let mut body = ResponseBody::new(
                body,
                SendBacklog::default(),
                activity.begin(http::Version::HTTP_11, false),
            );
            assert!(
                tokio::time::timeout(STALL * 10, body.frame())
                    .await
                    .is_err()
            );
        };
        let began = Instant::now();
        run_until_stalled(stream, STALL).await;
        assert_eq!(began.elapsed(), STALL * 20);
    }

    #[tokio::test]
    async fn http_1_bodies_yield_whole_chunks() {
        let whole = Bytes::from(vec![7; 3 * MAX_FRAME_BYTES]);
        let mut body = ResponseBody::new(
            Full::new(whole.clone()),
            SendBacklog::default(),
            Activity::new(ConnectionPermit::unlimited()).begin(http::Version::HTTP_11, false),
        );
        assert_eq!(
            body.frame().await.unwrap().unwrap().into_data().unwrap(),
            whole
        );
    }
}
