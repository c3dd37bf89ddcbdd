//! How a stream leaves its connection: the request is read, checked and routed like any other, and then hyper's
//! connection, whose buffers are most of the memory of an idle stream, is dropped and the stream has the socket.
//!
//! Only for HTTP/1.1, where a connection has one answer at a time. A complete stream hands its socket back, and a new hyper
//! connection serves the next request on it. The old connection's read buffer is gone by then. So this module counts
//! the heads in the bytes that hyper reads: if bytes of a later request may have been in the buffer, the socket closes
//! with its stream instead.

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

use super::accept::{ConnectionPermit, ReturnPath};
use super::stream_workers::{StreamWorkers, HijackedStream};
use super::layers::REQUEST_ID;
use super::stream::{StreamingBody, Stream};
use crate::shutdown::{Shutdown, lock_or_abort};
use crate::types::{Limits, Timestamp};

/// A connection's socket, which comes home when the connection is dropped.
#[derive(Debug)]
pub(super) struct HijackableIo {
    /// Until the drop.
    socket: Option<TcpStream>,
    /// Bytes that the client sent while the socket had no connection: they come first.
    read_buf: Bytes,
    hijack: Hijack,
}

/// Where the two sides meet: the answer that streams, and the socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Hijack(Arc<Mutex<Handoff>>);

#[derive(Debug, Default)]
struct Handoff {
    socket: Option<TcpStream>,
    /// Bytes that hyper has not read.
    read_buf: Bytes,
    pending: Option<PendingStream>,
    scanner: HeadScanner,
    /// The client sent something after the request that is being answered.
    sent_more: bool,
}

#[derive(Debug)]
struct PendingStream {
    stream: Box<Stream>,
    head: Bytes,
    /// The connection can serve another request after the stream.
    reusable: bool,
}

/// Finds the ends of heads (empty lines) in the bytes that hyper reads.
///
/// hyper reads on only when its buffer holds no whole head. So if the bytes since the last flush end with an empty line
/// and contain no other one, hyper's buffer is empty once it has parsed a request without a body.
#[derive(Debug, Default)]
struct HeadScanner {
    /// Empty lines since the last flush; no more than two are counted.
    blank_lines: u8,
    /// The last byte ended one.
    ends_with_head: bool,
    line: LineState,
}

/// The part of the unfinished line that was read.
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
        // A body, or requests in one packet: no need to look further until the next flush.
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
            (self.line, from) = (LineState::Empty, end + 1);
            self.blank_lines = self.blank_lines.saturating_add(u8::from(empty));
            self.ends_with_head = empty && from == bytes.len();
        }
        self.line = match (self.line, &bytes[from..]) {
            (line, []) => line,
            (LineState::Empty, [b'\r']) => LineState::CarriageReturn,
            _ => LineState::Text,
        };
    }

    /// An answer was written, so a client that does not pipeline sends the next head.
    fn response_flushed(&mut self) {
        (self.blank_lines, self.ends_with_head) = (0, false);
    }

    /// Whether a request that was just parsed is the last thing that was read.
    fn is_single_head(&self) -> bool {
        self.blank_lines == 1 && self.ends_with_head
    }
}

/// A request whose answer may leave its connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct HijackPermit {
    /// No byte came after the request, and the client did not ask for the connection's end.
    reusable: bool,
}

/// Whether the client closes the connection after this request.
fn requests_close(headers: &HeaderMap) -> bool {
    let options = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    options.flat_map(|value| value.split(',')).any(|option| option.trim().eq_ignore_ascii_case("close"))
}

impl Hijack {
    pub(super) fn wrap(stream: TcpStream, read_buf: Bytes) -> (HijackableIo, Self) {
        let hijack = Self::default();
        (HijackableIo { socket: Some(stream), read_buf, hijack: hijack.clone() }, hijack)
    }

