//! The loop of a translation: stdin and stdout on one side, the command on the other.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::agent::AgentSide;
use super::client::{Acp, early_client};
use super::input::next_line;
use super::launch::{ChildCommand, Launcher};
use super::protocol::{ClientProtocol, Launch, Output, Served};
use super::recording::{Direction, Recorder, RecordingError};
use crate::jsonrpc::RpcError;
use crate::process::{Child, Exit, SpawnError, StdinError};
use crate::shutdown::Shutdown;
use crate::types::AgentDialect;

/// The version of this program, as clients see it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The maximum number of lines that a reader or writer holds.
const QUEUE_LINES: usize = 64;
/// The size of unwritten lines in one direction, above which the other side is not read.
const MAX_UNWRITTEN_BYTES: usize = 1 << 20;
/// The time between two attempts to write to a command that does not read.
const RETRY: Duration = Duration::from_millis(20);
/// The time for lines that the client does not read, and for the tasks of a command that has ended.
const END_GRACE: Duration = Duration::from_secs(2);

/// The protocols that clients of a translation can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientDialect {
    Acp,
    EarlyAcp,
}

/// The settings of a translation.
#[derive(Debug)]
pub struct Options {
    /// The protocol of the command.
    pub from: AgentDialect,
    /// The protocol of the client.
    pub to: ClientDialect,
    pub command: ChildCommand,
    /// The session that the client is expected to restore. A command that serves one session then starts with it.
    pub resume: Option<String>,
    /// The maximum size of a line, in both directions.
    pub max_line_bytes: usize,
    pub record: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    #[error("could not start the agent")]
    Spawn(#[from] SpawnError),
    #[error(transparent)]
    Recording(#[from] RecordingError),
    #[error("could not read stdin")]
    Stdin(#[source] io::Error),
    #[error("could not read the output of the agent")]
    Output(#[source] io::Error),
    #[error("a line of the agent is longer than {0} bytes")]
    LineTooLong(usize),
}

type Line = io::Result<Result<Vec<u8>, RpcError>>;

/// The lines of one side. Dropping it ends its reader.
struct Lines {
    received: mpsc::Receiver<Line>,
    _reader: AbortOnDropHandle<()>,
}

impl Lines {
    fn read(
        shutdown: &Shutdown,
        input: impl AsyncRead + Send + Unpin + 'static,
        max_line_bytes: usize,
    ) -> Self {
        let (lines, received) = mpsc::channel(QUEUE_LINES);
        let mut input = BufReader::with_capacity(64 << 10, input);
        let reader = shutdown.spawn_client(async move {
            while let Some(line) = next_line(&mut input, max_line_bytes).await.transpose() {
                let is_last = line.is_err();
                if lines.send(line).await.is_err() || is_last {
                    return;
                }
            }
        });
        Self {
            received,
            _reader: AbortOnDropHandle::new(reader),
        }
    }
}

/// Runs the command until it ends, `input` ends, or `stop` resolves. Returns the exit of a command that ended by itself.
pub async fn run(
    options: Options,
    (input, output): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
    stop: impl Future<Output = ()>,
) -> Result<Option<Exit>, TranslateError> {
    let recorder = options
        .record
        .as_deref()
        .map(Recorder::create)
        .transpose()?;
    let shutdown = Shutdown::new();
    let (client_lines, unwritten) = mpsc::channel(QUEUE_LINES);
    let writer = shutdown.spawn_client(write(output, unwritten));
    let cwd = options.command.cwd.clone();
    let client: Box<dyn ClientProtocol> = match options.to {
        ClientDialect::Acp => Box::new(Acp),
        ClientDialect::EarlyAcp => early_client(cwd.clone(), VERSION),
    };
    let driver = Driver {
        launcher: Launcher::new(options.command, &shutdown),
        agent: AgentSide::new(options.from, cwd, options.resume),
        client,
        recorder,
        child: None,
        asks_version: true,
        to_client: Unwritten::default(),
        to_agent: Unwritten::default(),
        max_line_bytes: options.max_line_bytes,
        shutdown: shutdown.clone(),
    };
    let inputs = Lines::read(&shutdown, input, options.max_line_bytes);
    let ended = driver.run(inputs, client_lines, writer, stop).await;
    shutdown.wait_for_tasks(END_GRACE).await;
    ended
}

/// Writes lines, several with one write if they wait.
async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    let mut waiting = Vec::with_capacity(QUEUE_LINES);
    let mut block = BytesMut::new();
    while lines.recv_many(&mut waiting, QUEUE_LINES).await > 0 {
        for line in waiting.drain(..) {
            block.extend_from_slice(&line);
        }
        output.write_all(&block).await?;
        output.flush().await?;
        block.clear();
    }
    Ok(())
}

/// Lines that a writer has not accepted yet.
#[derive(Debug, Default)]
struct Unwritten {
    lines: VecDeque<Bytes>,
    bytes: usize,
}

impl Unwritten {
    fn push(&mut self, line: Bytes) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    fn pop(&mut self) -> Option<Bytes> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.len();
        Some(line)
    }

    fn has_room(&self) -> bool {
        self.bytes <= MAX_UNWRITTEN_BYTES
    }
}

/// The running command.
struct Running {
    child: Child,
    lines: Lines,
    /// All output was read.
    is_read: bool,
}

struct Driver {
    launcher: Launcher,
    agent: AgentSide,
    client: Box<dyn ClientProtocol>,
    recorder: Option<Recorder>,
    child: Option<Running>,
    /// Whether the version of the command is not known yet.
    asks_version: bool,
    to_client: Unwritten,
    to_agent: Unwritten,
    max_line_bytes: usize,
    shutdown: Shutdown,
}

impl Driver {
    /// Starts the command, after the end of the running one. The first start asks for the version at the same time.
    async fn start(&mut self, launch: Launch) -> Result<(), SpawnError> {
        if let Some(running) = self.child.take() {
            // Its output belongs to a session that nobody uses.
            drop(running.lines);
            running.child.stop().await;
        }
        let argument = self.agent.protocol.version_argument();
        let argument = argument.filter(|_| std::mem::take(&mut self.asks_version));
        let cwd = launch.cwd.clone();
        let version = async {
            match argument {
                Some(argument) => self.launcher.output(cwd, argument).await,
                None => None,
            }
        };
        let (started, version) = tokio::join!(self.launcher.start(launch), version);
        if let Some(version) = version {
            self.agent.protocol.set_version(&version);
        }
        let mut child = started?;
        let stdout = child.take_stdout().expect("a new child has its stdout");
        self.child = Some(Running {
            child,
            lines: Lines::read(&self.shutdown, stdout, self.max_line_bytes),
            is_read: false,
        });
        Ok(())
    }

    /// Performs the effects of a line, of which each can have further effects.
    async fn apply(&mut self, outputs: Vec<Output>) -> Result<(), TranslateError> {
        let mut outputs = VecDeque::from(outputs);
        while let Some(output) = outputs.pop_front() {
            match output {
                Output::ToAgent(lines) => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.record(Direction::ToAgent, &lines);
                    }
                    self.to_agent.push(lines);
                }
                Output::ToClient(message) => {
                    let mut served = Served::default();
                    self.client.agent_message(message, &mut served);
                    outputs.extend(self.serve(served));
                }
                Output::Launch(launch) => match self.start(launch).await {
                    Ok(()) => outputs.extend(self.agent.launched()),
                    Err(error) => {
                        let reason = format!("could not start the agent: {}", error_text(&error));
                        let further = self.agent.ended(&reason).ok_or(error)?;
                        outputs.extend(further);
                    }
                },
            }
        }
        Ok(())
    }

