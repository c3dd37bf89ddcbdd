//! The loop of a translation: stdin and stdout on one side, the command on the other.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::OptionFuture;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::agent::AgentSide;
use super::early_acp::EarlyClient;
use super::protocol::{AcpClient, ClientProtocol, Launch, Output, Translated, receive};
use crate::stdio::{self, Line, Lines, Unwritten};
use base::shutdown::Shutdown;
use base::telemetry::ErrorChain;
use base::types::{AgentDialect, Isolation, OWN_PROGRAM};
use children::{
    Child, ChildIsolation, ChildSpec, Exit, Limits, SpawnError, Spawner, StdinError, StopReason,
};
use wire::acp::{object, to_raw};

/// The size of unwritten lines for a command above which its output is not read. It causes some of these lines.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The maximum size of a line of the client. A gateway checks the messages that it sends.
const MAX_CLIENT_LINE_BYTES: usize = 256 << 20;
/// The time between two attempts to write to a command that does not read.
const RETRY: Duration = Duration::from_millis(20);
/// The time between the end of the output of a command and its exit.
const EXIT_GRACE: Duration = Duration::from_millis(400);
/// The time for lines that the client does not read after the end of a command, and for tasks at the end.
const END_GRACE: Duration = Duration::from_secs(2);

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum ClientDialect {
    Acp,
    EarlyAcp,
}

impl ClientDialect {
    /// `cwd` is the folder of sessions for which the client names none.
    pub fn client(self, cwd: PathBuf) -> Box<dyn ClientProtocol> {
        match self {
            Self::Acp => Box::new(AcpClient),
            Self::EarlyAcp => Box::new(EarlyClient::new(cwd)),
        }
    }
}

pub struct Options {
    pub from: AgentDialect,
    pub to: ClientDialect,
    pub command: ChildCommand,
    /// The session that the client is expected to restore. A command that serves one session then starts with it.
    pub resume: Option<String>,
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
    #[error("the agent was stopped: {0}")]
    Stopped(StopReason),
    #[error("the agent closed its output and did not end")]
    OutputClosed,
}

