//! The progress of an installation on stderr: one line that changes on a terminal, else one line for each step.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::registry::Step;

/// The time between two changes of the line.
const INTERVAL: Duration = Duration::from_millis(100);
/// The line fits into a terminal of 80 columns. A longer one would wrap, and could not be replaced.
const MAX_COLUMNS: usize = 79;

pub(super) struct Progress {
    is_terminal: bool,
    line: RefCell<Line>,
}

#[derive(Default)]
struct Line {
    step: String,
    /// `None` until the amount of the step changes.
    updated_at: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            line: RefCell::default(),
        }
    }

    pub(super) fn show(&self, step: Step<'_>) {
        let amount = step.amount().map(|(bytes, total)| {
            let total = total.map(|total| format!(" of {}", size(total)));
            format!(": {}{}", size(bytes), total.unwrap_or_default())
        });
        self.write(&step.to_string(), &amount.unwrap_or_default());
    }

    /// Writes the line of a step. `amount` changes while the step runs, and is for terminals only.
    fn write(&self, step: &str, amount: &str) {
        let mut line = self.line.borrow_mut();
        let is_new = line.step != step;
        let is_due = line.updated_at.is_none_or(|at| at.elapsed() >= INTERVAL);
        let is_written = is_new || (self.is_terminal && is_due);
        if !is_written {
            return;
        }
        let text = if self.is_terminal {
            let ends_last = is_new && !line.step.is_empty();
            let end_of_last = if ends_last { "\n" } else { "" };
            let text: String = format!("{step}{amount}")
                .chars()
                .take(MAX_COLUMNS)
                .collect();
            format!("{end_of_last}\r{text:<MAX_COLUMNS$}")
        } else {
            format!("{step}\n")
        };
        step.clone_into(&mut line.step);
        line.updated_at = (!is_new).then(Instant::now);
        // An installation does not fail because its terminal is gone.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let line = self.line.borrow();
        if self.is_terminal && !line.step.is_empty() {
            let _ = io::stderr().write_all(b"\n");
        }
    }
}

fn size(bytes: u64) -> String {
    if bytes < 1 << 20 {
        return format!("{} KiB", bytes >> 10);
    }
    let tenths = ((bytes >> 10) * 10) >> 10;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 KiB"),
            (1_048_575, "1023 KiB"),
            (1_048_576, "1.0 MiB"),
            (1_700_000, "1.6 MiB"),
            (1 << 40, "1048576.0 MiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
