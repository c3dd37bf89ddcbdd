//! The current build beside the previous one, measured in the same run.
//!
//! Other load only makes a round slower, so a difference counts if the median of the ratios and the best rounds agree.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::document::GROWTH;
use crate::goals::{Better, digits};
use crate::measure::Test;
use crate::results::Results;
use crate::stats::Spread;
use crate::targets::{GATEWAY, PREVIOUS};

/// The maximum cost of a figure, as a multiple of its earlier value.
const TOLERANCE: f64 = 1.05;

/// The figures with their titles, in the order of the table. Those of the growth test follow.
const FIGURES: [(&str, Test, &str, Better); 31] = [
    ("1 x 1, events/s", Test::Single, "events_s", Better::More),
    ("1 x 1, CPU s/M", Test::Single, "cpu_per_m", Better::Less),
    (
        "1 x 1000, deliveries/s",
        Test::Fan,
        "events_s",
        Better::More,
    ),
    ("1 x 1000, CPU s/M", Test::Fan, "cpu_per_m", Better::Less),
    (
        "1 x 1000 at 50/s, p50, us",
        Test::Paced,
        "p50_us",
        Better::Less,
    ),
    (
        "1 x 1000 at 50/s, p99, us",
        Test::Paced,
        "p99_us",
        Better::Less,
    ),
    (
        "1 x 1000 at 50/s, CPU s/M",
        Test::Paced,
        "cpu_per_m",
        Better::Less,
    ),
    (
        "latency at 1000/s, p50, us",
        Test::Latency,
        "p50_us",
        Better::Less,
    ),
    (
        "latency at 1000/s, p99, us",
        Test::Latency,
        "p99_us",
        Better::Less,
    ),
    (
        "latency at 1000/s, p99.9, us",
        Test::Latency,
        "p999_us",
        Better::Less,
    ),
    (
        "latency at 1000/s, CPU s/M",
        Test::Latency,
        "cpu_per_m",
        Better::Less,
    ),
    (
        "prompt to first event, p50, us",
        Test::Prompt,
        "p50_us",
        Better::Less,
    ),
    (
        "prompt to first event, p99, us",
        Test::Prompt,
        "p99_us",
        Better::Less,
    ),
    (
        "a turn with one event, CPU us",
        Test::Prompt,
        "cpu_us",
        Better::Less,
    ),
    ("100 x 1, events/s", Test::Many, "events_s", Better::More),
    ("100 x 1, CPU s/M", Test::Many, "cpu_per_m", Better::Less),
    (
        "memory per idle stream, KiB",
        Test::Idle,
        "kib_per_stream",
        Better::Less,
    ),
    (
        "idle streams opened in, s",
        Test::Idle,
        "connect_s",
        Better::Less,
    ),
    (
        "start to first answer, ms",
        Test::Cold,
        "cold_ms",
        Better::Less,
    ),
    (
        "memory when idle, MiB",
        Test::Cold,
        "idle_mib",
        Better::Less,
    ),
    ("threads when idle", Test::Cold, "threads", Better::Less),
    (
        "size of the binary, MiB",
        Test::Cold,
        "binary_mib",
        Better::Less,
    ),
    ("a new session, ms", Test::Cold, "create_ms", Better::Less),
    (
        "replay x 10 hot, events/s",
        Test::Replay,
        "hot_s",
        Better::More,
    ),
    (
        "replay x 10 hot, CPU s/M",
        Test::Replay,
        "hot_cpu_per_m",
        Better::Less,
    ),
    (
        "replay x 10 from disk, events/s",
        Test::Replay,
        "disk_s",
        Better::More,
    ),
    (
        "replay x 10 from disk, CPU s/M",
        Test::Replay,
        "disk_cpu_per_m",
        Better::Less,
    ),
    (
        "100 readers beside 10 that never read, deliveries/s",
        Test::Stalled,
        "events_s",
        Better::More,
    ),
    (
        "memory per reader that never reads, KiB",
        Test::Stalled,
        "kib_per_stalled",
        Better::Less,
    ),
    (
        "50 readers, streams checked by line, CPU s/M",
        Test::Strict,
        "cpu_per_m",
        Better::Less,
    ),
    (
        "50 readers, streams checked by line, events/s",
        Test::Strict,
        "events_s",
        Better::More,
    ),
];

/// One figure of both builds.
#[derive(Debug)]
pub(crate) struct Comparison {
    title: String,
    better: Better,
    previous: Spread,
    current: Spread,
    /// Current over previous, round by round.
    ratio: Spread,
}

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Better,
    Same,
    Worse,
}

impl Comparison {
    fn of(
        results: &Results,
        title: String,
        test: Test,
        figure: &str,
        better: Better,
    ) -> Option<Self> {
        let previous = results.spread(test, PREVIOUS, figure)?;
        let current = results.spread(test, GATEWAY, figure)?;
        let ratio = results.ratio((test, GATEWAY, figure), (test, PREVIOUS, figure))?;
        Some(Self {
            title,
            better,
            previous,
            current,
            ratio,
        })
    }

