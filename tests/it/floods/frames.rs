//! HTTP/2 frames, written byte by byte.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// A type that no specification defines.
pub(crate) const UNKNOWN: u8 = 0xbe;

pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len())
        .expect("a short payload")
        .to_be_bytes()[1..]
        .to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The id of the client's stream with this number.
pub(crate) fn stream(number: u32) -> u32 {
    number * 2 + 1
}

/// The header block of a `GET` to a host without a key.
pub(crate) fn get(path: &str, host: SocketAddr) -> Vec<u8> {
    // `:method: GET` and `:scheme: http` of the static table. The other fields are literals with its names.
    let mut block = vec![0x82, 0x86];
    for (name, value) in [(0x04, path), (0x01, &*host.to_string())] {
        block.extend([name, u8::try_from(value.len()).expect("a short value")]);
        block.extend(value.as_bytes());
    }
    block
}

/// The same with a `POST`.
pub(crate) fn post(path: &str, host: SocketAddr) -> Vec<u8> {
    let mut block = get(path, host);
    block[0] = 0x83;
    block
}

/// A connection that has sent its preface and its settings.
pub(crate) async fn open(host: SocketAddr, settings: &[u8]) -> std::io::Result<TcpStream> {
    let mut socket = TcpStream::connect(host).await?;
    socket
        .write_all(&[PREFACE, &frame(SETTINGS, 0, 0, settings)].concat())
        .await?;
    Ok(socket)
}

/// Reads frames until one has this type and these flags. Returns the code of a GOAWAY as an error.
pub(crate) async fn until(socket: &mut TcpStream, kind: u8, flags: u8) -> std::io::Result<()> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        socket.read_exact(&mut payload).await?;
        if head[3] == 7 {
            return Err(std::io::Error::other(format!("GOAWAY {payload:?}")));
        }
        if head[3] == kind && head[4] & flags == flags {
            return Ok(());
        }
    }
}

/// Reads and drops everything until the connection ends. Returns whether it ends in time.
pub(crate) async fn ends(
    socket: &mut (impl tokio::io::AsyncRead + Unpin),
    limit: Duration,
) -> bool {
    let mut buffer = vec![0; 16 << 10];
    let end = async { while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {} };
    tokio::time::timeout(limit, end).await.is_ok()
}

/// A known flood: its first frames, and the frames that repeat.
#[derive(Clone)]
pub(crate) struct Flood {
    pub(crate) settings: &'static [u8],
    pub(crate) first: Vec<u8>,
    pub(crate) next: NextFrames,
    /// The header block of the repeated requests.
    pub(crate) block: Vec<u8>,
}

pub(crate) const FLOODS: [&str; 13] = [
    "priority",
    "settings",
    "ping",
    "acknowledgement",
    "window update",
    "empty data",
    "single bytes",
    "unknown",
    "continuation",
    "large continuation",
    "rapid reset",
    "reset by the gateway",
    "requests without a window",
];

/// The frames with a number. The second argument is a header block.
type NextFrames = fn(u32, &[u8]) -> Vec<u8>;

impl Flood {
    pub(crate) fn named(name: &str, host: SocketAddr) -> Self {
        let post = frame(HEADERS, END_HEADERS, 1, &post("/v1/sessions", host));
        let start = frame(HEADERS, END_STREAM, 1, &[0x82]);
        let (first, next): (_, NextFrames) = match name {
            "priority" => (post, |number, _| {
                frame(PRIORITY, 0, stream(number + 1), &[0, 0, 0, 0, 15])
            }),
            "settings" => (post, |number, _| {
                let window = (number % 60_000).to_be_bytes();
                frame(SETTINGS, 0, 0, &[&[0, 4][..], &window].concat())
            }),
            "ping" => (post, |_, _| frame(PING, 0, 0, b"attacker")),
            "acknowledgement" => (post, |_, _| frame(PING, ACK, 0, b"attacker")),
            "window update" => (post, |_, _| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
            "empty data" => (post, |_, _| frame(DATA, 0, 1, b"")),
            "single bytes" => (post, |_, _| frame(DATA, 0, 1, b"x")),
            "unknown" => (post, |_, _| frame(UNKNOWN, 0, 0, b"")),
            "continuation" => (start, |_, _| frame(CONTINUATION, 0, 1, b"")),
            "large continuation" => (start, |_, _| frame(CONTINUATION, 0, 1, &[0x82; 16 << 10])),
            "rapid reset" => (Vec::new(), |number, block| {
                let reset = frame(RST_STREAM, 0, stream(number), &[0, 0, 0, 8]);
                [
                    frame(HEADERS, END_HEADERS | END_STREAM, stream(number), block),
                    reset,
                ]
                .concat()
            }),
            // A window update of 0 is an error of the stream, so that the gateway resets it.
            "reset by the gateway" => (Vec::new(), |number, block| {
                let update = frame(WINDOW_UPDATE, 0, stream(number), &[0; 4]);
                [frame(HEADERS, END_HEADERS, stream(number), block), update].concat()
            }),
            "requests without a window" => (Vec::new(), |number, block| {
                frame(HEADERS, END_HEADERS | END_STREAM, stream(number), block)
            }),
            _ => panic!("no such flood: {name}"),
        };
        let settings: &[u8] = if name == "requests without a window" {
            &[0, 4, 0, 0, 0, 0]
        } else {
            &[]
        };
        Self {
            settings,
            first,
            next,
            block: get("/", host),
        }
    }

    /// Sends frames until the connection ends or it has sent `most`. Returns the number of sent frames, and
    /// whether the connection ended in time.
    pub(crate) async fn run(
        &self,
        host: SocketAddr,
        most: u32,
        limit: Duration,
    ) -> std::io::Result<(u32, bool)> {
        let (mut receive, mut send) = open(host, self.settings).await?.into_split();
        let sending = async move {
            let mut frames = 0;
            let mut open = send.write_all(&self.first).await.is_ok();
            while open && frames < most {
                let batch: Vec<u8> = (frames..frames + 100)
                    .flat_map(|number| (self.next)(number, &self.block))
                    .collect();
                open = send.write_all(&batch).await.is_ok();
                frames += 100;
            }
            (frames, send)
        };
        let ((frames, _sender), ended) = tokio::join!(sending, ends(&mut receive, limit));
        Ok((frames, ended))
    }
}
