//! One process of the member: a task between its pipes and the driver.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};

use super::agent::Agent;
use super::gate::{Checked, Gate};
use super::lines::{Lines, Piece};
use super::serving::Serving;
use crate::acp::method;
use crate::fleet::{ChannelId, ProcessEnd};
use crate::jsonrpc::{self, Message};
use crate::process::{Child, StdinWriter};
use crate::shutdown::Shutdown;

/// The number of lines that wait for the task of a process.
const QUEUED_COMMANDS: usize = 1024;
const READ_BYTES: usize = 64 << 10;
/// The size of the output beyond which the process receives no more messages of the gateway, which could cause more output.
const MAX_READY_BYTES: usize = 1 << 20;

/// A command for the process. Dropping the handle stops the process.
#[derive(Debug)]
pub(super) enum ProcessCommand {
    Line(Bytes),
    Close,
}

/// Something that the process did.
#[derive(Debug)]
pub(super) enum ProcessEvent {
    Output(Bytes),
    Ended(ProcessEnd),
}

/// The handle on a process. Dropping it stops the process.
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
        let (agent, permits) = (agent.clone(), Arc::clone(&reads));
        let process = Process {
            channel,
            events,
            commands,
            reads: permits,
            ready: BytesMut::new(),
        };
        shutdown.spawn_isolated(process.run(agent, shutdown.clone()));
        Self {
            commands: sender,
            reads,
        }
    }

    /// Passes a command to the process. A process that does not accept its commands is stopped.
    pub(super) fn send(&self, command: ProcessCommand) -> bool {
        self.commands.try_send(command).is_ok()
    }

    /// Permits one more block of the output.
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

/// The task of a process.
struct Process {
    channel: ChannelId,
    events: mpsc::Sender<(ChannelId, ProcessEvent)>,
    commands: mpsc::Receiver<ProcessCommand>,
    reads: Arc<Semaphore>,
    /// Output that waits for a permit.
    ready: BytesMut,
}

/// The protocol of a process: the checks of both directions.
struct Protocol {
    gate: Gate,
    serving: Serving,
    lines: Lines,
    stdin: StdinWriter,
    max_json_depth: usize,
}

impl Process {
    async fn run(mut self, agent: Agent, shutdown: Shutdown) {
        let mut child = match agent.spawner.spawn(agent.child.clone()).await {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(channel = %self.channel, %error, "could not start the agent");
                let reason = Some(format!("could not start the agent: {error}"));
                return self
                    .report(ProcessEvent::Ended(ProcessEnd {
                        reason,
                        ..ProcessEnd::default()
                    }))
                    .await;
            }
        };
        let mut stdout = child.take_stdout();
        let mut protocol = Protocol::new(&agent, &child, shutdown);
        let (mut block, permits) = (BytesMut::new(), Arc::clone(&self.reads));
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
                answer = protocol.serving.next_answer() => self.write(&child, &protocol.stdin, answer),
                exit = child.exited(), if stdout.is_none() && self.ready.is_empty() => {
                    let stalled = child.stop_reason().map(|reason| reason.to_string());
                    let (exit_code, signal, stderr_tail) = (exit.code, exit.signal, child.stderr().tail());
                    let end = ProcessEnd { exit_code, signal, stderr_tail, reason: stalled };
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
        drop(self.events.send((self.channel, event)).await);
    }
}

impl Protocol {
    fn new(agent: &Agent, child: &Child, shutdown: Shutdown) -> Self {
        let max_json_depth = agent.limits.max_json_depth;
        let (roots, serves) = (agent.roots.clone(), agent.serves);
        let gate = Gate::new(roots.clone(), serves, shutdown.clone(), max_json_depth);
        let commands = child.terminals().clone();
        let serving = Serving::new(
            (roots, serves),
            commands,
            Arc::clone(&agent.limits),
            shutdown,
        );
        Self {
            gate,
            serving,
            lines: Lines::default(),
            stdin: child.stdin(),
            max_json_depth,
        }
    }

    /// Handles output of the agent. Appends the lines for the gateway to `ready`, and returns the lines for the agent.
    fn output(&mut self, block: &[u8], ready: &mut BytesMut) -> Vec<Bytes> {
        let mut answers = Vec::new();
        self.lines.push(block);
        while let Some(piece) = self.lines.next_piece() {
            match piece {
                Piece::Line(line) => match self.serve(&line) {
                    Served::ByGateway => ready.unsplit(line),
                    Served::Here(answer) => answers.extend(answer),
                },
                Piece::Part(part) => ready.unsplit(part),
            }
        }
        answers
    }

    /// Serves a line of the agent if it is a request that this member serves.
    fn serve(&mut self, line: &[u8]) -> Served {
        if !self.gate.awaits_session() && !may_be_served(line) {
            return Served::ByGateway;
        }
        match jsonrpc::parse(line, self.max_json_depth) {
            Ok(Message::Request { id, method, params }) if self.serving.serves(&method) => {
                let folder = self.gate.session_folder(&params).to_owned();
                Served::Here(self.serving.request(&id, &method, params, folder))
            }
            Ok(Message::Notification { method, params }) if &*method == method::CANCEL_REQUEST => {
                self.cancel(&params)
            }
            Ok(Message::Response { id, outcome }) => {
                self.gate.answered(&id, outcome.ok().as_deref());
                Served::ByGateway
            }
            _ => Served::ByGateway,
        }
    }

    fn cancel(&mut self, params: &RawValue) -> Served {
        self.serving
            .cancel(params)
            .map_or(Served::ByGateway, |answer| Served::Here(Some(answer)))
    }
}

/// The side that serves a line of the agent.
enum Served {
    ByGateway,
    /// This member, with the answer if it is known at once.
    Here(Option<Bytes>),
}

/// Whether a line can name a method that a member serves. The search avoids a parse of most lines.
fn may_be_served(line: &[u8]) -> bool {
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
