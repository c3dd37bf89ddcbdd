//! A stream that writes to its socket without the buffers of an HTTP connection. An idle stream needs little
//! more than the socket.
//!
//! All pending events are one write, of bytes that all readers share. While a stream waits, the notifier
//! writes new events directly. The task, the timers and the readiness registration of the stream remain idle.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::net::{self, SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::chunk::{Chunk, Made, PIECES};
use super::follow::{Gone, Waits, Wire};
use crate::eventlog::{Later, Outlet, Took};
use crate::http::accept::{Held, Home};
use crate::shutdown::sound;

/// The limit of the bytes for one write. A client that does not read keeps this much of the log in memory.
const GATHERED: usize = 64 << 10;
/// The limit of the bytes that a client may send before its stream is complete. They belong to its next
/// requests.
const EARLY: usize = 64 << 10;

/// The sink of a stream, owned by its task.
#[derive(Debug)]
pub(in crate::http) struct Socket {
    peer: Arc<Peer>,
    held: Held,
    home: Option<Box<Home>>,
    ended: bool,
    progressed: bool,
    /// Bytes that the client sent after its request.
    early: Vec<u8>,
}

/// The socket, shared by the task of the stream and by direct delivery.
#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    made: Arc<Made>,
    out: Mutex<Outgoing>,
}

#[derive(Debug)]
struct Outgoing {
    waits: Option<Waits>,
    chunk: Chunk,
}

impl Socket {
    /// A sink for a response with this head, which announces a chunked body.
    pub(in crate::http) fn new(stream: TcpStream, held: Held, begins: Bytes, made: Arc<Made>) -> Self {
        let peer = Arc::new(Peer::new(stream, begins, made));
        Self { peer, held, home: None, ended: false, progressed: false, early: Vec::new() }
    }

    /// Returns the socket through `return_path` after a complete stream. `read_buf` has the bytes that the
    /// client sent early.
    pub(in crate::http) fn and_then(self, home: Option<Box<Home>>, early: Bytes) -> Self {
        Self { home, early: early.into(), ..self }
    }
}

impl Peer {
    fn new(stream: TcpStream, begins: Bytes, made: Arc<Made>) -> Self {
        Self { stream, made, out: Mutex::new(Outgoing { waits: None, chunk: Chunk::after(begins) }) }
    }

    fn out(&self) -> MutexGuard<'_, Outgoing> {
        sound(self.out.lock())
    }

    /// Writes the encoded chunk until it is complete or the peer accepts no more. Returns whether any bytes
    /// were written, and the result.
    fn write(&self, chunk: &mut Chunk) -> (bool, io::Result<()>) {
        let mut any = false;
        while !chunk.is_over() {
            let mut slices = [IoSlice::new(&[]); PIECES + 3];
            let count = chunk.slices(&mut slices);
            match send(&self.stream, &slices[..count]) {
                Ok(0) => return (any, Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => chunk.advance(written),
                Err(error) => return (any, Err(error)),
            }
            any = true;
        }
        (any, Ok(()))
    }
}

impl Outlet for Peer {
    fn take(&self) -> Took {
        let Outgoing { waits, chunk } = &mut *self.out();
        // Unfinished chunks and signals belong to the task of the stream, which may not know of them yet.
        let Some(Waits { place, deputy }) =
            waits.as_mut().filter(|waits| !chunk.is_begun() && !waits.deputy.is_signalled())
        else {
            return Took::Nothing;
        };
        let mut later = None;
        while !is_full(chunk) && later.is_none() {
            match place.try_next() {
                Ok(run) => chunk.push(run.frames),
                Err(why) => later = Some(why),
            }
        }
        chunk.begin(false, &self.made);
        let (any, written) = self.write(chunk);
        // The task flushes the rest, but the data counts as sent now.
        if any || chunk.is_begun() {
            deputy.told();
        }
        match (written, later) {
            // The task flushes the rest, reads the store, or ends the stream.
            (Err(_), _) | (Ok(()), Some(Later::Read)) => Took::Nothing,
            (Ok(()), Some(Later::Wait)) => Took::All,
            (Ok(()), None) => Took::Part,
        }
    }
}

