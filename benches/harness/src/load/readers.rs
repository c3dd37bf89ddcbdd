//! Readers on one thread. Their cost is low, so that a measurement shows the server.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use memchr::memmem;
use rustix::event::{Timespec, epoll};

use super::Report;
use crate::check::{Grammar, Tally};
use crate::http::{self, Chunks, Head};
use crate::marker::{Scanner, Search};
use crate::stats::Histogram;
use crate::targets::Session;
use crate::{Outcome, clock};

/// The timeout of a measurement.
const DEADLINE: Duration = Duration::from_secs(90);
/// The timeouts for readers without data, before and after the first event. A busy disk may delay a commit by seconds.
const STILL: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_secs(15);
/// The size of a read.
const BUFFER: usize = 256 << 10;

/// The state of an answer.
#[derive(Debug)]
enum Body {
    /// The head is incomplete and has these bytes.
    Head(Vec<u8>),
    Plain,
    Chunked(Chunks),
}

/// One stream.
#[derive(Debug)]
pub(super) struct Reader {
    stream: TcpStream,
    body: Body,
    scanner: Scanner,
    grammar: Option<Grammar>,
    pub(super) tally: Tally,
    bytes: u64,
    /// The times of the first and the last event.
    pub(super) first: u64,
    pub(super) last: u64,
    /// The number of turn ends seen.
    pub(super) turns: u64,
    done: bool,
    pub(super) closed: bool,
}

/// All streams of a measurement.
#[derive(Debug)]
pub(super) struct Readers {
    epoll: OwnedFd,
    pub(super) all: Vec<Reader>,
    search: Search,
    strict: bool,
    pub(super) turn_end: Option<&'static [u8]>,
    /// The number of events for each reader, or 0 while it is unknown.
    pub(super) expected: u64,
    pub(super) answered: usize,
    pub(super) done: usize,
    latency: Histogram,
    written: u64,
    buffer: Vec<u8>,
    active: Option<Instant>,
}

