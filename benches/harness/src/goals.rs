//! The goals of the gateway, and their evaluation.

use crate::measure::Test;
use crate::results::Results;
use crate::stats::Spread;
use crate::targets::{GATEWAY, LIMIT};

/// The reference of a value.
#[derive(Debug, Clone, Copy)]
enum Against {
    /// An absolute value in this unit.
    Nothing(&'static str),
    /// The same value of another target in the same round.
    Target(&'static str),
    /// A value of the physical limit with another name.
    Limit(&'static str),
    /// The same run without the disturbance. The value is already a ratio.
    Without,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) says: &'static str,
    test: Test,
    figure: &'static str,
    against: Against,
    better: Better,
    must: f64,
    aim: f64,
}

/// The outcome of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Aim,
    Must,
    Missed,
    /// The value or its reference was not measured.
    Unknown,
}

impl Goal {
    pub(crate) fn result(&self, results: &Results) -> Option<Spread> {
        let ours = (self.test, GATEWAY, self.figure);
        match self.against {
            Against::Nothing(_) | Against::Without => {
                results.spread(self.test, GATEWAY, self.figure)
            }
            Against::Target(target) => results.ratio(ours, (self.test, target, self.figure)),
            Against::Limit(figure) => results.ratio(ours, (self.test, LIMIT, figure)),
        }
    }

    pub(crate) fn verdict(&self, results: &Results) -> Verdict {
        let Some(Spread { median, .. }) = self.result(results) else {
            return Verdict::Unknown;
        };
        let reaches = |goal: f64| match self.better {
            Better::More => median >= goal,
            Better::Less => median <= goal,
        };
        if reaches(self.aim) {
            Verdict::Aim
        } else if reaches(self.must) {
            Verdict::Must
        } else {
            Verdict::Missed
        }
    }

    /// The target of the reference.
    pub(crate) fn against(&self) -> &'static str {
        match self.against {
            Against::Nothing(_) => "",
            Against::Target(target) => target,
            Against::Limit(_) => LIMIT,
            Against::Without => "without them",
        }
    }

    pub(crate) fn must(&self) -> String {
        self.bound(self.must)
    }

    pub(crate) fn aim(&self) -> String {
        self.bound(self.aim)
    }

    fn bound(&self, bound: f64) -> String {
        let sign = match self.better {
            Better::More => "≥",
            Better::Less => "≤",
        };
        format!("{sign} {}", self.shown(bound))
    }

    /// A value in the goal's unit.
    pub(crate) fn shown(&self, figure: f64) -> String {
        match self.against {
            Against::Nothing(unit) => format!("{} {unit}", digits(figure)),
            // A small ratio is easier to read as a fraction.
            _ if matches!(self.better, Better::Less) && figure < 0.1 => {
                format!("1/{}", digits(1.0 / figure))
            }
            _ => format!("{}x", digits(figure)),
        }
    }
}

