//! The loop that writes a feed to a client. It ends with the feed, with the key of the client, or with the
//! gateway.

use std::collections::VecDeque;
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

use super::feed::{End, Feed, Piece};
use super::frame::{Own, Shape};
use super::pulse::{Deputy, Heart};
use super::source::{Next, Reset};
use crate::api::Problem;
use crate::api::event::{EndReason, ProblemFrame, ShutdownFrame};
use crate::auth::Admission;
use crate::eventlog::{Herald, Later, Outlet, ReadError, TailCursor};
use crate::http::body::{Out, written};
use crate::http::error::ApiError;
use crate::http::limits::StreamGuard;
use crate::http::state::Gateway;
use crate::shutdown::sound;
use crate::types::{Ids, Timestamp};

/// The state of one stream.
#[derive(Debug)]
pub(crate) struct Stream {
    feed: Feed,
    shape: Shape,
    /// Continues after the replay.
    follows: bool,
    gateway: Gateway,
    /// Keeps a ticket valid, and reports whether the key is valid.
    admission: Arc<Admission>,
    heart: Heart,
    /// The id of a request that has ended. Errors of the stream are logged under it.
    request: Option<HeaderValue>,
    _counted: StreamGuard,
}

/// A response extension with the writer of a streaming response. The owner of the stream writes the body.
/// After the stream is removed, the body of the response itself stays empty.
#[derive(Debug, Clone)]
pub(crate) struct Live(Arc<Mutex<Option<Box<Stream>>>>);

impl Live {
    pub(crate) fn take(&self) -> Option<Box<Stream>> {
        sound(self.0.lock()).take()
    }
}

/// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
/// status would stop an EventSource from reconnecting.
pub(crate) fn respond(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    counted: StreamGuard,
    feed: Feed,
    shape: Shape,
    follows: bool,
) -> Response {
    let stream = Box::new(Stream {
        feed,
        shape,
        follows,
        gateway: gateway.clone(),
        admission: Arc::clone(admission),
        heart: gateway.pulse().enter(),
        request: None,
        _counted: counted,
    });
    let live = Live(Arc::new(Mutex::new(Some(stream))));
    let of_body = live.clone();
    // The body is written after the span of the request ends, so the span is attached to the future.
    let body = |out| {
        async move {
            if let Some(stream) = of_body.take() {
                stream.run(Chunks::new(out), None).await;
            }
        }
        .in_current_span()
    };
    let mut response = headed(shape, written(body));
    // A stream that ends with the log is an ordinary response. Its connection serves further requests.
    if follows {
        response.extensions_mut().insert(live);
    }
    response
}

/// A random reconnect delay in milliseconds. It spreads clients whose streams end at the same moment.
fn spread(ids: &Ids, from: u64, width: u16) -> u64 {
    let [low, high, ..] = ids.secret();
    from + u64::from(u16::from_le_bytes([low, high]) % width)
}

/// Reports a temporary problem as a stream with a `problem` frame. A status would stop an EventSource from
/// reconnecting.
pub(crate) fn refused(problem: &Problem, ids: &Ids) -> Response {
    let shape = Shape::Sse { named: true };
    let retry = spread(ids, problem.retry_after_seconds.unwrap_or(1) * 1000, 1000);
    let own = Own::new(&ProblemFrame { problem }, ids.now());
    let mut body = shape.retry(retry).to_vec();
    body.extend_from_slice(&own.write(shape));
    headed(shape, Body::from(body))
}

const SSE: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";

/// Whether a response with these headers is a stream.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == SSE || kind == NDJSON)
}

