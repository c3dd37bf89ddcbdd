//! Converts a recording: plays both sides of it through two translations.
//!
//! The recorded client speaks the protocol of the recording, and a translation turns its lines into those of a client in the
//! other protocol. The second translation serves this client with the recorded agent, as a translation with a child does. The
//! result is the recording of the lines between both.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::agent_side::AgentSide;
use super::pairing::{Part, Requests, Sent, with_id};
use super::recording::{self, Direction, Entry, RecordingError};
use super::serve::serve_dialect;
use super::translator::{Output, Translator};
use crate::agent::{StandaloneSession, standalone_dialect};
use crate::types::AgentDialect;

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("could not write the result")]
    Write(#[source] io::Error),
}

/// Converts the recording of an agent that speaks `from` to a recording of an agent that speaks `to`.
pub fn replay(
    path: &Path,
    (from, to): (AgentDialect, AgentDialect),
    output: &mut impl Write,
) -> Result<(), ReplayError> {
    let entries = recording::read(path)?;
    let mut replay = Replay::new(&entries, from, to);
    for entry in &entries {
        let Some(line) = &entry.msg else {
            tracing::warn!("skipped a line of the recording that is not JSON");
            continue;
        };
        match entry.dir {
            Direction::ToAgent => replay.client_line(line),
            Direction::ToClient => replay.agent_line(line),
        }
        for entry in replay.converted.drain(..) {
            output
                .write_all(&entry.line())
                .map_err(ReplayError::Write)?;
        }
    }
    output.flush().map_err(ReplayError::Write)
}

/// A line on its way.
#[derive(Debug)]
enum Pending {
    /// To the client in the protocol of the recording.
    Outer(Output),
    /// From the client in the other protocol.
    Inner(Output),
    /// A line of the recorded agent.
    Agent(Box<RawValue>),
}

#[derive(Debug)]
struct Replay {
    from: AgentDialect,
    to: AgentDialect,
    /// Serves the recorded client, and drives an agent in the other protocol.
    outer: Translator,
    /// Serves a client in the other protocol, and drives the recorded agent.
    inner: Translator,
    requests: Requests,
    /// The recorded ids of the agent's requests, with those that the outer translation shows.
    asked: HashMap<Box<str>, Box<str>>,
    /// The recorded id of the agent's request that is being translated.
    asking: Option<Box<str>>,
    converted: Vec<Entry>,
}

impl Replay {
    fn new(entries: &[Entry], from: AgentDialect, to: AgentDialect) -> Self {
        let mut requests = Requests::default();
        for entry in entries
            .iter()
            .filter(|entry| entry.dir == Direction::ToAgent)
        {
            if let Some(line) = &entry.msg {
                requests.add(line);
            }
        }
        let cwd = || PathBuf::from("/");
        Self {
            from,
            to,
            outer: Translator::new(serve_dialect(from, cwd()), AgentSide::new(to)),
            inner: Translator::new(serve_dialect(to, cwd()), AgentSide::new(from)),
            requests,
            asked: HashMap::new(),
            asking: None,
            converted: Vec::new(),
        }
    }

    /// A line of the recorded client.
    fn client_line(&mut self, line: &RawValue) {
        let line = match Part::of(line) {
            Part::Answer { id } => {
                let Some(shown) = self.asked.remove(&id) else {
                    return;
                };
                with_id(line, &shown)
            }
            _ => line.to_owned(),
        };
        let output = self.outer.client_line(Ok(line.get().as_bytes()));
        self.settle(Pending::Outer(output));
    }

    /// A line of the recorded agent.
    fn agent_line(&mut self, line: &RawValue) {
        let line = match Part::of(line) {
            Part::Answer { id } => match self.requests.answered(id, line) {
                Some(line) => line,
                None => return,
            },
            Part::Request { id, .. } => {
                self.asking = Some(id);
                line.to_owned()
            }
            Part::Other => line.to_owned(),
        };
        self.settle(Pending::Agent(line));
        self.asking = None;
    }

    /// Passes lines on until none is left.
    fn settle(&mut self, first: Pending) {
        let mut pending = VecDeque::from([first]);
        while let Some(next) = pending.pop_front() {
            match next {
                Pending::Agent(line) => {
                    let output = self.inner.agent_line(line.get().as_bytes());
                    pending.push_back(Pending::Inner(output));
                }
                Pending::Outer(output) => self.apply_outer(output, &mut pending),
                Pending::Inner(output) => self.apply_inner(output, &mut pending),
            }
        }
    }

    fn apply_outer(&mut self, output: Output, pending: &mut VecDeque<Pending>) {
        for line in output.to_client.iter().flat_map(each_line) {
            if let (Part::Request { id, .. }, Some(recorded)) =
                (Part::of(&line), self.asking.take())
            {
                self.asked.insert(recorded, id);
            }
        }
        for line in output.to_agent.iter().flat_map(each_line) {
            self.converted
                .push(Entry::new(Direction::ToAgent, line.get().as_bytes()));
            pending.push_back(Pending::Inner(
                self.inner.client_line(Ok(line.get().as_bytes())),
            ));
        }
        if let Some(session) = output.launch {
            let dialect = standalone_dialect(self.to, Some(&session)).0;
            pending.push_back(Pending::Outer(self.outer.launched(dialect)));
        }
    }

    fn apply_inner(&mut self, output: Output, pending: &mut VecDeque<Pending>) {
        for line in output.to_client.iter().flat_map(each_line) {
            self.converted
                .push(Entry::new(Direction::ToClient, line.get().as_bytes()));
            pending.push_back(Pending::Outer(self.outer.agent_line(line.get().as_bytes())));
        }
        for line in output.to_agent.iter().flat_map(each_line) {
            if let Part::Request { id, kind } = Part::of(&line) {
                match self.requests.sent(&id, &kind) {
                    Sent::Waiting => {}
                    Sent::Answered(answer) => pending.push_back(Pending::Agent(answer)),
                    Sent::Missing => pending.push_back(Pending::Agent(self.empty_answer(&id))),
                }
            }
        }
        if let Some(session) = output.launch {
            let dialect = standalone_dialect(self.from, Some(&Self::recorded(session))).0;
            pending.push_back(Pending::Inner(self.inner.launched(dialect)));
        }
    }

    /// The session of a recording is a new one.
    fn recorded(session: StandaloneSession) -> StandaloneSession {
        StandaloneSession {
            restore: None,
            ..session
        }
    }

    /// The answer to a request that the recording does not have: success without content.
    fn empty_answer(&self, id: &str) -> Box<RawValue> {
        let id = RawValue::from_string(id.to_owned()).expect("an id is JSON");
        let answer = match self.from {
            AgentDialect::StreamJson => {
                let response = json!({ "subtype": "success", "request_id": *id, "response": {} });
                json!({ "type": "control_response", "response": response })
            }
            AgentDialect::Acp | AgentDialect::EarlyAcp => {
                json!({ "jsonrpc": "2.0", "id": *id, "result": {} })
            }
        };
        to_raw_value(&answer).expect("a value serializes")
    }
}

/// The lines of one item of output.
fn each_line(lines: &Bytes) -> Vec<Box<RawValue>> {
    let lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .filter_map(|line| {
            serde_json::from_slice::<&RawValue>(line)
                .ok()
                .map(ToOwned::to_owned)
        })
        .collect()
}
