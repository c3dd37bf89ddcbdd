//! The time from the start of the program to its first answer, and its cost while idle.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Sample;
use crate::stats::Spread;
use crate::targets::{Gateway, Running as _};
use crate::{Outcome, proc};

const STARTS: usize = 5;
const CREATIONS: usize = 20;

/// The data directory exists already, as at every start except the first.
pub(super) fn measure(gateway: &Gateway, folder: &Path) -> Outcome<Sample> {
    fs::create_dir_all(folder)?;
    let (mut first, address) = gateway.launch(folder)?;
    first.answers(address, "/readyz")?;
    first.stop()?;
    let mut starts = Vec::new();
    let mut memory = Vec::new();
    let mut threads = 0.0;
    for _ in 0..STARTS {
        let begun = Instant::now();
        let (mut server, address) = gateway.launch(folder)?;
        server.answers(address, "/readyz")?;
        starts.push(begun.elapsed().as_secs_f64() * 1000.0);
        std::thread::sleep(Duration::from_millis(500));
        memory.push(proc::rss(&[server.pid()]) / 1024.0);
        threads = proc::threads(server.pid());
        server.stop()?;
    }
    let creations = creations(gateway, folder)?;
    fs::remove_dir_all(folder)?;
    let median = |figures| Spread::of(figures).map_or(f64::NAN, |spread| spread.median);
    Ok(Sample::default().with([
        ("cold_ms", median(starts)),
        ("idle_mib", median(memory)),
        ("threads", threads),
        ("binary_mib", gateway.size()?),
        ("create_ms", median(creations)),
    ]))
}

/// Creates sessions with an idle process of the agent for each.
fn creations(gateway: &Gateway, folder: &Path) -> Outcome<Vec<f64>> {
    let up = gateway.up(folder)?;
    up.create()?;
    let mut took = Vec::new();
    for _ in 0..CREATIONS {
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        up.create()?;
        took.push(begun.elapsed().as_secs_f64() * 1000.0);
    }
    Box::new(up).stop()?;
    Ok(took)
}