fn headed(shape: Shape, body: Body) -> Response {
    let kind = match shape {
        Shape::Sse { .. } => SSE,
        Shape::Ndjson => NDJSON,
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// The number of runs that one step reads before it yields to other tasks.
const LOOKS: usize = 16;

/// The client has disconnected.
#[derive(Debug)]
pub(in crate::http) struct Gone;

/// The write side of a stream.
pub(in crate::http) trait Wire {
    /// Queues a piece. The caller bounds the queue with [`is_full`](Self::is_full).
    fn push(&mut self, piece: Bytes);
    /// Whether the queued pieces must be flushed before more are pushed.
    fn is_full(&self) -> bool;
    /// Ends the body: the next flush also writes the end.
    fn end(&mut self);
    /// Ready when the kernel or the HTTP connection has accepted everything.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>>;
    /// Whether the peer accepted bytes during a pending flush. `None` if the HTTP connection detects stalls.
    fn took(&mut self) -> Option<bool>;
    /// Ready when the client has disconnected.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// The sink for direct delivery while the task of the stream waits.
    fn outlet(&self) -> Option<Arc<dyn Outlet>>;
    /// Permits direct delivery. Nothing may be left to flush.
    fn leave(&mut self, waits: Waits);
    /// Ends direct delivery. A part of the delivered bytes may remain to be flushed.
    fn come_back(&mut self) -> Option<Waits>;
    /// Releases the sink after the stream was written completely.
    fn complete(self);
}

/// The state of a waiting stream that direct delivery uses.
#[derive(Debug)]
pub(in crate::http) struct Waits {
    pub(super) place: TailCursor,
    pub(super) deputy: Deputy,
}

/// The action after the flush of a step.
enum Step {
    /// Read again: there may be more events.
    Again,
    ReadStore,
    Reset(Reset),
    Wait,
    /// The stream is complete.
    Over,
}

enum Wake<T> {
    News(T),
    /// The keep-alive timer is due, or a signal arrived.
    Heart,
    Gone,
}

impl Stream {
    /// Sets the request id for the errors of the stream.
    pub(crate) fn of_request(&mut self, id: Option<&HeaderValue>) {
        self.request = id.cloned();
    }

    /// Writes the stream until its end. The optional notifier reports new commits.
    ///
    /// `self` is boxed, because a future contains its by-value arguments twice, and each stream has such a
    /// future. Rarely awaited futures are boxed too. Therefore, the state of a waiting stream is small.
    pub(in crate::http) async fn run<W: Wire>(mut self: Box<Self>, mut wire: W, herald: Option<Arc<Herald>>) {
        if let Some(herald) = &herald {
            self.feed.source.heeds(herald, wire.outlet());
        }
        drop(herald);
        self.heart.told();
        // A stream that begins during a drain receives another delay with its `shutdown` frame.
        if !self.gateway.shutdown.draining() {
            self.send(self.shape.retry(spread(&self.gateway.ids, 1000, 1000)), &mut wire);
        }
        let mut read = None;
        loop {
            let step = self.step(read.take(), &mut wire);
            let over = matches!(step, Step::Over);
            if over {
                wire.end();
            }
            if self.flush(&mut wire).await.is_err() {
                return;
            }
            if over {
                // The next request of the connection may be a stream. Therefore, this stream is dropped
                // first, with its direct sink and its count.
                drop(self);
                return wire.complete();
            }
            let Self { feed, heart, shape, .. } = &mut *self;
            let gone = match step {
                Step::Wait => {
                    if let Some(place) = feed.place(*shape) {
                        wire.leave(Waits { place, deputy: heart.deputy() });
                    }
                    let wake = woken(heart, &mut wire, pin!(feed.source.moved())).await;
                    if let Some(Waits { place, deputy }) = wire.come_back() {
                        feed.go_on(&place);
                        heart.go_on(&deputy);
                    }
                    matches!(wake, Wake::Gone) || self.flush(&mut wire).await.is_err()
                }
                Step::ReadStore => match woken(heart, &mut wire, Box::pin(feed.source.next())).await {
                    Wake::News(next) => {
                        read = Some(next);
                        false
                    }
                    wake => matches!(wake, Wake::Gone),
                },
                // A reset runs to its end, because its frames would otherwise be lost.
                Step::Reset(reset) => {
                    for piece in Box::pin(feed.reset(reset)).await {
                        self.piece(piece, &mut wire);
                    }
                    false
                }
                // A stream with many events yields. Then concurrent readers read the same bytes at about the
                // same time.
                Step::Again | Step::Over => {
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
    fn step<W: Wire>(&mut self, mut read: Option<Result<Next, ReadError>>, wire: &mut W) -> Step {
        if self.heart.look() && self.is_told_to_end(wire) {
            return Step::Over;
        }
        // Events for other clients wake this stream too, possibly without a pause. Therefore, each step
        // checks the timer.
        if self.heart.is_due() {
            // The cursor of the source is ahead of events that were read and not written. They must be
            // written first.
            self.keep_alive(read.is_none(), wire);
        }
        for _ in 0..LOOKS {
            if read.is_none() && wire.is_full() {
                break;
            }
            let next = match read.take() {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    self.fail(error.into(), wire);
                    return Step::Over;
                }
                None => match self.feed.source.try_next() {
                    Ok(next) => next,
                    Err(Later::Read) => return Step::ReadStore,
                    Err(Later::Wait) => return Step::Wait,
                },
            };
            match self.feed.piece(next) {
                Ok(piece) => {
                    if self.piece(piece, wire) {
                        return Step::Over;
                    }
                }
                Err(reset) => return Step::Reset(reset),
            }
        }
        Step::Again
    }

    /// Writes the reason if a signal ends the stream. Returns whether it does.
    fn is_told_to_end<W: Wire>(&mut self, wire: &mut W) -> bool {
        if self.gateway.shutdown.draining() {
            let retry_ms = spread(&self.gateway.ids, 1000, 3000);
            self.send(self.shape.retry(retry_ms), wire);
            self.send(Own::new(&ShutdownFrame { retry_ms }, self.now()).write(self.shape), wire);
            return true;
        }
        let holds = self.admission.key_holds();
        if !holds {
            self.fail(ApiError::key_ended(), wire);
        }
        !holds
    }

    fn send<W: Wire>(&mut self, chunk: Bytes, wire: &mut W) {
        if !chunk.is_empty() {
            wire.push(chunk);
            self.heart.told();
        }
    }

    /// Flushes everything. Disconnects a client that does not read for `write_stall`, unless its connection
    /// does so.
    async fn flush<W: Wire>(&mut self, wire: &mut W) -> Result<(), Gone> {
        let mut waits = false;
        let flushed = poll_fn(|context| {
            if let Poll::Ready(flushed) = wire.poll_flush(context) {
                return Poll::Ready(flushed);
            }
            match wire.took() {
                None => self.heart.never_due(),
                Some(took) if took || !waits => self.heart.took(),
                Some(_) => {}
            }
            waits = true;
            self.heart.wakes(context);
            let left = self.heart.is_due() || self.gateway.shutdown.aborted();
            if left { Poll::Ready(Err(Gone)) } else { Poll::Pending }
        })
        .await;
        if waits {
            self.heart.told();
        }
        flushed
    }

    /// Queues a piece. Returns whether the stream is complete.
    fn piece<W: Wire>(&mut self, piece: Piece, wire: &mut W) -> bool {
        match piece {
            Piece::Events { run, end } => {
                let written = self.feed.write(&run, self.shape);
                self.send(written, wire);
                self.end(end, wire)
            }
            Piece::Own(own) => {
                self.send(own.write(self.shape), wire);
                false
            }
            Piece::Ready { own, end } => {
                self.send(own.write(self.shape), wire);
                let caught_up = (!self.follows).then_some(End::of(EndReason::CaughtUp));
                self.end(end.or(caught_up), wire)
            }
            Piece::End(end) => self.end(Some(end), wire),
        }
    }

    /// Queues the last frame if the stream is complete. Returns whether it is complete.
    fn end<W: Wire>(&mut self, end: Option<End>, wire: &mut W) -> bool {
        if let Some(end) = end {
            self.send(self.feed.end(end).write(self.shape), wire);
        }
        end.is_some()
    }

    /// Writes after a silent interval. A client with filters receives its position in the log, and other
    /// clients receive a comment.
    fn keep_alive<W: Wire>(&mut self, may_move: bool, wire: &mut W) {
        let position = if may_move { self.feed.position() } else { None };
        let written = position.map(|own| own.write(self.shape));
        self.send(written.unwrap_or(Bytes::from_static(self.shape.keep_alive())), wire);
    }

    fn fail<W: Wire>(&mut self, error: ApiError, wire: &mut W) {
        let id = self.request.as_ref().and_then(|id| id.to_str().ok());
        let _span = id.map(|id| tracing::error_span!("request", id).entered());
        let problem = error.into_problem();
        self.send(Own::new(&ProblemFrame { problem: &problem }, self.now()).write(self.shape), wire);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway.ids.now()
    }
}

/// Waits for the source, for the keep-alive timer, or for a disconnect. Dropping the source future loses no
/// event.
async fn woken<W: Wire, F: Future + Unpin>(heart: &Heart, wire: &mut W, mut news: F) -> Wake<F::Output> {
    poll_fn(|context| {
        // A source that is always ready must yield to other tasks now and then.
        let turn = ready!(poll_proceed(context));
        if let Poll::Ready(news) = Pin::new(&mut news).poll(context) {
            turn.made_progress();
            return Poll::Ready(Wake::News(news));
        }
        heart.wakes(context);
        if heart.is_due() || heart.is_signalled() {
            return Poll::Ready(Wake::Heart);
        }
        wire.poll_gone(context).map(|()| Wake::Gone)
    })
    .await
}

/// A sink that writes to the body of a response. The HTTP connection detects stalls and disconnects.
struct Chunks {
    out: Out,
    pieces: VecDeque<Bytes>,
}

impl Chunks {
    fn new(out: Out) -> Self {
        Self { out, pieces: VecDeque::new() }
    }
}

impl Wire for Chunks {
    fn push(&mut self, piece: Bytes) {
        self.pieces.push_back(piece);
    }

    fn is_full(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn end(&mut self) {}

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        while self.out.poll_taken().is_ready() {
            match self.pieces.pop_front() {
                Some(piece) => self.out.give(piece),
                None => return Poll::Ready(Ok(())),
            }
        }
        Poll::Pending
    }

    fn took(&mut self) -> Option<bool> {
        None
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn outlet(&self) -> Option<Arc<dyn Outlet>> {
        None
    }

    fn leave(&mut self, _: Waits) {}

    fn come_back(&mut self) -> Option<Waits> {
        None
    }

    fn complete(self) {}
}

#[cfg(test)]
mod tests {
    use super::super::socket::Socket;
    use super::*;

    fn size_of_returned<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_a_stream_holds_is_small() {
        let (task, stream) = (size_of_returned(Stream::run::<Socket>), size_of::<Stream>());
        assert!(task <= 704, "the task has {task} bytes");
        assert!(stream <= 448, "the stream has {stream} bytes");
    }
}
