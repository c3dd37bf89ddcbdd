//! The measurements. Each one starts a new server, so that no cache affects the next one.

mod cold;
mod growth;
mod replay;
mod stalled;
mod sync;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::agent::Prompt;
use crate::load::{self, Plan, Report};
use crate::targets::{Running, Session, Target};
use crate::{Outcome, proc};

/// Values by name.
pub(crate) type Figures = BTreeMap<String, f64>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Test {
    /// One session with one reader, at full speed.
    Single,
    /// One session with 1000 readers, at full speed.
    Fan,
    /// One session with 1000 readers, 50 events per second.
    Paced,
    /// One session with one reader, 1000 events per second.
    Latency,
    /// The time from a prompt to its first event.
    Prompt,
    /// A hundred sessions with one reader each, at full speed.
    Many,
    /// Streams without events.
    Idle,
    /// The time from the start of the program to the first answer.
    Cold,
    /// Ten readers of an existing log.
    Replay,
    /// A hundred readers, and ten readers that never read.
    Stalled,
    /// The syntax of the stream, and consecutive ids.
    Strict,
    /// The cost of more sessions and longer logs.
    Growth,
}

impl Test {
    pub(crate) const ALL: [Self; 12] = [
        Self::Single,
        Self::Fan,
        Self::Paced,
        Self::Latency,
        Self::Prompt,
        Self::Many,
        Self::Idle,
        Self::Cold,
        Self::Replay,
        Self::Stalled,
        Self::Strict,
        Self::Growth,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Fan => "fan",
            Self::Paced => "paced",
            Self::Latency => "latency",
            Self::Prompt => "prompt",
            Self::Many => "many",
            Self::Idle => "idle",
            Self::Cold => "cold",
            Self::Replay => "replay",
            Self::Stalled => "stalled",
            Self::Strict => "strict",
            Self::Growth => "growth",
        }
    }
}

/// The result of a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) figures: Figures,
    /// The number of readers, and of complete readers.
    pub(crate) readers: usize,
    pub(crate) complete: usize,
    /// The error, if there was one.
    pub(crate) complaint: Option<String>,
}

impl Sample {
    /// Counts the readers of a run.
    fn checked(mut self, report: &Report) -> Self {
        self.readers += report.readers;
        self.complete += report.complete;
        if report.faults > 0 {
            self.complete = self.complete.min(self.readers - 1);
            self.complaint = Some(format!(
                "{} faults in the form of the streams",
                report.faults
            ));
        }
        self.complaint = self.complaint.or_else(|| report.complaint.clone());
        self
    }

    fn with(mut self, figures: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        self.figures.extend(
            figures
                .into_iter()
                .map(|(name, figure)| (name.to_owned(), figure)),
        );
        self
    }
}

/// The size of the measurements.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    /// Divides the number of events.
    pub(crate) divisor: u64,
    /// The readers of the fan, and the maximum number of idle streams.
    pub(crate) fan: usize,
    pub(crate) idle: usize,
    /// The numbers of sessions, and of events of one session, for the growth measurement.
    pub(crate) sessions: Vec<usize>,
    pub(crate) events: Vec<u64>,
}

/// Measures one target. Returns `None` if the target does not support the test.
pub(crate) fn measure(
    test: Test,
    target: &dyn Target,
    scale: &Scale,
    round: usize,
    folder: &Path,
) -> Outcome<Option<Sample>> {
    let amounts = target.amounts();
    let less = |amount: u64| (amount / scale.divisor).max(20);
    let run = |sessions: usize, plan: Plan| live(target, folder, sessions, plan).map(Some);
    match test {
        Test::Single => run(1, Plan::new(1, Prompt::burst(less(amounts.single)))),
        Test::Latency => {
            let sample = live(
                target,
                folder,
                1,
                Plan::new(1, Prompt::paced(less(3000), 1000)),
            )?;
            synced(sample, target, folder, Duration::from_millis(1)).map(Some)
        }
        Test::Prompt => {
            // Enough prompts that p99 is not a single slow one.
            let sample = prompt(target, folder, usize::try_from(less(1000))?)?;
            synced(sample, target, folder, Duration::from_millis(5)).map(Some)
        }
        Test::Fan => match amounts.fan {
            Some(n) => run(1, Plan::new(scale.fan, Prompt::burst(less(n)))),
            None => Ok(None),
        },
        Test::Paced => match amounts.fan {
            Some(_) => run(
                1,
                Plan::new(scale.fan, Prompt::paced(less(150).max(50), 50)),
            ),
            None => Ok(None),
        },
        Test::Many => match amounts.sessions {
            Some(n) => run(100, Plan::new(1, Prompt::burst(less(n)))),
            None => Ok(None),
        },
        Test::Idle => match amounts.idle {
            Some(streams) => idle(target, folder, streams.min(scale.idle)).map(Some),
            None => Ok(None),
        },
        Test::Cold => target
            .gateway()
            .map(|gateway| cold::measure(gateway, folder))
            .transpose(),
        Test::Replay => match amounts.replay {
            Some(n) => replay::measure(target, folder, less(n)).map(Some),
            None => Ok(None),
        },
        Test::Stalled => match amounts.stalled {
            Some(n) => stalled::measure(target, folder, less(n), round).map(Some),
            None => Ok(None),
        },
        Test::Strict if target.gateway().is_some() => run(
            1,
            Plan {
                strict: true,
                ..Plan::new(50, Prompt::burst(less(20_000)))
            },
        ),
        Test::Strict => Ok(None),
        Test::Growth => target
            .gateway()
            .map(|gateway| growth::measure(gateway, scale, folder))
            .transpose(),
    }
}

