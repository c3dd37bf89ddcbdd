//! A stream on a socket of its own, without the buffers of an HTTP connection: what an idle one holds is the socket.
//!
//! All that there is to say at a time is one write, of bytes that all readers share.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::net::{self, SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::chunk::{Chunk, Made, PIECES};
use super::follow::{Gone, Wire};
use crate::http::accept::Held;

/// What is gathered for one write. For a client that takes nothing more so much of the log is kept.
const GATHERED: usize = 64 << 10;
/// What a client may say after its request. It is not listened to, but for its end.
const IGNORED: usize = 64 << 10;

/// The way to one client.
#[derive(Debug)]
pub(in crate::http) struct Socket {
    stream: TcpStream,
    _held: Held,
    chunk: Chunk,
    made: Arc<Made>,
    ended: bool,
    progressed: bool,
    ignored: usize,
}

impl Socket {
    /// For an answer that begins with this head, which says that its body comes in chunks and that the connection ends with it.
    pub(in crate::http) fn new(stream: TcpStream, held: Held, begins: Bytes, made: Arc<Made>) -> Self {
        let chunk = Chunk::after(begins);
        Self { stream, _held: held, chunk, made, ended: false, progressed: false, ignored: 0 }
    }
}

/// As a message, since a write goes to a socket through all that is made for files.
fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if let [whole] = slices {
        return Ok(net::send(stream, whole, flags)?);
    }
    Ok(net::sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

impl Wire for Socket {
    fn push(&mut self, piece: Bytes) {
        self.chunk.push(piece);
    }

    fn is_full(&self) -> bool {
        let (bytes, pieces) = self.chunk.gathered();
        bytes >= GATHERED || pieces >= PIECES
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.chunk.begin(self.ended, &self.made);
        while !self.chunk.is_over() {
            let mut slices = [IoSlice::new(&[]); PIECES + 3];
            let count = self.chunk.slices(&mut slices);
            match self.stream.try_io(Interest::WRITABLE, || send(&self.stream, &slices[..count])) {
                Ok(0) => return Poll::Ready(Err(Gone)),
                Ok(written) => {
                    self.chunk.advance(written);
                    self.progressed = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(context)).map_err(|_| Gone)?;
                }
                Err(_) => return Poll::Ready(Err(Gone)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn took(&mut self) -> Option<bool> {
        Some(std::mem::take(&mut self.progressed))
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut said = [0; 512];
        loop {
            if ready!(self.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(());
            }
            match self.stream.try_read(&mut said) {
                Ok(0) => return Poll::Ready(()),
                Ok(read) => self.ignored += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
            if self.ignored > IGNORED {
                return Poll::Ready(());
            }
        }
    }
}
