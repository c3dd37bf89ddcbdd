//! The loop that writes a feed to a client. It ends with the feed, with the key of the client, or with the
//! gateway.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::task::coop::poll_proceed;
use tracing::Instrument;

use super::body_sink::BodySink;
use super::feed::{End, Feed, Piece};
use super::frame::Encoder;
use super::keep_alive::{KeepAlive, ParkedKeepAlive};
use super::source::{Next, Reset};
use crate::api::Problem;
use crate::auth::Admission;
use crate::event::{ControlFrame, EndReason, ProblemFrame, ShutdownFrame};
use crate::eventlog::{DirectSink, NotReady, Notifier, ReadError, TailCursor};
use crate::http::body::body_from;
use crate::http::error::ApiError;
use crate::http::limits::StreamGuard;
use crate::http::state::Gateway;
use crate::shutdown::lock_or_abort;
use crate::types::{Ids, Timestamp};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Stream {
    feed: Feed,
    encoder: Encoder,
    /// Continues after the replay.
    follow: bool,
    gateway: Gateway,
    /// Keeps a ticket valid, and reports whether the key is valid.
    admission: Arc<Admission>,
    keep_alive: KeepAlive,
    /// The id of a request that has ended. Errors of the stream are logged under it.
    request_id: Option<HeaderValue>,
    _stream_guard: StreamGuard,
}

/// A response extension with the writer of a streaming response. The owner of the stream writes the body.
/// After the stream is removed, the body of the response itself stays empty.
#[derive(Debug, Clone)]
pub(crate) struct StreamingBody(Arc<Mutex<Option<Box<Stream>>>>);

impl StreamingBody {
    pub(crate) fn take(&self) -> Option<Box<Stream>> {
        lock_or_abort(self.0.lock()).take()
    }
}

/// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
/// status would stop an EventSource from reconnecting.
pub(crate) fn respond(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    counted: StreamGuard,
    feed: Feed,
    encoder: Encoder,
    follows: bool,
) -> Response {
    let stream = Box::new(Stream {
        feed,
        encoder,
        follow: follows,
        gateway: gateway.clone(),
        admission: Arc::clone(admission),
        keep_alive: gateway.keep_alive_ticker().register(),
        request_id: None,
        _stream_guard: counted,
    });
    let streaming = StreamingBody(Arc::new(Mutex::new(Some(stream))));
    let body_stream = streaming.clone();
    // The body is written after the span of the request ends, so the span is attached to the future.
    let body = |out| {
        async move {
            if let Some(stream) = body_stream.take() {
                stream.run(BodySink::new(out), None).await;
            }
        }
        .in_current_span()
    };
    let mut response = stream_response(encoder, body_from(body));
    // A stream that ends with the log is an ordinary response. Its connection serves further requests.
    if follows {
        response.extensions_mut().insert(streaming);
    }
    response
}

/// A random reconnect delay in milliseconds. It spreads clients whose streams end at the same moment.
fn spread_retry(ids: &Ids, from: u64, width: u16) -> u64 {
    let [low, high, ..] = ids.secret();
    from + u64::from(u16::from_le_bytes([low, high]) % width)
}

/// Reports a temporary problem as a stream with a `problem` frame. A status would stop an EventSource from
/// reconnecting.
pub(crate) fn problem_response(problem: &Problem, ids: &Ids) -> Response {
    let encoder = Encoder::Sse { named: true };
    let retry = spread_retry(ids, problem.retry_after_seconds.unwrap_or(1) * 1000, 1000);
    let own = ControlFrame::new(&ProblemFrame { problem }, ids.now());
    let mut body = encoder.encode_retry(retry).to_vec();
    body.extend_from_slice(&encoder.encode_control(&own));
    stream_response(encoder, Body::from(body))
}

const SSE: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";

/// Whether a response with these headers is a stream.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == SSE || kind == NDJSON)
}