pub async fn run(
    options: Options,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<Option<Exit>, TranslateError> {
    let recorder = options.record.as_deref().map(Recorder::create);
    let recorder = recorder.transpose()?;
    let shutdown = Shutdown::new();
    let (blocks, unwritten) = mpsc::channel(1);
    let writer = shutdown.spawn_client(stdio::write(output, unwritten));
    let draining = shutdown.clone();
    // A separate task, because a start or a stop can wait while a signal arrives.
    let stopping = AbortOnDropHandle::new(shutdown.spawn_client(async move {
        stop.await;
        draining.start_drain();
    }));
    let cwd = options.command.cwd.clone();
    let driver = Driver {
        launcher: Launcher::new(options.command, &shutdown),
        agent: AgentSide::new(options.from, cwd.clone(), options.resume),
        client: options.to.client(cwd),
        recorder,
        child: None,
        has_started: false,
        to_client: Unwritten::default(),
        to_agent: Unwritten::default(),
        max_line_bytes: options.max_line_bytes,
        shutdown: shutdown.clone(),
    };
    let inputs = Lines::read(&shutdown, input, MAX_CLIENT_LINE_BYTES);
    let ended = driver.run(inputs, blocks, writer).await;
    shutdown.start_drain();
    drop(stopping);
    shutdown.wait_for_tasks(END_GRACE).await;
    ended
}

struct Running {
    child: Child,
    lines: Lines,
}

struct Driver {
    launcher: Launcher,
    agent: AgentSide,
    client: Box<dyn ClientProtocol>,
    recorder: Option<Recorder>,
    child: Option<Running>,
    has_started: bool,
    to_client: Unwritten,
    to_agent: Unwritten,
    max_line_bytes: usize,
    shutdown: Shutdown,
}

impl Driver {
    async fn start(&mut self, launch: Launch) -> Result<(), SpawnError> {
        if let Some(running) = self.child.take() {
            // No client uses the session of the ended command, so its last output is not read.
            drop(running.lines);
            running.child.stop().await;
            self.to_agent = Unwritten::default();
        }
        let version = match self.agent.protocol.version_argument() {
            Some(argument) if !std::mem::replace(&mut self.has_started, true) => {
                Some(self.launcher.output(launch.cwd.clone(), argument))
            }
            _ => None,
        };
        let (started, version) =
            tokio::join!(self.launcher.start(launch), OptionFuture::from(version));
        if let Some(version) = version.flatten() {
            self.agent.protocol.set_version(&version);
        }
        let mut child = started?;
        let stdout = child.take_stdout().expect("a new child has its stdout");
        self.child = Some(Running {
            child,
            lines: Lines::read(&self.shutdown, stdout, self.max_line_bytes),
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
                        recorder.record("c2a", &lines);
                    }
                    self.to_agent.push(lines);
                }
                Output::ToClient(message) => {
                    let translated = self.client.agent_message(message);
                    outputs.extend(self.pass_on(translated));
                }
                Output::Launch(launch) => {
                    match self.start(launch).await {
                        Ok(()) => self.agent.protocol.launched(),
                        Err(error) => {
                            let cause = ErrorChain(&error);
                            let reason = format!("could not start the agent: {cause}");
                            if !self.agent.protocol.ended(&reason) {
                                return Err(error.into());
                            }
                        }
                    }
                    outputs.extend(self.agent.outputs());
                }
            }
        }
        Ok(())
    }

    /// Queues the lines for the client. Returns the effects of the messages for the agent.
    fn pass_on(&mut self, translated: Translated) -> Vec<Output> {
        for line in translated.to_client {
            self.to_client.push(line);
        }
        let messages = translated.to_agent.into_iter();
        let outputs = messages.flat_map(|message| self.agent.message(message));
        outputs.collect()
    }

    async fn client_line(&mut self, line: io::Result<Line>) -> Result<(), TranslateError> {
        let line = line.map_err(TranslateError::Stdin)?;
        let translated = receive(&mut *self.client, line);
        let outputs = self.pass_on(translated);
        self.apply(outputs).await
    }

    async fn agent_line(&mut self, line: io::Result<Line>) -> Result<(), TranslateError> {
        let line = line.map_err(TranslateError::Output)?;
        let line = line.map_err(|_| TranslateError::LineTooLong(self.max_line_bytes))?;
        if let Some(recorder) = &mut self.recorder {
            recorder.record("a2c", &line);
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

    fn write_to_agent(&mut self) -> bool {
        let Some(running) = &self.child else {
            self.to_agent = Unwritten::default();
            return true;
        };
        let stdin = running.child.stdin.clone();
        while let Some(line) = self.to_agent.lines.front() {
            match stdin.send(line.clone()) {
                Ok(()) => {
                    self.to_agent.pop();
                }
                Err(StdinError::Full) => return false,
                // The end of the command is reported by its output.
                Err(StdinError::Closed) => self.to_agent = Unwritten::default(),
            }
        }
        true
    }

    /// Handles the end of a command whose output was read. Returns its exit if the translation ends with it.
    async fn child_ended(&mut self) -> Result<Option<Exit>, TranslateError> {
        let Some(Running { child, .. }) = self.child.take() else {
            return Ok(None);
        };
        let Ok(exit) = timeout(EXIT_GRACE, child.exited()).await else {
            child.stop().await;
            return Err(TranslateError::OutputClosed);
        };
        if let Some(reason) = child.stop_reason() {
            return Err(TranslateError::Stopped(reason));
        }
        let reason = match (&exit.code, &exit.signal) {
            (Some(code), _) => format!("the agent ended with the exit code {code}"),
            (None, Some(signal)) => format!("the agent was ended by {signal}"),
            (None, None) => "the agent ended".to_owned(),
        };
        if !self.agent.protocol.ended(&reason) {
            return Ok(Some(exit));
        }
        let outputs = self.agent.outputs();
        self.apply(outputs).await.map(|()| None)
    }

    async fn run(
        mut self,
        mut inputs: Lines,
        blocks: mpsc::Sender<Bytes>,
        mut writer: JoinHandle<io::Result<()>>,
    ) -> Result<Option<Exit>, TranslateError> {
        let mut ended = self.translate(&mut inputs, &blocks, &mut writer).await;
        if let Ok(None) = ended {
            self.stop(&blocks).await;
        } else if let Some(running) = self.child.take() {
            // The client must not receive output after the failure, which could end its turn.
            drop(running.lines);
            running.child.stop().await;
        }
        let ends_alone = matches!(ended, Ok(Some(_)));
        if !writer.is_finished() {
            let written = async {
                while let Some(block) = self.to_client.pop_block() {
                    if blocks.send(block).await.is_err() {
                        return;
                    }
                }
                drop(blocks);
                let _ = writer.await;
            };
            // The client of a command that ended by itself can read the last lines as slowly as any others.
            let patience = async {
                if ends_alone {
                    tokio::select! {
                        () = self.shutdown.drain_started() => {}
                        () = async { while inputs.next().await.is_some() {} } => {}
                    }
                }
                sleep(END_GRACE).await;
            };
            tokio::select! {
                () = written => {}
                () = patience => {}
            }
        }
        if let Ok(exit) = &mut ended
            && self.shutdown.is_draining()
        {
            // A signal to this process ends the command too.
            *exit = None;
        }
        ended
    }

    /// Passes lines in both directions. Returns the exit of a command that ended by itself, or `None` if the client or a signal
    /// ends the translation.
    async fn translate(
        &mut self,
        inputs: &mut Lines,
        blocks: &mpsc::Sender<Bytes>,
        writer: &mut JoinHandle<io::Result<()>>,
    ) -> Result<Option<Exit>, TranslateError> {
        let first = self.agent.protocol.open();
        self.apply(first).await?;
        let mut input_ended = false;
        loop {
            let has_written = self.write_to_agent();
            if self.client.has_ended() || (input_ended && has_written) {
                return Ok(None);
            }
            let may_read_agent =
                self.to_client.has_room() && self.to_agent.bytes <= MAX_ANSWER_BYTES;
            let may_read_client =
                !input_ended && self.to_client.has_room() && self.to_agent.has_room();
            tokio::select! {
                permit = blocks.reserve(), if !self.to_client.lines.is_empty() => {
                    if let (Ok(permit), Some(block)) = (permit, self.to_client.pop_block()) {
                        permit.send(block);
                    }
                }
                line = inputs.next(), if may_read_client => match line {
                    Some(line) => self.client_line(line).await?,
                    None => input_ended = true,
                },
                line = next_of(&mut self.child), if may_read_agent => match line {
                    Some(line) => self.agent_line(line).await?,
                    None => {
                        if let Some(exit) = self.child_ended().await? {
                            return Ok(Some(exit));
                        }
                    }
                },
                () = sleep(RETRY), if !has_written => {}
                () = self.shutdown.drain_started() => return Ok(None),
                // The client has closed its end of stdout.
                _ = &mut *writer => return Ok(None),
            }
        }
    }

    /// Stops the command gracefully, and passes on its last output while the client reads it.
    async fn stop(&mut self, blocks: &mpsc::Sender<Bytes>) {
        let Some(Running { child, mut lines }) = self.child.take() else {
            return;
        };
        self.write_farewell(&child);
        child.begin_stop();
        // The stop of the command has deadlines, after which its output has ended too.
        let exited = child.watch();
        let over = async move {
            exited.await;
            sleep(END_GRACE).await;
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                permit = blocks.reserve(), if !self.to_client.lines.is_empty() => {
                    match (permit, self.to_client.pop_block()) {
                        (Ok(permit), Some(block)) => permit.send(block),
                        // The client reads no more lines.
                        _ => break,
                    }
                }
                line = lines.next(), if self.to_client.has_room() => match line {
                    Some(line) => {
                        if self.agent_line(line).await.is_err() {
                            break;
                        }
                    }
                    None => break,
                },
                () = &mut over => return,
            }
        }
        drop(lines);
        child.exited().await;
    }

    fn write_farewell(&mut self, child: &Child) {
        let farewell = self.agent.protocol.farewell();
        if let Some(recorder) = &mut self.recorder {
            recorder.record("c2a", &farewell);
        }
        if !farewell.is_empty() && child.stdin.send_reserved(farewell).is_err() {
            tracing::debug!("the agent does not read its last message");
        }
    }
}

