//! Streams: the loop that writes a feed until it ends, its key ends, or the gateway does.

use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::feed::{Feed, Piece};
use super::frame::{Own, Shape};
use crate::api::Problem;
use crate::api::event::{ProblemFrame, ShutdownFrame};
use crate::auth::Admission;
use crate::http::body::{Out, written};
use crate::http::error::ApiError;
use crate::http::limits::StreamGuard;
use crate::http::state::Gateway;
use crate::types::{Ids, Timestamp};

/// Everything that one stream holds.
struct Stream {
    feed: Feed,
    shape: Shape,
    /// Goes on after the replay.
    follows: bool,
    gateway: Gateway,
    /// Keeps a ticket alive, and knows when the key ends.
    admission: Arc<Admission>,
    /// When the client has to hear of us again.
    beat: Instant,
    _counted: StreamGuard,
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
        beat: Instant::now() + gateway.limits.keep_alive,
        _counted: counted,
    });
    // The body is written after the request's span has ended, and its faults have the same id.
    headed(shape, written(|out| stream.run(out).in_current_span()))
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

fn headed(shape: Shape, body: Body) -> Response {
    let kind = match shape {
        Shape::Sse { .. } => "text/event-stream",
        Shape::Ndjson => "application/x-ndjson",
    };
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Why the loop woke.
enum Wake {
    Draining,
    KeyEnded,
    Pieces(Result<Vec<Piece>, crate::eventlog::ReadError>),
    Quiet,
}

impl Stream {
    /// Boxed, since what a future takes by value is in it twice, and there is one for each stream.
    async fn run(mut self: Box<Self>, mut out: Out) {
        let opening = self.shape.retry(spread(&self.gateway.ids, 1000, 1000));
        self.send(opening, &mut out).await;
        // Made once, because each begins with a look through all keys.
        let admission = Arc::clone(&self.admission);
        let mut key_ended = pin!(admission.key_ended());
        loop {
            let wake = tokio::select! {
                biased;
                () = self.gateway.shutdown.soft() => Wake::Draining,
                () = key_ended.as_mut() => Wake::KeyEnded,
                pieces = self.feed.next() => Wake::Pieces(pieces),
                () = sleep_until(self.beat) => Wake::Quiet,
            };
            match wake {
                Wake::Pieces(Ok(pieces)) => {
                    for piece in pieces {
                        if self.piece(piece, &mut out).await {
                            return;
                        }
                    }
                    // Events that are not for this client wake the stream too, and may come without a pause.
                    if Instant::now() >= self.beat {
                        self.quiet(&mut out).await;
                    }
                }
                Wake::Quiet => self.quiet(&mut out).await,
                Wake::Pieces(Err(error)) => return self.fail(error.into(), &mut out).await,
                Wake::KeyEnded => return self.fail(ApiError::key_ended(), &mut out).await,
                Wake::Draining => return self.drain(&mut out).await,
            }
        }
    }

    async fn send(&mut self, chunk: Bytes, out: &mut Out) {
        if !chunk.is_empty() {
            out.send(chunk).await;
            self.beat = Instant::now() + self.gateway.limits.keep_alive;
        }
    }

    /// Writes a piece; true when it was the last.
    async fn piece(&mut self, piece: Piece, out: &mut Out) -> bool {
        match piece {
            Piece::Events { run, last } => {
                let written = self.feed.write(&run, self.shape);
                self.send(written, out).await;
                last && self.over(out).await
            }
            Piece::Own(own) => {
                self.send(own.write(self.shape), out).await;
                false
            }
            Piece::Ready { own, last } => {
                self.send(own.write(self.shape), out).await;
                (last || !self.follows) && self.over(out).await
            }
            Piece::End => true,
        }
    }

    /// Leaves the client with the cursor that gets it 204 when it asks again, also if the last events were not for it.
    async fn over(&mut self, out: &mut Out) -> bool {
        if let Some(id) = self.feed.mark() {
            self.send(self.shape.mark(&id), out).await;
        }
        true
    }

    /// Nothing came for a while: say so, and how far a client that wants few types has come.
    async fn quiet(&mut self, out: &mut Out) {
        self.send(Bytes::from_static(self.shape.keep_alive()), out).await;
        if let Some(id) = self.feed.mark() {
            self.send(self.shape.mark(&id), out).await;
        }
    }

    async fn fail(&self, error: ApiError, out: &mut Out) {
        let problem = error.into_problem();
        out.send(Own::new(&ProblemFrame { problem: &problem }, self.now()).write(self.shape)).await;
    }

    async fn drain(&self, out: &mut Out) {
        let retry_ms = spread(&self.gateway.ids, 1000, 3000);
        out.send(self.shape.retry(retry_ms)).await;
        out.send(Own::new(&ShutdownFrame { retry_ms }, self.now()).write(self.shape)).await;
    }

    fn now(&self) -> Timestamp {
        self.gateway.ids.now()
    }
}