fn stream_response(encoder: Encoder, body: Body) -> Response {
    let kind = match encoder {
        Encoder::Sse { .. } => SSE,
        Encoder::Ndjson => NDJSON,
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// The number of runs that one step reads before it yields to other tasks.
const MAX_READS_PER_STEP: usize = 16;

/// The client has disconnected.
#[derive(Debug)]
pub(in crate::http) struct Disconnected;

/// The write side of a stream.
pub(in crate::http) trait StreamSink {
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

/// The state of a waiting stream that direct delivery uses.
#[derive(Debug)]
pub(in crate::http) struct Parked {
    pub(super) tail_cursor: TailCursor,
    pub(super) keep_alive: ParkedKeepAlive,
}

/// The action after the flush of a step.
enum Step {
    /// Read again: there may be more events.
    Continue,
    ReadStore,
    Reset(Reset),
    Wait,
    /// The stream is complete.
    End,
}

enum Wakeup<T> {
    Source(T),
    /// The keep-alive timer is due, or a signal arrived.
    KeepAlive,
    Disconnected,
}

impl Stream {
    /// Sets the request id for the errors of the stream.
    pub(crate) fn set_request_id(&mut self, id: Option<&HeaderValue>) {
        self.request_id = id.cloned();
    }

    /// Writes the stream until its end. The optional notifier reports new commits.
    ///
    /// `self` is boxed, because a future contains its by-value arguments twice, and each stream has such a
    /// future. Rarely awaited futures are boxed too. Therefore, the state of a waiting stream is small.
    pub(in crate::http) async fn run<W: StreamSink>(
        mut self: Box<Self>,
        mut sink: W,
        notifier: Option<Arc<Notifier>>,
    ) {
        if let Some(notifier) = &notifier {
            self.feed.source.subscribe_via(notifier, sink.direct_sink());
        }
        drop(notifier);
        self.keep_alive.data_sent();
        // A stream that begins during a drain receives another delay with its `shutdown` frame.
        if !self.gateway.shutdown.is_draining() {
            self.send(self.encoder.encode_retry(spread_retry(&self.gateway.ids, 1000, 1000)), &mut sink);
        }
        let mut read = None;
        loop {
            let step = self.step(read.take(), &mut sink);
            let ended = matches!(step, Step::End);
            if ended {
                sink.end();
            }
            if self.flush(&mut sink).await.is_err() {
                return;
            }
            if ended {
                // The next request of the connection may be a stream. Therefore, this stream is dropped
                // first, with its direct sink and its count.
                drop(self);
                return sink.finish();
            }
            let Self { feed, keep_alive, encoder, .. } = &mut *self;
            let gone = match step {
                Step::Wait => {
                    if let Some(place) = feed.tail_cursor(*encoder) {
                        sink.park(Parked { tail_cursor: place, keep_alive: keep_alive.park() });
                    }
                    let wake = wait_for_wakeup(keep_alive, &mut sink, pin!(feed.source.changed())).await;
                    if let Some(Parked { tail_cursor: place, keep_alive: parked_keep_alive }) = sink.unpark()
                    {
                        feed.resume(&place);
                        keep_alive.resume(&parked_keep_alive);
                    }
                    matches!(wake, Wakeup::Disconnected) || self.flush(&mut sink).await.is_err()
                }
                Step::ReadStore => {
                    match wait_for_wakeup(keep_alive, &mut sink, Box::pin(feed.source.next())).await {
                        Wakeup::Source(next) => {
                            read = Some(next);
                            false
                        }
                        wake => matches!(wake, Wakeup::Disconnected),
                    }
                }
                // A reset runs to its end, because its frames would otherwise be lost.
                Step::Reset(reset) => {
                    for piece in Box::pin(feed.reset_frames(reset)).await {
                        self.push_piece(piece, &mut sink);
                    }
                    false
                }
                // A stream with many events yields. Then concurrent readers read the same bytes at about the
                // same time.
                Step::Continue | Step::End => {
                    tokio::task::yield_now().await;
                    false
                }
            };
            if gone {
                return;
            }
        }
    }

    /// Queues the available events: first those from the store, then those at the tail.
    fn step<W: StreamSink>(&mut self, mut read: Option<Result<Next, ReadError>>, wire: &mut W) -> Step {
        if self.keep_alive.take_signal() && self.ends_by_signal(wire) {
            return Step::End;
        }
        // Events for other clients wake this stream too, possibly without a pause. Therefore, each step
        // checks the timer.
        if self.keep_alive.is_due() {
            // The cursor of the source is ahead of events that were read and not written. They must be
            // written first.
            self.send_keep_alive(read.is_none(), wire);
        }
        for _ in 0..MAX_READS_PER_STEP {
            if read.is_none() && wire.is_full() {
                break;
            }
            let next = match read.take() {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    self.send_problem(error.into(), wire);
                    return Step::End;
                }
                None => match self.feed.source.try_next() {
                    Ok(next) => next,
                    Err(NotReady::ReadStore) => return Step::ReadStore,
                    Err(NotReady::AtTail) => return Step::Wait,
                },
            };
            match self.feed.piece(next) {
                Ok(piece) => {
                    if self.push_piece(piece, wire) {
                        return Step::End;
                    }
                }
                Err(reset) => return Step::Reset(reset),
            }
        }
        Step::Continue
    }

    /// Writes the reason if a signal ends the stream. Returns whether it does.
    fn ends_by_signal<W: StreamSink>(&mut self, wire: &mut W) -> bool {
        if self.gateway.shutdown.is_draining() {
            let retry_ms = spread_retry(&self.gateway.ids, 1000, 3000);
            self.send(self.encoder.encode_retry(retry_ms), wire);
            let frame = ControlFrame::new(&ShutdownFrame { retry_ms }, self.now());
            self.send(self.encoder.encode_control(&frame), wire);
            return true;
        }
        let holds = self.admission.is_key_valid();
        if !holds {
            self.send_problem(ApiError::key_ended(), wire);
        }
        !holds
    }

    fn send<W: StreamSink>(&mut self, chunk: Bytes, wire: &mut W) {
        if !chunk.is_empty() {
            wire.push(chunk);
            self.keep_alive.data_sent();
        }
    }

    /// Flushes everything. Disconnects a client that does not read for `write_stall`, unless its connection
    /// does so.
    async fn flush<W: StreamSink>(&mut self, wire: &mut W) -> Result<(), Disconnected> {
        let mut waited = false;
        let flushed = poll_fn(|context| {
            if let Poll::Ready(flushed) = wire.poll_flush(context) {
                return Poll::Ready(flushed);
            }
            match wire.took_progress() {
                None => self.keep_alive.disarm(),
                Some(delivery) if delivery || !waited => self.keep_alive.write_progressed(),
                Some(_) => {}
            }
            waited = true;
            self.keep_alive.register_waker(context);
            let left = self.keep_alive.is_due() || self.gateway.shutdown.is_aborted();
            if left { Poll::Ready(Err(Disconnected)) } else { Poll::Pending }
        })
        .await;
        if waited {
            self.keep_alive.data_sent();
        }
        flushed
    }

    /// Queues a piece. Returns whether the stream is complete.
    fn push_piece<W: StreamSink>(&mut self, piece: Piece, wire: &mut W) -> bool {
        match piece {
            Piece::Events { run, end } => {
                let written = self.feed.write(&run, self.encoder);
                self.send(written, wire);
                self.push_end(end, wire)
            }
            Piece::Control(own) => {
                self.send(self.encoder.encode_control(&own), wire);
                false
            }
            Piece::Ready { frame: own, end } => {
                self.send(self.encoder.encode_control(&own), wire);
                let caught_up = (!self.follow).then_some(End::new(EndReason::CaughtUp));
                self.push_end(end.or(caught_up), wire)
            }
            Piece::End(end) => self.push_end(Some(end), wire),
        }
    }

    /// Queues the last frame if the stream is complete. Returns whether it is complete.
    fn push_end<W: StreamSink>(&mut self, end: Option<End>, wire: &mut W) -> bool {
        if let Some(end) = end {
            self.send(self.encoder.encode_control(&self.feed.end_frame(end)), wire);
        }
        end.is_some()
    }

    /// Writes after a silent interval. A client with filters receives its position in the log, and other
    /// clients receive a comment.
    fn send_keep_alive<W: StreamSink>(&mut self, advance_cursor: bool, wire: &mut W) {
        let position = if advance_cursor { self.feed.position_frame() } else { None };
        let written = position.map(|own| self.encoder.encode_control(&own));
        self.send(written.unwrap_or(Bytes::from_static(self.encoder.keep_alive())), wire);
    }

    fn send_problem<W: StreamSink>(&mut self, error: ApiError, wire: &mut W) {
        let id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        let _span = id.map(|id| tracing::error_span!("request", id).entered());
        let problem = error.into_problem();
        self.send(
            self.encoder.encode_control(&ControlFrame::new(&ProblemFrame { problem: &problem }, self.now())),
            wire,
        );
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway.ids.now()
    }
}

/// Waits for the source, for the keep-alive timer, or for a disconnect. Dropping the source future loses no
/// event.
async fn wait_for_wakeup<W: StreamSink, F: Future + Unpin>(
    keep_alive: &KeepAlive,
    wire: &mut W,
    mut news: F,
) -> Wakeup<F::Output> {
    poll_fn(|context| {
        // A source that is always ready must yield to other tasks now and then.
        let turn = ready!(poll_proceed(context));
        if let Poll::Ready(news) = Pin::new(&mut news).poll(context) {
            turn.made_progress();
            return Poll::Ready(Wakeup::Source(news));
        }
        keep_alive.register_waker(context);
        if keep_alive.is_due() || keep_alive.is_signalled() {
            return Poll::Ready(Wakeup::KeepAlive);
        }
        wire.poll_disconnected(context).map(|()| Wakeup::Disconnected)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::super::socket::SocketSink;
    use super::*;

    fn size_of_returned<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn stream_state_is_small() {
        let (task, stream) = (size_of_returned(Stream::run::<SocketSink>), size_of::<Stream>());
        assert!(task <= 704, "the task has {task} bytes");
        assert!(stream <= 448, "the stream has {stream} bytes");
    }
}
