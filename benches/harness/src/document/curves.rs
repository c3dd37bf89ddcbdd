//! The cost of growth as curves. A level curve is a cost that does not depend on the size.

use super::chart::{STYLE, TITLE, WIDTH, put, text};
use super::tables::{Curve, curves};
use crate::goals::digits;
use crate::results::Results;

const LABELS: u32 = 330;
const FROM: f64 = 360.0;
const SPAN: f64 = 420.0;
const ROW: u32 = 46;
/// The height of a factor of two.
const OCTAVE: f64 = 6.0;
/// The limit that keeps a curve within its row.
const MOST: f64 = 15.0;

const LINES: &str = "
  .curve { fill: none; stroke: #0969da; stroke-width: 2 } .level { stroke: #b6bfc9; stroke-dasharray: 2 4 }
  @media (prefers-color-scheme: dark) { .curve { stroke: #4493f8 } .level { stroke: #3d444d } }";

/// Returns `None` without measurements at two sizes.
pub(super) fn draw(results: &Results) -> Option<String> {
    let mut body = String::new();
    let mut words = String::new();
    let mut top = 0;
    for (kind, curves) in curves(results) {
        let curves: Vec<Curve> = curves
            .into_iter()
            .filter(|curve| curve.points.len() > 1)
            .collect();
        if curves.is_empty() {
            continue;
        }
        let points = &curves[0].points;
        let least = points[0].0;
        let most = points[points.len() - 1].0;
        let title = format!(
            "With more {kind}: from {} to {}",
            digits(least as f64),
            digits(most as f64)
        );
        put(&mut body, &text("title", 20, top + 30, "start", &title));
        let note = "against the smallest; both ways logarithmic; a level curve does not grow";
        put(&mut body, &text("note", 20, top + 47, "start", note));
        top += TITLE;
        for curve in &curves {
            row(&mut body, curve, top);
            let labels: Vec<String> = curve.points.iter().map(label).collect();
            put(
                &mut words,
                &format!("{}: {}.", curve.title, labels.join(", ")),
            );
            top += ROW;
        }
        top += 16;
    }
    (top > 0).then(|| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" \
             height=\"{top}\" role=\"img\" aria-labelledby=\"title words\">\n\
             <title id=\"title\">What more sessions and longer logs cost</title>\n<desc id=\"words\">{words}</desc>\n\
             <style>{STYLE}{LINES}\n</style>\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{top}\" rx=\"8\"/>\n\
             {body}</svg>\n"
        )
    })
}

fn label((size, figure): &(u64, f64)) -> String {
    format!("{} at {}", digits(*figure), digits(*size as f64))
}

fn row(body: &mut String, Curve { title, points }: &Curve, top: u32) {
    let middle = f64::from(top) + 30.0;
    let first = points[0];
    let last = points[points.len() - 1];
    let log = |size: u64| (size.max(1) as f64).log10();
    let width = (log(last.0) - log(first.0)).max(1e-6);
    let coordinates = |&(size, figure): &(u64, f64)| {
        let higher = (figure.max(1e-6) / first.1.max(1e-6)).log2() * OCTAVE;
        (
            FROM + SPAN * (log(size) - log(first.0)) / width,
            middle - higher.clamp(-MOST, MOST),
        )
    };
    let path: Vec<String> = points
        .iter()
        .map(coordinates)
        .map(|(x, y)| format!("{x:.0},{y:.0}"))
        .collect();
    put(body, &text("", LABELS, top + 34, "end", title));
    put(
        body,
        &format!(
            "<path class=\"level\" d=\"M{FROM} {middle} h{SPAN}\"/><polyline class=\"curve\" points=\"{}\"/>",
            path.join(" ")
        ),
    );
    for point in points {
        let (x, y) = coordinates(point);
        put(
            body,
            &format!(
                "<circle class=\"ours\" cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"3\"/>\
                 <text class=\"note\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                y - 7.0,
                digits(point.1)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Test;
    use crate::results::tests::made;
    use crate::targets::GATEWAY;

    #[test]
    fn equal_cost_is_level_and_double_cost_is_higher() {
        let results = made(&[
            (Test::Growth, GATEWAY, "open_ms@100 events", &[2.0]),
            (Test::Growth, GATEWAY, "open_ms@1000 events", &[2.0]),
            (Test::Growth, GATEWAY, "open_ms@10000 events", &[4.0]),
            (Test::Growth, GATEWAY, "list_ms@100 sessions", &[2.0]),
        ]);
        let drawn = draw(&results).unwrap();
        assert!(drawn.contains("points=\"360,86 570,86 780,80\""), "{drawn}");
        assert!(
            drawn.contains("the session by its id, ms: 2 at 100, 2 at 1,000, 4 at 10,000."),
            "{drawn}"
        );
        assert!(!drawn.contains("sessions, ms"), "one size is no curve");
        assert_eq!(draw(&made(&[])), None);
    }
}
