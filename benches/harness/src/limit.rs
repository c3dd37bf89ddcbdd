//! The physical limit: the events that the kernel lets one thread deliver.
//!
//! One epoll thread. A session has one contiguous log of encoded frames, a reader is a position in it, and a
//! wake-up costs one write per reader. The program checks nothing, stores nothing, and does not distinguish
//! clients. The difference to a gateway is the cost of the gateway's features.
//!
//! `GET /s/<session>/events` follows a session (`Last-Event-ID: 0` starts at the beginning). `POST
//! /s/<session>/prompt` sends a prompt with the body as text.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use memchr::memchr_iter;
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::http::Head;
use crate::{Outcome, rpc};

/// The backlog of connections that are not accepted yet.
const BACKLOG: i32 = 4096;
/// The size of a read: the capacity of a pipe.
const PIPE: usize = 64 << 10;
/// The maximum size of a write.
const WRITE: usize = 1 << 20;
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);

/// The kinds of sockets and pipes in epoll tokens: the kind is in the high bits, the number in the low bits.
const LISTENER: u64 = 0;
const PIPES: u64 = 1 << 32;
const CLIENTS: u64 = 2 << 32;

#[derive(Debug)]
struct Session {
    _agent: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// All events as encoded frames.
    log: Vec<u8>,
    /// The start of an incomplete line.
    part: Vec<u8>,
    events: u64,
    readers: Vec<usize>,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// The followed session and the position in its log.
    follows: Option<(usize, usize)>,
    /// Whether the client waits for space in its socket.
    waits: bool,
}

/// The request of a client.
enum ClientRequest {
    Events { replay: bool },
    Prompt(String),
}

struct Limit {
    agent: String,
    epoll: OwnedFd,
    listener: TcpListener,
    names: HashMap<String, usize>,
    sessions: Vec<Session>,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
}

/// Serves on a loopback port until it is killed.
pub fn serve(port: u16, agent: String) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut limit = Limit {
        agent,
        epoll,
        listener,
        names: HashMap::new(),
        sessions: Vec::new(),
        clients: Vec::new(),
        free: Vec::new(),
    };
    let mut events = Vec::with_capacity(512);
    let mut buffer = vec![0; PIPE];
    loop {
        events.clear();
        match epoll::wait(
            &limit.epoll,
            rustix::buffer::spare_capacity(&mut events),
            None,
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let token = event.data.u64();
            let number = usize::try_from(token & u64::from(u32::MAX))?;
            match token & !u64::from(u32::MAX) {
                PIPES => limit.frame(number, &mut buffer)?,
                CLIENTS => limit.client(number, event.flags, &mut buffer)?,
                _ => limit.accept()?,
            }
        }
    }
}

