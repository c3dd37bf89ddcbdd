//! A small HTTP/1.1 client: it costs little, so that what is measured is the gateway.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Outcome;

/// No read takes longer unless the gateway hangs.
const STALL: Duration = Duration::from_mins(1);

/// A request with a JSON body: status and body of the answer.
pub(crate) fn post(address: SocketAddr, key: &str, path: &str, body: &str) -> Outcome<(u16, String)> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    );
    let mut response = Response::open(address, key, &head, body)?;
    let mut text = String::new();
    response.body.read_to_string(&mut text)?;
    Ok((response.status, text))
}

/// Status, and a body that is read as it comes.
struct Response {
    status: u16,
    body: Box<dyn BufRead + Send>,
}

impl Response {
    fn open(address: SocketAddr, key: &str, head: &str, body: &str) -> Outcome<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STALL))?;
        write!(stream, "{head}Host: {address}\r\nAuthorization: Bearer {key}\r\n\r\n{body}")?;
        let mut reader = BufReader::with_capacity(256 << 10, stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no HTTP status")?;
        let (mut chunked, mut length) = (false, None);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            match line.trim_end().to_ascii_lowercase().split_once(": ") {
                Some(("transfer-encoding", "chunked")) => chunked = true,
                Some(("content-length", value)) => length = Some(value.parse()?),
                Some(_) => {}
                None => break,
            }
        }
        let body: Box<dyn BufRead + Send> = match length {
            _ if chunked => {
                Box::new(BufReader::with_capacity(256 << 10, Chunked { reader, left: 0, first: true }))
            }
            Some(length) => Box::new(reader.take(length)),
            None => Box::new(reader),
        };
        Ok(Self { status, body })
    }
}

/// Takes `Transfer-Encoding: chunked` off.
struct Chunked<R> {
    reader: R,
    left: u64,
    first: bool,
}

impl<R: BufRead> Read for Chunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            if !self.first {
                self.reader.read_line(&mut line)?;
                line.clear();
            }
            self.first = false;
            self.reader.read_line(&mut line)?;
            let size = line.trim_end().split(';').next().unwrap_or_default();
            self.left = u64::from_str_radix(size, 16).map_err(|_| {
                io::Error::new(io::ErrorKind::InvalidData, format!("no chunk size: {line:?}"))
            })?;
            if self.left == 0 {
                return Ok(0);
            }
        }
        let room = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.reader.read(&mut buffer[..room])?;
        self.left -= read as u64;
        if read == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }
}

/// A stream of Server-Sent Events.
pub(crate) struct Events {
    body: Box<dyn BufRead + Send>,
    line: Vec<u8>,
}

/// One frame; fields that did not come are empty.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Vec<u8>,
}

impl Events {
    pub(crate) fn open(address: SocketAddr, key: &str, path: &str) -> Outcome<Self> {
        let head = format!("GET {path} HTTP/1.1\r\nAccept: text/event-stream\r\n");
        let mut response = Response::open(address, key, &head, "")?;
        if response.status != 200 {
            let mut problem = String::new();
            response.body.read_to_string(&mut problem)?;
            return Err(format!("GET {path}: {} {problem}", response.status).into());
        }
        Ok(Self { body: response.body, line: Vec::new() })
    }

    /// The next frame with data; none at the end of the stream.
    pub(crate) fn next(&mut self, frame: &mut Frame) -> io::Result<bool> {
        frame.id.clear();
        frame.event.clear();
        frame.data.clear();
        loop {
            self.line.clear();
            if self.body.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(false);
            }
            let line = self.line.trim_ascii_end();
            if line.is_empty() {
                if frame.data.is_empty() {
                    continue;
                }
                return Ok(true);
            }
            if let Some(data) = line.strip_prefix(b"data: ") {
                frame.data.extend_from_slice(data);
            } else if let Some(id) = line.strip_prefix(b"id: ") {
                frame.id.push_str(&String::from_utf8_lossy(id));
            } else if let Some(event) = line.strip_prefix(b"event: ") {
                frame.event.push_str(&String::from_utf8_lossy(event));
            }
        }
    }
}
