//! Results as markdown tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Context;
use crate::goals::{GOALS, Verdict, digits};
use crate::measure::Test;
use crate::results::Results;
use crate::stats::Spread;
use crate::targets::GATEWAY;

macro_rules! line {
    ($text:ident, $($arg:tt)*) => {
        writeln!($text, $($arg)*).expect("writing to a String does not fail")
    };
}

/// The goals of the gateway.
pub(crate) fn goals(results: &Results) -> String {
    let mut text = String::from(
        "| measured | against | median | least to most | must | aim | |\n|---|---|---|---|---|---|---|\n",
    );
    for goal in GOALS {
        let (median, range) =
            goal.result(results)
                .map_or(("not measured".to_owned(), String::new()), |spread| {
                    let range = format!(
                        "{} to {}",
                        goal.shown(spread.least),
                        goal.shown(spread.most)
                    );
                    (goal.shown(spread.median), range)
                });
        let verdict = match goal.verdict(results) {
            Verdict::Aim => "aim reached",
            Verdict::Must => "must reached",
            Verdict::Missed => "**missed**",
            Verdict::Unknown => "",
        };
        let says = goal.says;
        let against = goal.against();
        line!(
            text,
            "| {says} | {against} | {median} | {range} | {} | {} | {verdict} |",
            goal.must(),
            goal.aim()
        );
    }
    let (readers, complete) = results.completeness(None, GATEWAY);
    line!(
        text,
        "| every event once and in order | | {complete} of {readers} readers | | all | all | {} |",
        if readers == complete {
            "aim reached"
        } else {
            "**missed**"
        }
    );
    text
}

/// The columns of the main table.
const COLUMNS: [(&str, Test, &str, f64); 13] = [
    ("1 x 1, events/s", Test::Single, "events_s", 1.0),
    ("CPU s/M", Test::Single, "cpu_per_m", 1.0),
    ("p50 at 1000/s, us", Test::Latency, "p50_us", 1.0),
    ("p99, us", Test::Latency, "p99_us", 1.0),
    ("prompt to event p50, us", Test::Prompt, "p50_us", 1.0),
    ("1 x 1000, deliveries/s", Test::Fan, "events_s", 1.0),
    ("CPU s/M", Test::Fan, "cpu_per_m", 1.0),
    ("1 x 1000 at 50/s p50, ms", Test::Paced, "p50_us", 1e-3),
    ("p99, ms", Test::Paced, "p99_us", 1e-3),
    ("CPU s/M", Test::Paced, "cpu_per_m", 1.0),
    ("100 x 1, events/s", Test::Many, "events_s", 1.0),
    ("CPU s/M", Test::Many, "cpu_per_m", 1.0),
    ("idle stream, KiB", Test::Idle, "kib_per_stream", 1.0),
];

/// All targets in all tests.
pub(crate) fn targets(context: &Context<'_>) -> String {
    let titles = COLUMNS.map(|(title, ..)| title).join(" | ");
    let mut text = format!(
        "| | {titles} | complete |\n|---|{}---|\n",
        "---|".repeat(COLUMNS.len())
    );
    let mut absent = Vec::new();
    for target in context.targets {
        let name = target.name();
        let title = target.title();
        if !context.results.has(name) {
            absent.push(match target.missing() {
                Some(why) => format!("{title} ({why})"),
                None => format!("{title} (left out)"),
            });
            continue;
        }
        let cells = COLUMNS.map(|(_, test, figure, unit)| {
            let spread = context.results.spread(test, name, figure);
            spread.map_or("-".to_owned(), |Spread { median, .. }| {
                digits(median * unit)
            })
        });
        let (readers, complete) = context.results.completeness(None, name);
        let whole = if readers == complete {
            "all".to_owned()
        } else {
            format!("{complete} of {readers}")
        };
        line!(text, "| {title} | {} | {whole} |", cells.join(" | "));
    }
    if !absent.is_empty() {
        line!(text, "\nNot measured: {}.", absent.join(", "));
    }
    text
}

/// More results of the gateway with their spread. `None` if there are none.
pub(crate) fn gateway(results: &Results) -> Option<String> {
    const FIGURES: [(&str, Test, &str); 13] = [
        ("latency at 1000/s, p99.9, us", Test::Latency, "p999_us"),
        (
            "at the same pace, writing and syncing 16 KiB, p50, us",
            Test::Latency,
            "sync_us",
        ),
        ("prompt to first event, p99, us", Test::Prompt, "p99_us"),
        (
            "at the same pace, writing and syncing 16 KiB, p50, us",
            Test::Prompt,
            "sync_us",
        ),
        ("10,000 idle streams opened in, s", Test::Idle, "connect_s"),
        ("threads when idle", Test::Cold, "threads"),
        (
            "a new session with an idle process, ms",
            Test::Cold,
            "create_ms",
        ),
        ("replay x 10 hot, events/s", Test::Replay, "hot_s"),
        ("replay x 10 hot, CPU s/M", Test::Replay, "hot_cpu_per_m"),
        ("replay x 10 from disk, events/s", Test::Replay, "disk_s"),
        (
            "replay x 10 from disk, CPU s/M",
            Test::Replay,
            "disk_cpu_per_m",
        ),
        (
            "100 readers beside 10 that never read, deliveries/s",
            Test::Stalled,
            "events_s",
        ),
        ("1 x 1000, MB/s", Test::Fan, "mb_s"),
    ];
    let mut text = String::from("| | median | least | most |\n|---|---|---|---|\n");
    let mut any = false;
    for (title, test, figure) in FIGURES {
        if let Some(Spread {
            median,
            least,
            most,
            ..
        }) = results.spread(test, GATEWAY, figure)
        {
            any = true;
            line!(
                text,
                "| {title} | {} | {} | {} |",
                digits(median),
                digits(least),
                digits(most)
            );
        }
    }
    any.then_some(text)
}