/// Adds the duration of a disk sync at the same rate, for a target that waits for its syncs.
fn synced(sample: Sample, target: &dyn Target, folder: &Path, pause: Duration) -> Outcome<Sample> {
    if target.gateway().is_none() {
        return Ok(sample);
    }
    Ok(sample.with([("sync_us", sync::measure(folder, pause)?)]))
}

/// Starts the target on an empty directory, and stops it in any case.
fn with<T>(
    target: &dyn Target,
    folder: &Path,
    measured: impl FnOnce(&mut dyn Running) -> Outcome<T>,
) -> Outcome<T> {
    fs::create_dir_all(folder)?;
    let mut running = target.start(folder)?;
    let result = measured(running.as_mut());
    let stopped = running.stop();
    fs::remove_dir_all(folder)?;
    let result = result?;
    // A failed stop is an error of the gateway. For other servers it is ignored.
    if target.gateway().is_some() {
        stopped?;
    }
    Ok(result)
}

fn sessions(running: &mut dyn Running, count: usize) -> Outcome<Vec<Session>> {
    (0..count).map(|number| running.session(number)).collect()
}

fn live(target: &dyn Target, folder: &Path, count: usize, plan: Plan) -> Outcome<Sample> {
    with(target, folder, |running| {
        let sessions = sessions(running, count)?;
        let report = load::live(running, &sessions, plan)?;
        Ok(described(&report))
    })
}

/// The values of a run.
fn described(report: &Report) -> Sample {
    let latency = |part: f64| report.latency.quantile(part);
    Sample::default().checked(report).with([
        ("events_s", report.per_second()),
        ("mb_s", report.bytes as f64 / 1e6 / report.seconds.max(1e-9)),
        ("cpu_per_m", report.cpu_per_million()),
        ("p50_us", latency(0.5)),
        ("p99_us", latency(0.99)),
        ("p999_us", latency(0.999)),
    ])
}

fn prompt(target: &dyn Target, folder: &Path, times: usize) -> Outcome<Sample> {
    with(target, folder, |running| {
        let session = running.session(0)?;
        let workers = running.workers();
        let before = proc::cpu(&workers);
        let latency = load::first_events(&session, times)?;
        let cpu = (proc::cpu(&workers) - before) as f64 / 1e3;
        Ok(Sample {
            readers: 1,
            complete: 1,
            ..Sample::default()
        }
        .with([
            ("p50_us", latency.quantile(0.5)),
            ("p99_us", latency.quantile(0.99)),
            ("cpu_us", cpu / times as f64),
        ]))
    })
}

fn idle(target: &dyn Target, folder: &Path, streams: usize) -> Outcome<Sample> {
    with(target, folder, |running| {
        let session = running.session(0)?;
        let holders = running.holders();
        let before = proc::rss(&holders);
        let (after, took) = load::idle(&session, streams, || proc::rss(&holders))?;
        Ok(Sample {
            readers: streams,
            complete: streams,
            ..Sample::default()
        }
        .with([
            ("streams", streams as f64),
            ("kib_per_stream", (after - before).max(0.0) / streams as f64),
            ("connect_s", took.as_secs_f64()),
        ]))
    })
}
