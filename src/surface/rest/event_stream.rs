//! Responses of the `/events` routes that are streams.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::BytesMut;

use crate::api::Problem;
use crate::auth::Admission;
use crate::event::{ControlFrame, ProblemFrame};
use crate::server::{event_response, stream_response};
use crate::stream::{Encoder, Feed, Sse, Stream, StreamGuard, retry_delay};
use crate::surface::Gateway;
use crate::types::Ids;

/// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
/// status would stop an `EventSource` from reconnecting.
pub(super) fn respond(
    gateway: &Gateway,
    admission: &Arc<Admission>,
    guard: StreamGuard,
    feed: Feed,
    encoder: &'static dyn Encoder,
    follow: bool,
) -> Response {
    let keep_alive = gateway.keep_alive_ticker().register();
    stream_response(Stream::new(feed, encoder, follow, Arc::clone(admission), keep_alive, guard))
}

/// Reports a temporary problem as a stream with a `problem` frame. A status would stop an `EventSource` from
/// reconnecting.
pub(super) fn problem_response(problem: &Problem, ids: &Ids) -> Response {
    let (encoder, mut body) = (Sse { named: true }, BytesMut::new());
    encoder.retry(&mut body, retry_delay(ids, problem.retry_after_seconds.unwrap_or(1) * 1000, 1000));
    encoder.control(&mut body, &ControlFrame::new(&ProblemFrame { problem }, ids.now()));
    event_response(encoder.media_type(), Body::from(body.freeze()))
}