/// Formats a value with three digits and groups of thousands.
pub(crate) fn digits(figure: f64) -> String {
    if figure.abs() < 99.95 {
        let decimals = match figure.abs() {
            size if size >= 9.995 => 1,
            size if size >= 0.1 => 2,
            size if size >= 0.01 => 3,
            _ => 4,
        };
        let text = format!("{figure:.decimals$}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let text = format!("{figure:.0}");
    let (sign, text) = text
        .strip_prefix('-')
        .map_or(("", &text[..]), |text| ("-", text));
    let mut grouped = String::new();
    for (index, digit) in text.char_indices() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}")
}

const ACP: Against = Against::Target("acp-http");
const NCHAN: Against = Against::Target("nchan");
const DURABLE: Against = Against::Target("durable-streams");
const SANDBOX: Against = Against::Target("sandbox-agent");
const EPOLL: Against = Against::Target(LIMIT);
const US: Against = Against::Nothing("us");
const KIB: Against = Against::Nothing("KiB");
const MIB: Against = Against::Nothing("MiB");
const WITHOUT: Against = Against::Without;

const fn more(
    says: &'static str,
    test: Test,
    figure: &'static str,
    against: Against,
    must: f64,
    aim: f64,
) -> Goal {
    Goal {
        says,
        test,
        figure,
        against,
        better: Better::More,
        must,
        aim,
    }
}

const fn less(
    says: &'static str,
    test: Test,
    figure: &'static str,
    against: Against,
    must: f64,
    aim: f64,
) -> Goal {
    Goal {
        says,
        test,
        figure,
        against,
        better: Better::Less,
        must,
        aim,
    }
}

/// In the order of the document.
pub(crate) const GOALS: [Goal; 23] = [
    more("1 x 1, events/s", Test::Single, "events_s", EPOLL, 0.2, 0.4),
    more("1 x 1, events/s", Test::Single, "events_s", ACP, 8.0, 15.0),
    more(
        "1 x 1, events/s",
        Test::Single,
        "events_s",
        DURABLE,
        1.0,
        2.0,
    ),
    more(
        "1 x 1000, deliveries/s",
        Test::Fan,
        "events_s",
        EPOLL,
        0.65,
        0.9,
    ),
    less(
        "1 x 1000, processor time",
        Test::Fan,
        "cpu_per_m",
        EPOLL,
        1.5,
        1.1,
    ),
    less(
        "1 x 1000, processor time",
        Test::Fan,
        "cpu_per_m",
        NCHAN,
        1.0 / 20.0,
        1.0 / 60.0,
    ),
    less(
        "1 x 1000, processor time",
        Test::Fan,
        "cpu_per_m",
        SANDBOX,
        1.0 / 100.0,
        1.0 / 300.0,
    ),
    less(
        "1 x 1000 at 50/s, p50",
        Test::Paced,
        "p50_us",
        EPOLL,
        1.4,
        1.1,
    ),
    less(
        "1 x 1000 at 50/s, p99",
        Test::Paced,
        "p99_us",
        EPOLL,
        1.6,
        1.2,
    ),
    less(
        "1 x 1000 at 50/s, processor time",
        Test::Paced,
        "cpu_per_m",
        NCHAN,
        1.0,
        0.7,
    ),
    less(
        "latency at 1000/s, p50",
        Test::Latency,
        "p50_us",
        EPOLL,
        6.0,
        3.0,
    ),
    less(
        "latency at 1000/s, p99.9 (no mode at 40 ms)",
        Test::Latency,
        "p999_us",
        US,
        35_000.0,
        20_000.0,
    ),
    less(
        "prompt to first event, p50",
        Test::Prompt,
        "p50_us",
        ACP,
        1.2,
        0.7,
    ),
    more(
        "100 x 1, events/s",
        Test::Many,
        "events_s",
        EPOLL,
        0.25,
        0.6,
    ),
    more("100 x 1, events/s", Test::Many, "events_s", ACP, 5.0, 15.0),
    less(
        "memory per idle stream",
        Test::Idle,
        "kib_per_stream",
        KIB,
        10.0,
        2.0,
    ),
    less(
        "start to first answer",
        Test::Cold,
        "cold_ms",
        Against::Nothing("ms"),
        50.0,
        15.0,
    ),
    less("memory when idle", Test::Cold, "idle_mib", MIB, 24.0, 12.0),
    less(
        "size of the binary",
        Test::Cold,
        "binary_mib",
        MIB,
        30.0,
        15.0,
    ),
    more(
        "replay x 10, hot, events/s",
        Test::Replay,
        "hot_s",
        EPOLL,
        0.6,
        0.9,
    ),
    more(
        "replay x 10, from disk, events/s",
        Test::Replay,
        "disk_s",
        Against::Limit("hot_s"),
        0.2,
        0.5,
    ),
    more(
        "10 of 110 never read, events/s of the others",
        Test::Stalled,
        "healthy",
        WITHOUT,
        0.9,
        0.98,
    ),
    less(
        "memory per reader that never reads",
        Test::Stalled,
        "kib_per_stalled",
        KIB,
        64.0,
        8.0,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made;

    #[test]
    fn a_goal_is_reached_by_the_median_of_the_rounds() {
        let fan = GOALS[3];
        for (ours, verdict) in [
            ([9.0, 9.5, 1.0], Verdict::Aim),
            ([7.0, 8.0, 6.0], Verdict::Must),
            ([6.0, 9.0, 6.4], Verdict::Missed),
        ] {
            let results = made(&[
                (Test::Fan, GATEWAY, "events_s", &ours),
                (Test::Fan, LIMIT, "events_s", &[10.0, 10.0, 10.0]),
            ]);
            assert_eq!(fan.verdict(&results), verdict, "{ours:?}");
        }
        assert_eq!(
            fan.verdict(&made(&[(Test::Fan, GATEWAY, "events_s", &[9.0])])),
            Verdict::Unknown
        );
    }

    #[test]
    fn lower_is_better_for_costs() {
        let memory = GOALS[15];
        let verdict =
            |kib: f64| memory.verdict(&made(&[(Test::Idle, GATEWAY, "kib_per_stream", &[kib])]));
        assert_eq!(
            [verdict(1.9), verdict(9.9), verdict(10.1)],
            [Verdict::Aim, Verdict::Must, Verdict::Missed]
        );
    }

    #[test]
    fn every_aim_is_beyond_its_must() {
        for goal in GOALS {
            let beyond = match goal.better {
                Better::More => goal.aim > goal.must,
                Better::Less => goal.aim < goal.must,
            };
            assert!(beyond, "{goal:?}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        for (figure, text) in [
            (0.0, "0"),
            (0.012_34, "0.012"),
            (0.5, "0.5"),
            (0.1, "0.1"),
            (1.239, "1.24"),
            (15.0, "15"),
            (99.9, "99.9"),
            (99.96, "100"),
            (1234.5, "1,234"),
            (3_440_000.0, "3,440,000"),
        ] {
            assert_eq!(digits(figure), text);
        }
        assert_eq!(GOALS[5].must(), "≤ 1/20");
        assert_eq!(GOALS[1].aim(), "≥ 15x");
        assert_eq!(GOALS[15].must(), "≤ 10 KiB");
    }
}
