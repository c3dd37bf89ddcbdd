//! The loop that writes a feed to a client. It ends with the feed, with the key of the client, or with the
//! gateway.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use tokio::task::coop::poll_proceed;

use super::encoder::Encoder;
use super::feed::{Content, End, Feed, Piece, Reset};
use super::keep_alive::KeepAlive;
use super::sink::{Disconnected, Parked, StreamSink};
use crate::auth::Admission;
use base::telemetry::metrics::Level;
use base::telemetry::{ErrorChain, metrics};
use base::types::{
    Ids, KeyedCounts, KeyedGuard, LimitExceeded, Principal, PrincipalLimit, PrincipalLimits,
    Timestamp, UserId,
};
use events::api::Problem;
use events::event::{ControlFrame, EndReason, ProblemFrame, ShutdownFrame};
use log::eventlog::{Item, NotReady, Notifier, ReadError};

pub(crate) struct Stream {
    feed: Feed,
    encoder: Box<dyn Encoder>,
    follow: bool,
    /// Keeps a ticket valid, and reports whether the key is valid.
    admission: Arc<Admission>,
    keep_alive: KeepAlive,
    /// The id of a request that has ended. Errors of the stream are logged under it.
    request_id: Option<HeaderValue>,
    _stream_guard: StreamGuard,
}

const MAX_READS_PER_STEP: usize = 16;

enum Step {
    Continue,
    ReadStore,
    Reset(Reset),
    Wait,
    End,
}

enum Wakeup<T> {
    Source(T),
    /// The keep-alive timer is due, or a signal arrived.
    KeepAlive,
    Disconnected,
}

impl Stream {
    pub(crate) fn new(
        feed: Feed,
        encoder: Box<dyn Encoder>,
        follow: bool,
        admission: Arc<Admission>,
        keep_alive: KeepAlive,
        stream_guard: StreamGuard,
    ) -> Self {
        Self {
            feed,
            encoder,
            follow,
            admission,
            keep_alive,
            request_id: None,
            _stream_guard: stream_guard,
        }
    }

