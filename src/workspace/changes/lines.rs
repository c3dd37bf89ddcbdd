//! Counts the lines that differ between two texts.

use std::collections::HashMap;

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};
use tokio::time::Instant;

/// The numbers of added and of deleted lines. After the deadline the result is an upper bound.
pub(super) fn count_lines(old: &str, new: &str, until: Instant) -> (u64, u64) {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut lines = Vec::with_capacity(2);
    for text in [old, new] {
        let mut number = |line| {
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            *numbers.entry(line).or_insert(next)
        };
        lines.push(
            text.split_inclusive('\n')
                .map(&mut number)
                .collect::<Vec<u32>>(),
        );
    }
    let (old, new) = (&lines[0], &lines[1]);
    let parts = capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(until.into_std()));
    let different = parts.iter().filter(|part| part.tag() != DiffTag::Equal);
    different.fold((0, 0), |(added, deleted), part| {
        (
            added + part.new_range().len() as u64,
            deleted + part.old_range().len() as u64,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_counted() {
        let until = Instant::now() + Duration::from_secs(10);
        for (old, new, expected) in [
            ("", "", (0, 0)),
            ("", "a\nb", (2, 0)),
            ("a\nb\n", "", (0, 2)),
            ("a\nb\nc\n", "a\nx\nc\n", (1, 1)),
            ("a\nb\nc\n", "b\nc\nd\n", (1, 1)),
            ("a\n", "a", (1, 1)),
        ] {
            assert_eq!(count_lines(old, new, until), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn the_deadline_bounds_the_work_for_any_texts() {
        let text = |seed: u64| {
            let mut state = seed;
            let mut text = String::new();
            while text.len() < 1 << 20 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                text.push(char::from(
                    b'a' + u8::try_from(state >> 60).unwrap_or_default(),
                ));
                text.push('\n');
            }
            text
        };
        let (old, new) = (text(1), text(2));
        let start = Instant::now();
        let (added, deleted) = count_lines(&old, &new, start + Duration::from_millis(200));
        assert!(added > 0 && deleted > 0);
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}