fn is_full(chunk: &Chunk) -> bool {
    let (bytes, pieces) = chunk.gathered();
    bytes >= GATHERED || pieces >= PIECES
}

/// Sends with `send` or `sendmsg`: `write` on a socket passes through the general file path of the kernel.
fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if let [whole] = slices {
        return Ok(net::send(stream, whole, flags)?);
    }
    Ok(net::sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
}

impl Wire for Socket {
    fn push(&mut self, piece: Bytes) {
        self.peer.out().chunk.push(piece);
    }

    fn is_full(&self) -> bool {
        is_full(&self.peer.out().chunk)
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let Self { peer, ended, progressed, .. } = self;
        let chunk = &mut peer.out().chunk;
        chunk.begin(*ended, &peer.made);
        while !chunk.is_over() {
            let written = peer.stream.try_io(Interest::WRITABLE, || {
                let (any, written) = peer.write(chunk);
                *progressed |= any;
                written
            });
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(peer.stream.poll_write_ready(context)).map_err(|_| Gone)?;
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
            if ready!(self.peer.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(());
            }
            match self.peer.stream.try_read(&mut said) {
                Ok(0) => return Poll::Ready(()),
                Ok(read) => self.early.extend_from_slice(&said[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
            if self.early.len() > EARLY {
                return Poll::Ready(());
            }
        }
    }

    fn outlet(&self) -> Option<Arc<dyn Outlet>> {
        Some(Arc::<Peer>::clone(&self.peer))
    }

    fn leave(&mut self, waits: Waits) {
        self.peer.out().waits = Some(waits);
    }

    fn come_back(&mut self) -> Option<Waits> {
        self.peer.out().waits.take()
    }

    /// Serves the next request on the socket. Without a return path, the socket closes.
    fn complete(self) {
        let Self { peer, held, home, early, .. } = self;
        if let (Some(home), Some(peer)) = (home, Arc::into_inner(peer)) {
            home.serve(peer.stream, held, early.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::sync::watch;

    use super::super::pulse::{Heart, Pulse};
    use super::*;
    use crate::eventlog::tests::{in_time, memory_log, open, say};
    use crate::eventlog::{EventLog, Item, Reader, SessionLog, Start};
    use crate::shutdown::Shutdown;
    use crate::types::Limits;

    /// A socket with small kernel buffers, and the other end.
    async fn peer() -> (Peer, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let socket = TcpSocket::new_v4().expect("a new socket");
        socket.set_recv_buffer_size(8 << 10).expect("the receive buffer size is valid");
        let other = socket
            .connect(listener.local_addr().expect("the listener has an address"))
            .await
            .expect("the listener accepts");
        let (stream, _) = listener.accept().await.expect("the connection arrived");
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 8 << 10)
            .expect("the send buffer size is valid");
        (Peer::new(stream, Bytes::new(), Arc::default()), other)
    }

    fn waiting(session: &SessionLog) -> Reader {
        let mut reader = session.reader(Start::Tail);
        assert!(matches!(reader.try_next(), Ok(Item::Ready { .. })));
        assert_eq!(reader.try_next(), Err(Later::Wait));
        reader
    }

    async fn said(session: &SessionLog) {
        let seq = say(session, &format!("\"text\":\"{}\"", "x".repeat(3000)));
        in_time(session.wait(seq)).await.expect("the log is open");
    }

    /// A log, a reader at its end, and the socket of the reader.
    struct Scene {
        log: EventLog,
        session: SessionLog,
        reader: Reader,
        keys: watch::Sender<u64>,
        heart: Heart,
        peer: Peer,
        other: TcpStream,
    }

    async fn scene() -> Scene {
        let (log, keys, (peer, other)) = (memory_log(Limits::default()), watch::Sender::new(0), peer().await);
        let session = open(&log, 1).await;
        let reader = waiting(&session);
        let mut heart = Pulse::new(&Limits::default(), Shutdown::new(), keys.subscribe()).enter();
        heart.look();
        Scene { log, session, reader, keys, heart, peer, other }
    }

    fn waits(reader: &Reader, heart: &Heart) -> Waits {
        Waits { place: reader.place(), deputy: heart.deputy() }
    }

    #[tokio::test]
    async fn what_its_peer_does_not_take_is_left_to_the_stream_and_nothing_is_added() {
        let Scene { log, session, mut reader, keys: _keys, heart, peer, mut other } = scene().await;
        peer.out().waits = Some(waits(&reader, &heart));
        assert_eq!(peer.take(), Took::All, "there are no events");
        let mut events = 0;
        loop {
            said(&session).await;
            events += 1;
            match peer.take() {
                Took::All => assert!(events < 1000, "the socket buffer never fills"),
                took => break assert_eq!(took, Took::Nothing),
            }
        }
        assert!(events > 1);
        said(&session).await;
        let left = peer.out().chunk.gathered();
        assert_eq!((peer.take(), peer.out().chunk.gathered()), (Took::Nothing, left), "nothing is added");
        let Waits { place, .. } = peer.out().waits.take().expect("the stream is parked");
        assert_eq!(place.cursor(), events);
        assert_eq!(peer.take(), Took::Nothing, "the stream is no longer parked");

        let (mut expected, mut came) = (Vec::new(), Vec::new());
        for _ in 0..events {
            let Ok(Item::Run(run)) = reader.try_next() else { panic!("expected a run for each event") };
            expected.extend(format!("{:x}\r\n", run.frames.len()).into_bytes());
            expected.extend_from_slice(&run.frames);
            expected.extend_from_slice(b"\r\n");
        }
        while came.len() < expected.len() {
            assert!(in_time(other.read_buf(&mut came)).await.expect("the socket is open") > 0);
            drop(peer.write(&mut peer.out().chunk));
        }
        assert!(came == expected, "{} bytes, {} expected", came.len(), expected.len());
        assert!(peer.out().chunk.is_over());
        log.close().await;
    }

    #[tokio::test]
    async fn what_its_peer_takes_nothing_of_counts_as_said_once_the_stream_flushes_it() {
        let Scene { log, session, reader, keys: _keys, heart, peer, other } = scene().await;
        while send(&peer.stream, &[IoSlice::new(&[b' '; 4096])]).is_ok() {}
        peer.out().waits = Some(waits(&reader, &heart));
        assert_eq!(peer.take(), Took::All, "there are no events");
        assert!(!peer.out().waits.take().expect("the stream is parked").deputy.has_told());
        peer.out().waits = Some(waits(&reader, &heart));
        said(&session).await;
        assert_eq!(peer.take(), Took::Nothing);
        assert!(
            peer.out().chunk.is_begun()
                && peer.out().waits.take().expect("the stream is parked").deputy.has_told()
        );
        drop(other);
        log.close().await;
    }

    #[tokio::test]
    async fn nothing_is_said_to_a_peer_whose_key_ended() {
        let Scene { log, session, reader, keys, heart, peer, other } = scene().await;
        peer.out().waits = Some(waits(&reader, &heart));
        keys.send_replace(1);
        in_time(async {
            while !heart.is_signalled() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        said(&session).await;
        assert_eq!(peer.take(), Took::Nothing);
        assert_eq!(peer.out().waits.take().map(|waits| waits.place.cursor()), Some(0));
        drop(peer);
        assert_eq!(in_time(other.readable()).await.and_then(|()| other.try_read(&mut [0; 9])).ok(), Some(0));
        log.close().await;
    }
}
