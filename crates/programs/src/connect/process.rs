//! One process of the member: a task between its pipes and the driver.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};

use super::Agent;
use super::client_tools::AgentTools;
use super::gate::{Checked, Gate};
use base::shutdown::Shutdown;
use children::{Child, StdinWriter};
use wire::acp::method;
use wire::fleet::{ChannelId, ProcessEnd};
use wire::jsonrpc::{self, MAX_DEPTH, Message};

const QUEUED_COMMANDS: usize = 1024;
const READ_BYTES: usize = 64 << 10;
/// If the output that waits for the gateway exceeds this size, the process receives no messages, because each message
/// could cause more output.
const MAX_READY_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum ProcessCommand {
    Line(Bytes),
    Close,
}

#[derive(Debug)]
pub(super) enum ProcessEvent {
    Output(Bytes),
    Ended(ProcessEnd),
}

#[derive(Debug)]
pub(super) struct ProcessHandle {
    commands: mpsc::Sender<ProcessCommand>,
    /// One permit is one block of the output.
    reads: Arc<Semaphore>,
}

impl ProcessHandle {
    pub(super) fn start(
        agent: &Agent,
        channel: ChannelId,
        events: mpsc::Sender<(ChannelId, ProcessEvent)>,
        shutdown: &Shutdown,
    ) -> Self {
        let (sender, commands) = mpsc::channel(QUEUED_COMMANDS);
        let reads = Arc::new(Semaphore::new(1));
        let process = Process {
            channel,
            events,
            commands,
            reads: Arc::clone(&reads),
            ready: BytesMut::new(),
        };
        shutdown.spawn_isolated(process.run(agent.clone(), shutdown.clone()));
        Self {
            commands: sender,
            reads,
        }
    }

    /// Passes a command to the process. A process that does not accept its commands is stopped.
    pub(super) fn send(&self, command: ProcessCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    pub(super) fn permit_read(&self) {
        self.reads.add_permits(1);
    }
}

impl Drop for ProcessHandle {
    /// Ends the task also while it waits for a permit.
    fn drop(&mut self) {
        self.reads.close();
    }
}

struct Process {
    channel: ChannelId,
    events: mpsc::Sender<(ChannelId, ProcessEvent)>,
    commands: mpsc::Receiver<ProcessCommand>,
    reads: Arc<Semaphore>,
    ready: BytesMut,
}

/// The protocol of a process: the checks of both directions.
struct Protocol {
    gate: Gate,
    tools: AgentTools,
    lines: Lines,
    stdin: StdinWriter,
}

impl Process {
    async fn run(mut self, agent: Agent, shutdown: Shutdown) {
        let mut child = match agent.spawner.spawn(agent.child.clone()).await {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(channel = %self.channel, %error, "could not start the agent");
                let end = ProcessEnd {
                    reason: Some(format!("could not start the agent: {error}")),
                    ..ProcessEnd::default()
                };
                return self.report(ProcessEvent::Ended(end)).await;
            }
        };
        let mut stdout = child.take_stdout();
        let mut protocol = Protocol::new(&agent, &child, shutdown);
        let mut block = BytesMut::new();
        let permits = Arc::clone(&self.reads);
        loop {
            tokio::select! {
                command = self.commands.recv(), if self.ready.len() < MAX_READY_BYTES => match command {
                    Some(ProcessCommand::Line(line)) => match protocol.gate.check(line).await {
                        Checked::Pass(line) => self.write(&child, &protocol.stdin, line),
                        // A line of the agent is complete here, because only complete lines are ready.
                        Checked::Answer(line) => self.answer(&protocol, &line),
                        Checked::Discard => {}
                    },
                    Some(ProcessCommand::Close) => child.begin_stop(),
                    // The gateway needs the process no more, or this program ends.
                    None => {
                        child.stop().await;
                        return;
                    }
                },
                permit = permits.acquire(), if !self.ready.is_empty() => {
                    let Ok(permit) = permit else {
                        child.stop().await;
                        return;
                    };
                    permit.forget();
                    let part = self.ready.split_to(self.ready.len().min(READ_BYTES)).freeze();
                    self.report(ProcessEvent::Output(part)).await;
                }
                read = read_block(stdout.as_mut(), &mut block), if stdout.is_some() && self.ready.is_empty() => {
                    let is_open = matches!(read, Ok(1..));
                    for line in protocol.output(&block.split(), &mut self.ready) {
                        self.write(&child, &protocol.stdin, line);
                    }
                    if !is_open {
                        self.ready.unsplit(protocol.lines.rest());
                        stdout = None;
                    }
                }
                answer = protocol.tools.next_answer() => self.write(&child, &protocol.stdin, answer),
                exit = child.exited(), if stdout.is_none() && self.ready.is_empty() => {
                    let end = ProcessEnd {
                        exit_code: exit.code,
                        signal: exit.signal,
                        stderr_tail: child.stderr.tail(),
                        reason: child.stop_reason().map(|reason| reason.to_string()),
                    };
                    return self.report(ProcessEvent::Ended(end)).await;
                }
            }
        }
    }

    /// Passes a line to the agent. An agent that does not accept it is stopped.
    fn write(&self, child: &Child, stdin: &StdinWriter, line: Bytes) {
        if let Err(error) = stdin.send_reserved(line) {
            tracing::warn!(channel = %self.channel, %error, "the agent does not read its input; stopping it");
            child.begin_stop();
        }
    }

    /// Answers the gateway instead of the agent.
    fn answer(&mut self, protocol: &Protocol, line: &[u8]) {
        if !protocol.lines.is_at_line_start() {
            // The agent is within a line that is too long, which ends here for the gateway.
            self.ready.extend_from_slice(b"\n");
        }
        self.ready.extend_from_slice(line);
    }

