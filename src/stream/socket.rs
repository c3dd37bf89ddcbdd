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

use super::chunk::{ChunkCache, ChunkWriter, MAX_PIECES};
use super::sink::{Disconnected, Parked, StreamSink};
use base::shutdown::lock_or_abort;
use log::eventlog::{Delivery, DirectSink, NotReady};

/// The limit of the bytes that a client may send before its stream is complete. They belong to its next
/// requests.
const MAX_EARLY_BYTES: usize = 64 << 10;

pub(crate) trait SocketOwner: Send {
    /// Reclaims the socket after a complete stream. `read_buf` has the bytes that the client sent early.
    fn reclaim(self: Box<Self>, socket: TcpStream, read_buf: Bytes);
}

pub(super) struct SocketSink {
    shared: Arc<SharedSocket>,
    owner: Box<dyn SocketOwner>,
    ended: bool,
    progressed: bool,
    read_buf: Vec<u8>,
}

#[derive(derive_more::Debug)]
#[debug("SharedSocket")]
struct SharedSocket {
    stream: TcpStream,
    chunk_cache: Arc<ChunkCache>,
    outgoing: Mutex<Outgoing>,
}

struct Outgoing {
    parked: Option<Parked>,
    writer: ChunkWriter,
}

impl SocketSink {
    /// A sink for a response with this head, which announces a chunked body. `read_buf` has bytes that the
    /// client sent after its request.
    pub(super) fn new(
        socket: TcpStream,
        head: Bytes,
        read_buf: Bytes,
        owner: Box<dyn SocketOwner>,
        chunk_cache: Arc<ChunkCache>,
    ) -> Self {
        let outgoing = Outgoing {
            parked: None,
            writer: ChunkWriter::with_head(head),
        };
        Self {
            shared: Arc::new(SharedSocket {
                stream: socket,
                chunk_cache,
                outgoing: Mutex::new(outgoing),
            }),
            owner,
            ended: false,
            progressed: false,
            read_buf: read_buf.into(),
        }
    }
}

impl SharedSocket {
    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        lock_or_abort(self.outgoing.lock())
    }

    /// Writes the encoded chunk until it is complete or the peer accepts no more. Returns whether any bytes
    /// were written, and the result.
    fn write(&self, chunk: &mut ChunkWriter) -> (bool, io::Result<()>) {
        let mut any = false;
        while !chunk.finish_if_written() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES + 3];
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

impl DirectSink for SharedSocket {
    fn try_deliver(&self) -> Delivery {
        let Outgoing { parked, writer } = &mut *self.lock();
        // Unfinished chunks and signals belong to the task of the stream, which may not know of them yet.
        let Some(parked) = parked else {
            return Delivery::WakeTask;
        };
        if writer.is_started() || parked.timer.is_signalled() {
            return Delivery::WakeTask;
        }
        let not_ready = parked.fill(writer);
        writer.start(false, &self.chunk_cache);
        let (any, written) = self.write(writer);
        // The task flushes the rest, but the data counts as sent now.
        if any || writer.is_started() {
            parked.timer.data_sent();
        }
        match (written, not_ready) {
            // The task flushes the rest, reads the store, or ends the stream.
            (Err(_), _) | (Ok(()), Some(NotReady::ReadStore)) => Delivery::WakeTask,
            (Ok(()), Some(NotReady::AtTail)) => Delivery::CaughtUp,
            (Ok(()), None) => Delivery::More,
        }
    }
}

/// Sends with `send` or `sendmsg`: `write` on a socket passes through the general file path of the kernel.
fn send(stream: &TcpStream, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    if let [whole] = slices {
        return Ok(net::send(stream, whole, flags)?);
    }
    let mut ancillary = SendAncillaryBuffer::default();
    Ok(net::sendmsg(stream, slices, &mut ancillary, flags)?)
}

impl StreamSink for SocketSink {
    fn push(&mut self, piece: Bytes) {
        self.shared.lock().writer.push(piece);
    }