    pub(crate) fn media_type(&self) -> &'static str {
        self.encoder.media_type()
    }

    pub(crate) fn follows(&self) -> bool {
        self.follow
    }

    pub(crate) fn set_request_id(&mut self, id: Option<&HeaderValue>) {
        self.request_id = id.cloned();
    }

    /// Writes the stream until its end. The optional notifier reports new commits.
    ///
    /// A future contains its by-value arguments twice. Therefore, `self` and rarely awaited futures are boxed, and a
    /// waiting stream needs little memory.
    pub(crate) async fn run<W: StreamSink>(
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
        if !self.keep_alive.shutdown().is_draining() {
            self.send_retry(retry_delay(&self.feed.ids, 1000, 1000), &mut sink);
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
            let Self {
                feed,
                keep_alive,
                encoder,
                ..
            } = &mut *self;
            let gone = match step {
                Step::Wait => {
                    keep_alive.caught_up();
                    if let Some(parked) = Parked::new(feed, &**encoder, keep_alive) {
                        sink.park(parked);
                    }
                    let source = &mut feed.source;
                    let wake = if source.summaries.is_some() {
                        wait_for_wakeup(keep_alive, &mut sink, Box::pin(source.changed())).await
                    } else {
                        wait_for_wakeup(keep_alive, &mut sink, pin!(source.reader.changed())).await
                    };
                    if let Some(parked) = sink.unpark() {
                        feed.resume(&parked.cursor);
                    }
                    matches!(wake, Wakeup::Disconnected) || self.flush(&mut sink).await.is_err()
                }
                Step::ReadStore => {
                    keep_alive.fell_behind();
                    match wait_for_wakeup(keep_alive, &mut sink, Box::pin(feed.source.next())).await
                    {
                        Wakeup::Source(next) => {
                            read = next;
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
    fn step<W: StreamSink>(
        &mut self,
        mut read: Option<Result<Item, ReadError>>,
        sink: &mut W,
    ) -> Step {
        if self.keep_alive.take_signal() && self.ends_by_signal(sink) {
            return Step::End;
        }
        // Events for other clients wake this stream too, possibly without a pause. Therefore, each step
        // checks the timer.
        if self.keep_alive.is_due() {
            // The cursor of the source is ahead of events that were read and not written. They must be
            // written first.
            self.send_keep_alive(read.is_none(), sink);
        }
        self.send_summaries(sink);
        // The cursor in these frames must not be ahead of events that were read and not written.
        if read.is_none() {
            self.send_share_changes(sink);
        }
        for _ in 0..MAX_READS_PER_STEP {
            if read.is_none() && sink.is_full() {
                break;
            }
            let next = match read.take() {
                Some(Ok(next)) => next,
                Some(Err(error)) => {
                    self.log_failure(&error);
                    self.send_problem(&Problem::internal(), sink);
                    return Step::End;
                }
                None => match self.feed.source.reader.try_next() {
                    Ok(next) => next,
                    Err(NotReady::ReadStore) => return Step::ReadStore,
                    Err(NotReady::AtTail) => return Step::Wait,
                },
            };
            match self.feed.piece(next) {
                Ok(piece) => {
                    if self.push_piece(piece, sink) {
                        return Step::End;
                    }
                }
                Err(reset) => return Step::Reset(reset),
            }
        }
        Step::Continue
    }

    /// Writes the reason if a signal ends the stream. Returns whether it does.
    fn ends_by_signal<W: StreamSink>(&mut self, sink: &mut W) -> bool {
        if self.keep_alive.shutdown().is_draining() {
            let retry_ms = retry_delay(&self.feed.ids, 1000, 3000);
            self.send_retry(retry_ms, sink);
            let frame = ControlFrame::new(&ShutdownFrame { retry_ms }, self.now());
            self.send_control(&frame, sink);
            return true;
        }
        if !self.admission.is_key_valid() {
            metrics().stream_evictions("key_ended", 1);
            self.send_problem(&Problem::key_ended(), sink);
            return true;
        }
        if !self.feed.source.has_access() {
            metrics().stream_evictions("access_ended", 1);
            self.send_problem(&Problem::access_ended(), sink);
            return true;
        }
        false
    }

    fn send<W: StreamSink>(&mut self, chunk: Bytes, sink: &mut W) {
        if !chunk.is_empty() {
            sink.push(chunk);
            self.keep_alive.data_sent();
        }
    }

    fn send_control<W: StreamSink>(&mut self, frame: &ControlFrame, sink: &mut W) {
        let mut out = BytesMut::new();
        self.encoder.control(&mut out, frame);
        self.send(out.freeze(), sink);
    }

    fn send_retry<W: StreamSink>(&mut self, milliseconds: u64, sink: &mut W) {
        let mut out = BytesMut::new();
        self.encoder.retry(&mut out, milliseconds);
        self.send(out.freeze(), sink);
    }

    /// Flushes everything. Disconnects a client that does not read for `write_stall`, unless its connection
    /// does so.
    async fn flush<W: StreamSink>(&mut self, sink: &mut W) -> Result<(), Disconnected> {
        let mut waited = false;
        let flushed = poll_fn(|context| {
            if let Poll::Ready(flushed) = sink.poll_flush(context) {
                return Poll::Ready(flushed);
            }
            match sink.took_progress() {
                None => self.keep_alive.disarm(),
                Some(progressed) if progressed || !waited => self.keep_alive.write_progressed(),
                Some(_) => {}
            }
            waited = true;
            self.keep_alive.fell_behind();
            self.keep_alive.register_waker(context);
            if self.keep_alive.is_due() || self.keep_alive.shutdown().is_aborted() {
                return Poll::Ready(Err(Disconnected));
            }
            Poll::Pending
        })
        .await;
        if waited {
            if flushed.is_err() && self.keep_alive.is_due() {
                self.record_stall();
            }
            self.keep_alive.data_sent();
        }
        flushed
    }

    fn push_piece<W: StreamSink>(&mut self, piece: Piece, sink: &mut W) -> bool {
        let mut end = piece.end;
        match piece.content {
            Content::Events(run) => {
                let written = self.feed.write(&run, &mut *self.encoder);
                self.send(written, sink);
            }
            Content::Control(frame) => self.send_control(&frame, sink),
            Content::Ready(frame) => {
                self.send_control(&frame, sink);
                if let Some(summaries) = &mut self.feed.source.summaries {
                    summaries.begin();
                }
                end = end.or((!self.follow).then_some(End::new(EndReason::CaughtUp)));
            }
            Content::Nothing => {}
        }
        if self.encoder.is_complete() {
            return true;
        }
        if let Some(end) = end {
            self.send_control(&self.feed.end_frame(end), sink);
        }
        end.is_some()
    }

    fn send_summaries<W: StreamSink>(&mut self, sink: &mut W) {
        if self.feed.source.summaries.is_none() || sink.is_full() {
            return;
        }
        let mut out = BytesMut::new();
        for frame in self.feed.summary_frames() {
            self.encoder.control(&mut out, &frame);
        }
        self.send(out.freeze(), sink);
    }

    fn send_share_changes<W: StreamSink>(&mut self, sink: &mut W) {
        for frame in self.feed.share_changes() {
            self.send_control(&frame, sink);
        }
    }

    /// Writes a keep-alive after a silent interval: a position frame if `advance_cursor` is set and the client's
    /// cursor is behind, otherwise a comment.
    fn send_keep_alive<W: StreamSink>(&mut self, advance_cursor: bool, sink: &mut W) {
        if advance_cursor && let Some(position) = self.feed.position_frame() {
            self.send_control(&position, sink);
        } else {
            self.send(Bytes::from_static(self.encoder.keep_alive()), sink);
        }
    }

    fn ended_request(&self) -> Option<&str> {
        self.request_id.as_ref()?.to_str().ok()
    }

    fn log_failure(&self, error: &ReadError) {
        let id = self.ended_request();
        let _span = id.map(|request_id| tracing::error_span!("request", request_id).entered());
        tracing::error!(error = %ErrorChain(error), "a request failed with an internal error");
    }

    fn record_stall(&self) {
        metrics().stream_evictions("stalled", 1);
        let request_id = self.ended_request();
        let principal = self
            .admission
            .principal()
            .map(|principal| principal.user.name());
        tracing::info!(
            request_id,
            principal,
            "ended a stream because its client does not read"
        );
    }

    fn send_problem<W: StreamSink>(&mut self, problem: &Problem, sink: &mut W) {
        let frame = ControlFrame::new(&ProblemFrame { problem }, self.now());
        self.send_control(&frame, sink);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.feed.ids.now()
    }
}

/// A random reconnect delay in milliseconds. It spreads clients whose streams end at the same moment.
pub(crate) fn retry_delay(ids: &Ids, from: u64, width: u16) -> u64 {
    let [low, high, ..] = ids.secret();
    from + u64::from(u16::from_le_bytes([low, high]) % width)
}

/// Waits for the source, for the keep-alive timer, or for a disconnect. Dropping the source future loses no
/// event.
async fn wait_for_wakeup<W: StreamSink, F: Future + Unpin>(
    keep_alive: &KeepAlive,
    sink: &mut W,
    mut change: F,
) -> Wakeup<F::Output> {
    poll_fn(|context| {
        // A source that is always ready must yield to other tasks now and then.
        let coop = ready!(poll_proceed(context));
        if let Poll::Ready(change) = Pin::new(&mut change).poll(context) {
            coop.made_progress();
            return Poll::Ready(Wakeup::Source(change));
        }
        keep_alive.register_waker(context);
        if keep_alive.is_due() || keep_alive.is_signalled() {
            return Poll::Ready(Wakeup::KeepAlive);
        }
        sink.poll_disconnected(context)
            .map(|()| Wakeup::Disconnected)
    })
    .await
}

const RETRY_AFTER: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Streams {
    limits: PrincipalLimits,
    open: KeyedCounts<UserId>,
}

#[derive(Debug)]
pub(crate) struct StreamGuard {
    _permit: KeyedGuard<UserId>,
    _level: Level,
}

impl Streams {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        Self {
            limits,
            open: KeyedCounts::default(),
        }
    }

    /// `kind` is the label of the stream in the metrics.
    pub(crate) fn acquire(
        &self,
        principal: &Principal,
        kind: &'static str,
    ) -> Result<StreamGuard, LimitExceeded> {
        let limits = self.limits.effective(principal);
        let max = limits.max(PrincipalLimit::Streams);
        let permit = self.open.acquire(principal.user.clone(), max);
        Ok(StreamGuard {
            _permit: permit.ok_or_else(|| limits.exceeded(PrincipalLimit::Streams, RETRY_AFTER))?,
            _level: metrics().streams(kind),
        })
    }
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
        let task = size_of_returned(Stream::run::<SocketSink>);
        let stream = size_of::<Stream>();
        assert!(task <= 512, "the task has {task} bytes");
        assert!(stream <= 416, "the stream has {stream} bytes");
        let admission = size_of::<Admission>();
        assert!(admission <= 192, "the admission has {admission} bytes");
    }
}

#[cfg(test)]
mod open_streams_tests {
    use super::*;
    use base::types::{PrincipalDefaults, Scopes, Tenant, UserId};

    fn principal(id: &str) -> Principal {
        Principal {
            user: UserId::new(&Tenant::default(), id),
            is_local: false,
            scopes: Scopes::default(),
            folders: base::types::GrantedFolders::default(),
        }
    }

    #[test]
    fn streams_are_limited_per_principal_until_they_end() {
        let streams = Streams::new(PrincipalLimits::new(&PrincipalDefaults {
            max_streams: 2,
            ..PrincipalDefaults::default()
        }));
        let first = streams.acquire(&principal("a"), "events").unwrap();
        let _second = streams.acquire(&principal("a"), "events").unwrap();
        assert!(streams.acquire(&principal("a"), "events").is_err());
        assert!(streams.acquire(&principal("b"), "events").is_ok());
        drop(first);
        assert!(streams.acquire(&principal("a"), "events").is_ok());
        assert_eq!(streams.open.count(&principal("a").user), 1);
    }
}