impl Limit {
    fn accept(&mut self) -> Outcome {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let number = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            epoll::add(&self.epoll, &stream, token(CLIENTS, number)?, READABLE)?;
            self.clients[number] = Some(Client {
                stream,
                request: Vec::new(),
                follows: None,
                waits: false,
            });
        }
        Ok(())
    }

    /// Reads the agent's output and delivers it to all readers.
    fn frame(&mut self, number: usize, buffer: &mut [u8]) -> Outcome {
        let session = &mut self.sessions[number];
        let read = match session.stdout.read(buffer) {
            Ok(0) => return Ok(epoll::delete(&self.epoll, &session.stdout)?),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        session.append(&buffer[..read])?;
        for &reader in &session.readers {
            if let Some(client) = &mut self.clients[reader] {
                push(&self.epoll, reader, client, &session.log)?;
            }
        }
        Ok(())
    }

    fn client(&mut self, number: usize, flags: EventFlags, buffer: &mut [u8]) -> Outcome {
        let Some(client) = &mut self.clients[number] else {
            return Ok(());
        };
        if let Some((session, _)) = client.follows
            && flags.contains(EventFlags::OUT)
        {
            push(&self.epoll, number, client, &self.sessions[session].log)?;
        }
        if !flags.intersects(READABLE | EventFlags::HUP | EventFlags::ERR) {
            return Ok(());
        }
        let read = match client.stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            read => read.unwrap_or(0),
        };
        if read == 0 {
            self.forget(number);
            return Ok(());
        }
        client.request.extend_from_slice(&buffer[..read]);
        let Some((head, length)) = Head::parse(&client.request)? else {
            return Ok(());
        };
        let body = length + head.length().unwrap_or_default();
        if client.request.len() < body {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&client.request[length..body]).into_owned();
        client.request = Vec::new();
        let (method, path) = head.request_line();
        let Some((name, _)) = path
            .strip_prefix("/s/")
            .and_then(|rest| rest.split_once('/'))
        else {
            return answer(client, "404 Not Found");
        };
        let request = match method {
            "POST" => ClientRequest::Prompt(text),
            _ => ClientRequest::Events {
                replay: head.header("last-event-id") == Some("0"),
            },
        };
        self.grant(number, name, request)
    }

    fn grant(&mut self, number: usize, name: &str, request: ClientRequest) -> Outcome {
        let session = self.session(name)?;
        let Some(client) = &mut self.clients[number] else {
            return Ok(());
        };
        match request {
            ClientRequest::Prompt(text) => {
                writeln!(self.sessions[session].stdin, "{}", rpc::prompt(&text))?;
                answer(client, "202 Accepted")
            }
            ClientRequest::Events { replay } => {
                let log = &self.sessions[session].log;
                client.stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
                )?;
                client.follows = Some((session, if replay { 0 } else { log.len() }));
                push(&self.epoll, number, client, log)?;
                self.sessions[session].readers.push(number);
                Ok(())
            }
        }
    }

    /// The session with this name and its own agent.
    fn session(&mut self, name: &str) -> Outcome<usize> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let mut agent = Command::new(&self.agent)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = agent
            .stdin
            .take()
            .zip(agent.stdout.take())
            .ok_or("an agent without pipes")?;
        rustix::io::ioctl_fionbio(&stdout, true)?;
        let number = self.sessions.len();
        epoll::add(&self.epoll, &stdout, token(PIPES, number)?, EventFlags::IN)?;
        let log = Vec::with_capacity(WRITE);
        let part = Vec::new();
        let readers = Vec::new();
        self.sessions.push(Session {
            _agent: agent,
            stdin,
            stdout,
            log,
            part,
            events: 0,
            readers,
        });
        self.names.insert(name.to_owned(), number);
        Ok(number)
    }

    fn forget(&mut self, number: usize) {
        // Closing the socket removes it from epoll.
        if let Some((session, _)) = self.clients[number]
            .take()
            .and_then(|client| client.follows)
        {
            self.sessions[session]
                .readers
                .retain(|&reader| reader != number);
        }
        self.free.push(number);
    }
}

impl Session {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut from = 0;
        for end in memchr_iter(b'\n', bytes) {
            self.events += 1;
            write!(self.log, "id: {}\ndata: ", self.events)?;
            self.log.append(&mut self.part);
            self.log.extend_from_slice(&bytes[from..end]);
            self.log.extend_from_slice(b"\n\n");
            from = end + 1;
        }
        self.part.extend_from_slice(&bytes[from..]);
        Ok(())
    }
}

fn token(kind: u64, number: usize) -> Outcome<EventData> {
    Ok(EventData::new_u64(kind | u64::try_from(number)?))
}

fn answer(client: &mut Client, status: &str) -> Outcome {
    Ok(write!(
        client.stream,
        "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"
    )?)
}

/// Writes the data after the reader's position, as far as its socket accepts it.
fn push(epoll: &OwnedFd, number: usize, client: &mut Client, log: &[u8]) -> Outcome {
    let Some((_, offset)) = &mut client.follows else {
        return Ok(());
    };
    let mut waits = false;
    while *offset < log.len() {
        match (&client.stream).write(&log[*offset..log.len().min(*offset + WRITE)]) {
            Ok(written) => *offset += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waits = true;
                break;
            }
            // The client has disconnected, which epoll reports.
            Err(_) => *offset = log.len(),
        }
    }
    if waits != client.waits {
        client.waits = waits;
        let flags = if waits {
            READABLE | EventFlags::OUT
        } else {
            READABLE
        };
        epoll::modify(epoll, &client.stream, token(CLIENTS, number)?, flags)?;
    }
    Ok(())
}