async fn next_of(child: &mut Option<Running>) -> Option<io::Result<Line>> {
    match child {
        Some(running) => running.lines.next().await,
        None => std::future::pending().await,
    }
}

/// The time for the output of the command with one argument, and its size.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);
const OUTPUT_BYTES: u64 = 1024;

/// The command of the agent. Its arguments and variables may contain secrets, so it has no `Debug`.
#[derive(Clone)]
pub struct ChildCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    /// The working directory of the child, unless its session has another one.
    pub cwd: PathBuf,
}

/// The deadlines of a stop. A gateway stops the translation with the defaults, so the command has ended before the gateway
/// sends TERM, and before it sends KILL during its own end.
fn limits() -> Limits {
    Limits {
        stop_stdin_timeout: Duration::from_secs(3),
        stop_term_timeout: Duration::from_secs(1),
        drain_stdin_timeout: Duration::ZERO,
        drain_term_timeout: Duration::from_millis(700),
        stop_kill_timeout: Duration::from_millis(500),
        ..Limits::default()
    }
}

/// Starts the command with the rights of this process. It writes to the stderr of this process.
struct Launcher {
    spawner: Spawner,
    command: ChildCommand,
}

impl Launcher {
    fn new(command: ChildCommand, shutdown: &Shutdown) -> Self {
        let limits = Arc::new(limits());
        let mut spawner = Spawner::new(OWN_PROGRAM.into(), None, shutdown.clone(), limits);
        spawner.inherits_stderr = true;
        Self { spawner, command }
    }

