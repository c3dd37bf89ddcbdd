//! Responses that are streams of events, and their move off the hyper connection. hyper reads the request, and the router
//! handles it as any other request. Then the hyper connection is dropped, and the stream owns the socket. The buffers of
//! hyper would be most of the memory of an idle stream.
//!
//! Only HTTP/1.1 connections support this, because they have one response at a time. After a complete stream,
//! a new hyper connection serves the next request on the socket. The read buffer of the old hyper connection
//! is lost. If it may have held bytes of a later request, the socket closes at the end of the stream. Therefore this
//! module counts the request heads in the bytes that hyper reads. The count can be too high but never too low: a body
//! with an empty line costs one connection and loses no request.
//!
//! Why this is the simplest correct way:
//!
//! - hyper's `into_parts` returns the read buffer, but not for connections that can upgrade to WebSocket or HTTP/2. Whether a
//!   connection upgrades is known only after its head.
//! - Reads that end at each head do not replace the count: hyper also reads while a request runs, to detect a disconnect.
//!   A pause of these reads would stop bodies and hide disconnects.
//! - A close after each stream loses requests: a keep-alive agent of Node can send its next POST before it reads the end of
//!   the connection, and does not repeat the POST.
//! - A connection that stays in hyper keeps its buffers for each idle stream.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use hyper::body::{Body as _, Incoming};
use tokio::net::TcpStream;

use crate::stream::{SocketOwner, SocketStream, Stream, body_from};
use base::shutdown::lock_or_abort;
use base::types::Timestamp;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Marks a response that is a stream of events, in any media type.
#[derive(Clone, Copy)]
pub(super) struct EventStream;

/// Shared between the request handler, which has the stream, and the I/O object, which has the socket.
pub(super) struct Hijack<S = TcpStream>(Arc<Mutex<Handoff<S>>>);

struct Handoff<S> {
    socket: Option<S>,
    /// Bytes that hyper has not read.
    read_buf: Bytes,
    pending: Option<PendingStream>,
    scanner: HeadScanner,
    /// The client sent bytes after the current request.
    sent_more: bool,
}

struct PendingStream {
    stream: Box<Stream>,
    head: Bytes,
    reusable: bool,
}

/// Finds the ends of request heads (empty lines) in the bytes that hyper reads.
///
/// hyper reads only while its buffer holds no complete head. Suppose that the bytes since the last flush end
/// with an empty line and contain no other. Then the buffer of hyper is empty after it parses a request
/// without a body.
#[derive(Default)]
struct HeadScanner {
    /// The number of empty lines since the last flush. It stops at two.
    blank_lines: u8,
    /// The last byte completed an empty line.
    ends_with_head: bool,
    line: LineState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LineState {
    #[default]
    Empty,
    CarriageReturn,
    Text,
}

impl HeadScanner {
    fn read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.ends_with_head = false;
        // The bytes are a body or pipelined requests. The scanner ignores the rest until the next flush.
        if self.blank_lines > 1 {
            self.line = LineState::Text;
            return;
        }
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let empty = match self.line {
                LineState::Empty => matches!(&bytes[from..end], [] | [b'\r']),
                LineState::CarriageReturn => from == end,
                LineState::Text => false,
            };
            self.line = LineState::Empty;
            from = end + 1;
            self.blank_lines = self.blank_lines.saturating_add(u8::from(empty));
            self.ends_with_head = empty && from == bytes.len();
        }
        self.line = match (self.line, &bytes[from..]) {
            (line, []) => line,
            (LineState::Empty, [b'\r']) => LineState::CarriageReturn,
            _ => LineState::Text,
        };
    }

    /// A response was written. A client that does not pipeline now sends the next head.
    fn response_flushed(&mut self) {
        self.blank_lines = 0;
        self.ends_with_head = false;
    }

    /// Whether hyper has read nothing after the request that it just parsed.
    fn is_single_head(&self) -> bool {
        self.blank_lines == 1 && self.ends_with_head
    }
}

#[derive(Clone, Copy)]
pub(super) struct HijackPermit {
    /// No byte followed the request, and the client did not ask to close the connection.
    reusable: bool,
}

fn requests_close(headers: &HeaderMap) -> bool {
    let options = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    options
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("close"))
}

impl<S> Clone for Hijack<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Hijack<S> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Handoff {
            socket: None,
            read_buf: Bytes::new(),
            pending: None,
            scanner: HeadScanner::default(),
            sent_more: false,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Handoff<S>> {
        lock_or_abort(self.0.lock())
    }

    pub(super) fn bytes_read(&self, bytes: &[u8]) {
        let mut handoff = self.lock();
        handoff.scanner.read(bytes);
        handoff.sent_more = true;
    }

    /// Records that hyper has written a response.
    pub(super) fn response_flushed(&self) {
        self.lock().scanner.response_flushed();
    }

    /// Receives the socket of the dropped connection, and the bytes that hyper has not read.
    pub(super) fn release_socket(&self, socket: Option<S>, read_buf: Bytes) {
        let mut handoff = self.lock();
        handoff.socket = socket;
        handoff.read_buf = read_buf;
    }
}

