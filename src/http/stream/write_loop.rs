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
use super::frame::{ControlFrame, Encoder};
use super::keep_alive::{ParkedKeepAlive, KeepAlive};
use super::source::{Next, Reset};
use crate::api::Problem;
use crate::api::event::{EndReason, ProblemFrame, ShutdownFrame};
use crate::auth::Admission;
use crate::eventlog::{Notifier, NotReady, DirectSink, ReadError, TailCursor};
use crate::http::body::{ChunkSender, body_from};
use crate::http::error::ApiError;
use crate::http::limits::StreamGuard;
use crate::http::state::Gateway;
use crate::shutdown::lock_or_abort;
use crate::types::{Ids, Timestamp};

/// Everything that one stream holds.
#[derive(Debug)]
pub(crate) struct Stream {
    feed: Feed,
    encoder: Encoder,
    /// Goes on after the replay.
    follow: bool,
    gateway: Gateway,
    /// Keeps a ticket alive, and knows whether the key holds.
    admission: Arc<Admission>,
    keep_alive: KeepAlive,
    /// The id of its request, once that has ended: its faults are logged under it.
    request_id: Option<HeaderValue>,
    _stream_guard: StreamGuard,
}

/// In the extensions of an answer that streams: what writes it. Who takes it writes the body; the answer's own body is
/// empty then.
#[derive(Debug, Clone)]
pub(crate) struct StreamingBody(Arc<Mutex<Option<Box<Stream>>>>);

impl StreamingBody {
    pub(crate) fn take(&self) -> Option<Box<Stream>> {
        lock_or_abort(self.0.lock()).take()
    }
}

/// The answer that streams the feed. While the gateway drains it is a stream too, of `shutdown` alone: a status would end
/// an EventSource for good.
pub(crate) fn respond(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    counted: StreamGuard,
    feed: Feed,
    shape: Encoder,
    follows: bool,
) -> Response {
    let stream = Box::new(Stream {
        feed,
        encoder: shape,
        follow: follows,
        gateway: gateway.clone(),
        admission: Arc::clone(admission),
        keep_alive: gateway.keep_alive_ticker().register(),
        request_id: None,
        _stream_guard: counted,
    });
    let streaming = StreamingBody(Arc::new(Mutex::new(Some(stream))));
    let body_stream = streaming.clone();
    // The body is written after the request's span has ended, and its faults have the same id.
    let body = |out| {
        async move {
            if let Some(stream) = body_stream.take() {
                stream.run(BodySink::new(out), None).await;
            }
        }
        .in_current_span()
    };
    let mut response = stream_response(shape, body_from(body));
    // One that ends with the log is an answer like any other: its connection has more.
    if follows {
        response.extensions_mut().insert(streaming);
    }
    response
}

/// When a client is to come back, in milliseconds: each after a time of its own, so that those whose streams end at the
/// same moment do not come all at once.
fn spread_retry(ids: &Ids, from: u64, width: u16) -> u64 {
    let [low, high, ..] = ids.secret();
    from + u64::from(u16::from_le_bytes([low, high]) % width)
}

/// What passes is not a status on SSE, where a status ends an EventSource for good: the stream says it and ends.
pub(crate) fn problem_response(problem: &Problem, ids: &Ids) -> Response {
    let shape = Encoder::Sse { named: true };
    let retry = spread_retry(ids, problem.retry_after_seconds.unwrap_or(1) * 1000, 1000);
    let own = ControlFrame::new(&ProblemFrame { problem }, ids.now());
    let mut body = shape.encode_retry(retry).to_vec();
    body.extend_from_slice(&own.encode(shape));
    stream_response(shape, Body::from(body))
}

const SSE: &str = "text/event-stream";
const NDJSON: &str = "application/x-ndjson";

/// Whether these are the headers of a stream.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == SSE || kind == NDJSON)
}

