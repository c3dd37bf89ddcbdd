//! A reader of a stream on a socket of its own: cheap enough for thousands, and its socket is the test's to misuse.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Gateway;
use super::History;
use super::gateway::KEY;
use super::history::{Frame as Shown, Log, Reader};
use super::wait::LONGEST;

/// The deadline for every expected byte.
const PATIENCE: Duration = Duration::from_secs(30);

/// One received frame, without the empty line at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame(pub(crate) String);

impl Frame {
    fn field(&self, name: &str) -> Option<&str> {
        self.0
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.field("id")
    }

    /// The position of an event in its session's log. `None` for events that are not in the log.
    pub(crate) fn seq(&self) -> Option<u64> {
        let (_, seq) = self.id()?.rsplit_once('-')?;
        seq.parse().ok()
    }

    pub(crate) fn of(&self, kind: &str) -> bool {
        self.field("event") == Some(kind)
    }
}

/// An open stream.
#[derive(Debug)]
pub(crate) struct Lean {
    socket: TcpStream,
    /// Received bytes that are not decoded yet.
    raw: Vec<u8>,
    /// Decoded bytes that are not a complete frame yet.
    body: Vec<u8>,
    /// The remaining bytes of the current chunk, including the end of its line.
    left: usize,
    /// The last chunk has arrived.
    ended: bool,
}

impl Gateway {
    pub(crate) fn address(&self) -> SocketAddr {
        self.url
            .trim_start_matches("http://")
            .parse()
            .expect("it listens on an address")
    }
}

/// The head of a request for a stream; `last` is its `Last-Event-ID`.
pub(crate) fn head(host: SocketAddr, path: &str, last: Option<&str>) -> String {
    let last = last
        .map(|id| format!("last-event-id: {id}\r\n"))
        .unwrap_or_default();
    format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         accept: text/event-stream\r\n{last}\r\n"
    )
}

/// A connection with a small receive buffer.
pub(crate) async fn connect_small(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(8 << 10)?;
    socket.connect(to).await
}

impl Lean {
    /// Fails when the connection ends before its answer does; panics at any other answer than a stream.
    pub(crate) async fn open(to: SocketAddr, path: &str, last: Option<&str>) -> io::Result<Self> {
        Self::over(TcpStream::connect(to).await?, to, path, last).await
    }

    /// The same over an existing connection. `host` is the gateway, independent of the peer.
    pub(crate) async fn over(
        mut socket: TcpStream,
        host: SocketAddr,
        path: &str,
        last: Option<&str>,
    ) -> io::Result<Self> {
        socket.write_all(head(host, path, last).as_bytes()).await?;
        Self::answered(socket).await
    }

    /// The stream that a request has opened which was sent already.
    pub(crate) async fn answered(socket: TcpStream) -> io::Result<Self> {
        let mut stream = Self {
            socket,
            raw: Vec::new(),
            body: Vec::new(),
            left: 0,
            ended: false,
        };
        let end = loop {
            if let Some(end) = memchr::memmem::find(&stream.raw, b"\r\n\r\n") {
                break end + 4;
            }
            stream.fill().await?;
        };
        let answer: Vec<u8> = stream.raw.drain(..end).collect();
        let answer = String::from_utf8(answer).expect("a head is text");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("text/event-stream"),
            "{answer}"
        );
        Ok(stream)
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.raw.reserve(4096);
        let read = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.raw));
        match read.await.expect("something comes within half a minute")? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Decodes the received chunks. Returns true if there were any.
    fn dechunk(&mut self) -> bool {
        /// The length of the line end after a chunk.
        const LINE: usize = 2;
        let mut at = 0;
        let before = self.body.len();
        while at < self.raw.len() {
            if self.left > 0 {
                let come = (self.raw.len() - at).min(self.left);
                // The last of it is the end of its line.
                let text = come.min(self.left.saturating_sub(LINE));
                self.body.extend_from_slice(&self.raw[at..at + text]);
                (at, self.left) = (at + come, self.left - come);
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', &self.raw[at..]) else {
                break;
            };
            let size = std::str::from_utf8(&self.raw[at..at + end]).expect("a size is text");
            let size = usize::from_str_radix(size.trim_end(), 16).expect("a size is a number");
            self.ended |= size == 0;
            self.left = size + LINE;
            at += end + 1;
        }
        self.raw.drain(..at);
        self.ended || self.body.len() > before
    }

    /// Waits for any data, including a comment.
    pub(crate) async fn until_data(&mut self) -> io::Result<()> {
        while !self.dechunk() {
            self.fill().await?;
        }
        Ok(())
    }

    /// The received frames, at least one. `None` at the end of the stream. Fails if the connection breaks.
    pub(crate) async fn frames(&mut self) -> io::Result<Option<Vec<Frame>>> {
        loop {
            let found = split(&mut self.body);
            if !found.is_empty() {
                return Ok(Some(found));
            }
            if self.ended {
                return Ok(None);
            }
            while !self.dechunk() {
                self.fill().await?;
            }
        }
    }
}