impl Hijack {
    /// Returns a permit if the response may hijack its connection: the request is a `GET` over HTTP/1.1
    /// without a body. Call this when hyper has just parsed the request.
    pub(super) fn permit_for(&self, request: &hyper::Request<Incoming>) -> Option<HijackPermit> {
        let hijackable = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.body().is_end_stream();
        let mut handoff = self.lock();
        handoff.sent_more = false;
        hijackable.then(|| HijackPermit {
            reusable: handoff.scanner.is_single_head() && !requests_close(request.headers()),
        })
    }

    /// Hijacks the connection if the response streams. On `true`, the caller must drop the connection.
    pub(super) fn try_hijack(
        &self,
        response: &mut Response,
        HijackPermit { reusable }: HijackPermit,
    ) -> bool {
        let streaming = response.extensions_mut().remove::<StreamingBody>();
        let Some(mut stream) = streaming.and_then(|body| body.take()) else {
            return false;
        };
        stream.set_request_id(response.headers().get(REQUEST_ID));
        let head = encode_head(response, stream.now());
        self.lock().pending = Some(PendingStream {
            stream,
            head,
            reusable,
        });
        true
    }

    pub(super) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// The stream that hijacked the connection, and its socket, after the connection was dropped. `owner`
    /// creates the owner of the socket, and receives whether the socket can serve another request.
    pub(super) fn take(
        self,
        owner: impl FnOnce(bool) -> Box<dyn SocketOwner>,
    ) -> Option<SocketStream> {
        let mut handoff = self.lock();
        let (socket, pending) = handoff.socket.take().zip(handoff.pending.take())?;
        let read_buf = std::mem::take(&mut handoff.read_buf);
        Some(SocketStream {
            stream: pending.stream,
            head: pending.head,
            socket,
            read_buf,
            owner: owner(pending.reusable && !handoff.sent_more),
        })
    }
}

/// Encodes the head of a response with a chunked body. The head never has `Connection: close`. With that
/// header, Node's `fetch` accepts a truncated body as complete.
fn encode_head(response: &mut Response, now: Timestamp) -> Bytes {
    let status = response.status();
    let headers = response.headers_mut();
    headers.remove(header::CONNECTION);
    headers.insert(
        header::TRANSFER_ENCODING,
        HeaderValue::from_static("chunked"),
    );
    headers.insert(
        header::DATE,
        HeaderValue::try_from(now.http_date()).expect("a date is plain ASCII"),
    );
    let mut head = BytesMut::with_capacity(1024);
    let reason = status.canonical_reason().unwrap_or_default();
    head.put_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).as_bytes());
    for (name, value) in &*headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.put_slice(part);
        }
    }
    head.put_slice(b"\r\n");
    head.freeze()
}

/// A response extension with the stream that writes the body. After the stream is removed, the body of the
/// response itself stays empty.
#[derive(Clone)]
pub(super) struct StreamingBody(Arc<Mutex<Option<Box<Stream>>>>);

impl StreamingBody {
    pub(super) fn take(&self) -> Option<Box<Stream>> {
        lock_or_abort(self.0.lock()).take()
    }
}

/// The response that a stream writes. A stream that continues after the replay can hijack the connection.
pub(crate) fn stream_response(stream: Stream) -> Response {
    let media_type = stream.media_type();
    let follows = stream.follows();
    let streaming = StreamingBody(Arc::new(Mutex::new(Some(Box::new(stream)))));
    let body_stream = streaming.clone();
    let body = |sender| async move {
        if let Some(stream) = body_stream.take() {
            stream.run(sender, None).await;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bytes contain one head and nothing after it. Checks every split of the bytes into two
    /// reads.
    fn is_single(bytes: &str) -> bool {
        let whole = |pieces: &[&[u8]]| {
            let mut heads = HeadScanner::default();
            for piece in pieces {
                heads.read(piece);
            }
            heads.is_single_head()
        };
        let alone = whole(&[bytes.as_bytes()]);
        for at in 0..bytes.len() {
            let (one, two) = bytes.as_bytes().split_at(at);
            assert_eq!(whole(&[one, two]), alone, "{bytes:?} cut at {at}");
        }
        alone
    }

    #[test]
    fn head_is_single_only_without_bytes_after_it() {
        let head = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        assert!(
            is_single(head)
                && is_single(&head.replace("\r\n", "\n"))
                && is_single(&format!("x{head}"))
        );
        for more in ["G", "\n", "\r\n", head, "GET / HTTP/1.1\n\n", "x\n\n"] {
            assert!(!is_single(&format!("{head}{more}")), "{more:?}");
        }
        for part in ["", "GET / HTTP/1.1\r\nhost: a\r\n"] {
            assert!(!is_single(part), "{part:?}");
        }
    }

    #[test]
    fn scanner_forgets_earlier_requests_after_a_flush() {
        let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut heads = HeadScanner::default();
        for body in [&b""[..], b"{}", b"a\n\nb\r\n\r\n\n"] {
            heads.read(head);
            heads.read(body);
            heads.response_flushed();
            heads.read(head);
            assert!(heads.is_single_head(), "{body:?}");
            heads.response_flushed();
            assert!(!heads.is_single_head());
        }
        heads.read(head);
        heads.read(head);
        heads.response_flushed();
        assert!(
            !heads.is_single_head(),
            "hyper parses the second head from its buffer"
        );
    }
}