fn stream_response(shape: Encoder, body: Body) -> Response {
    let kind = match shape {
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

/// Runs that are looked at before others are let run.
const MAX_READS_PER_STEP: usize = 16;

/// Nobody is at the other end any more.
#[derive(Debug)]
pub(in crate::http) struct Disconnected;

/// The way to one client.
pub(in crate::http) trait StreamSink {
    /// Gathers a piece. It is bounded by who asks whether it is full.
    fn push(&mut self, piece: Bytes);
    /// What was gathered is to be flushed before there is more.
    fn is_full(&self) -> bool;
    /// Nothing follows: what is flushed next says so.
    fn end(&mut self);
    /// Ready when everything is handed to the peer's kernel, or to the connection.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Disconnected>>;
    /// Whether the peer took something while a flush waited; none when it is not for the stream to watch over it.
    fn took_progress(&mut self) -> Option<bool>;
    /// Ready when the client has left.
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()>;
    /// What writes to it while its stream waits.
    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>>;
    /// Nothing is left to flush, and its outlet may write what comes next.
    fn park(&mut self, waits: Parked);
    /// Its outlet writes no more; part of what it took may be left to flush.
    fn unpark(&mut self) -> Option<Parked>;
    /// The stream was written to its end, and nothing of it is left.
    fn finish(self);
}

/// Where a stream waits, for who writes meanwhile.
#[derive(Debug)]
pub(in crate::http) struct Parked {
    pub(super) tail_cursor: TailCursor,
    pub(super) keep_alive: ParkedKeepAlive,
}

/// What is to be done once what was there is flushed.
enum Step {
    /// There may be more.
    Continue,
    ReadStore,
    Reset(Reset),
    Wait,
    /// That was the last.
    End,
}

enum Wakeup<T> {
    Source(T),
    /// It is due, or something was signalled.
    KeepAlive,
    Disconnected,
}

impl Stream {
    /// From now on its faults are logged under this id.
    pub(crate) fn set_request_id(&mut self, id: Option<&HeaderValue>) {
        self.request_id = id.cloned();
    }

    /// Writes it until its end. Of what is committed it hears from this herald, if there is one.
    ///
    /// Boxed, since what a future takes by value is in it twice, and there is one for each stream. What is awaited rarely
    /// is boxed too: a stream at the tail has room for its wait alone.
    pub(in crate::http) async fn run<W: StreamSink>(mut self: Box<Self>, mut sink: W, notifier: Option<Arc<Notifier>>) {
        if let Some(herald) = &notifier {
            self.feed.source.subscribe_via(herald, sink.direct_sink());
        }
        drop(notifier);
        self.keep_alive.data_sent();
        // A stream that begins in a drain gets another delay, from its `shutdown`.
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
                // The next request may be for a stream: this one does not count any more, and its outlet is gone.
                drop(self);
                return sink.finish();
            }
            let Self { feed, keep_alive: heart, encoder: shape, .. } = &mut *self;
            let gone = match step {
                Step::Wait => {
                    if let Some(place) = feed.tail_cursor(*shape) {
                        sink.park(Parked { tail_cursor: place, keep_alive: heart.park() });
                    }
                    let wake = wait_for_wakeup(heart, &mut sink, pin!(feed.source.changed())).await;
                    if let Some(Parked { tail_cursor: place, keep_alive: deputy }) = sink.unpark() {
                        feed.resume(&place);
                        heart.resume(&deputy);
                    }
                    matches!(wake, Wakeup::Disconnected) || self.flush(&mut sink).await.is_err()
                }
                Step::ReadStore => match wait_for_wakeup(heart, &mut sink, Box::pin(feed.source.next())).await {
                    Wakeup::Source(next) => {
                        read = Some(next);
                        false
                    }
                    wake => matches!(wake, Wakeup::Disconnected),
                },
                // To its end, or nobody would hear of it.
                Step::Reset(reset) => {
                    for piece in Box::pin(feed.reset_frames(reset)).await {
                        self.push_piece(piece, &mut sink);
                    }
                    false
                }
                // Who has much to write, or to leave out, lets others run: so they read the same bytes at about the same time.
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

    /// Gathers what is there: what was read from the store, then what the tail has.
    fn step<W: StreamSink>(&mut self, mut read: Option<Result<Next, ReadError>>, wire: &mut W) -> Step {
        if self.keep_alive.take_signal() && self.ends_by_signal(wire) {
            return Step::End;
        }
        // Events that are not for this client wake the stream too, and may come without a pause.
        if self.keep_alive.is_due() {
            // The source's cursor is ahead of events that were read and not written yet: those come first.
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

    /// Something was signalled: if the stream ends by it, its client is told why.
    fn ends_by_signal<W: StreamSink>(&mut self, wire: &mut W) -> bool {
        if self.gateway.shutdown.is_draining() {
            let retry_ms = spread_retry(&self.gateway.ids, 1000, 3000);
            self.send(self.encoder.encode_retry(retry_ms), wire);
            self.send(ControlFrame::new(&ShutdownFrame { retry_ms }, self.now()).encode(self.encoder), wire);
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

    /// Until all is handed over. A client that takes nothing for long is left, here or by its connection.
    async fn flush<W: StreamSink>(&mut self, wire: &mut W) -> Result<(), Disconnected> {
        let mut waited = false;
        let flushed = poll_fn(|context| {
            if let Poll::Ready(flushed) = wire.poll_flush(context) {
                return Poll::Ready(flushed);
            }
            match wire.took_progress() {
                None => self.keep_alive.disarm(),
                Some(took) if took || !waited => self.keep_alive.write_progressed(),
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

    /// Gathers a piece; true when it was the last.
    fn push_piece<W: StreamSink>(&mut self, piece: Piece, wire: &mut W) -> bool {
        match piece {
            Piece::Events { run, end } => {
                let written = self.feed.write(&run, self.encoder);
                self.send(written, wire);
                self.push_end(end, wire)
            }
            Piece::Control(own) => {
                self.send(own.encode(self.encoder), wire);
                false
            }
            Piece::Ready { frame: own, end } => {
                self.send(own.encode(self.encoder), wire);
                let caught_up = (!self.follow).then_some(End::new(EndReason::CaughtUp));
                self.push_end(end.or(caught_up), wire)
            }
            Piece::End(end) => self.push_end(Some(end), wire),
        }
    }

    /// Writes the last frame if the stream is complete; returns whether it is.
    fn push_end<W: StreamSink>(&mut self, end: Option<End>, wire: &mut W) -> bool {
        if let Some(end) = end {
            self.send(self.feed.end_frame(end).encode(self.encoder), wire);
        }
        end.is_some()
    }

    /// The stream was silent for a while. A client with filters learns how far the log is, any other gets a comment.
    fn send_keep_alive<W: StreamSink>(&mut self, advance_cursor: bool, wire: &mut W) {
        let position = if advance_cursor { self.feed.position_frame() } else { None };
        let written = position.map(|own| own.encode(self.encoder));
        self.send(written.unwrap_or(Bytes::from_static(self.encoder.keep_alive())), wire);
    }

    fn send_problem<W: StreamSink>(&mut self, error: ApiError, wire: &mut W) {
        let id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        let _span = id.map(|id| tracing::error_span!("request", id).entered());
        let problem = error.into_problem();
        self.send(ControlFrame::new(&ProblemFrame { problem: &problem }, self.now()).encode(self.encoder), wire);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.gateway.ids.now()
    }
}

/// Waits for news, for the heart, or until the client leaves. Dropping the news loses nothing.
async fn wait_for_wakeup<W: StreamSink, F: Future + Unpin>(heart: &KeepAlive, wire: &mut W, mut news: F) -> Wakeup<F::Output> {
    poll_fn(|context| {
        // One for which there is always more lets others run now and then.
        let turn = ready!(poll_proceed(context));
        if let Poll::Ready(news) = Pin::new(&mut news).poll(context) {
            turn.made_progress();
            return Poll::Ready(Wakeup::Source(news));
        }
        heart.register_waker(context);
        if heart.is_due() || heart.is_signalled() {
            return Poll::Ready(Wakeup::KeepAlive);
        }
        wire.poll_disconnected(context).map(|()| Wakeup::Disconnected)
    })
    .await
}

/// The way through the body of an answer, whose connection watches over its client.
struct BodySink {
    out: ChunkSender,
    pieces: VecDeque<Bytes>,
}

impl BodySink {
    fn new(out: ChunkSender) -> Self {
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
        assert!(task <= 704, "{task} bytes for its task");
        assert!(stream <= 448, "{stream} bytes beside");
    }
}
