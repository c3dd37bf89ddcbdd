//! Moves a stream off its hyper connection. hyper reads the request, and the router handles it as any other
//! request. Then the hyper connection is dropped, and the stream owns the socket. The buffers of hyper would
//! be most of the memory of an idle stream.
//!
//! Only HTTP/1.1 connections support this, because they have one response at a time. After a complete stream,
//! a new hyper connection serves the next request on the socket. The read buffer of the old hyper connection
//! is lost. Therefore this module counts the request heads in the bytes that hyper reads. If the lost buffer
//! may have held bytes of a later request, the socket closes at the end of the stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Version, header};
use hyper::body::{Body, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::accept::{Held, Home};
use super::lanes::{Lanes, Leaves};
use super::layers::REQUEST_ID;
use super::stream::{Live, Stream};
use crate::shutdown::{Shutdown, sound};
use crate::types::{Limits, Timestamp};

/// The socket of a connection. When hyper drops it, the socket moves to its [`Handoff`].
#[derive(Debug)]
pub(super) struct Lent {
    /// `None` only during the drop.
    stream: Option<TcpStream>,
    /// Bytes that the client sent before this connection existed. Reads return them first.
    early: Bytes,
    takeover: Takeover,
}

/// Shared between the request handler, which has the stream, and the I/O object, which has the socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Takeover(Arc<Mutex<Met>>);

#[derive(Debug, Default)]
struct Met {
    socket: Option<TcpStream>,
    /// Bytes that hyper has not read.
    early: Bytes,
    asks: Option<Asks>,
    heads: Heads,
    /// The client sent bytes after the current request.
    sent_more: bool,
}

#[derive(Debug)]
struct Asks {
    stream: Box<Stream>,
    head: Bytes,
    /// The connection can serve another request after the stream.
    reusable: bool,
}

/// Finds the ends of request heads (empty lines) in the bytes that hyper reads.
///
/// hyper reads only while its buffer holds no complete head. Suppose that the bytes since the last flush end
/// with an empty line and contain no other. Then the buffer of hyper is empty after it parses a request
/// without a body.
#[derive(Debug, Default)]
struct Heads {
    /// The number of empty lines since the last flush. It stops at two.
    ends: u8,
    /// The last byte completed an empty line.
    at_end: bool,
    line: Line,
}

/// The state of the line that is not complete yet.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Line {
    #[default]
    Empty,
    CarriageReturn,
    Text,
}

impl Heads {
    fn read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.at_end = false;
        // The bytes are a body or pipelined requests. The scanner ignores the rest until the next flush.
        if self.ends > 1 {
            self.line = Line::Text;
            return;
        }
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let empty = match self.line {
                Line::Empty => matches!(&bytes[from..end], [] | [b'\r']),
                Line::CarriageReturn => from == end,
                Line::Text => false,
            };
            (self.line, from) = (Line::Empty, end + 1);
            self.ends = self.ends.saturating_add(u8::from(empty));
            self.at_end = empty && from == bytes.len();
        }
        self.line = match (self.line, &bytes[from..]) {
            (line, []) => line,
            (Line::Empty, [b'\r']) => Line::CarriageReturn,
            _ => Line::Text,
        };
    }

    /// A response was written. A client that does not pipeline now sends the next head.
    fn flushed(&mut self) {
        (self.ends, self.at_end) = (0, false);
    }

    /// Whether hyper has read nothing after the request that it just parsed.
    fn is_alone(&self) -> bool {
        self.ends == 1 && self.at_end
    }
}

/// Permits a request to hijack its connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct MayLeave {
    /// No byte followed the request, and the client did not ask to close the connection.
    reusable: bool,
}