impl Readers {
    pub(super) fn new(strict: bool) -> Outcome<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            all: Vec::new(),
            search: Search::new(),
            strict,
            turn_end: None,
            expected: 0,
            answered: 0,
            done: 0,
            latency: Histogram::new(),
            written: u64::MAX,
            buffer: vec![0; BUFFER],
            active: None,
        })
    }

    pub(super) fn connect(&mut self, session: &Session, request: &[u8]) -> Outcome {
        let mut stream = http::connect(session.address)?;
        stream.write_all(request)?;
        stream.set_nonblocking(true)?;
        let number = epoll::EventData::new_u64(self.all.len().try_into()?);
        epoll::add(
            &self.epoll,
            &stream,
            number,
            epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        )?;
        self.all.push(Reader {
            stream,
            body: Body::Head(Vec::new()),
            scanner: Scanner::new(),
            grammar: self.strict.then(Grammar::default),
            tally: Tally::default(),
            bytes: 0,
            first: 0,
            last: 0,
            turns: 0,
            done: false,
            closed: false,
        });
        Ok(())
    }

    /// Reads until a condition holds or a timeout expires.
    pub(super) fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) -> Outcome {
        let begun = Instant::now();
        while !holds(self) && begun.elapsed() < DEADLINE {
            self.turn(Duration::from_millis(20))?;
            let still = match self.active {
                Some(active) => active.elapsed() > QUIET,
                None => self.expected > 0 && begun.elapsed() > STILL,
            };
            if still || self.all.iter().all(|reader| reader.closed) {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn pause(&mut self, pause: Duration) -> Outcome {
        let begun = Instant::now();
        while let Some(left) = pause.checked_sub(begun.elapsed()) {
            self.turn(left)?;
        }
        Ok(())
    }

    /// Waits for readable sockets and reads them.
    fn turn(&mut self, wait: Duration) -> Outcome {
        let wait = Timespec {
            tv_sec: wait.as_secs().try_into()?,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut events = Vec::with_capacity(1024);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&wait),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            self.read(usize::try_from(event.data.u64())?)?;
        }
        Ok(())
    }

    fn read(&mut self, number: usize) -> Outcome {
        let reader = &mut self.all[number];
        let read = match reader.stream.read(&mut self.buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(_) => 0,
        };
        let now = clock::now();
        if read == 0 {
            epoll::delete(&self.epoll, &reader.stream)?;
            reader.closed = true;
        } else {
            let answered = reader.answered();
            let before = reader.tally.events;
            let latency = &mut self.latency;
            let written = &mut self.written;
            reader.take(
                &self.buffer[..read],
                now,
                &self.search,
                self.turn_end,
                |sent| {
                    latency.add(now.saturating_sub(sent));
                    *written = sent.min(*written);
                },
            )?;
            self.answered += usize::from(!answered && reader.answered());
            if reader.tally.events > before {
                self.active = Some(Instant::now());
            }
        }
        let done = self.expected > 0 && (reader.closed || reader.tally.done(self.expected));
        if done && !std::mem::replace(&mut reader.done, true) {
            self.done += 1;
        }
        Ok(())
    }

    pub(super) fn report(self, begun: Option<u64>, cpu: u64) -> Report {
        let last = self
            .all
            .iter()
            .map(|reader| reader.last)
            .max()
            .unwrap_or_default();
        Report {
            readers: self.all.len(),
            complete: self
                .all
                .iter()
                .filter(|reader| reader.tally.complete(self.expected))
                .count(),
            events: self.all.iter().map(|reader| reader.tally.events).sum(),
            bytes: self.all.iter().map(|reader| reader.bytes).sum(),
            seconds: last.saturating_sub(begun.unwrap_or(self.written)) as f64 / 1e9,
            cpu: cpu as f64 / 1e9,
            faults: self.all.iter().map(Reader::faults).sum(),
            latency: self.latency,
            complaint: None,
            stalled: Vec::new(),
        }
    }
}

impl Reader {
    fn answered(&self) -> bool {
        !matches!(self.body, Body::Head(_))
    }

    /// The number of syntax errors. If ids are checked, an event without an id is an error.
    fn faults(&self) -> u64 {
        let grammar = self.grammar.as_ref();
        grammar.map_or(0, |grammar| {
            grammar.faults + self.tally.events.saturating_sub(grammar.ids)
        })
    }

    fn take(
        &mut self,
        piece: &[u8],
        now: u64,
        search: &Search,
        turn_end: Option<&[u8]>,
        mut sent: impl FnMut(u64),
    ) -> Outcome {
        let begun;
        let mut piece = piece;
        if let Body::Head(bytes) = &mut self.body {
            bytes.extend_from_slice(piece);
            let Some((head, length)) = Head::parse(bytes)? else {
                return Ok(());
            };
            begun = bytes.split_off(length);
            if head.status != 200 {
                let why = String::from_utf8_lossy(&begun);
                return Err(format!("a stream was refused: {} {why}", head.status).into());
            }
            self.body = if head.chunked() {
                Body::Chunked(Chunks::default())
            } else {
                Body::Plain
            };
            piece = &begun;
        }
        let Self {
            body,
            scanner,
            grammar,
            tally,
            bytes,
            first,
            last,
            turns,
            ..
        } = self;
        let mut content = |content: &[u8]| {
            *bytes += content.len() as u64;
            if let Some(grammar) = grammar {
                grammar.feed(content);
            }
            if let Some(end) = turn_end {
                *turns += memmem::find_iter(content, end).count() as u64;
            }
            scanner.feed(search, content, |marker| {
                tally.take(marker.number);
                sent(marker.written);
                *last = now;
                if *first == 0 {
                    *first = now;
                }
            });
        };
        match body {
            Body::Chunked(chunks) => {
                chunks.feed(piece, content);
                self.closed |= chunks.ended();
            }
            _ => content(piece),
        }
        Ok(())
    }
}
