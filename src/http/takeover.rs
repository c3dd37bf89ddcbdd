//! How a stream leaves its connection: the request is read, checked and routed like any other, and then hyper's
//! connection, whose buffers are most of what an idle stream would cost, is dropped and the stream has the socket.
//!
//! Only for HTTP/1.1, where a connection has one answer at a time. It ends with its stream, as the answer says: what
//! the client sent beyond the request went with the buffers.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Method, Version, header};
use hyper::body::{Body, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::accept::Held;
use super::lanes::{Lanes, Leaves};
use super::layers::REQUEST_ID;
use super::stream::{Live, Stream};
use crate::shutdown::{Shutdown, sound};
use crate::types::{Limits, Timestamp};

/// A connection's socket, which comes home when the connection is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    /// Until the drop.
    stream: Option<TcpStream>,
    takeover: Takeover,
}

/// Where the two sides meet: the answer that streams, and the socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Takeover(Arc<Mutex<Met>>);

#[derive(Debug, Default)]
struct Met {
    socket: Option<TcpStream>,
    asks: Option<Asks>,
}

#[derive(Debug)]
struct Asks {
    stream: Box<Stream>,
    head: Bytes,
}

/// Whether an answer to this may leave its connection: nothing of the request is to come, and chunks are understood.
pub(super) fn may_leave(request: &hyper::Request<Incoming>) -> bool {
    request.method() == Method::GET && request.version() == Version::HTTP_11 && request.body().is_end_stream()
}

impl Takeover {
    pub(super) fn lend(stream: TcpStream) -> (Lent, Self) {
        let takeover = Self::default();
        (Lent { stream: Some(stream), takeover: takeover.clone() }, takeover)
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        sound(self.0.lock())
    }

    /// Takes an answer that streams; true when it was one. Its connection is to be dropped then.
    pub(super) fn takes(&self, response: &mut Response) -> bool {
        let live = response.extensions_mut().remove::<Live>();
        let Some(mut stream) = live.and_then(|live| live.take()) else { return false };
        stream.of_request(response.headers().get(REQUEST_ID));
        let head = head(response, stream.now());
        self.met().asks = Some(Asks { stream, head });
        true
    }

    pub(super) fn is_asked(&self) -> bool {
        self.met().asks.is_some()
    }

    /// Goes on without the connection, which was dropped, on a thread for streams, in a task that is as small as it can be.
    pub(super) fn begin(self, held: Held, lanes: &Lanes, limits: &Limits, shutdown: &Shutdown) {
        let mut met = self.met();
        let (socket, asks) = (met.socket.take(), met.asks.take());
        drop(met);
        if let (Some(socket), Some(Asks { stream, head })) = (socket, asks) {
            let buffer = limits.stream_buffer_bytes.min(limits.send_buffer_bytes);
            if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, buffer) {
                tracing::debug!(%error, "a socket keeps its buffer");
            }
            if let Err(error) = lanes.begin(Leaves { stream, head, socket, held }, shutdown) {
                tracing::warn!(%error, "a stream did not get its socket");
            }
        }
    }
}

/// The answer's head. Its body comes in chunks, and ends the connection.
fn head(response: &mut Response, now: Timestamp) -> Bytes {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
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
        self.takeover.met().socket = self.stream.take();
    }
}

impl Lent {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(self.get_mut().stream.as_mut().expect("it is there until the drop"))
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
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
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