/// Whether the client asks to close the connection after this request.
fn closes(headers: &HeaderMap) -> bool {
    let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

impl Takeover {
    pub(super) fn lend(stream: TcpStream, early: Bytes) -> (Lent, Self) {
        let takeover = Self::default();
        (Lent { stream: Some(stream), early, takeover: takeover.clone() }, takeover)
    }

    /// Returns a permit if the response may hijack its connection: the request is a `GET` over HTTP/1.1
    /// without a body. Call this when hyper has just parsed the request.
    pub(super) fn may_leave(&self, request: &hyper::Request<Incoming>) -> Option<MayLeave> {
        let leaves = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.body().is_end_stream();
        let mut met = self.met();
        met.sent_more = false;
        leaves.then(|| MayLeave { reusable: met.heads.is_alone() && !closes(request.headers()) })
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        sound(self.0.lock())
    }

    /// Hijacks the connection if the response streams. On `true`, the caller must drop the connection.
    pub(super) fn takes(&self, response: &mut Response, MayLeave { reusable }: MayLeave) -> bool {
        let live = response.extensions_mut().remove::<Live>();
        let Some(mut stream) = live.and_then(|live| live.take()) else { return false };
        stream.of_request(response.headers().get(REQUEST_ID));
        let head = head(response, stream.now());
        self.met().asks = Some(Asks { stream, head, reusable });
        true
    }

    pub(super) fn is_asked(&self) -> bool {
        self.met().asks.is_some()
    }

    /// Starts the stream on a stream worker after the connection was dropped. The task of the stream is as
    /// small as possible. A complete stream returns the socket through `return_path`.
    pub(super) fn begin(self, held: Held, home: Home, lanes: &Lanes, limits: &Limits, shutdown: &Shutdown) {
        let mut met = self.met();
        let (socket, asks) = (met.socket.take(), met.asks.take());
        let (early, sent_more) = (std::mem::take(&mut met.early), met.sent_more);
        drop(met);
        if let (Some(socket), Some(Asks { stream, head, reusable })) = (socket, asks) {
            let buffer = limits.stream_buffer_bytes.min(limits.send_buffer_bytes);
            if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, buffer) {
                tracing::debug!(%error, "could not set the send buffer size of a socket");
            }
            let home = (reusable && !sent_more).then(|| Box::new(home));
            if let Err(error) = lanes.begin(Leaves { stream, head, socket, held, home, early }, shutdown) {
                tracing::warn!(%error, "could not move a stream to a stream worker");
            }
        }
    }
}

/// Encodes the head of a response with a chunked body. The head never has `Connection: close`. With that
/// header, Node's `fetch` accepts a truncated body as complete.
fn head(response: &mut Response, now: Timestamp) -> Bytes {
    let status = response.status();
    let headers = response.headers_mut();
    headers.remove(header::CONNECTION);
    headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    headers.insert(header::DATE, HeaderValue::try_from(now.http_date()).expect("a date is plain ASCII"));
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

impl Drop for Lent {
    fn drop(&mut self) {
        let mut met = self.takeover.met();
        (met.socket, met.early) = (self.stream.take(), std::mem::take(&mut self.early));
    }
}

impl Lent {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(self.get_mut().stream.as_mut().expect("the socket is present until the drop"))
    }

    fn poll_more(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(self).stream().poll_read(context, buffer);
        }
        buffer.put_slice(&self.early.split_to(self.early.len().min(buffer.remaining())));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = self.poll_more(context, buffer);
        let more = &buffer.filled()[before..];
        if !more.is_empty() {
            let mut met = self.takeover.met();
            met.heads.read(more);
            met.sent_more = true;
        }
        poll
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.takeover.met().heads.flushed();
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bytes contain one head and nothing after it. Checks every split of the bytes into two
    /// reads.
    fn alone(bytes: &str) -> bool {
        let whole = |pieces: &[&[u8]]| {
            let mut heads = Heads::default();
            for piece in pieces {
                heads.read(piece);
            }
            heads.is_alone()
        };
        let alone = whole(&[bytes.as_bytes()]);
        for at in 0..bytes.len() {
            let (one, two) = bytes.as_bytes().split_at(at);
            assert_eq!(whole(&[one, two]), alone, "{bytes:?} cut at {at}");
        }
        alone
    }

    #[test]
    fn a_request_is_alone_when_no_byte_comes_after_its_head() {
        let head = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        assert!(alone(head) && alone(&head.replace("\r\n", "\n")) && alone(&format!("x{head}")));
        for more in ["G", "\n", "\r\n", head, "GET / HTTP/1.1\n\n", "x\n\n"] {
            assert!(!alone(&format!("{head}{more}")), "{more:?}");
        }
        for part in ["", "GET / HTTP/1.1\r\nhost: a\r\n"] {
            assert!(!alone(part), "{part:?}");
        }
    }

    #[test]
    fn what_came_before_an_answer_counts_only_when_more_than_it_was_read() {
        let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut heads = Heads::default();
        for body in [&b""[..], b"{}", b"a\n\nb\r\n\r\n\n"] {
            heads.read(head);
            heads.read(body);
            heads.flushed();
            heads.read(head);
            assert!(heads.is_alone(), "{body:?}");
            heads.flushed();
            assert!(!heads.is_alone());
        }
        heads.read(head);
        heads.read(head);
        heads.flushed();
        assert!(!heads.is_alone(), "hyper parses the second head from its buffer");
    }
}
