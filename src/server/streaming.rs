//! Responses that are streams of events.

use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{Extensions, HeaderName, HeaderValue, header};
use tracing::Instrument;

use crate::shutdown::lock_or_abort;
use crate::stream::{Stream, body_from};

/// A response extension with the stream that writes the body. After the stream is removed, the body of the
/// response itself stays empty.
#[derive(Debug, Clone)]
pub(super) struct StreamingBody(Arc<Mutex<Option<Box<Stream>>>>);

impl StreamingBody {
    pub(super) fn take(&self) -> Option<Box<Stream>> {
        lock_or_abort(self.0.lock()).take()
    }
}

/// A response extension that marks a stream of events.
#[derive(Debug, Clone, Copy)]
struct EventStream;

/// The response that a stream writes. A stream that continues after the replay can hijack the connection.
pub(crate) fn stream_response(stream: Stream) -> Response {
    let (media_type, follows) = (stream.media_type(), stream.follows());
    let streaming = StreamingBody(Arc::new(Mutex::new(Some(Box::new(stream)))));
    let body_stream = streaming.clone();
    // The body is written after the span of the request ends, so the span is attached to the future.
    let body = |sender| {
        async move {
            if let Some(stream) = body_stream.take() {
                stream.run(sender, None).await;
            }
        }
        .in_current_span()
    };
    let mut response = event_response(media_type, Body::new(body_from(body)));
    // A stream that ends with the log is an ordinary response. Its connection serves further requests.
    if follows {
        response.extensions_mut().insert(streaming);
    }
    response
}

/// A response with these events, which no cache or proxy may hold back.
pub(crate) fn event_response(media_type: &'static str, body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    );
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response.extensions_mut().insert(EventStream);
    response
}

/// Whether a response with these extensions is a stream of events, in any media type.
pub(super) fn is_stream(extensions: &Extensions) -> bool {
    extensions.get::<EventStream>().is_some()
}