/// The growth measurements: the name in results, and the title in the table.
pub(crate) const GROWTH: [(&str, &str); 9] = [
    ("list_ms", "the first page of sessions, ms"),
    ("open_ms", "the session by its id, ms"),
    ("prompt_us", "prompt to first event, us"),
    ("rss_mib", "memory, MiB"),
    ("middle_ms", "following from the middle: first event, ms"),
    ("replay_s", "the whole log replayed, events/s"),
    ("append_s", "appended at full speed, events/s"),
    ("append_cpu_per_m", "the same, CPU s/M"),
    ("start_ms", "start to first answer, ms"),
];

/// The dimensions of growth.
const KINDS: [&str; 3] = ["sessions", "events", "sessions and events"];

/// The values of one measurement by size, smallest first.
pub(super) struct Curve {
    pub(super) title: &'static str,
    pub(super) points: Vec<(u64, f64)>,
}

/// The curves of each dimension of growth.
pub(super) fn curves(results: &Results) -> Vec<(&'static str, Vec<Curve>)> {
    let of = |kind: &'static str| {
        let sizes = sizes(results, kind);
        let curves = GROWTH.iter().map(|(figure, title)| Curve {
            title,
            points: sizes
                .iter()
                .filter_map(|size| Some((*size, at(results, figure, *size, kind)?)))
                .collect(),
        });
        (
            kind,
            curves.filter(|curve| !curve.points.is_empty()).collect(),
        )
    };
    KINDS.into_iter().map(of).collect()
}

/// A table for each dimension of growth, with a column per size. `None` if there are no results.
pub(crate) fn growth(results: &Results) -> Option<String> {
    let of = |(kind, curves): (&str, Vec<Curve>)| growth_of(kind, &sizes(results, kind), &curves);
    let tables: Vec<String> = curves(results).into_iter().filter_map(of).collect();
    (!tables.is_empty()).then(|| tables.join("\n"))
}

/// The median of a measurement at one size.
fn at(results: &Results, figure: &str, size: u64, kind: &str) -> Option<f64> {
    results
        .spread(Test::Growth, GATEWAY, &format!("{figure}@{size} {kind}"))
        .map(|spread| spread.median)
}

fn sizes(results: &Results, kind: &str) -> BTreeSet<u64> {
    let lines = results
        .lines
        .iter()
        .filter(|line| line.test == Test::Growth);
    let names = lines.flat_map(|line| line.sample.figures.keys());
    names
        .filter_map(|name| {
            let (size, found) = name.split_once('@')?.1.split_once(' ')?;
            if found == kind {
                size.parse().ok()
            } else {
                None
            }
        })
        .collect()
}

fn growth_of(kind: &str, sizes: &BTreeSet<u64>, curves: &[Curve]) -> Option<String> {
    let columns: Vec<String> = sizes.iter().map(|&size| digits(size as f64)).collect();
    let mut text = format!(
        "| {kind} | {} |\n|---|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    for Curve { title, points } in curves {
        let at = |size| {
            points
                .iter()
                .find(|(of, _)| of == size)
                .map_or("-".to_owned(), |(_, figure)| digits(*figure))
        };
        let cells: Vec<String> = sizes.iter().map(at).collect();
        line!(text, "| {title} | {} |", cells.join(" | "));
    }
    (!sizes.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::made;
    use crate::targets::LIMIT;

    #[test]
    fn a_goal_shows_median_spread_and_verdict() {
        let results = made(&[
            (Test::Fan, GATEWAY, "events_s", &[8.0, 7.0, 9.0]),
            (Test::Fan, LIMIT, "events_s", &[10.0, 10.0, 10.0]),
        ]);
        let table = goals(&results);
        assert!(table.contains("| 1 x 1000, deliveries/s | raw-epoll | 0.8x | 0.7x to 0.9x | ≥ 0.65x | ≥ 0.9x | must reached |"), "{table}");
        assert!(
            table.contains("| memory when idle |  | not measured |  |"),
            "{table}"
        );
        assert!(table.contains("3 of 3 readers"), "{table}");
    }

    #[test]
    fn growth_is_ordered_by_size() {
        let results = made(&[
            (Test::Growth, GATEWAY, "list_ms@1000 sessions", &[1.5, 2.5]),
            (Test::Growth, GATEWAY, "list_ms@200 sessions", &[1.0, 1.0]),
            (Test::Growth, GATEWAY, "open_ms@200 sessions", &[7.0]),
            (Test::Growth, GATEWAY, "open_ms@70 events", &[9.0]),
            (
                Test::Growth,
                GATEWAY,
                "start_ms@270 sessions and events",
                &[3.0],
            ),
        ]);
        assert_eq!(
            growth(&results).unwrap(),
            "| sessions | 200 | 1,000 |\n|---|---|---|\n\
             | the first page of sessions, ms | 1 | 2 |\n| the session by its id, ms | 7 | - |\n\n\
             | events | 70 |\n|---|---|\n| the session by its id, ms | 9 |\n\n\
             | sessions and events | 270 |\n|---|---|\n| start to first answer, ms | 3 |\n"
        );
        assert_eq!(growth(&made(&[])), None);
    }
}
