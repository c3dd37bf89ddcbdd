//! Both halves of a translation, without I/O.

use std::collections::VecDeque;

use bytes::Bytes;

use super::agent_side::{AgentSide, AgentStep};
use crate::agent::{Dialect, StandaloneSession};
use crate::jsonrpc::{Message, RpcError};
use crate::served::{Ending, Served, ServedDialect};

/// The effects of a line.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// Lines for the client, each with its newline.
    pub(super) to_client: Vec<Bytes>,
    /// Lines for the agent, each with its newline. One item can be several lines.
    pub(super) to_agent: Vec<Bytes>,
    /// Start the process for this session.
    pub(super) launch: Option<StandaloneSession>,
}

/// A message between the halves.
enum Between {
    ToAgent(Message),
    ToClient(Message),
}

/// The state of one translation.
#[derive(Debug)]
pub(super) struct Translator {
    served: Box<dyn ServedDialect>,
    agent: AgentSide,
}

impl Translator {
    pub(super) fn new(served: Box<dyn ServedDialect>, agent: AgentSide) -> Self {
        Self { served, agent }
    }

    /// Translates a line of the client, or answers one that could not be read.
    pub(super) fn client_line(&mut self, line: Result<&[u8], RpcError>) -> Output {
        let mut served = Served::default();
        match line {
            Ok(line) => self.served.client_line(line, &mut served),
            Err(error) => self.served.invalid_line(error, &mut served),
        }
        let mut output = Output {
            to_client: served.to_client,
            ..Output::default()
        };
        self.exchange(
            served.to_agent.into_iter().map(Between::ToAgent).collect(),
            &mut output,
        );
        output
    }

    /// Translates a line of the agent.
    pub(super) fn agent_line(&mut self, line: &[u8]) -> Output {
        self.step(|agent, step| agent.line(line, step))
    }

    /// Counts a line of the agent that could not be read.
    pub(super) fn invalid_agent_line(&mut self) -> Output {
        self.step(|agent, _| agent.invalid_line())
    }

    pub(super) fn launched(&mut self, dialect: Box<dyn Dialect>) -> Output {
        self.step(|agent, step| agent.launched(dialect, step))
    }

    pub(super) fn launch_failed(&mut self, reason: &str) -> Output {
        self.step(|agent, step| agent.launch_failed(reason, step))
    }

    /// The process of the agent has ended.
    pub(super) fn agent_ended(&mut self, reason: &str) -> Output {
        self.step(|agent, step| agent.ended(reason, step))
    }

    fn step(&mut self, step: impl FnOnce(&mut AgentSide, &mut AgentStep)) -> Output {
        let (mut done, mut output) = (AgentStep::default(), Output::default());
        step(&mut self.agent, &mut done);
        let between = apply(done, &mut output).map(Between::ToClient).collect();
        self.exchange(between, &mut output);
        output
    }

    /// Passes messages between the halves until none is left.
    fn exchange(&mut self, mut between: VecDeque<Between>, output: &mut Output) {
        while let Some(message) = between.pop_front() {
            match message {
                Between::ToAgent(message) => {
                    let mut step = AgentStep::default();
                    self.agent.message(message, &mut step);
                    between.extend(apply(step, output).map(Between::ToClient));
                }
                Between::ToClient(message) => {
                    let mut served = Served::default();
                    self.served.agent_message(message, &mut served);
                    output.to_client.extend(served.to_client);
                    between.extend(served.to_agent.into_iter().map(Between::ToAgent));
                }
            }
        }
    }

    /// Whether a process runs or starts.
    pub(super) fn needs_process(&self) -> bool {
        self.agent.needs_process()
    }

    /// Whether the work of the client continues after the end of its lines.
    pub(super) fn is_busy(&self) -> bool {
        self.served.is_busy()
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.served.ending()
    }

    /// The lines for the agent before the end of its process.
    pub(super) fn farewell(&self) -> Bytes {
        self.agent.farewell()
    }

    /// Whether the agent wrote too many lines that are not messages.
    pub(super) fn agent_has_failed(&self) -> bool {
        self.agent.has_failed()
    }
}

/// Applies the effects of a step. Returns its messages for the client.
fn apply(step: AgentStep, output: &mut Output) -> impl Iterator<Item = Message> + use<> {
    output.to_agent.extend(step.lines);
    output.launch = output.launch.take().or(step.launch);
    step.messages.into_iter()
}
