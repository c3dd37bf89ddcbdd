//! The measurements on a filled directory. Each result is a line of JSON. Times are in milliseconds.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use base::types::Ids;
use log::limits::Limits;
use log::store::{EventStore as _, Maintenance as _, RecordStore as _, SqliteStore, Table};

use super::Outcome;
use super::fill::title;
use super::gateway::{Gateway, Installation};
use super::template::log;

/// The number of updates of a measured turn.
const FLOOD: u32 = 20_000;

/// The positions in the log that the measurements use.
struct Places {
    sessions: usize,
    events: u64,
    epoch: String,
    /// The long session and its last seq.
    long: (String, u64),
    /// A sample of the other sessions.
    some: Vec<String>,
    /// A cursor in the middle of the list.
    middle: String,
}

pub(crate) fn all(
    installation: &Installation,
    report: &mut dyn FnMut(&Value) -> Outcome,
) -> Outcome {
    let places = places(installation)?;
    let starts = (0..3)
        .map(|_| start(installation))
        .collect::<Outcome<Vec<_>>>()?;
    let gateway = Gateway::start(installation, "")?;
    std::thread::sleep(Duration::from_secs(1));
    report(&json!({
        "figure": "start", "sessions": places.sessions, "events": places.events, "ready": median(starts),
        "rssKiB": gateway.memory("VmRSS")?, "anonymousKiB": gateway.memory("RssAnon")?,
    }))?;
    lists(&gateway, &places, report)?;
    opens(&gateway, &places, report)?;
    streams(&gateway, &places, report)?;
    let resident = gateway.memory("RssAnon")?;
    report(&json!({ "figure": "after", "anonymousKiB": resident }))?;
    appends(&gateway, &places, report)?;
    gateway.stop()?;
    pruning(installation, report)
}

fn start(installation: &Installation) -> Outcome<f64> {
    let gateway = Gateway::start(installation, "")?;
    let ready = gateway.ready;
    gateway.stop()?;
    Ok(millis(ready))
}

fn places(installation: &Installation) -> Outcome<Places> {
    let store = SqliteStore::open(
        &log(&installation.folder),
        Ids::system(),
        &Limits::default(),
    )?;
    let mut logs = store.usages(usize::MAX, &|_| true);
    logs.sort_by_key(|log| std::cmp::Reverse(log.last_seq));
    let long = logs.first().ok_or("no session")?;
    let others = &logs[1..];
    let some = others
        .iter()
        .step_by((others.len() / 100).max(1))
        .map(|log| log.session.to_string());
    let mut keys = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    while keys.len() < logs.len() / 2 {
        let page = store.scan(Table::SessionIndex, b"", after.as_deref(), 1000)?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        keys.extend(page.into_iter().map(|(key, _)| key));
    }
    Ok(Places {
        sessions: logs.len(),
        events: store.tail().last_pos,
        epoch: store.epoch().to_string(),
        long: (long.session.to_string(), long.last_seq),
        some: some.collect(),
        middle: URL_SAFE_NO_PAD.encode(keys.get(logs.len() / 2).or(keys.last()).ok_or("no index")?),
    })
}

fn lists(gateway: &Gateway, places: &Places, report: &mut dyn FnMut(&Value) -> Outcome) -> Outcome {
    let page = |path: &str| timed(30, || gateway.get(path).map(drop));
    let first = page("/v1/sessions?limit=20")?;
    let deep = page(&format!("/v1/sessions?limit=20&cursor={}", places.middle))?;
    // This session was changed long ago, so the search reads the whole list.
    let searched = title(1);
    let began = Instant::now();
    let mut requests = 0;
    let mut longest = Duration::ZERO;
    let mut cursor = String::new();
    loop {
        let asked = Instant::now();
        let q = searched.replace(' ', "%20");
        let found = gateway.get(&format!("/v1/sessions?limit=20&q={q}{cursor}"))?;
        longest = longest.max(asked.elapsed());
        requests += 1;
        match found["nextCursor"].as_str() {
            Some(next) if found["sessions"] == json!([]) => cursor = format!("&cursor={next}"),
            _ if found["sessions"][0]["title"] == searched.as_str() => break,
            _ => return Err(format!("{searched} was not found: {found}").into()),
        }
    }
    report(&json!({
        "figure": "list", "first": first, "middle": deep, "search": millis(began.elapsed()),
        "searchRequests": requests, "searchRequest": millis(longest),
    }))
}

fn opens(gateway: &Gateway, places: &Places, report: &mut dyn FnMut(&Value) -> Outcome) -> Outcome {
    let mut times = Vec::new();
    for session in &places.some {
        times.push(once(|| {
            gateway.get(&format!("/v1/sessions/{session}")).map(drop)
        })?);
    }
    let long = once(|| {
        gateway
            .get(&format!("/v1/sessions/{}", places.long.0))
            .map(drop)
    })?;
    report(&json!({ "figure": "open", "cold": median(times), "coldLong": long }))
}