    /// The best round of the current build over the best round of the previous one.
    fn best(&self) -> f64 {
        match self.better {
            Better::Less => self.current.least / self.previous.least,
            Better::More => self.current.most / self.previous.most,
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let costs = [self.ratio.median, self.best()].map(|ratio| match self.better {
            Better::Less => ratio,
            Better::More => 1.0 / ratio,
        });
        if costs.iter().all(|&cost| cost > TOLERANCE) {
            Verdict::Worse
        } else if costs.iter().all(|&cost| cost < 1.0 / TOLERANCE) {
            Verdict::Better
        } else {
            Verdict::Same
        }
    }
}

/// All figures that both builds have. Empty without a previous build.
pub(crate) fn compare(results: &Results) -> Vec<Comparison> {
    let figures = FIGURES.iter().filter_map(|&(title, test, figure, better)| {
        Comparison::of(results, title.to_owned(), test, figure, better)
    });
    figures.chain(growth(results)).collect()
}

/// The figures of the growth test: `list_ms@1000 sessions`.
fn growth(results: &Results) -> Vec<Comparison> {
    let lines = results
        .lines
        .iter()
        .filter(|line| line.test == Test::Growth);
    let names: BTreeSet<&String> = lines.flat_map(|line| line.sample.figures.keys()).collect();
    let mut found = Vec::new();
    for (figure, title) in GROWTH {
        let better = if figure.ends_with("_s") {
            Better::More
        } else {
            Better::Less
        };
        for name in &names {
            let Some((start, size)) = name.split_once('@') else {
                continue;
            };
            if start == figure {
                let title = format!("{title}, at {size}");
                found.extend(Comparison::of(results, title, Test::Growth, name, better));
            }
        }
    }
    found
}

/// The comparisons as markdown.
pub(crate) fn table(comparisons: &[Comparison]) -> String {
    let mut text = String::from(
        "| measured | previous | current | current / previous | least to most | of the best | |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for comparison in comparisons {
        let Comparison {
            title,
            previous,
            current,
            ratio,
            ..
        } = comparison;
        let verdict = match comparison.verdict() {
            Verdict::Better => "better",
            Verdict::Same => "",
            Verdict::Worse => "**worse**",
        };
        writeln!(
            text,
            "| {title} | {} | {} | {} | {} to {} | {} | {verdict} |",
            digits(previous.median),
            digits(current.median),
            digits(ratio.median),
            digits(ratio.least),
            digits(ratio.most),
            digits(comparison.best()),
        )
        .expect("writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made;
    use crate::targets::LIMIT;

    #[test]
    fn five_percent_more_cost_is_worse() {
        for (previous, current, less, more) in [
            (100.0, 104.0, Verdict::Same, Verdict::Same),
            (100.0, 106.0, Verdict::Worse, Verdict::Better),
            (100.0, 94.0, Verdict::Better, Verdict::Worse),
        ] {
            let results = made(&[
                (
                    Test::Single,
                    PREVIOUS,
                    "cpu_per_m",
                    &[previous, previous, previous],
                ),
                (
                    Test::Single,
                    GATEWAY,
                    "cpu_per_m",
                    &[current, current, current * 9.0],
                ),
                (Test::Single, PREVIOUS, "events_s", &[previous]),
                (Test::Single, GATEWAY, "events_s", &[current]),
            ]);
            let verdicts: Vec<Verdict> =
                compare(&results).iter().map(Comparison::verdict).collect();
            assert_eq!(verdicts, [more, less], "{current} after {previous}");
        }
    }

    #[test]
    fn slow_rounds_of_one_build_do_not_count() {
        let results = made(&[
            (Test::Single, PREVIOUS, "events_s", &[100.0, 100.0, 100.0]),
            (Test::Single, GATEWAY, "events_s", &[80.0, 70.0, 99.0]),
        ]);
        let comparison = &compare(&results)[0];
        assert_eq!(
            (comparison.ratio.median, comparison.verdict()),
            (0.8, Verdict::Same)
        );
    }

    #[test]
    fn figure_of_only_one_build_is_omitted() {
        let results = made(&[
            (Test::Single, GATEWAY, "events_s", &[1.0]),
            (Test::Single, LIMIT, "events_s", &[1.0]),
            (Test::Cold, PREVIOUS, "cold_ms", &[1.0]),
        ]);
        assert!(compare(&results).is_empty());
    }

    #[test]
    fn the_table_has_both_figures_and_their_ratio() {
        let results = made(&[
            (Test::Cold, PREVIOUS, "cold_ms", &[10.0, 20.0, 30.0]),
            (Test::Cold, GATEWAY, "cold_ms", &[20.0, 30.0, 30.0]),
            (Test::Growth, PREVIOUS, "append_s@10 events", &[8.0]),
            (Test::Growth, GATEWAY, "append_s@10 events", &[16.0]),
        ]);
        let lines = table(&compare(&results));
        assert_eq!(
            lines.lines().skip(2).collect::<Vec<_>>(),
            [
                "| start to first answer, ms | 20 | 30 | 1.5 | 1 to 2 | 2 | **worse** |",
                "| appended at full speed, events/s, at 10 events | 8 | 16 | 2 | 2 to 2 | 2 | better |",
            ]
        );
    }
}
