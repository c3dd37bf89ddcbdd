//! Readers that never read, beside others that do: what the others lose, and what each costs.

use std::path::Path;

use super::{Sample, with};
use crate::agent::Prompt;
use crate::load::{self, Plan};
use crate::targets::{Running, Target};
use crate::{Outcome, proc};

const HEALTHY: usize = 100;
const STALLED: usize = 10;
/// So many that what they cost stands out of what memory does by itself.
const MANY: usize = 200;

/// With and without, in one process that has seen the same load before. Which comes first changes with the round.
pub(super) fn measure(target: &dyn Target, folder: &Path, n: u64, round: usize) -> Outcome<Sample> {
    let plan = Plan::new(HEALTHY, Prompt::burst(n));
    with(target, folder, |running| {
        let holders = running.holders();
        let mut number = 0;
        let mut run = |running: &mut dyn Running, plan: Plan| -> Outcome<_> {
            let before = proc::rss(&holders);
            let session = running.session(number)?;
            number += 1;
            let report = load::live(running, &[session], plan)?;
            // Those that never read are connected until the report goes.
            let grown = proc::rss(&holders) - before;
            Ok((report, grown))
        };
        run(running, plan)?;
        let beside = Plan { stalled: STALLED, ..plan };
        let ((without, _), (with, _)) = if round.is_multiple_of(2) {
            (run(running, plan)?, run(running, beside)?)
        } else {
            let with = run(running, beside)?;
            (run(running, plan)?, with)
        };
        // A session costs memory by itself.
        let (alone, usual) = run(running, Plan { readers: 1, ..plan })?;
        let (crowded, grown) = run(running, Plan { readers: 1, stalled: MANY, ..plan })?;
        let sample = Sample::default().checked(&without).checked(&with).checked(&alone).checked(&crowded);
        Ok(sample.with([
            ("events_s", with.per_second()),
            ("healthy", with.per_second() / without.per_second()),
            ("kib_per_stalled", (grown - usual).max(0.0) / MANY as f64),
        ]))
    })
}
