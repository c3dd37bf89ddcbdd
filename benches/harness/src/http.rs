//! The subset of HTTP/1.1 that a load client needs. Its cost is low, so that a measurement shows the server.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use memchr::memmem;

use crate::Outcome;

/// A longer answer means that the server hangs.
const STALL: Duration = Duration::from_secs(30);
/// The maximum size of a head.
const HEAD: usize = 64 << 10;

/// A request as bytes. `headers` are complete lines.
pub(crate) fn request(
    method: &str,
    address: SocketAddr,
    path: &str,
    headers: &[String],
    body: Option<&str>,
) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    if let Some(body) = body {
        write!(
            head,
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        )
        .expect("writing to a String does not fail");
    }
    head.push_str("\r\n");
    head.push_str(body.unwrap_or_default());
    head.into_bytes()
}

pub(crate) fn connect(address: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    Ok(stream)
}

/// The status line and the headers.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    text: String,
}

impl Head {
    /// Parses the head at the start of the bytes. Returns it with its length, or `None` if it is incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Outcome<Option<(Self, usize)>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return if bytes.len() > HEAD {
                Err("a head without an end".into())
            } else {
                Ok(None)
            };
        };
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = text
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Ok(Some((
            Self {
                status: status.unwrap_or_default(),
                text,
            },
            end + 4,
        )))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn chunked(&self) -> bool {
        self.header("transfer-encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    }

    pub(crate) fn length(&self) -> Option<usize> {
        self.header("content-length")
            .and_then(|value| value.parse().ok())
    }

    pub(crate) fn request_line(&self) -> (&str, &str) {
        let mut words = self.text.split(' ');
        (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        )
    }
}

/// Decodes `Transfer-Encoding: chunked` of a body that arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: ChunkState,
}

#[derive(Debug, Default, Clone, Copy)]
enum ChunkState {
    /// In the digits of a size.
    #[default]
    Start,
    Size(usize),
    /// After the size, up to the end of the line.
    Extension(usize),
    /// The remaining bytes of the chunk.
    Content(usize),
    /// The end of the line after a chunk.
    Tail,
    End,
}

impl Chunks {
    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, ChunkState::End)
    }

    pub(crate) fn feed(&mut self, mut piece: &[u8], mut content: impl FnMut(&[u8])) {
        while let Some(&byte) = piece.first() {
            if let ChunkState::Content(due) = self.state {
                let (now, rest) = piece.split_at(due.min(piece.len()));
                content(now);
                piece = rest;
                self.state = if due == now.len() {
                    ChunkState::Tail
                } else {
                    ChunkState::Content(due - now.len())
                };
                continue;
            }
            piece = &piece[1..];
            self.state = match (self.state, byte) {
                (ChunkState::End, _) => return,
                (ChunkState::Tail, b'\n') => ChunkState::Start,
                (ChunkState::Size(0) | ChunkState::Extension(0), b'\n') => ChunkState::End,
                (ChunkState::Size(size) | ChunkState::Extension(size), b'\n') => {
                    ChunkState::Content(size)
                }
                (ChunkState::Start, _) => digit(0, byte),
                (ChunkState::Size(size), _) => digit(size, byte),
                (state, _) => state,
            };
        }
    }
}

fn digit(size: usize, byte: u8) -> ChunkState {
    match char::from(byte).to_digit(16) {
        Some(digit) => ChunkState::Size(size << 4 | digit as usize),
        None => ChunkState::Extension(size),
    }
}

/// Sends a request and reads the complete answer.
pub(crate) fn call(address: SocketAddr, request: &[u8]) -> Outcome<(Head, String)> {
    let mut stream = connect(address)?;
    stream.write_all(request)?;
    answer(&mut stream)
}

/// Sends a request and checks the status of the response.
pub(crate) fn expect(address: SocketAddr, request: &[u8], status: u16) -> Outcome<(Head, String)> {
    let (head, body) = call(address, request)?;
    if head.status != status {
        return Err(format!("{} instead of {status}: {body}", head.status).into());
    }
    Ok((head, body))
}

/// Reads one answer. Does not wait for a body without a length and without chunks.
pub(crate) fn answer(stream: &mut TcpStream) -> Outcome<(Head, String)> {
    let mut bytes = Vec::new();
    let (head, start) = loop {
        if let Some(found) = Head::parse(&bytes)? {
            break found;
        }
        more(stream, &mut bytes)?;
    };
    let mut bytes = bytes.split_off(start);
    let mut body = Vec::new();
    if head.chunked() {
        let mut chunks = Chunks::default();
        loop {
            chunks.feed(&bytes, |content| body.extend_from_slice(content));
            if chunks.ended() {
                break;
            }
            bytes.clear();
            more(stream, &mut bytes)?;
        }
    } else {
        while bytes.len() < head.length().unwrap_or_default() {
            more(stream, &mut bytes)?;
        }
        body = bytes;
    }
    Ok((head, String::from_utf8_lossy(&body).into_owned()))
}

fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Outcome {
    let mut buffer = [0; 16 << 10];
    match stream.read(&mut buffer)? {
        0 => Err("the server closed the connection".into()),
        read => {
            bytes.extend_from_slice(&buffer[..read]);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_however_they_are_cut() {
        let body = b"5\r\nhello\r\nA;x=1\r\n, chunked \r\n1\r\n!\r\n0\r\n\r\n";
        for size in 1..=body.len() {
            let mut chunks = Chunks::default();
            let mut text = Vec::new();
            for piece in body.chunks(size) {
                chunks.feed(piece, |content| text.extend_from_slice(content));
            }
            assert!(chunks.ended());
            assert_eq!(String::from_utf8_lossy(&text), "hello, chunked !");
        }
    }

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let bytes = b"HTTP/1.1 202 Accepted\r\nContent-Length: 7\r\nX-Y:  z \r\n\r\n{\"a\":1}";
        assert!(Head::parse(&bytes[..40]).unwrap().is_none());
        let (head, length) = Head::parse(bytes).unwrap().unwrap();
        assert_eq!(
            (head.status, head.length(), head.chunked()),
            (202, Some(7), false)
        );
        assert_eq!(head.header("x-y"), Some("z"));
        assert_eq!(&bytes[length..], b"{\"a\":1}");
    }
}