    fn is_full(&self) -> bool {
        self.shared.lock().writer.is_full()
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        let shared = &*self.shared;
        let chunk = &mut shared.lock().writer;
        chunk.start(self.ended, &shared.chunk_cache);
        while !chunk.finish_if_written() {
            let written = shared.stream.try_io(Interest::WRITABLE, || {
                let (any, written) = shared.write(chunk);
                self.progressed |= any;
                written
            });
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(shared.stream.poll_write_ready(context)).map_err(|_| Disconnected)?;
                }
                Err(_) => return Poll::Ready(Err(Disconnected)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn took_progress(&mut self) -> Option<bool> {
        Some(std::mem::take(&mut self.progressed))
    }

    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut discarded = [0; 512];
        loop {
            if ready!(self.shared.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(());
            }
            match self.shared.stream.try_read(&mut discarded) {
                Ok(0) => return Poll::Ready(()),
                Ok(read) => self.read_buf.extend_from_slice(&discarded[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(()),
            }
            if self.read_buf.len() > MAX_EARLY_BYTES {
                return Poll::Ready(());
            }
        }
    }

    fn direct_sink(&self) -> Option<Arc<dyn DirectSink>> {
        Some(Arc::<SharedSocket>::clone(&self.shared))
    }

    fn park(&mut self, parked: Parked) {
        self.shared.lock().parked = Some(parked);
    }

    fn unpark(&mut self) -> Option<Parked> {
        self.shared.lock().parked.take()
    }

    fn finish(self) {
        if let Some(shared) = Arc::into_inner(self.shared) {
            self.owner.reclaim(shared.stream, self.read_buf.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::sync::watch;

    use super::super::keep_alive::{KeepAlive, KeepAliveTicker, Timer};
    use super::*;
    use crate::stream::limits::Limits;
    use base::shutdown::Shutdown;
    use log::eventlog::testing::{in_time, memory_log, open, say};
    use log::eventlog::{EventLog, Item, Reader, SessionLog, Start};

    /// A socket with small kernel buffers, and the other end.
    async fn shared_socket() -> (SharedSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let socket = TcpSocket::new_v4().expect("a new socket");
        socket
            .set_recv_buffer_size(8 << 10)
            .expect("the receive buffer size is valid");
        let other = socket
            .connect(listener.local_addr().expect("the listener has an address"))
            .await
            .expect("the listener accepts");
        let (stream, _) = listener.accept().await.expect("the connection arrived");
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 8 << 10)
            .expect("the send buffer size is valid");
        let outgoing = Outgoing {
            parked: None,
            writer: ChunkWriter::with_head(Bytes::new()),
        };
        let shared = SharedSocket {
            stream,
            chunk_cache: Arc::default(),
            outgoing: Mutex::new(outgoing),
        };
        (shared, other)
    }

    fn tail_reader(session: &SessionLog) -> Reader {
        let mut reader = session.reader(Start::Tail);
        assert!(matches!(reader.try_next(), Ok(Item::Ready { .. })));
        assert_eq!(reader.try_next(), Err(NotReady::AtTail));
        reader
    }

    async fn append_event(session: &SessionLog) {
        let seq = say(session, &format!("\"text\":\"{}\"", "x".repeat(3000)));
        in_time(session.wait(seq)).await.expect("the log is open");
    }

    /// A log, a reader at its end, and the socket of the reader.
    struct Fixture {
        log: EventLog,
        session: SessionLog,
        reader: Reader,
        keys: watch::Sender<u64>,
        keep_alive: KeepAlive,
        peer: SharedSocket,
        other: TcpStream,
    }

    async fn fixture() -> Fixture {
        let log = memory_log(log::limits::Limits::default());
        let keys = watch::Sender::new(0);
        let (peer, other) = shared_socket().await;
        let session = open(&log, 1).await;
        let reader = tail_reader(&session);
        let keep_alive = KeepAliveTicker::new(
            &Limits::default(),
            Shutdown::new(),
            keys.subscribe(),
            log.watch_grants(),
        )
        .register();
        keep_alive.take_signal();
        Fixture {
            log,
            session,
            reader,
            keys,
            keep_alive,
            peer,
            other,
        }
    }

    fn parked(reader: &Reader, keep_alive: &KeepAlive) -> Parked {
        let cursor = reader.tail_cursor().expect("the reader has one session");
        Parked {
            cursor,
            timer: Timer::clone(keep_alive),
        }
    }

    #[tokio::test]
    async fn partial_write_is_completed_by_the_stream_task() {
        let Fixture {
            log,
            session,
            mut reader,
            keys: _keys,
            keep_alive,
            peer,
            mut other,
        } = fixture().await;
        peer.lock().parked = Some(parked(&reader, &keep_alive));
        assert_eq!(
            peer.try_deliver(),
            Delivery::CaughtUp,
            "there are no events"
        );
        let mut events = 0;
        loop {
            append_event(&session).await;
            events += 1;
            match peer.try_deliver() {
                Delivery::CaughtUp => assert!(events < 1000, "the socket buffer never fills"),
                delivery => break assert_eq!(delivery, Delivery::WakeTask),
            }
        }
        assert!(events > 1);
        append_event(&session).await;
        let left = peer.lock().writer.gathered();
        assert_eq!(
            (peer.try_deliver(), peer.lock().writer.gathered()),
            (Delivery::WakeTask, left),
            "nothing is added"
        );
        let Parked { cursor, .. } = peer.lock().parked.take().expect("the stream is parked");
        assert_eq!(cursor.cursor(), events);
        assert_eq!(
            peer.try_deliver(),
            Delivery::WakeTask,
            "the stream is no longer parked"
        );

        let mut expected = Vec::new();
        let mut came = Vec::new();
        for _ in 0..events {
            let Ok(Item::Run(run)) = reader.try_next() else {
                panic!("expected a run for each event")
            };
            expected.extend(format!("{:x}\r\n", run.frames.len()).into_bytes());
            expected.extend_from_slice(&run.frames);
            expected.extend_from_slice(b"\r\n");
        }
        while came.len() < expected.len() {
            assert!(
                in_time(other.read_buf(&mut came))
                    .await
                    .expect("the socket is open")
                    > 0
            );
            drop(peer.write(&mut peer.lock().writer));
        }
        assert!(
            came == expected,
            "{} bytes, {} expected",
            came.len(),
            expected.len()
        );
        assert!(peer.lock().writer.finish_if_written());
        log.close().await;
    }

    #[tokio::test]
    async fn data_that_the_peer_does_not_read_counts_as_sent() {
        let Fixture {
            log,
            session,
            reader,
            keys: _keys,
            keep_alive,
            peer,
            other,
        } = fixture().await;
        while send(&peer.stream, &[IoSlice::new(&[b' '; 4096])]).is_ok() {}
        peer.lock().parked = Some(parked(&reader, &keep_alive));
        assert_eq!(
            peer.try_deliver(),
            Delivery::CaughtUp,
            "there are no events"
        );
        assert!(
            !peer
                .lock()
                .parked
                .take()
                .expect("the stream is parked")
                .timer
                .is_armed()
        );
        peer.lock().parked = Some(parked(&reader, &keep_alive));
        append_event(&session).await;
        assert_eq!(peer.try_deliver(), Delivery::WakeTask);
        assert!(
            peer.lock().writer.is_started()
                && peer
                    .lock()
                    .parked
                    .take()
                    .expect("the stream is parked")
                    .timer
                    .is_armed()
        );
        drop(other);
        log.close().await;
    }

    #[tokio::test]
    async fn stream_ends_with_its_key() {
        let Fixture {
            log,
            session,
            reader,
            keys,
            keep_alive,
            peer,
            other,
        } = fixture().await;
        peer.lock().parked = Some(parked(&reader, &keep_alive));
        keys.send_replace(1);
        in_time(async {
            while !keep_alive.is_signalled() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        append_event(&session).await;
        assert_eq!(peer.try_deliver(), Delivery::WakeTask);
        assert_eq!(
            peer.lock()
                .parked
                .take()
                .map(|parked| parked.cursor.cursor()),
            Some(0)
        );
        drop(peer);
        assert_eq!(
            in_time(other.readable())
                .await
                .and_then(|()| other.try_read(&mut [0; 9]))
                .ok(),
            Some(0)
        );
        log.close().await;
    }
}
