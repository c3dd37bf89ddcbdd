//! Publishes the output of agents to a server that accepts messages over HTTP, because such servers start no agents.
//!
//! `POST /s/<session>/prompt` prompts a session's agent with the body as text. The bridge posts the answers
//! to the server on one connection, with several requests in flight.

use std::collections::HashMap;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use memchr::{memchr_iter, memmem, memrchr};

use crate::http::{Head, request};
use crate::{Outcome, http, rpc};

/// The size of a read: the capacity of a pipe.
const PIPE: usize = 64 << 10;
/// The start of each successful answer.
const SUCCESS: &[u8] = b"HTTP/1.1 2";

/// The format of the messages to a server.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// One message per request, for nchan.
    Lines,
    /// The messages of one read in a JSON array, for durable-streams.
    Arrays,
}

impl Form {
    fn path(self, session: &str) -> String {
        match self {
            Self::Lines => format!("/pub?id=s{session}"),
            Self::Arrays => format!("/s{session}"),
        }
    }

    /// The maximum number of requests in flight.
    fn window(self) -> usize {
        match self {
            Self::Lines => 256,
            Self::Arrays => 8,
        }
    }
}

/// Serves on a loopback port until it is killed.
pub fn serve(port: u16, agent: &str, server: &str, form: &str) -> Outcome {
    let server: SocketAddr = server.parse()?;
    let form = if form == "arrays" {
        Form::Arrays
    } else {
        Form::Lines
    };
    let mut agents: HashMap<String, ChildStdin> = HashMap::new();
    for client in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        let mut client = client?;
        let Some((session, text)) = prompt(&mut client)? else {
            continue;
        };
        if !agents.contains_key(&session) {
            let mut child = Command::new(agent)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (stdin, stdout) = child
                .stdin
                .take()
                .zip(child.stdout.take())
                .ok_or("an agent without pipes")?;
            let path = form.path(&session);
            std::thread::spawn(move || {
                if let Err(error) = publish(stdout, server, &path, form) {
                    eprintln!("{path}: {error}");
                }
                child.wait()
            });
            agents.insert(session.clone(), stdin);
        }
        if let Some(stdin) = agents.get_mut(&session) {
            writeln!(stdin, "{}", rpc::prompt(&text))?;
        }
        client.write_all(
            b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )?;
    }
    Ok(())
}

/// The session and the text of a POST. `None` for a connection that only tests the port.
fn prompt(client: &mut TcpStream) -> Outcome<Option<(String, String)>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        if let Some((head, length)) = Head::parse(&bytes)? {
            let end = length + head.length().unwrap_or_default();
            if bytes.len() >= end {
                let session = head
                    .request_line()
                    .1
                    .split('/')
                    .nth(2)
                    .unwrap_or_default()
                    .to_owned();
                return Ok(Some((
                    session,
                    String::from_utf8_lossy(&bytes[length..end]).into_owned(),
                )));
            }
        }
        match client.read(&mut buffer)? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// The requests in flight.
#[derive(Debug, Default)]
struct Flight {
    open: Mutex<usize>,
    landed: Condvar,
}

impl Flight {
    /// Waits for capacity and reserves it.
    fn depart(&self, requests: usize, window: usize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while *open > 0 && *open + requests > window {
            open = self
                .landed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *open += requests;
    }

    fn land(&self, requests: usize) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        *open = open.saturating_sub(requests);
        self.landed.notify_one();
    }
}

fn publish(mut stdout: ChildStdout, server: SocketAddr, path: &str, form: Form) -> Outcome {
    let mut stream = http::connect(server)?;
    stream.set_read_timeout(None)?;
    let flight = Arc::new(Flight::default());
    let answers = stream.try_clone()?;
    let landing = flight.clone();
    std::thread::spawn(move || count_answers(answers, &landing));
    let mut pending = Vec::new();
    let mut buffer = vec![0; PIPE];
    let mut out = Vec::new();
    loop {
        let read = stdout.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        pending.extend_from_slice(&buffer[..read]);
        let Some(end) = memrchr(b'\n', &pending) else {
            continue;
        };
        let lines: Vec<u8> = pending.drain(..=end).collect();
        match form {
            Form::Arrays => {
                let body = String::from_utf8_lossy(&lines[..end]).replace('\n', ",");
                flight.depart(1, form.window());
                stream.write_all(&request(
                    "POST",
                    server,
                    path,
                    &[],
                    Some(&format!("[{body}]")),
                ))?;
            }
            Form::Lines => {
                let mut from = 0;
                let mut count = 0;
                for end in memchr_iter(b'\n', &lines) {
                    let line = String::from_utf8_lossy(&lines[from..end]);
                    out.extend_from_slice(&request("POST", server, path, &[], Some(&line)));
                    (from, count) = (end + 1, count + 1);
                    if count == form.window() / 2 || from == lines.len() {
                        flight.depart(count, form.window());
                        stream.write_all(&out)?;
                        out.clear();
                        count = 0;
                    }
                }
            }
        }
    }
}

fn count_answers(mut stream: impl Read, flight: &Flight) {
    let search = memmem::Finder::new(SUCCESS);
    let mut buffer = vec![0; PIPE];
    let mut seen = Vec::new();
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            break;
        }
        seen.extend_from_slice(&buffer[..read]);
        flight.land(search.find_iter(&seen).count());
        // The start of an answer may have arrived without its end.
        let keep = seen.len().saturating_sub(SUCCESS.len() - 1);
        seen.drain(..keep);
    }
}
