//! The loop of a translation: stdin and stdout on one side, the child on the other.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::agent_side::AgentSide;
use super::launch::{ChildCommand, Launch};
use super::recording::{Direction, Recorder, RecordingError};
use super::serve::serve_dialect;
use super::translator::{Output, Translator};
use crate::agent::{StandaloneSession, standalone_dialect};
use crate::jsonrpc::RpcError;
use crate::process::{Child, Exit, SpawnError, StdinError};
use crate::served::Ending;
use crate::served::input::next_line;
use crate::shutdown::Shutdown;
use crate::types::AgentDialect;

/// The maximum number of lines that a reader or writer holds.
const QUEUE_LINES: usize = 16;
/// The size of unwritten lines in one direction, above which the other side is not read.
const MAX_UNWRITTEN_BYTES: usize = 1 << 20;
/// The time between two attempts to write to a child that does not read.
const RETRY: Duration = Duration::from_millis(20);
/// The time for the work of a client after the end of its lines.
const WORK_TIMEOUT: Duration = Duration::from_mins(10);
/// The time for the output of a child after its end, and for lines that the client does not read.
const END_GRACE: Duration = Duration::from_secs(2);

/// The settings of a translation.
#[derive(Debug)]
pub struct Options {
    /// The protocol of the child.
    pub from: AgentDialect,
    /// The protocol of the client.
    pub to: AgentDialect,
    pub command: ChildCommand,
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
    #[error("the agent wrote too many lines that are not messages; check --from")]
    InvalidLines,
    #[error("the translation ended: {0}")]
    Ended(Ending),
    #[error("the agent was ended by {0}")]
    Signal(String),
}

type Lines = mpsc::Receiver<io::Result<Result<Vec<u8>, RpcError>>>;

/// Runs the agent until it ends, `input` ends, or `stop` resolves. Returns the exit code of the agent.
pub async fn run(
    options: Options,
    (input, output): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
    stop: impl Future<Output = ()>,
) -> Result<i32, TranslateError> {
    let Options {
        from,
        to,
        command,
        record,
    } = options;
    let recorder = record.as_deref().map(Recorder::create).transpose()?;
    let shutdown = Shutdown::new();
    let translator = Translator::new(serve_dialect(to, command.cwd.clone()), AgentSide::new(from));
    let (lines, unwritten) = mpsc::channel(QUEUE_LINES);
    let writer = shutdown.spawn_client(write(output, unwritten));
    let mut driver = Driver {
        from,
        launch: Launch::new(command, &shutdown),
        translator,
        recorder,
        child: None,
        to_client: Unwritten::default(),
        to_agent: Unwritten::default(),
        shutdown: shutdown.clone(),
    };
    if driver.translator.needs_process() {
        driver.start(None).await?;
    }
    let inputs = spawn_reader(&shutdown, input);
    let ended = driver.run(inputs, (lines, writer), stop).await;
    shutdown.wait_for_tasks(END_GRACE).await;
    ended
}

