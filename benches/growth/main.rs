//! The cost of a large log: fills a data directory as a gateway would, then measures the real binary on it.
//!
//! `cargo bench --bench growth` accepts `-- sessions=20000 events=100 long=5000000 run=32 data=DIR`: the
//! number of sessions, the number of events of each, and one session with `long` events. First a gateway
//! creates one session. All others are copies: `RecordStore::commit` writes its records and events with other
//! ids. Results are lines of JSON.
//!
//! `data=DIR` keeps the directory, and uses an existing one again. `gateway=FILE` measures another build.

mod client;
mod fill;
mod gateway;
mod measure;
#[path = "../../tests/it/support/replaced.rs"]
mod replaced;
mod template;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use gateway::Installation;
use serde_json::Value;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The values that the command line may change.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) sessions: u64,
    /// Events of each session.
    pub(crate) events: u64,
    /// Events of the long session.
    pub(crate) long: u64,
    /// Events of a run: the output of an agent between two commits.
    pub(crate) run: u64,
    pub(crate) data: Option<PathBuf>,
    pub(crate) gateway: PathBuf,
}

impl Plan {
    /// Arguments that are not `key=value` belong to cargo and are ignored. cargo passes `--bench` for a
    /// measurement. Otherwise a small run tests that the benchmark works.
    fn parse(args: impl Iterator<Item = String>) -> Outcome<Self> {
        let gateway = env!("CARGO_BIN_EXE_acp-gateway").into();
        let mut plan = Self {
            sessions: 50,
            events: 20,
            long: 2000,
            run: 32,
            data: None,
            gateway,
        };
        for arg in args {
            if arg == "--bench" {
                plan = Self {
                    sessions: 1000,
                    events: 100,
                    long: 100_000,
                    ..plan
                };
            }
            match arg.split_once('=') {
                Some(("sessions", value)) => plan.sessions = value.parse()?,
                Some(("events", value)) => plan.events = value.parse()?,
                Some(("long", value)) => plan.long = value.parse()?,
                Some(("run", value)) => plan.run = value.parse()?,
                Some(("data", value)) => plan.data = Some(value.into()),
                Some(("gateway", value)) => plan.gateway = value.into(),
                Some(_) => return Err(format!("unknown argument {arg}").into()),
                None => {}
            }
        }
        if plan.sessions == 0 || plan.run == 0 || plan.events < 10 || plan.long < 10 {
            return Err("at least one session, one event a run and ten events a session".into());
        }
        Ok(plan)
    }
}

fn main() -> ExitCode {
    match Plan::parse(std::env::args().skip(1)).and_then(|plan| run(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // There is no other channel for the error if stderr is closed.
            drop(writeln!(std::io::stderr(), "growth: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(plan: &Plan) -> Outcome {
    let own = tempfile::tempdir()?;
    let folder = plan.data.clone().unwrap_or_else(|| own.path().to_owned());
    let installation = Installation {
        program: plan.gateway.clone(),
        folder: folder.clone(),
    };
    if folder.join("data").exists() {
        report(&serde_json::json!({ "figure": "fill", "there": true }))?;
    } else {
        std::fs::create_dir_all(&folder)?;
        let template = template::make(&installation)?;
        report(&fill::fill(&folder, &template, plan)?)?;
    }
    measure::all(&installation, &mut report)
}

fn report(figure: &Value) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{figure}")?;
    Ok(stdout.flush()?)
}