fn streams(
    gateway: &Gateway,
    places: &Places,
    report: &mut dyn FnMut(&Value) -> Outcome,
) -> Outcome {
    let (long, last) = &places.long;
    let epoch = &places.epoch;
    let first = |path: &str, id: String| {
        timed(10, || {
            let (found, _) = gateway.events(path)?.next()?;
            if found == id {
                Ok(())
            } else {
                Err(format!("{path}: {found} and not {id}").into())
            }
        })
    };
    let replay = |seq: u64| {
        first(
            &format!("/v1/sessions/{long}/events?after={epoch}-{seq}"),
            format!("{epoch}-{}", seq + 1),
        )
    };
    let begin = replay(1)?;
    let middle = replay(last / 2)?;
    let end = replay(last - 2)?;
    let pos = places.events / 2;
    let all = timed(10, || {
        gateway
            .events(&format!("/v1/events?after={epoch}-g{pos}&types=session."))?
            .next()
            .map(drop)
    })?;
    let one = places.some.last().unwrap_or(long);
    let named = timed(10, || {
        gateway
            .events(&format!("/v1/events?session={one}"))?
            .next()
            .map(drop)
    })?;
    report(&json!({
        "figure": "firstEvent", "begin": begin, "middle": middle, "end": end, "allFromTheMiddle": all,
        "allOfOneSession": named,
    }))
}

/// The cost of an event at the end of the long session, and in a new session.
fn appends(
    gateway: &Gateway,
    places: &Places,
    report: &mut dyn FnMut(&Value) -> Outcome,
) -> Outcome {
    let new = gateway.send("POST", "/v1/sessions", &json!({ "agent": "fake" }))?;
    let new = new["sessionId"].as_str().ok_or("no id")?.to_owned();
    gateway.send(
        "POST",
        &format!("/v1/sessions/{}/attach", places.long.0),
        &json!({}),
    )?;
    let mut figures = Vec::new();
    for session in [&new, &places.long.0, &new, &places.long.0] {
        let cpu = gateway.cpu()?;
        let began = Instant::now();
        turn(gateway, session, &format!("flood n={FLOOD} size=64"))?;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(FLOOD);
        figures.push(json!({
            "long": *session == places.long.0, "microsecondsPerEvent": each(began.elapsed()),
            "cpuMicrosecondsPerEvent": each(gateway.cpu()?.checked_sub(cpu).unwrap_or_default()),
        }));
    }
    report(&json!({ "figure": "append", "turns": figures }))
}

/// Runs a turn from its prompt to its end.
fn turn(gateway: &Gateway, session: &str, prompt: &str) -> Outcome {
    let last = gateway.get(&format!("/v1/sessions/{session}"))?["lastEventId"].clone();
    let last = last.as_str().ok_or("no id")?;
    let mut events = gateway.events(&format!("/v1/sessions/{session}/events?after={last}"))?;
    gateway.send(
        "POST",
        &format!("/v1/sessions/{session}/prompts"),
        &json!({ "prompt": prompt }),
    )?;
    loop {
        match events.next()?.1.as_str() {
            "prompt.completed" => return Ok(()),
            "prompt.failed" => return Err(format!("the turn of {session} failed").into()),
            _ => {}
        }
    }
}

/// The duration of a small turn while retention deletes most events of the long session, and without other work.
fn pruning(installation: &Installation, report: &mut dyn FnMut(&Value) -> Outcome) -> Outcome {
    let quiet = turns(&Gateway::start(installation, "")?, None)?;
    let gateway = Gateway::start(installation, "retention.max_session_bytes = \"1MiB\"")?;
    // The write triggers retention, so there is no wait for its interval.
    let busy = turns(&gateway, Some("flood n=2000 size=64"))?;
    gateway.stop()?;
    report(&json!({ "figure": "turnWhilePruned", "quiet": quiet, "pruned": busy }))
}

fn turns(gateway: &Gateway, first: Option<&str>) -> Outcome<Value> {
    let new = gateway.send("POST", "/v1/sessions", &json!({ "agent": "fake" }))?;
    let session = new["sessionId"].as_str().ok_or("no id")?.to_owned();
    turn(gateway, &session, "say hello")?;
    if let Some(prompt) = first {
        turn(gateway, &session, prompt)?;
    }
    let mut times = Vec::new();
    for _ in 0..200 {
        times.push(once(|| turn(gateway, &session, "say hello"))?);
    }
    times.sort_by(f64::total_cmp);
    Ok(json!({ "p50": times[99], "p99": times[197] }))
}

fn timed(count: usize, mut work: impl FnMut() -> Outcome) -> Outcome<f64> {
    let times = (0..count)
        .map(|_| once(&mut work))
        .collect::<Outcome<Vec<_>>>()?;
    Ok(median(times))
}

fn once(work: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let began = Instant::now();
    work()?;
    Ok(millis(began.elapsed()))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
