//! A small HTTP/1.1 client with one connection per request.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Outcome;

/// A longer read means that the gateway hangs.
const STALL: Duration = Duration::from_mins(2);

/// Sends a request with or without a JSON body. Returns the status and the body of the answer.
pub(crate) fn send(
    address: SocketAddr,
    key: &str,
    method: &str,
    path: &str,
    body: &str,
) -> Outcome<(u16, String)> {
    let mut answer = ask(
        address,
        key,
        &format!("{method} {path}"),
        "application/json",
        body,
    )?;
    let mut text = String::new();
    answer.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no head")?;
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, body.to_owned()))
}

/// A stream of events.
pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) fn open(address: SocketAddr, key: &str, path: &str) -> Outcome<Self> {
        let mut answer = ask(
            address,
            key,
            &format!("GET {path}"),
            "text/event-stream",
            "",
        )?;
        let mut status = String::new();
        answer.read_line(&mut status)?;
        if status.contains(" 200 ") {
            Ok(Self(answer))
        } else {
            Err(format!("GET {path}: {status}").into())
        }
    }

    /// The id and the type of the next event. Skips the lines with chunk sizes.
    pub(crate) fn next(&mut self) -> Outcome<(String, String)> {
        let mut id = String::new();
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line)? == 0 {
                return Err("the stream ended".into());
            }
            if let Some(found) = line.strip_prefix("id: ") {
                found.trim_end().clone_into(&mut id);
            } else if let Some(kind) = line.strip_prefix("event: ") {
                return Ok((id, kind.trim_end().to_owned()));
            }
        }
    }
}

fn ask(
    address: SocketAddr,
    key: &str,
    request: &str,
    accept: &str,
    body: &str,
) -> Outcome<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    let kind = if body.is_empty() {
        ""
    } else {
        "Content-Type: application/json\r\n"
    };
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\nAccept: {accept}\r\n{kind}\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}