    /// Queues the lines for the client. Returns the effects of the messages for the agent.
    fn serve(&mut self, served: Served) -> Vec<Output> {
        for line in served.to_client {
            self.to_client.push(line);
        }
        let messages = served.to_agent.into_iter();
        messages
            .flat_map(|message| self.agent.message(message))
            .collect()
    }

    async fn client_line(&mut self, line: Result<Vec<u8>, RpcError>) -> Result<(), TranslateError> {
        let mut served = Served::default();
        match line {
            Ok(line) => self.client.client_line(&line, &mut served),
            Err(error) => self.client.invalid_line(error, &mut served),
        }
        let outputs = self.serve(served);
        self.apply(outputs).await
    }

    async fn agent_line(&mut self, line: Line) -> Result<(), TranslateError> {
        let line = line
            .map_err(TranslateError::Output)?
            .map_err(|_| TranslateError::LineTooLong(self.max_line_bytes))?;
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Direction::ToClient, &line);
        }
        let (outputs, translated) = self.agent.line(&line);
        self.apply(outputs).await?;
        if let Err(error) = translated {
            tracing::debug!(%error, bytes = line.len(), "a line of the agent has no meaning in its protocol");
            if let Some(line) = self.client.unknown_agent_line(&line) {
                self.to_client.push(line);
            }
        }
        Ok(())
    }

    /// Writes queued lines to the command. Returns false if it does not accept all of them now.
    fn write_to_agent(&mut self) -> bool {
        let Some(running) = &self.child else {
            self.to_agent = Unwritten::default();
            return true;
        };
        let stdin = running.child.stdin();
        while let Some(line) = self.to_agent.lines.front() {
            match stdin.send(line.clone()) {
                Ok(()) => drop(self.to_agent.pop()),
                Err(StdinError::Full) => return false,
                // The end of the command is reported by its output.
                Err(StdinError::Closed) => self.to_agent = Unwritten::default(),
            }
        }
        true
    }

    /// Handles the end of a command whose output was read. Returns its exit if the translation ends with it.
    async fn child_ended(&mut self) -> Result<Option<Exit>, TranslateError> {
        let Some(running) = self.child.take() else {
            return Ok(None);
        };
        let exit = running.child.stop().await;
        let reason = match (&exit.code, &exit.signal) {
            (Some(code), _) => format!("the agent ended with the exit code {code}"),
            (None, Some(signal)) => format!("the agent was ended by {signal}"),
            (None, None) => "the agent ended".to_owned(),
        };
        match self.agent.ended(&reason) {
            Some(outputs) => self.apply(outputs).await.map(|()| None),
            None => Ok(Some(exit)),
        }
    }

    async fn run(
        mut self,
        mut inputs: Lines,
        client_lines: mpsc::Sender<Bytes>,
        mut writer: JoinHandle<io::Result<()>>,
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Exit>, TranslateError> {
        tokio::pin!(stop);
        let first = self.agent.open();
        self.apply(first).await?;
        let ended = loop {
            let has_written = self.write_to_agent();
            if self.client.has_ended() {
                break Ok(None);
            }
            let may_read = self.to_client.has_room() && self.to_agent.has_room();
            let handled = tokio::select! {
                permit = client_lines.reserve(), if !self.to_client.lines.is_empty() => {
                    if let (Ok(permit), Some(line)) = (permit, self.to_client.pop()) {
                        permit.send(line);
                    }
                    Ok(())
                }
                line = inputs.received.recv(), if may_read => match line {
                    Some(Ok(line)) => self.client_line(line).await,
                    Some(Err(error)) => break Err(TranslateError::Stdin(error)),
                    None => break Ok(None),
                },
                line = next_of(&mut self.child), if may_read => match line {
                    Some(line) => self.agent_line(line).await,
                    None => match self.child_ended().await {
                        Ok(Some(exit)) => break Ok(Some(exit)),
                        Ok(None) => Ok(()),
                        Err(error) => Err(error),
                    },
                },
                () = sleep(RETRY), if !has_written => Ok(()),
                () = &mut stop => {
                    // The sender of the signal may send KILL soon.
                    self.shutdown.start_drain();
                    break Ok(None);
                }
                // The client has closed its end of stdout.
                _ = &mut writer => break Ok(None),
            };
            if let Err(error) = handled {
                break Err(error);
            }
        };
        if ended.is_err()
            && let Some(running) = &mut self.child
        {
            // The client must not receive the output after the failure, which could end its turn.
            running.is_read = true;
        }
        self.finish(client_lines, writer).await;
        ended
    }

    /// Stops the command gracefully, and passes on its last output.
    async fn finish(
        mut self,
        client_lines: mpsc::Sender<Bytes>,
        writer: JoinHandle<io::Result<()>>,
    ) {
        if let Some(Running {
            child,
            lines: mut output,
            is_read,
        }) = self.child.take()
        {
            self.write_farewell(&child);
            child.begin_stop();
            let rest = async {
                while !is_read && let Some(line) = output.received.recv().await {
                    if self.agent_line(line).await.is_err() {
                        return;
                    }
                }
                drop(output);
            };
            // A stop has its own deadlines, after which the output has ended too.
            tokio::join!(child.exited(), rest);
        }
        let written = async {
            while let Some(line) = self.to_client.pop() {
                if client_lines.send(line).await.is_err() {
                    return;
                }
            }
            drop(client_lines);
            if !writer.is_finished() {
                let _ = writer.await;
            }
        };
        // A client that does not read its lines does not delay the end.
        let _ = timeout(END_GRACE, written).await;
    }

    /// Queues the last lines for the command, which may have ended.
    fn write_farewell(&mut self, child: &Child) {
        let farewell = self.agent.protocol.farewell();
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Direction::ToAgent, &farewell);
        }
        if !farewell.is_empty() && child.stdin().send_reserved(farewell).is_err() {
            tracing::debug!("the agent does not read its last message");
        }
    }
}

/// The next line of the command. Waits for ever without a command.
async fn next_of(child: &mut Option<Running>) -> Option<Line> {
    let Some(running) = child else {
        return std::future::pending().await;
    };
    let line = running.lines.received.recv().await;
    running.is_read = line.is_none();
    line
}

/// An error with its causes.
fn error_text(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
