//! The record of all participants, and the check of the gateway's guarantees.
//!
//! Tests collect a history during faults: the events of each reader, the responses to clients, the input of each
//! agent, the final log, the remaining processes, and the memory in use. [`History::check`] uses only this record,
//! and lists every violation. `tests/it/history.rs` shows that each rule can fail.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

mod agents;
mod journal;
mod left;
mod live;
mod logs;
mod readers;
mod requests;
mod turns;

pub(crate) use journal::{Journal, Journals, process};
pub(crate) use left::{Alive, MemoryUse};
pub(crate) use live::left_of;
pub(crate) use logs::Event;
pub(crate) use readers::{Frame, Reader};

#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The final log of each session.
    pub(crate) logs: BTreeMap<String, Log>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) prompts: Vec<PromptAnswer>,
    pub(crate) answers: Vec<RequestAnswer>,
    pub(crate) journals: Vec<Journal>,
    pub(crate) alive: Vec<Alive>,
    pub(crate) memory: Vec<MemoryUse>,
    /// How much memory a gateway may hold, in KiB; none: that is not looked at.
    pub(crate) memory_budget: Option<u64>,
    /// Readers may start again, because events that they saw were removed or restored.
    pub(crate) resets: bool,
    /// Turns may still run.
    pub(crate) unfinished: bool,
    /// The agents send only plain updates of their own session, so the log of a turn equals their output.
    pub(crate) plain_words: bool,
}

/// The events of a session, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    /// Seq of the event before the first one.
    pub(crate) after: u64,
    /// As they were sent, byte for byte.
    pub(crate) events: Vec<Box<str>>,
    /// Every reader has reached at least this position.
    pub(crate) read_to: u64,
}

/// The response to a prompt.
#[derive(Debug, Clone)]
pub(crate) struct PromptAnswer {
    pub(crate) session: String,
    pub(crate) key: Option<String>,
    pub(crate) status: u16,
    /// The turn, if it was admitted.
    pub(crate) prompt: Option<String>,
}

/// The response to a client's answer to an agent's request.
#[derive(Debug, Clone)]
pub(crate) struct RequestAnswer {
    pub(crate) session: String,
    pub(crate) request: String,
    pub(crate) status: u16,
    /// The option that it chose.
    pub(crate) option: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    /// A reader missed an event before an event that it saw.
    Gap,
    Duplicate,
    Reordered,
    /// An event that a reader saw, or that was acknowledged, is not in the log, or a reader never saw an event of the
    /// log.
    Lost,
    /// A reader saw other bytes than the log holds.
    Changed,
    /// An id that is none, or of another event.
    Id,
    Reset,
    /// A prompt, a key or a turn that ran more than once, or a turn without a request.
    Twice,
    /// A turn has not exactly one end, after its start.
    End,
    /// A request has more than one answer, or a different answer than its client's response.
    Answer,
    /// The agent's output in a turn differs from the log.
    Words,
    Survivor,
    Memory,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// Collects the violations.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, what: impl Into<String>) {
        self.0.push(Violation {
            rule,
            what: what.into(),
        });
    }
}

/// The maximum time that a process may outlive its owner.
pub(crate) const OUTLIVE: Duration = Duration::from_secs(10);

impl History {
    /// Everything that is wrong.
    pub(crate) fn check(&self) -> Vec<Violation> {
        let mut found = Found::default();
        let logs = logs::read(self, &mut found);
        readers::check(self, &logs, &mut found);
        turns::check(self, &logs, &mut found);
        requests::check(self, &logs, &mut found);
        agents::check(self, &logs, &mut found);
        left::check(self, &mut found);
        found.0
    }

    #[track_caller]
    pub(crate) fn assert_holds(&self) {
        let found = self.check();
        let shown: Vec<String> = found.iter().take(40).map(Violation::to_string).collect();
        assert!(
            found.is_empty(),
            "{} violations:\n{}",
            found.len(),
            shown.join("\n")
        );
    }
}

/// How many of each rule.
pub(crate) fn counted(found: &[Violation]) -> HashMap<Rule, usize> {
    let mut counts = HashMap::new();
    for violation in found {
        *counts.entry(violation.rule).or_default() += 1;
    }
    counts
}

/// The beginning of a text, for a message.
fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