    async fn report(&self, event: ProcessEvent) {
        // The driver has ended.
        let _ = self.events.send((self.channel, event)).await;
    }
}

impl Protocol {
    fn new(agent: &Agent, child: &Child, shutdown: Shutdown) -> Self {
        let roots = agent.roots.clone();
        Self {
            gate: Gate::new(roots, agent.serves, shutdown.clone()),
            tools: AgentTools::new(agent, child.terminals.clone(), shutdown),
            lines: Lines::default(),
            stdin: child.stdin.clone(),
        }
    }

    /// Handles output of the agent. Appends the lines for the gateway to `ready`, and returns the lines for the agent.
    fn output(&mut self, block: &[u8], ready: &mut BytesMut) -> Vec<Bytes> {
        let mut answers = Vec::new();
        self.lines.push(block);
        while let Some(piece) = self.lines.next_piece() {
            match piece {
                Piece::Line(line) => match self.answer(&line) {
                    Answer::OfGateway => ready.unsplit(line),
                    Answer::OfMember(answer) => answers.extend(answer),
                },
                Piece::Part(part) => ready.unsplit(part),
            }
        }
        answers
    }

    fn answer(&mut self, line: &[u8]) -> Answer {
        if !self.gate.awaits_session() && !may_name_tool(line) {
            return Answer::OfGateway;
        }
        match jsonrpc::parse(line, MAX_DEPTH) {
            Ok(Message::Request { id, method, params }) if self.tools.serves(&method) => {
                let folder = self.gate.session_folder(&params).to_owned();
                let begun = self.tools.request(id.clone(), &method, params, folder);
                Answer::OfMember(begun.err().map(|error| jsonrpc::error(&id, &error)))
            }
            Ok(Message::Notification { method, params }) if &*method == method::CANCEL_REQUEST => {
                let answer = self.tools.cancel(&params);
                answer.map_or(Answer::OfGateway, |answer| Answer::OfMember(Some(answer)))
            }
            Ok(Message::Response { id, outcome }) => {
                self.gate.answered(&id, outcome.ok().as_deref());
                Answer::OfGateway
            }
            _ => Answer::OfGateway,
        }
    }
}

/// The side that answers a line of the agent.
enum Answer {
    OfGateway,
    /// This member, with the answer if it is known at once.
    OfMember(Option<Bytes>),
}

/// Whether a line can name a client tool. The search avoids a parse of most lines.
fn may_name_tool(line: &[u8]) -> bool {
    const NAMES: [&[u8]; 3] = [b"_text_file\"", b"terminal", b"cancel_request\""];
    NAMES.iter().any(|name| memmem::find(line, name).is_some())
}

/// Reads a block. `Ok(0)` is the end. Cancel-safe.
async fn read_block(
    stdout: Option<&mut tokio::process::ChildStdout>,
    block: &mut BytesMut,
) -> std::io::Result<usize> {
    let Some(stdout) = stdout else { return Ok(0) };
    block.reserve(READ_BYTES);
    stdout.take(READ_BYTES as u64).read_buf(block).await
}

const MAX_LINE_BYTES: usize = 16 << 20;

/// Collects output until a line is complete.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: BytesMut,
    /// The bytes of `partial` that contain no end of a line.
    searched: usize,
    /// Whether the rest of a long line passes unchanged.
    is_passing: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Line(BytesMut),
    /// A part of a line that is too long, or the last line without its end.
    Part(BytesMut),
}

impl Lines {
    pub(super) fn push(&mut self, block: &[u8]) {
        self.partial.extend_from_slice(block);
    }

    /// The next piece. `None`: the rest is not a complete line.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        let end = memchr::memchr(b'\n', &self.partial[self.searched..]);
        let end = end.map(|at| self.searched + at);
        self.searched = if end.is_some() { 0 } else { self.partial.len() };
        if self.is_passing {
            let size = end.map_or(self.partial.len(), |at| at + 1);
            let part = self.partial.split_to(size);
            self.is_passing = end.is_none();
            self.searched = 0;
            return (!part.is_empty()).then_some(Piece::Part(part));
        }
        match end {
            Some(at) => Some(Piece::Line(self.partial.split_to(at + 1))),
            None if self.partial.len() > MAX_LINE_BYTES => {
                self.is_passing = true;
                self.searched = 0;
                Some(Piece::Part(self.partial.split()))
            }
            None => None,
        }
    }

    /// The output after the last complete line, at the end of the output.
    pub(super) fn rest(&mut self) -> BytesMut {
        self.searched = 0;
        self.partial.split()
    }

    /// Whether the pieces so far end with a complete line, so that another line can follow.
    pub(super) fn is_at_line_start(&self) -> bool {
        !self.is_passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lines: &mut Lines) -> Vec<Piece> {
        std::iter::from_fn(|| lines.next_piece()).collect()
    }

    #[test]
    fn lines_are_complete_and_long_lines_pass() {
        let line = |text: &str| Piece::Line(text.as_bytes().into());
        let mut lines = Lines::default();
        lines.push(b"a\nb");
        assert_eq!(pieces(&mut lines), [line("a\n")]);
        lines.push(b"c\n\nd");
        assert_eq!(pieces(&mut lines), [line("bc\n"), line("\n")]);
        assert_eq!(lines.rest(), "d");

        lines.push(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert!(
            matches!(&pieces(&mut lines)[..], [Piece::Part(part)] if part.len() == MAX_LINE_BYTES + 1)
        );
        assert!(!lines.is_at_line_start());
        lines.push(b"y");
        lines.push(b"z\nnext\n");
        assert_eq!(
            pieces(&mut lines),
            [Piece::Part(b"yz\n"[..].into()), line("next\n")]
        );
        assert!(lines.is_at_line_start());
    }
}
