//! Figures of many runs of a gateway.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::History;
use crate::support::history::{Event, Frame, Rule, Violation, counted};

pub(crate) struct Figures {
    began: Instant,
    pub(super) cycles: usize,
    pub(super) turns: usize,
    pub(super) completed: usize,
    pub(crate) interrupted: usize,
    /// Other failures, by their code.
    failed: BTreeMap<String, usize>,
    /// The number of prompts and of answers that agents received.
    pub(super) prompts: usize,
    pub(super) answers: usize,
    pub(super) events: usize,
    pub(super) reconnects: usize,
    /// Processes of earlier lives that ran when the next one could be spoken to.
    pub(super) left_at_start: usize,
    broken: HashMap<Rule, usize>,
    highest: u64,
    /// When a life ended: seconds since all began, KiB and open files that it held then.
    ends: Vec<(f64, f64, f64)>,
    starts: Vec<Duration>,
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            cycles: 0,
            turns: 0,
            completed: 0,
            interrupted: 0,
            failed: BTreeMap::new(),
            prompts: 0,
            answers: 0,
            events: 0,
            reconnects: 0,
            left_at_start: 0,
            broken: HashMap::new(),
            highest: 0,
            ends: Vec::new(),
            starts: Vec::new(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    pub(super) fn life(&mut self, highest: u64, resident: u64, files: usize) {
        self.cycles += 1;
        self.highest = self.highest.max(highest);
        self.ends.push((
            self.began.elapsed().as_secs_f64(),
            resident as f64,
            files as f64,
        ));
    }

    pub(super) fn started(&mut self, took: Duration) {
        self.starts.push(took);
    }

    pub(super) fn window(&mut self, history: &History) {
        for text in history.logs.values().flat_map(|log| &log.events) {
            let Ok(event) = Event::parse(text) else {
                continue;
            };
            self.events += 1;
            self.turns += usize::from(event.kind == "prompt.started");
            self.completed += usize::from(event.kind == "prompt.completed");
            match failure(&event).as_deref() {
                Some("interrupted") => self.interrupted += 1,
                Some(code) => *self.failed.entry(code.to_owned()).or_default() += 1,
                None => {}
            }
        }
        let got = history
            .journals
            .iter()
            .flat_map(|journal| &journal.lines)
            .filter(|line| !line.to_client);
        for line in got {
            let Some(message) = line.message() else {
                continue;
            };
            self.prompts += usize::from(message.method.as_deref() == Some("session/prompt"));
            self.answers += usize::from(message.method.is_none());
        }
        let frames = history.readers.iter().flat_map(|reader| &reader.frames);
        let again = |frame: &&Frame| matches!(frame, Frame::Connected { after: Some(_) });
        self.reconnects += frames.filter(again).count();
    }

    pub(super) fn broken(&mut self, found: &[Violation]) {
        for (rule, count) in counted(found) {
            *self.broken.entry(rule).or_default() += count;
        }
    }

    fn of(&self, rules: &[Rule]) -> usize {
        rules.iter().filter_map(|rule| self.broken.get(rule)).sum()
    }

    fn start_at(&self, percent: usize) -> Duration {
        let mut starts = self.starts.clone();
        starts.sort_unstable();
        starts
            .get((starts.len() * percent / 100).min(starts.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    /// As lines for people.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            writeln!(text, "{name:24} {value}").expect("a string can be written to");
        };
        line("time", format!("{:.0?}", self.began.elapsed()));
        line("cycles", self.cycles.to_string());
        line("turns", self.turns.to_string());
        line("  completed", self.completed.to_string());
        line("  interrupted", self.interrupted.to_string());
        line("  failed", format!("{:?}", self.failed));
        line(
            "agents got",
            format!("{} prompts, {} answers", self.prompts, self.answers),
        );
        line("events", self.events.to_string());
        line("reconnects", self.reconnects.to_string());
        line(
            "lost",
            self.of(&[Rule::Lost, Rule::Gap, Rule::Reset, Rule::Words])
                .to_string(),
        );
        line("duplicate", self.of(&[Rule::Duplicate]).to_string());
        line("reordered", self.of(&[Rule::Reordered]).to_string());
        line("changed", self.of(&[Rule::Changed, Rule::Id]).to_string());
        line("prompts run twice", self.of(&[Rule::Twice]).to_string());
        line("turns without one end", self.of(&[Rule::End]).to_string());
        line(
            "requests answered twice",
            self.of(&[Rule::Answer]).to_string(),
        );
        line("survivors", self.of(&[Rule::Survivor]).to_string());
        line("left when it was ready", self.left_at_start.to_string());
        line("highest RSS", format!("{} KiB", self.highest));
        let minutes = |slope: f64| slope * 60.0;
        line(
            "RSS slope",
            format!(
                "{:+.1} KiB a minute",
                minutes(slope(self.ends.iter().map(|end| (end.0, end.1))))
            ),
        );
        line(
            "open files slope",
            format!(
                "{:+.2} a minute",
                minutes(slope(self.ends.iter().map(|end| (end.0, end.2))))
            ),
        );
        let half = self.start_at(50);
        let most = self.start_at(99);
        line(
            "start after a kill",
            format!("p50 {half:.0?}, p99 {most:.0?}"),
        );
        text
    }
}

/// The code of a turn that failed.
fn failure(event: &Event<'_>) -> Option<String> {
    if event.kind != "prompt.failed" {
        return None;
    }
    let event: Value = serde_json::from_str(event.text).ok()?;
    event["problem"]["code"].as_str().map(str::to_owned)
}

/// The slope of the line through these points (least squares).
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let mut count = 0.0;
    let mut sum_x = 0.0;
    let mut sum_y = 0.0;
    for (x, y) in points.clone() {
        count += 1.0;
        sum_x += x;
        sum_y += y;
    }
    let mean_x = sum_x / count;
    let mean_y = sum_y / count;
    let mut rise = 0.0;
    let mut run = 0.0;
    for (x, y) in points {
        rise += (x - mean_x) * (y - mean_y);
        run += (x - mean_x) * (x - mean_x);
    }
    if run > 0.0 { rise / run } else { 0.0 }
}
