//! The limits that the CI checks, on values that do not depend on the load of the machine.
//!
//! Processor time and memory are counted, not timed, so other processes do not change them. Speed depends on
//! the load, and this check does not include it. The limits allow for the remaining noise.

use crate::measure::{Scale, Test};
use crate::results::Results;
use crate::targets::{GATEWAY, LIMIT};

pub(crate) const TESTS: [Test; 4] = [Test::Fan, Test::Idle, Test::Stalled, Test::Strict];
pub(crate) const TARGETS: [&str; 2] = [LIMIT, GATEWAY];

/// The processor time of the fan, relative to the physical limit.
const PROCESSOR: f64 = 2.25;
/// The memory in KiB of an idle stream, and of a reader that never reads.
const IDLE: f64 = 10.0;
const STALLED: f64 = 64.0;

pub(crate) fn scale() -> Scale {
    Scale {
        divisor: 2,
        fan: 1000,
        idle: 2000,
        sessions: Vec::new(),
        events: Vec::new(),
    }
}

/// The violated limits.
pub(crate) fn judge(results: &Results) -> Vec<String> {
    let mut wrong = Vec::new();
    for test in TESTS {
        let (readers, complete) = results.completeness(Some(test), GATEWAY);
        if readers == 0 || complete < readers {
            let test = test.name();
            wrong.push(format!(
                "{test}: {complete} of {readers} readers got each event once and in order"
            ));
        }
    }
    let fan = |target| (Test::Fan, target, "cpu_per_m");
    for (what, found, bound) in [
        (
            "processor time of the fan, over the limit's",
            results.ratio(fan(GATEWAY), fan(LIMIT)),
            PROCESSOR,
        ),
        (
            "KiB of an idle stream",
            results.spread(Test::Idle, GATEWAY, "kib_per_stream"),
            IDLE,
        ),
        (
            "KiB of a reader that never reads",
            results.spread(Test::Stalled, GATEWAY, "kib_per_stalled"),
            STALLED,
        ),
    ] {
        match found {
            Some(spread) if spread.median <= bound => {}
            Some(spread) => wrong.push(format!("{what}: {:.2}, more than {bound}", spread.median)),
            None => wrong.push(format!("{what}: not measured")),
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made;

    fn good() -> Results {
        made(&[
            (Test::Fan, GATEWAY, "cpu_per_m", &[0.08, 0.5, 0.07]),
            (Test::Fan, LIMIT, "cpu_per_m", &[0.07, 0.07, 0.07]),
            (Test::Idle, GATEWAY, "kib_per_stream", &[3.0]),
            (Test::Stalled, GATEWAY, "kib_per_stalled", &[3.0]),
            (Test::Strict, GATEWAY, "events_s", &[1.0]),
        ])
    }

    #[test]
    fn ratios_within_the_bounds_pass() {
        assert_eq!(judge(&good()), Vec::<String>::new());
    }

    #[test]
    fn a_lost_event_a_dear_fan_dear_streams_and_silence_are_caught() {
        let mut lost = good();
        lost.lines.last_mut().unwrap().sample.complete = 0;
        assert_eq!(
            judge(&lost),
            ["strict: 0 of 1 readers got each event once and in order"]
        );
        let mut dear = good();
        for line in &mut dear.lines {
            if line.target == GATEWAY {
                line.sample
                    .figures
                    .values_mut()
                    .for_each(|figure| *figure *= 50.0);
            }
        }
        assert_eq!(judge(&dear).len(), 3, "{:?}", judge(&dear));
        assert_eq!(judge(&made(&[])).len(), 7);
    }
}