    /// Whether the answer to a request may leave its connection: nothing of the request is to come, and the client
    /// understands chunks. Call it when hyper has just parsed the request.
    pub(super) fn permit_for(&self, request: &hyper::Request<Incoming>) -> Option<HijackPermit> {
        let hijackable = request.method() == Method::GET
            && request.version() == Version::HTTP_11
            && request.body().is_end_stream();
        let mut handoff = self.lock();
        handoff.sent_more = false;
        hijackable.then(|| HijackPermit { reusable: handoff.scanner.is_single_head() && !requests_close(request.headers()) })
    }

    fn lock(&self) -> MutexGuard<'_, Handoff> {
        lock_or_abort(self.0.lock())
    }

    /// Takes an answer that streams; true when it was one. Its connection is to be dropped then.
    pub(super) fn try_hijack(&self, response: &mut Response, HijackPermit { reusable }: HijackPermit) -> bool {
        let streaming = response.extensions_mut().remove::<StreamingBody>();
        let Some(mut stream) = streaming.and_then(|live| live.take()) else { return false };
        stream.set_request_id(response.headers().get(REQUEST_ID));
        let head = encode_head(response, stream.now());
        self.lock().pending = Some(PendingStream { stream, head, reusable });
        true
    }

    pub(super) fn is_pending(&self) -> bool {
        self.lock().pending.is_some()
    }

    /// Goes on without the connection, which was dropped, on a thread for streams, in a task that is as small as it can
    /// be. A complete stream hands the socket to `home`.
    pub(super) fn start_stream(self, permit: ConnectionPermit, return_path: ReturnPath, workers: &StreamWorkers, limits: &Limits, shutdown: &Shutdown) {
        let mut handoff = self.lock();
        let (socket, asks) = (handoff.socket.take(), handoff.pending.take());
        let (read_buf, sent_more) = (std::mem::take(&mut handoff.read_buf), handoff.sent_more);
        drop(handoff);
        if let (Some(socket), Some(PendingStream { stream, head, reusable })) = (socket, asks) {
            let buffer = limits.stream_buffer_bytes.min(limits.send_buffer_bytes);
            if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, buffer) {
                tracing::debug!(%error, "a socket keeps its buffer");
            }
            let home = (reusable && !sent_more).then(|| Box::new(return_path));
            if let Err(error) = workers.spawn(HijackedStream { stream, head, socket, permit, return_path: home, read_buf }, shutdown) {
                tracing::warn!(%error, "a stream did not get its socket");
            }
        }
    }
}

/// The answer's head. Its body comes in chunks. It never has `Connection: close`: with that header, Node's fetch accepts a body
/// that was cut as complete.
fn encode_head(response: &mut Response, now: Timestamp) -> Bytes {
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

impl Drop for HijackableIo {
    fn drop(&mut self) {
        let mut met = self.hijack.lock();
        (met.socket, met.read_buf) = (self.socket.take(), std::mem::take(&mut self.read_buf));
    }
}

impl HijackableIo {
    fn socket_mut(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(self.get_mut().socket.as_mut().expect("it is there until the drop"))
    }

    fn poll_read_inner(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read_buf.is_empty() {
            return Pin::new(self).socket_mut().poll_read(context, buffer);
        }
        buffer.put_slice(&self.read_buf.split_to(self.read_buf.len().min(buffer.remaining())));
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for HijackableIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let poll = self.poll_read_inner(context, buffer);
        let more = &buffer.filled()[before..];
        if !more.is_empty() {
            let mut met = self.hijack.lock();
            met.scanner.read(more);
            met.sent_more = true;
        }
        poll
    }
}

impl AsyncWrite for HijackableIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket_mut().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket_mut().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.hijack.lock().scanner.response_flushed();
        self.socket_mut().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket_mut().poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a request is alone after these bytes, for every way to cut them in two.
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
        assert!(is_single(head) && is_single(&head.replace("\r\n", "\n")) && is_single(&format!("x{head}")));
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
        assert!(!heads.is_single_head(), "the second is parsed from the buffer");
    }
}
