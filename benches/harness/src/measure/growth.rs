//! The cost of the gateway's calls with many sessions, and with a long log of a session.

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::{Sample, Scale};
use crate::Outcome;
use crate::agent::Prompt;
use crate::load::{self, Plan};
use crate::stats::Spread;
use crate::targets::{Gateway, GatewayUp, Running as _};

/// The number of calls per kind. The result is their median.
const CALLS: usize = 20;
/// The number of events per prompt while a log grows.
const STEP: u64 = 100_000;

/// The name of a result contains the measurement and the size: `list_ms@1000 sessions`.
pub(super) fn measure(gateway: &Gateway, scale: &Scale, folder: &Path) -> Outcome<Sample> {
    fs::create_dir_all(folder)?;
    let gateway = gateway.crowded();
    let mut sample = Sample::default();
    let up = gateway.up(folder)?;
    let mut ids = Vec::new();
    for &sessions in &scale.sessions {
        while ids.len() < sessions {
            ids.push(up.create()?.0);
        }
        with_sessions(&up, &ids, &mut sample)?;
    }
    let (id, last) = up.create()?;
    let mut written = 0;
    let mut speed = (f64::NAN, f64::NAN);
    for &events in &scale.events {
        while written < events {
            let n = STEP.min(events - written);
            let report = load::live(&up, &[up_now(&up, &id)?], Plan::new(1, Prompt::burst(n)))?;
            sample = sample.checked(&report);
            written += n;
            speed = (report.per_second(), report.cpu_per_million());
        }
        sample
            .figures
            .insert(format!("append_s@{written} events"), speed.0);
        sample
            .figures
            .insert(format!("append_cpu_per_m@{written} events"), speed.1);
        with_events(&up, &id, &last, written, &mut sample)?;
    }
    // The next start must find all the data.
    Box::new(up).stop()?;
    let begun = Instant::now();
    let up = gateway.up(folder)?;
    let name = format!(
        "start_ms@{} sessions and events",
        ids.len() as u64 + written
    );
    sample
        .figures
        .insert(name, begun.elapsed().as_secs_f64() * 1000.0);
    Box::new(up).stop()?;
    fs::remove_dir_all(folder)?;
    Ok(sample)
}

/// The session, followed from its end.
fn up_now(up: &GatewayUp, id: &str) -> Outcome<crate::targets::Session> {
    let session = up.ask("GET", &format!("/v1/sessions/{id}"), None, 200)?;
    let last = session["lastEventId"]
        .as_str()
        .ok_or("a session without its last event")?
        .to_owned();
    Ok(up.followed(id, &last))
}

fn with_sessions(up: &GatewayUp, ids: &[String], sample: &mut Sample) -> Outcome {
    let mut put = |name: &str, figure: f64| {
        sample
            .figures
            .insert(format!("{name}@{} sessions", ids.len()), figure);
    };
    put(
        "list_ms",
        median(|_| up.ask("GET", "/v1/sessions?limit=50", None, 200).map(drop))?,
    );
    let spread = ids.len() / CALLS;
    put(
        "open_ms",
        median(|call| {
            up.ask(
                "GET",
                &format!("/v1/sessions/{}", ids[call * spread]),
                None,
                200,
            )
            .map(drop)
        })?,
    );
    let (id, last) = up.create()?;
    put(
        "prompt_us",
        load::first_events(&up.followed(&id, &last), CALLS)?.quantile(0.5),
    );
    put("rss_mib", crate::proc::rss(&up.workers()) / 1024.0);
    Ok(())
}

fn with_events(up: &GatewayUp, id: &str, first: &str, events: u64, sample: &mut Sample) -> Outcome {
    let mut put = |name: &str, figure: f64| {
        sample
            .figures
            .insert(format!("{name}@{events} events"), figure);
    };
    let (epoch, seq) = first.rsplit_once('-').ok_or("an id without a number")?;
    let middle = seq.parse::<u64>()? + events / 2;
    let session = up.followed(id, &format!("{epoch}-{middle}"));
    let mut firsts = Vec::new();
    for _ in 0..CALLS {
        firsts.push(load::first_of(&session)? as f64 / 1e6);
    }
    put(
        "middle_ms",
        Spread::of(firsts).map_or(f64::NAN, |spread| spread.median),
    );
    // The replay ends when no more events arrive.
    let report = load::replay(
        up,
        &up.followed(id, first),
        Plan::new(1, Prompt::burst(u64::MAX)),
    )?;
    put("replay_s", report.per_second());
    put(
        "open_ms",
        median(|_| {
            up.ask("GET", &format!("/v1/sessions/{id}"), None, 200)
                .map(drop)
        })?,
    );
    put(
        "prompt_us",
        load::first_events(&up_now(up, id)?, CALLS)?.quantile(0.5),
    );
    Ok(())
}

/// The median of several calls, in milliseconds.
fn median(mut call: impl FnMut(usize) -> Outcome) -> Outcome<f64> {
    let mut took = Vec::new();
    for number in 0..CALLS {
        let begun = Instant::now();
        call(number)?;
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Spread::of(took)
        .map(|spread| spread.median)
        .ok_or_else(|| "no call was made".into())
}
