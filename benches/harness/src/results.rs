//! The results, line by line: written as they arrive, and read for the tables.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::measure::{Sample, Test};
use crate::stats::Spread;

/// One measurement of one target in one round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) round: usize,
    pub(crate) test: Test,
    pub(crate) target: String,
    #[serde(flatten)]
    pub(crate) sample: Sample,
}

#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) lines: Vec<Line>,
    file: Option<File>,
}

impl Results {
    /// Creates a file that receives each line at once.
    pub(crate) fn create(path: &Path) -> Outcome<Self> {
        Ok(Self {
            lines: Vec::new(),
            file: Some(File::create(path)?),
        })
    }

    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = BufReader::new(file)
            .lines()
            .map(|line| Ok(serde_json::from_str(&line?)?));
        Ok(Self {
            lines: lines.collect::<Outcome<_>>()?,
            file: None,
        })
    }

    pub(crate) fn push(&mut self, line: Line) -> Outcome {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", serde_json::to_string(&line)?)?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// The values of all rounds with complete readers. Incomplete rounds count only if no round is complete,
    /// because a server that loses events could be fast.
    fn rounds(&self, test: Test, target: &str, figure: &str) -> BTreeMap<usize, f64> {
        let of = |whole: bool| {
            self.lines
                .iter()
                .filter(|line| line.test == test && line.target == target)
                .filter(|line| !whole || line.sample.complete == line.sample.readers)
                .filter_map(|line| Some((line.round, *line.sample.figures.get(figure)?)))
                .collect::<BTreeMap<_, _>>()
        };
        let whole = of(true);
        if whole.is_empty() { of(false) } else { whole }
    }

    pub(crate) fn spread(&self, test: Test, target: &str, figure: &str) -> Option<Spread> {
        Spread::of(self.rounds(test, target, figure).into_values())
    }

    /// The value of one target divided by the value of another one in the same round.
    pub(crate) fn ratio(
        &self,
        (test, target, figure): (Test, &str, &str),
        (other_test, other, other_figure): (Test, &str, &str),
    ) -> Option<Spread> {
        let others = self.rounds(other_test, other, other_figure);
        Spread::of(
            self.rounds(test, target, figure)
                .into_iter()
                .filter_map(|(round, figure)| Some(figure / others.get(&round)?)),
        )
    }

    /// The number of readers and of complete readers of a target, in one test or in all.
    pub(crate) fn completeness(&self, test: Option<Test>, target: &str) -> (usize, usize) {
        self.lines
            .iter()
            .filter(|line| line.target == target && test.is_none_or(|test| test == line.test))
            .fold((0, 0), |(all, complete), line| {
                (all + line.sample.readers, complete + line.sample.complete)
            })
    }

    pub(crate) fn has(&self, target: &str) -> bool {
        self.lines.iter().any(|line| line.target == target)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Values of a test, one per round.
    pub(crate) fn made(figures: &[(Test, &str, &str, &[f64])]) -> Results {
        let mut results = Results::default();
        for &(test, target, figure, rounds) in figures {
            for (round, &value) in rounds.iter().enumerate() {
                let sample = Sample {
                    figures: BTreeMap::from([(figure.to_owned(), value)]),
                    readers: 1,
                    complete: 1,
                    complaint: None,
                };
                results
                    .push(Line {
                        round,
                        test,
                        target: target.to_owned(),
                        sample,
                    })
                    .unwrap();
            }
        }
        results
    }

    #[test]
    fn ratios_are_made_round_by_round() {
        let results = made(&[
            (Test::Fan, "a", "events_s", &[10.0, 40.0, 9.0]),
            (Test::Fan, "b", "events_s", &[20.0, 50.0, 10.0]),
        ]);
        let ratio = results
            .ratio((Test::Fan, "a", "events_s"), (Test::Fan, "b", "events_s"))
            .unwrap();
        assert_eq!(
            ratio,
            Spread {
                median: 0.8,
                least: 0.5,
                most: 0.9,
                rounds: 3
            }
        );
        assert!(
            results
                .ratio((Test::Fan, "a", "events_s"), (Test::Idle, "b", "events_s"))
                .is_none()
        );
    }

    #[test]
    fn a_round_with_losses_does_not_count_for_speed() {
        let mut results = made(&[(Test::Fan, "a", "events_s", &[10.0, 99.0])]);
        results.lines[1].sample.complete = 0;
        let spread = results.spread(Test::Fan, "a", "events_s").unwrap();
        assert_eq!((spread.median, spread.rounds), (10.0, 1));
        assert_eq!(results.completeness(None, "a"), (2, 1));
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = made(&[(Test::Single, "a", "events_s", &[7.0])])
            .lines
            .remove(0);
        let text = serde_json::to_string(&line).unwrap();
        let read: Line = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (read.round, read.test, read.target, read.sample),
            (0, Test::Single, line.target, line.sample)
        );
    }
}