fn spawn_reader(shutdown: &Shutdown, input: impl AsyncRead + Send + Unpin + 'static) -> Lines {
    let (lines, received) = mpsc::channel(QUEUE_LINES);
    let mut input = BufReader::with_capacity(64 << 10, input);
    drop(shutdown.spawn_client(async move {
        loop {
            let line = match next_line(&mut input).await {
                Ok(Some(line)) => Ok(line),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let is_last = line.is_err();
            if lines.send(line).await.is_err() || is_last {
                return;
            }
        }
    }));
    received
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(line) = lines.recv().await {
        output.write_all(&line).await?;
        output.flush().await?;
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

/// The running process of the agent.
struct Running {
    child: Child,
    lines: Lines,
    /// All output was read.
    is_read: bool,
}

struct Driver {
    from: AgentDialect,
    launch: Launch,
    translator: Translator,
    recorder: Option<Recorder>,
    child: Option<Running>,
    to_client: Unwritten,
    to_agent: Unwritten,
    shutdown: Shutdown,
}

impl Driver {
    /// Starts the child, for a session if its dialect needs one.
    async fn start(&mut self, session: Option<StandaloneSession>) -> Result<(), SpawnError> {
        let (dialect, arguments) = standalone_dialect(self.from, session.as_ref());
        let has_session = session.is_some();
        let mut child = self
            .launch
            .start(session.map(|session| session.cwd), arguments)
            .await?;
        let stdout = child.take_stdout().expect("a new child has its stdout");
        let lines = spawn_reader(&self.shutdown, stdout);
        self.child = Some(Running {
            child,
            lines,
            is_read: false,
        });
        if has_session {
            let output = self.translator.launched(dialect);
            self.queue(output);
        }
        Ok(())
    }

    /// Queues the lines of an output. Returns the session for which the child has to start.
    fn queue(&mut self, output: Output) -> Option<StandaloneSession> {
        for line in output.to_agent {
            if let Some(recorder) = &mut self.recorder {
                recorder.record(Direction::ToAgent, &line);
            }
            self.to_agent.push(line);
        }
        for line in output.to_client {
            self.to_client.push(line);
        }
        output.launch
    }

    async fn apply(&mut self, output: Output) {
        let mut launch = self.queue(output);
        // A failed start can be followed by another request that waited.
        while let Some(session) = launch.take() {
            if let Err(error) = self.start(Some(session)).await {
                let reason = error_text(&error);
                let output = self
                    .translator
                    .launch_failed(&format!("could not start the agent: {reason}"));
                launch = self.queue(output);
            }
        }
    }

    /// Writes queued lines to the child. Returns false if it does not accept all of them now.
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
                // The end of the child is reported by its output.
                Err(StdinError::Closed) => self.to_agent = Unwritten::default(),
            }
        }
        true
    }

    async fn agent_line(&mut self, line: io::Result<Result<Vec<u8>, RpcError>>) {
        let output = match line {
            Ok(Ok(line)) => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.record(Direction::ToClient, &line);
                }
                self.translator.agent_line(&line)
            }
            Ok(Err(_)) => self.translator.invalid_agent_line(),
            Err(error) => {
                tracing::warn!(%error, "could not read the output of the agent");
                return;
            }
        };
        self.apply(output).await;
    }

    /// Handles the end of a child whose output was read. Returns its exit if the translation ends with it.
    async fn child_ended(&mut self) -> Option<Exit> {
        let running = self.child.take()?;
        let exit = running.child.stop().await;
        let is_expected = !self.translator.needs_process();
        let reason = match (&exit.code, &exit.signal) {
            (Some(code), _) => format!("the agent ended with the exit code {code}"),
            (None, Some(signal)) => format!("the agent was ended by {signal}"),
            (None, None) => "the agent ended".to_owned(),
        };
        let output = self.translator.agent_ended(&reason);
        self.apply(output).await;
        (!is_expected).then_some(exit)
    }

    async fn run(
        mut self,
        mut inputs: Lines,
        (lines, mut writer): (mpsc::Sender<Bytes>, JoinHandle<io::Result<()>>),
        stop: impl Future<Output = ()>,
    ) -> Result<i32, TranslateError> {
        tokio::pin!(stop);
        // The end of the client's lines, and the latest end of its work.
        let mut work_ends: Option<Instant> = None;
        let ended = loop {
            let has_written = self.write_to_agent();
            if let Some(ending) = self.translator.ending() {
                break if ending == Ending::Requested {
                    Ok(None)
                } else {
                    Err(TranslateError::Ended(ending))
                };
            }
            if self.translator.agent_has_failed() {
                break Err(TranslateError::InvalidLines);
            }
            let is_over = |end: Instant| end <= Instant::now() || !self.translator.is_busy();
            if work_ends.is_some_and(is_over) && has_written {
                break Ok(None);
            }
            let may_read_agent = self.to_client.has_room() && self.to_agent.has_room();
            let may_read_client = may_read_agent && work_ends.is_none();
            tokio::select! {
                permit = lines.reserve(), if !self.to_client.lines.is_empty() => {
                    if let (Ok(permit), Some(line)) = (permit, self.to_client.pop()) {
                        permit.send(line);
                    }
                }
                line = inputs.recv(), if may_read_client => match line {
                    Some(Ok(line)) => {
                        let output = match line {
                            Ok(line) => self.translator.client_line(Ok(&line)),
                            Err(error) => self.translator.client_line(Err(error)),
                        };
                        self.apply(output).await;
                    }
                    Some(Err(error)) => break Err(TranslateError::Stdin(error)),
                    None => work_ends = Some(Instant::now() + WORK_TIMEOUT),
                },
                line = next_of(&mut self.child), if may_read_agent => match line {
                    Some(line) => self.agent_line(line).await,
                    None => if let Some(exit) = self.child_ended().await {
                        break Ok(Some(exit));
                    },
                },
                () = sleep(RETRY), if !has_written => {}
                () = wait_until(work_ends) => {}
                () = &mut stop => break Ok(None),
                // The client has closed its end of stdout.
                _ = &mut writer => break Ok(None),
            }
        };
        let exit = self.finish(ended, (lines, writer)).await?;
        match exit {
            Exit {
                code: Some(code), ..
            } => Ok(code),
            Exit {
                signal: Some(signal),
                ..
            } => Err(TranslateError::Signal(signal)),
            Exit {
                code: None,
                signal: None,
            } => Ok(0),
        }
    }

    /// Stops the child gracefully, and passes on its last output.
    async fn finish(
        mut self,
        ended: Result<Option<Exit>, TranslateError>,
        (lines, writer): (mpsc::Sender<Bytes>, JoinHandle<io::Result<()>>),
    ) -> Result<Exit, TranslateError> {
        let none = Exit {
            code: None,
            signal: None,
        };
        let mut stopped = None;
        if let Some(Running {
            child,
            lines: mut output,
            is_read,
        }) = self.child.take()
        {
            let farewell = self.translator.farewell();
            if let Some(recorder) = &mut self.recorder {
                recorder.record(Direction::ToAgent, &farewell);
            }
            if !farewell.is_empty() && child.stdin().send_reserved(farewell).is_err() {
                tracing::debug!("the agent does not read its last message");
            }
            child.begin_stop();
            let rest = async {
                while !is_read && let Some(line) = output.recv().await {
                    self.agent_line(line).await;
                }
            };
            // A stop has its own deadlines, after which the output has ended too.
            let (exit, ()) = tokio::join!(child.exited(), rest);
            // A child that does not end with its stdin is ended by a signal. This is no failure.
            stopped = Some(Exit {
                signal: None,
                ..exit
            });
            let output = self.translator.agent_ended("the translation ended");
            self.queue(output);
        }
        let written = async {
            while let Some(line) = self.to_client.pop() {
                if lines.send(line).await.is_err() {
                    return;
                }
            }
            drop(lines);
            if !writer.is_finished() {
                drop(writer.await);
            }
        };
        drop(timeout(END_GRACE, written).await);
        ended.map(|exit| exit.or(stopped).unwrap_or(none))
    }
}

/// The next line of the child. Waits for ever without a child.
async fn next_of(child: &mut Option<Running>) -> Option<io::Result<Result<Vec<u8>, RpcError>>> {
    let Some(running) = child else {
        return std::future::pending().await;
    };
    let line = running.lines.recv().await;
    running.is_read = line.is_none();
    line
}

/// Waits for ever without a time.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// An error with its causes.
fn error_text(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
