//! The main results as bars. The scale is logarithmic, because values differ by a factor of a hundred.
//!
//! The chart has its own background for light and dark mode, and a text that describes its content.

use super::Context;
use crate::goals::digits;
use crate::measure::Test;
use crate::targets::{GATEWAY, LIMIT};

pub(super) const WIDTH: u32 = 860;
const LABELS: u32 = 300;
const BARS: u32 = 430;
const ROW: u32 = 24;
pub(super) const TITLE: u32 = 56;

pub(super) const STYLE: &str = "
  .ground { fill: #ffffff } text { fill: #1f2328; font: 14px system-ui, sans-serif }
  .title { font-weight: 600; font-size: 16px } .note { fill: #59636e; font-size: 12px }
  .ours { fill: #0969da } .limit { fill: #59636e } .peer { fill: #b6bfc9 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 } text { fill: #f0f6fc } .note { fill: #9198a1 }
    .ours { fill: #4493f8 } .limit { fill: #9198a1 } .peer { fill: #3d444d }
  }";

const PANELS: [(&str, &str, Test, &str); 4] = [
    (
        "One session, one reader: events a second",
        "more is better",
        Test::Single,
        "events_s",
    ),
    (
        "One session, 1000 readers: deliveries a second",
        "more is better",
        Test::Fan,
        "events_s",
    ),
    (
        "The same: processor seconds for a million deliveries",
        "less is better",
        Test::Fan,
        "cpu_per_m",
    ),
    (
        "Memory of an idle stream, KiB",
        "less is better",
        Test::Idle,
        "kib_per_stream",
    ),
];

pub(super) fn draw(context: &Context<'_>) -> String {
    let mut body = String::new();
    let mut words = String::new();
    let mut top = 0;
    for (title, better, test, figure) in PANELS {
        let bars: Vec<(String, &str, f64)> = context
            .targets
            .iter()
            .filter_map(|target| {
                let spread = context.results.spread(test, target.name(), figure)?;
                let class = match target.name() {
                    GATEWAY => "ours",
                    LIMIT => "limit",
                    _ => "peer",
                };
                Some((target.title(), class, spread.median))
            })
            .collect();
        if bars.is_empty() {
            continue;
        }
        put(&mut body, &text("title", 20, top + 30, "start", title));
        put(
            &mut body,
            &text(
                "note",
                20,
                top + 47,
                "start",
                &format!("{better}; logarithmic scale"),
            ),
        );
        top += TITLE;
        let labels: Vec<String> = bars
            .iter()
            .map(|(name, _, figure)| format!("{name} {}", digits(*figure)))
            .collect();
        put(&mut words, &format!("{title}: {}.", labels.join(", ")));
        panel(&mut body, &bars, top);
        top += ROW * u32::try_from(bars.len()).unwrap_or_default() + 16;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" \
         role=\"img\" aria-labelledby=\"title words\">\n<title id=\"title\">acp-gateway beside the physical limit and its peers\
         </title>\n<desc id=\"words\">{words}</desc>\n<style>{STYLE}\n</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{top}\" rx=\"8\"/>\n{body}</svg>\n"
    )
}

fn panel(body: &mut String, bars: &[(String, &str, f64)], top: u32) {
    let figures = || bars.iter().map(|(.., figure)| figure.max(1e-6).log10());
    let (least, most) = figures().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), c| {
        (a.min(c), b.max(c))
    });
    // The smallest value also has a visible bar.
    let from = least - 0.3;
    let span = (most - least + 0.3).max(0.3);
    for (row, ((name, class, figure), log)) in (0..).zip(bars.iter().zip(figures())) {
        let y = top + row * ROW;
        let length = f64::from(BARS) * (log - from) / span;
        put(body, &text("", LABELS - 8, y + 15, "end", name));
        put(
            body,
            &format!(
                "<rect class=\"{class}\" x=\"{LABELS}\" y=\"{y}\" width=\"{length:.0}\" height=\"18\" rx=\"3\"/>"
            ),
        );
        let x = LABELS + 8;
        put(
            body,
            &text(
                "",
                x + BARS.min(whole(length)),
                y + 15,
                "start",
                &digits(*figure),
            ),
        );
    }
}

/// A length in whole pixels.
fn whole(length: f64) -> u32 {
    (0..=BARS)
        .find(|&pixels| f64::from(pixels) >= length)
        .unwrap_or(BARS)
}

pub(super) fn text(class: &str, x: u32, y: u32, anchor: &str, says: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{says}</text>")
}

pub(super) fn put(body: &mut String, line: &str) {
    body.push_str(line);
    body.push('\n');
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::results::tests::made;
    use crate::targets::{self, Places};

    #[test]
    fn every_scene_has_a_text() {
        let folder = PathBuf::from("/nowhere");
        let places = Places {
            gateway: folder.clone(),
            programs: folder.clone(),
            peers: folder.clone(),
            scratch: folder,
            isolation: targets::DEFAULT_ISOLATION.to_owned(),
        };
        let results = made(&[
            (Test::Fan, GATEWAY, "events_s", &[6_000_000.0]),
            (Test::Fan, LIMIT, "events_s", &[9_000_000.0]),
        ]);
        let context = Context {
            results: &results,
            targets: &targets::all(&places),
            machine: String::new(),
        };
        let drawn = draw(&context);
        assert!(
            drawn.contains("raw-epoll (the limit) 9,000,000, acp-gateway 6,000,000."),
            "{drawn}"
        );
        assert_eq!(drawn.matches("<rect class=\"ours\"").count(), 1);
        assert!(!drawn.contains("idle stream"), "nobody measured that");
        assert!(!drawn.contains("nowhere"));
    }
}
