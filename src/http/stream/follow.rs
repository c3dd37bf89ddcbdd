//! Streams: the loop that writes a feed until it ends, its key ends, or the gateway does.

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

/// Everything that one stream holds.
#[derive(Debug)]
pub(crate) struct Stream {
    feed: Feed,
    shape: Shape,
    /// Goes on after the replay.
    follows: bool,
    gateway: Gateway,
    /// Keeps a ticket alive, and knows whether the key holds.
    admission: Arc<Admission>,
    heart: Heart,
    /// The id of its request, once that has ended: its faults are logged under it.
    request: Option<HeaderValue>,
    _counted: StreamGuard,
}

/// In the extensions of an answer that streams: what writes it. Who takes it writes the body; the answer's own body is
/// empty then.
#[derive(Debug, Clone)]
pub(crate) struct Live(Arc<Mutex<Option<Box<Stream>>>>);

impl Live {
    pub(crate) fn take(&self) -> Option<Box<Stream>> {
        sound(self.0.lock()).take()
    }
}

/// The answer that streams the feed. While the gateway drains it is a stream too, of `shutdown` alone: a status would end
/// an EventSource for good.
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
    // The body is written after the request's span has ended, and its faults have the same id.
    let body = |out| {
        async move {
            if let Some(stream) = of_body.take() {
                stream.run(Chunks::new(out), None).await;
            }
        }
        .in_current_span()
    };
    let mut response = headed(shape, written(body));
    // One that ends with the log is an answer like any other: its connection has more.
    if follows {
        response.extensions_mut().insert(live);
    }
    response
}

/// When a client is to come back, in milliseconds: each after a time of its own, so that those whose streams end at the
/// same moment do not come all at once.
fn spread(ids: &Ids, from: u64, width: u16) -> u64 {
    let [low, high, ..] = ids.secret();
    from + u64::from(u16::from_le_bytes([low, high]) % width)
}

/// What passes is not a status on SSE, where a status ends an EventSource for good: the stream says it and ends.
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

/// Whether these are the headers of a stream.
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

/// Runs that are looked at before others are let run.
const LOOKS: usize = 16;

/// Nobody is at the other end any more.
#[derive(Debug)]
pub(in crate::http) struct Gone;

/// The way to one client.
pub(in crate::http) trait Wire {
    /// Gathers a piece. It is bounded by who asks whether it is full.
    fn push(&mut self, piece: Bytes);
    /// What was gathered is to be flushed before there is more.
    fn is_full(&self) -> bool;
    /// Nothing follows: what is flushed next says so.
    fn end(&mut self);
    /// Ready when everything is handed to the peer's kernel, or to the connection.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>>;
    /// Whether the peer took something while a flush waited; none when it is not for the stream to watch over it.
    fn took(&mut self) -> Option<bool>;
    /// Ready when the client has left.
    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// What writes to it while its stream waits.
    fn outlet(&self) -> Option<Arc<dyn Outlet>>;
    /// Nothing is left to flush, and its outlet may write what comes next.
    fn leave(&mut self, waits: Waits);
    /// Its outlet writes no more; part of what it took may be left to flush.
    fn come_back(&mut self) -> Option<Waits>;
    /// The stream was written to its end, and nothing of it is left.
    fn complete(self);
}

/// Where a stream waits, for who writes meanwhile.
#[derive(Debug)]
pub(in crate::http) struct Waits {
    pub(super) place: TailCursor,
    pub(super) deputy: Deputy,
}

/// What is to be done once what was there is flushed.
enum Step {
    /// There may be more.
    Again,
    ReadStore,
    Reset(Reset),
    Wait,
    /// That was the last.
    Over,
}

enum Wake<T> {
    News(T),
    /// It is due, or something was signalled.
    Heart,
    Gone,
}

impl Stream {
    /// From now on its faults are logged under this id.
    pub(crate) fn of_request(&mut self, id: Option<&HeaderValue>) {
        self.request = id.cloned();
    }

    /// Writes it until its end. Of what is committed it hears from this herald, if there is one.
    ///
    /// Boxed, since what a future takes by value is in it twice, and there is one for each stream. What is awaited rarely
    /// is boxed too: a stream at the tail has room for its wait alone.
    pub(in crate::http) async fn run<W: Wire>(mut self: Box<Self>, mut wire: W, herald: Option<Arc<Herald>>) {
        if let Some(herald) = &herald {
            self.feed.source.heeds(herald, wire.outlet());
        }
        drop(herald);
        self.heart.told();
        // A stream that begins in a drain gets another delay, from its `shutdown`.
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
                // The next request may be for a stream: this one does not count any more, and its outlet is gone.
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
                // To its end, or nobody would hear of it.
                Step::Reset(reset) => {
                    for piece in Box::pin(feed.reset(reset)).await {
                        self.piece(piece, &mut wire);
                    }
                    false
                }
                // Who has much to write, or to leave out, lets others run: so they read the same bytes at about the same time.
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

    /// Gathers what is there: what was read from the store, then what the tail has.
    fn step<W: Wire>(&mut self, mut read: Option<Result<Next, ReadError>>, wire: &mut W) -> Step {
        if self.heart.look() && self.is_told_to_end(wire) {
            return Step::Over;
        }
        // Events that are not for this client wake the stream too, and may come without a pause.
        if self.heart.is_due() {
            // The source's cursor is ahead of events that were read and not written yet: those come first.
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

    /// Something was signalled: if the stream ends by it, its client is told why.
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

    /// Until all is handed over. A client that takes nothing for long is left, here or by its connection.
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

    /// Gathers a piece; true when it was the last.
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

    /// Writes the last frame if the stream is complete; returns whether it is.
    fn end<W: Wire>(&mut self, end: Option<End>, wire: &mut W) -> bool {
        if let Some(end) = end {
            self.send(self.feed.end(end).write(self.shape), wire);
        }
        end.is_some()
    }

    /// The stream was silent for a while. A client with filters learns how far the log is, any other gets a comment.
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

/// Waits for news, for the heart, or until the client leaves. Dropping the news loses nothing.
async fn woken<W: Wire, F: Future + Unpin>(heart: &Heart, wire: &mut W, mut news: F) -> Wake<F::Output> {
    poll_fn(|context| {
        // One for which there is always more lets others run now and then.
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

/// The way through the body of an answer, whose connection watches over its client.
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
        assert!(task <= 704, "{task} bytes for its task");
        assert!(stream <= 448, "{stream} bytes beside");
    }
}