/// Removes the complete frames from the received bytes of a stream.
pub(crate) fn split(body: &mut Vec<u8>) -> Vec<Frame> {
    let mut found = Vec::new();
    let mut offset = 0;
    while let Some(end) = memchr::memmem::find(&body[offset..], b"\n\n") {
        let text = std::str::from_utf8(&body[offset..offset + end]).expect("a stream is UTF-8");
        found.push(Frame(text.to_owned()));
        offset += end + 2;
    }
    body.drain(..offset);
    found
}

/// A client of one session that records its events, and resumes with `Last-Event-ID` after a broken stream.
#[derive(Debug)]
pub(crate) struct Kept {
    host: SocketAddr,
    session: String,
    pub(crate) last: Option<String>,
    /// Seq of the last event that it saw.
    pub(crate) seq: u64,
    pub(crate) reader: Reader,
}

impl Kept {
    pub(crate) fn new(gateway: &Gateway, session: &str) -> Self {
        let sessions = [(session.to_owned(), 0)].into();
        let reader = Reader {
            name: "a client of the proxy".to_owned(),
            sessions,
            ..Reader::default()
        };
        Self {
            host: gateway.address(),
            session: session.to_owned(),
            last: None,
            seq: 0,
            reader,
        }
    }

    pub(crate) fn path(&self) -> String {
        format!("/v1/sessions/{}/events", self.session)
    }

    pub(crate) fn connections(&self) -> usize {
        self.reader
            .frames
            .iter()
            .filter(|shown| matches!(shown, Shown::Connected { .. }))
            .count()
    }

    /// Records a connection. Returns the cursor to resume after.
    pub(crate) fn asks(&mut self) -> Option<&str> {
        self.reader.frames.push(Shown::Connected {
            after: self.last.clone(),
        });
        self.last.as_deref()
    }

    pub(crate) async fn connect(&mut self, to: SocketAddr) -> io::Result<Lean> {
        let socket = TcpStream::connect(to).await?;
        let host = self.host;
        let path = self.path();
        Lean::over(socket, host, &path, self.asks()).await
    }

    /// Records the events. Returns whether they contain an event of this type.
    pub(crate) fn keep(&mut self, frames: &[Frame], until: &str) -> bool {
        let mut found = false;
        for frame in frames {
            let text = || Box::from(frame.field("data").expect("an event has data"));
            if frame.of("reset") || frame.of("problem") {
                let shown = if frame.of("reset") {
                    Shown::Reset(text())
                } else {
                    Shown::Problem(text())
                };
                self.reader.frames.push(shown);
            }
            found |= frame.of(until);
            let Some(id) = frame.id().filter(|_| {
                !["ready", "position", "end"]
                    .iter()
                    .any(|kind| frame.of(kind))
            }) else {
                continue;
            };
            self.last = Some(id.to_owned());
            self.seq = frame.seq().expect("<epoch>-<seq>");
            self.reader.frames.push(Shown::Event {
                id: Some(id.into()),
                text: text(),
            });
        }
        found
    }

    /// Reads on to an event of this type; fails when the stream breaks or ends before.
    pub(crate) async fn read(&mut self, stream: &mut Lean, until: &str) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let frames = stream.frames().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if self.keep(&frames, until) {
                return Ok(());
            }
            assert!(
                began.elapsed() < LONGEST,
                "{until} does not come, but after {}: {frames:?}",
                self.seq
            );
        }
    }

    /// The same, through every break.
    pub(crate) async fn follow(&mut self, to: SocketAddr, until: &str) {
        let mut found = false;
        self.go_on(to, |client, frames| {
            found |= client.keep(frames, until);
            found
        })
        .await;
    }

    /// Through every break to the event of this seq.
    pub(crate) async fn reach(&mut self, to: SocketAddr, seq: u64) {
        self.go_on(to, |client, frames| {
            client.keep(frames, "");
            client.seq >= seq
        })
        .await;
    }

    async fn go_on(
        &mut self,
        to: SocketAddr,
        mut is_over: impl FnMut(&mut Self, &[Frame]) -> bool,
    ) {
        let began = Instant::now();
        while began.elapsed() < 2 * PATIENCE {
            if let Ok(mut stream) = self.connect(to).await {
                while let Ok(Some(frames)) = stream.frames().await {
                    if is_over(self, &frames) {
                        return;
                    }
                    assert!(
                        began.elapsed() < 2 * PATIENCE,
                        "it comes no further than {}",
                        self.seq
                    );
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it comes no further than {}", self.seq);
    }
}

impl History {
    /// The received events of these clients of one session, up to the same end, and its log.
    pub(crate) async fn kept(gateway: &Gateway, session: &str, clients: Vec<Kept>) -> Self {
        let read_to = clients
            .iter()
            .map(|client| client.seq)
            .max()
            .unwrap_or_default();
        let events = gateway.log_texts(session, 0).await;
        let logs = [(
            session.to_owned(),
            Log {
                after: 0,
                events,
                read_to,
            },
        )]
        .into();
        let readers = clients.into_iter().map(|client| client.reader).collect();
        Self {
            logs,
            readers,
            ..Self::default()
        }
    }
}
