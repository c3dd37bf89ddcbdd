//! The runs and their figures.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::check::{self, Seen};
use super::client::Events;
use super::gateway::Gateway;
use super::{Outcome, Plan, pipe};

/// A figure, and the same as a sentence.
type Figure = (Value, String);

/// A flood to some readers at once, and its replay.
pub(crate) fn throughput(gateway: &Gateway, plan: &Plan, readers: usize) -> Outcome<[Figure; 2]> {
    let (session, after) = gateway.session()?;
    let streams = open(gateway, &session, Some(&after), readers)?;
    let begin = Instant::now();
    let prompt = gateway.prompt(&session, &format!("flood n={} size={}", plan.n, plan.size))?;
    let live = read(streams, &prompt, plan.n)?;
    let live = figure("throughput", plan, readers, &live, begin.elapsed());
    let begin = Instant::now();
    let again = read(open(gateway, &session, None, readers)?, &prompt, plan.n)?;
    Ok([live, figure("replay", plan, readers, &again, begin.elapsed())])
}

/// Paced updates: the gateway's latency beside a bare pipe's.
pub(crate) fn latency(gateway: &Gateway, plan: &Plan) -> Outcome<Figure> {
    let text = format!("flood n={} rate={} size={} marker=1", plan.paced, plan.rate, plan.size);
    let bare = Spread::new(pipe::latencies(&text)?)?;
    let (session, after) = gateway.session()?;
    let streams = open(gateway, &session, Some(&after), 1)?;
    let prompt = gateway.prompt(&session, &text)?;
    let seen = read(streams, &prompt, plan.paced)?;
    let through = Spread::new(seen.into_iter().flat_map(|seen| seen.latencies).collect())?;
    let added = |a: f64, b: f64| (a - b).max(0.0);
    let (p50, p99) = (added(through.p50, bare.p50), added(through.p99, bare.p99));
    let figure = json!({
        "figure": "latency", "n": plan.paced, "rate": plan.rate, "size": plan.size, "unit": "us",
        "p50": through.p50, "p99": through.p99, "max": through.max,
        "pipe": { "p50": bare.p50, "p99": bare.p99, "max": bare.max },
        "added": { "p50": p50, "p99": p99 },
    });
    let text = format!(
        "latency at {}/s: p50 {:.0} us, p99 {:.0} us, max {:.0} us; added to a bare pipe: p50 {p50:.0} us, p99 {p99:.0} us",
        plan.rate, through.p50, through.p99, through.max
    );
    Ok((figure, text))
}

fn open(gateway: &Gateway, session: &str, after: Option<&str>, readers: usize) -> Outcome<Vec<Events>> {
    (0..readers).map(|_| gateway.events(session, after)).collect()
}

/// Each stream to the end of the turn, in a thread of its own.
fn read(streams: Vec<Events>, prompt: &str, expected: u32) -> Outcome<Vec<Seen>> {
    let seen: Vec<Outcome<Seen>> = thread::scope(|scope| {
        let readers: Vec<_> =
            streams.into_iter().map(|events| scope.spawn(move || check::turn(events, prompt))).collect();
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err("a reader panicked".into())))
            .collect()
    });
    let seen: Vec<Seen> = seen.into_iter().collect::<Outcome<_>>()?;
    match seen.iter().find(|seen| seen.updates != expected) {
        Some(short) => Err(format!("{} of {expected} updates came", short.updates).into()),
        None => Ok(seen),
    }
}

fn figure(name: &str, plan: &Plan, readers: usize, seen: &[Seen], time: Duration) -> Figure {
    let seconds = time.as_secs_f64();
    let each = f64::from(plan.n) / seconds;
    let delivered: u32 = seen.iter().map(|seen| seen.updates).sum();
    let bytes: u64 = seen.iter().map(|seen| seen.bytes).sum();
    let kilobytes = u32::try_from(bytes / 1000).unwrap_or(u32::MAX);
    let megabytes = f64::from(kilobytes) / 1000.0 / seconds;
    let all = f64::from(delivered) / seconds;
    let figure = json!({
        "figure": name, "n": plan.n, "size": plan.size, "readers": readers, "seconds": seconds,
        "eventsPerSecond": each, "deliveredPerSecond": all, "megabytesPerSecond": megabytes,
    });
    let text = format!(
        "{name}: {} events of {} bytes to {readers} readers in {seconds:.2} s: {each:.0} events/s, \
         {all:.0} delivered/s, {megabytes:.0} MB/s",
        plan.n, plan.size
    );
    (figure, text)
}

/// Microseconds.
struct Spread {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    fn new(mut nanoseconds: Vec<u64>) -> Outcome<Self> {
        nanoseconds.sort_unstable();
        let at = |part: usize| {
            let nanoseconds =
                nanoseconds.get((nanoseconds.len() * part / 100).min(nanoseconds.len().saturating_sub(1)));
            nanoseconds
                .map(|time| Duration::from_nanos(*time).as_secs_f64() * 1e6)
                .ok_or("no update had a marker")
        };
        Ok(Self { p50: at(50)?, p99: at(99)?, max: at(100)? })
    }
}
