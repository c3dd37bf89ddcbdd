//! The load: readers that follow sessions, prompts that create events, and the results.

#[cfg(test)]
mod liar;
mod readers;

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use readers::Readers;

use crate::agent::Prompt;
use crate::http;
use crate::stats::Histogram;
use crate::targets::{Running, Session};
use crate::{Outcome, clock, proc};

/// The pause between the last reader's answer and the prompt.
const SETTLE: Duration = Duration::from_millis(50);
/// The time after the last event during which readers wait for duplicates.
const AFTER: Duration = Duration::from_millis(20);

/// The parameters of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Readers of each session.
    pub(crate) readers: usize,
    /// Additional readers of the first session that never read.
    pub(crate) stalled: usize,
    pub(crate) prompt: Prompt,
    /// Whether readers also check the syntax of the stream.
    pub(crate) strict: bool,
}

impl Plan {
    pub(crate) fn new(readers: usize, prompt: Prompt) -> Self {
        Self {
            readers,
            stalled: 0,
            prompt,
            strict: false,
        }
    }
}

/// The results of a load.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) readers: usize,
    /// Readers that received each event once and in order.
    pub(crate) complete: usize,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// The time from the write of the first event, or from the first connection of a replay, to the read of
    /// the last event.
    pub(crate) seconds: f64,
    pub(crate) latency: Histogram,
    /// The processor time of the server in seconds.
    pub(crate) cpu: f64,
    /// The number of syntax errors of the streams, if they were checked.
    pub(crate) faults: u64,
    /// The reason for incomplete readers, as reported by the server.
    pub(crate) complaint: Option<String>,
    /// The connections of the readers that never read.
    pub(crate) stalled: Vec<TcpStream>,
}

impl Report {
    pub(crate) fn per_second(&self) -> f64 {
        self.events as f64 / self.seconds.max(1e-9)
    }

    /// The processor seconds of the server per million delivered events.
    pub(crate) fn cpu_per_million(&self) -> f64 {
        self.cpu / (self.events.max(1) as f64) * 1e6
    }
}

/// Follows all sessions, prompts each of them, and reads until every reader is complete.
pub(crate) fn live(running: &dyn Running, sessions: &[Session], plan: Plan) -> Outcome<Report> {
    let workers = running.workers();
    let stalled = stall(&sessions[0], plan.stalled)?;
    let mut readers = Readers::new(plan.strict)?;
    for session in sessions {
        for _ in 0..plan.readers {
            readers.connect(session, &session.follow)?;
        }
    }
    readers.until(|readers| readers.answered == readers.all.len())?;
    readers.pause(SETTLE)?;
    let cpu = proc::cpu(&workers);
    let mut prompts = Vec::new();
    for session in sessions {
        prompts.push(send_prompt(session, plan.prompt)?);
    }
    readers.expected = plan.prompt.n;
    readers.until(|readers| readers.done == readers.all.len())?;
    let cpu = proc::cpu(&workers) - cpu;
    readers.pause(AFTER)?;
    let mut report = readers.report(None, cpu);
    report.stalled = stalled;
    if report.complete < report.readers {
        report.complaint = prompts.iter_mut().find_map(refusal);
    }
    Ok(report)
}

/// Reads the log of a session from the beginning.
pub(crate) fn replay(running: &dyn Running, session: &Session, plan: Plan) -> Outcome<Report> {
    let workers = running.workers();
    let request = session.replay.as_deref().ok_or("it has no replay")?;
    let mut readers = Readers::new(plan.strict)?;
    readers.expected = plan.prompt.n;
    let cpu = proc::cpu(&workers);
    let begun = clock::now();
    for _ in 0..plan.readers {
        readers.connect(session, request)?;
    }
    readers.until(|readers| readers.done == readers.all.len())?;
    let cpu = proc::cpu(&workers) - cpu;
    readers.pause(AFTER)?;
    Ok(readers.report(Some(begun), cpu))
}

/// Opens streams without events and runs a measurement meanwhile. Returns its result and the time to open the streams.
pub(crate) fn idle<T>(
    session: &Session,
    streams: usize,
    measured: impl FnOnce() -> T,
) -> Outcome<(T, Duration)> {
    let begun = Instant::now();
    let mut readers = Readers::new(false)?;
    for _ in 0..streams {
        readers.connect(session, &session.follow)?;
    }
    readers.until(|readers| readers.answered == readers.all.len())?;
    let took = begun.elapsed();
    if readers.answered < streams || readers.all.iter().any(|reader| reader.closed) {
        return Err(format!("{} of {streams} streams opened", readers.answered).into());
    }
    readers.pause(Duration::from_secs(2))?;
    Ok((measured(), took))
}

/// The latencies between the POST of a prompt and its first event, on one connection, in nanoseconds.
pub(crate) fn first_events(session: &Session, times: usize) -> Outcome<Histogram> {
    let mut latency = Histogram::new();
    let mut readers = Readers::new(false)?;
    readers.connect(session, &session.follow)?;
    readers.turn_end = session.turn_end;
    readers.until(|readers| readers.answered == 1)?;
    readers.pause(Duration::from_millis(100))?;
    let prompt = Prompt {
        batch: 1,
        ..Prompt::burst(1)
    };
    let mut connections = Vec::new();
    for _ in 0..times {
        let mut connection = http::connect(session.prompt_address)?;
        let request = (session.prompt)(&prompt.text());
        let before = readers.all[0].tally.events;
        let turns = readers.all[0].turns;
        let begun = clock::now();
        connection.write_all(&request)?;
        readers.until(|readers| readers.all[0].tally.events > before)?;
        if readers.all[0].tally.events == before {
            let complaint = refusal(&mut connection).unwrap_or_default();
            return Err(format!("the prompt's event did not come {complaint}").into());
        }
        latency.add(readers.all[0].last.saturating_sub(begun));
        readers.until(|readers| session.turn_end.is_none() || readers.all[0].turns > turns)?;
        readers.pause(Duration::from_millis(5))?;
        connections.push(connection);
    }
    Ok(latency)
}

/// The latency between following a session and its first existing event, in nanoseconds.
pub(crate) fn first_of(session: &Session) -> Outcome<u64> {
    let mut readers = Readers::new(false)?;
    let begun = clock::now();
    readers.connect(session, &session.follow)?;
    readers.until(|readers| readers.all[0].tally.events > 0)?;
    if readers.all[0].tally.events == 0 {
        return Err("no event came".into());
    }
    Ok(readers.all[0].first.saturating_sub(begun))
}

/// Readers that request the stream and never read.
fn stall(session: &Session, count: usize) -> Outcome<Vec<TcpStream>> {
    (0..count)
        .map(|_| {
            let mut stream = http::connect(session.address)?;
            stream.write_all(&session.follow)?;
            Ok(stream)
        })
        .collect()
}

/// Does not wait for the answer, because some servers send it at the end of the turn.
fn send_prompt(session: &Session, prompt: Prompt) -> Outcome<TcpStream> {
    let mut connection = http::connect(session.prompt_address)?;
    connection.write_all(&(session.prompt)(&prompt.text()))?;
    Ok(connection)
}

/// The message of a server that rejected a prompt.
fn refusal(connection: &mut TcpStream) -> Option<String> {
    connection
        .set_read_timeout(Some(Duration::from_millis(100)))
        .ok()?;
    let (head, body) = http::answer(connection).ok()?;
    (head.status / 100 != 2).then(|| format!("{} {body}", head.status))
}
