//! Readers that never read, next to healthy readers: the loss of the healthy ones, and the cost of each stalled one.

use std::path::Path;

use super::{Sample, with};
use crate::agent::Prompt;
use crate::load::{self, Plan};
use crate::targets::{Running, Target};
use crate::{Outcome, proc};

const HEALTHY: usize = 100;
const STALLED: usize = 10;
/// A number at which their memory exceeds the noise.
const MANY: usize = 200;

/// Measures with and without stalled readers, in one process that has already run the same load. The order
/// alternates between rounds.
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
            // The stalled readers stay connected until the report is dropped.
            let grown = proc::rss(&holders) - before;
            Ok((report, grown))
        };
        run(running, plan)?;
        let beside = Plan {
            stalled: STALLED,
            ..plan
        };
        let ((without, _), (with, _)) = if round.is_multiple_of(2) {
            (run(running, plan)?, run(running, beside)?)
        } else {
            let with = run(running, beside)?;
            (run(running, plan)?, with)
        };
        // The memory of a session itself is subtracted.
        let (alone, usual) = run(running, Plan { readers: 1, ..plan })?;
        let (crowded, grown) = run(
            running,
            Plan {
                readers: 1,
                stalled: MANY,
                ..plan
            },
        )?;
        let sample = Sample::default()
            .checked(&without)
            .checked(&with)
            .checked(&alone)
            .checked(&crowded);
        Ok(sample.with([
            ("events_s", with.per_second()),
            ("healthy", with.per_second() / without.per_second()),
            ("kib_per_stalled", (grown - usual).max(0.0) / MANY as f64),
        ]))
    })
}
