//! Load on a whole gateway: the real binary, the synthetic agent, readers over loopback.
//!
//! `cargo bench --bench load` runs all; `-- n=20000 readers=1,8 rate=200 paced=1000 size=64` chooses the figures.
//! Every event of every reader is checked: each once, in order. Each figure is a line of JSON and a line to read:
//!
//! - `throughput`: a flood of `n` updates, from the prompt's POST until every one of the readers has its end.
//! - `replay`: the same log again, read from its beginning.
//! - `latency`: `paced` updates at `rate` a second; from the agent's write to the reader's read. `added` is what
//!   the gateway adds to the same agent read through a bare pipe.
//!
//! There is no target yet, so nothing fails but an event that is lost, doubled or out of order.

mod check;
mod client;
mod gateway;
mod measure;
mod pipe;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use serde_json::Value;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// The figures that the command line may change.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Updates of a flood.
    pub(crate) n: u32,
    /// Bytes of text in each.
    pub(crate) size: u32,
    /// Readers of the session at once, a run each.
    pub(crate) readers: Vec<usize>,
    /// Updates a second in the paced run, and how many.
    pub(crate) rate: u32,
    pub(crate) paced: u32,
}

impl Plan {
    /// What is no `key=value` of ours is cargo's and passes by. It gives `--bench` when it measures; without that
    /// (`cargo test --benches`) a small run shows that this still works.
    fn parse(args: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut plan = Self { n: 1000, size: 64, readers: vec![1, 2], rate: 200, paced: 20 };
        for arg in args {
            if arg == "--bench" {
                plan = Self { n: 100_000, readers: vec![1, 8], paced: 1000, ..plan };
            }
            match arg.split_once('=') {
                Some(("n", value)) => plan.n = value.parse()?,
                Some(("size", value)) => plan.size = value.parse()?,
                Some(("rate", value)) => plan.rate = value.parse()?,
                Some(("paced", value)) => plan.paced = value.parse()?,
                Some(("readers", value)) => {
                    plan.readers = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
                }
                Some(_) => return Err(format!("unknown argument {arg}").into()),
                None => {}
            }
        }
        Ok(plan)
    }
}

fn main() -> ExitCode {
    match Plan::parse(std::env::args().skip(1)).and_then(|plan| run(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With stderr gone there is nobody left to tell.
            drop(writeln!(std::io::stderr(), "load: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(plan: &Plan) -> Outcome {
    let gateway = gateway::Gateway::start()?;
    for readers in &plan.readers {
        for (figure, text) in measure::throughput(&gateway, plan, *readers)? {
            report(&figure, &text)?;
        }
    }
    let (figure, text) = measure::latency(&gateway, plan)?;
    report(&figure, &text)?;
    gateway.stop()
}

fn report(figure: &Value, text: &str) -> Outcome {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{figure}\n# {text}")?;
    Ok(stdout.flush()?)
}