    async fn start(&self, launch: Launch) -> Result<Child, SpawnError> {
        let mut command = self.command.clone();
        let arguments = launch.arguments.into_iter().map(OsString::from);
        command.args.extend(arguments);
        let spec = ChildSpec {
            program: command.program,
            args: command.args,
            env: command.env,
            home: launch.cwd.unwrap_or(command.cwd),
            cwd: None,
            secrets: Vec::new(),
            isolation: ChildIsolation {
                level: Isolation::Off,
                ..ChildIsolation::default()
            },
        };
        self.spawner.spawn(spec).await
    }

    /// The first output of the command with this argument. `None` if the command does not end in time.
    async fn output(&self, cwd: Option<PathBuf>, argument: &str) -> Option<String> {
        let launch = Launch {
            cwd,
            arguments: vec![argument.to_owned()],
        };
        let output = async {
            let mut child = self.start(launch).await.ok()?;
            let mut stdout = child.take_stdout()?.take(OUTPUT_BYTES);
            let mut output = Vec::new();
            // The end of its input ends a command that does not know the argument.
            let (_, read) = tokio::join!(child.stop(), stdout.read_to_end(&mut output));
            read.ok()?;
            Some(String::from_utf8_lossy(&output).into_owned())
        };
        timeout(OUTPUT_TIMEOUT, output).await.ok().flatten()
    }
}

/// The maximum size of a recording. Further lines are not recorded.
const MAX_BYTES: u64 = 1 << 30;

#[derive(Debug, thiserror::Error)]
#[error("could not create the recording {}", .0.display())]
pub struct RecordingError(PathBuf, #[source] io::Error);

/// Writes a recording: the lines between this program and an agent, in both directions.
///
/// A recording has one JSON object on each line: `dir` is `c2a` or `a2c` (client to agent, agent to client), and `msg` is the
/// line. A line that is not JSON is the text `raw` instead. The content of lines is not masked.
#[derive(Debug)]
struct Recorder {
    file: File,
    bytes: u64,
    has_stopped: bool,
}

impl Recorder {
    /// Creates the file, which must not exist. Only its owner can read it.
    fn create(path: &Path) -> Result<Self, RecordingError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| RecordingError(path.to_owned(), error))?;
        Ok(Self {
            file,
            bytes: 0,
            has_stopped: false,
        })
    }

    /// Appends the lines in `lines`. A failure ends the recording and not the translation.
    fn record(&mut self, dir: &str, lines: &[u8]) {
        let lines = lines.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        for line in lines.filter(|line| !line.is_empty()) {
            if self.has_stopped {
                return;
            }
            let content = match serde_json::from_slice::<&RawValue>(line) {
                Ok(message) => ("msg", message.to_owned()),
                Err(_) => ("raw", to_raw(&String::from_utf8_lossy(line))),
            };
            let line = format!("{}\n", object(&[("dir", to_raw(dir)), content]));
            self.bytes += line.len() as u64;
            if self.bytes > MAX_BYTES {
                tracing::warn!("the recording ends: it is larger than {MAX_BYTES} bytes");
                self.has_stopped = true;
            } else if let Err(error) = self.file.write_all(line.as_bytes()) {
                tracing::warn!(%error, "the recording ends: could not write it");
                self.has_stopped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_keeps_the_bytes_of_messages_and_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let mut recorder = Recorder::create(&path).unwrap();
        recorder.record("c2a", b"{\"a\":1.10}\n{\"t\":\"\\ud83d\"}\n");
        recorder.record("a2c", b"hello\n");
        let text = std::fs::read_to_string(&path).unwrap();
        let expected = concat!(
            r#"{"dir":"c2a","msg":{"a":1.10}}"#,
            "\n",
            r#"{"dir":"c2a","msg":{"t":"\ud83d"}}"#,
            "\n",
            r#"{"dir":"a2c","raw":"hello"}"#,
            "\n"
        );
        assert_eq!(text, expected);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Recorder::create(&path).is_err(), "it exists");
    }
}

#[cfg(test)]
mod launcher_tests {
    use super::*;

    #[test]
    fn stop_ends_before_the_next_step_of_the_gateway() {
        let own = limits();
        let gateway = Limits::default();
        let total = own.stop_stdin_timeout + own.stop_term_timeout + own.stop_kill_timeout;
        assert!(total < gateway.stop_stdin_timeout);
        let drain = own.drain_stdin_timeout + own.drain_term_timeout;
        assert!(drain < gateway.drain_term_timeout);
    }
}
