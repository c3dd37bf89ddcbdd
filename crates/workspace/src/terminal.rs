//! The output of a terminal: into the scrollback, and in chunks to the session's log.
//!
//! The agent reads the scrollback, and clients read the log. REST must not read the scrollback: only the log agrees
//! with the cursor of a response, also after a restart. While the log is behind, the gateway does not read the pipe,
//! and the command waits.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::scrollback::Scrollback;
use super::text::Decoder;
use base::types::TerminalId;
use children::{Exit, SpawnError, TerminalChild, TerminalOutput, TerminalSpec, Terminals};
use wire::acp::{self, error_code};

/// The wait for more output before a chunk is sent, and the size that ends the wait.
const CHUNK_WAIT: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 32 << 10;
/// The maximum number of bytes read after the end of a program: the capacity of a pipe.
const MAX_FINAL_READ_BYTES: usize = 1 << 20;

/// The maximum size of a command with its arguments and variables. The kernel accepts 128 KiB for each, and
/// about 2 MiB in total.
const COMMAND_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub struct TerminalEvent {
    pub terminal: TerminalId,
    pub event: OutputEvent,
}

#[derive(Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// Whole characters, and the number of bytes before them.
    Output { offset: u64, text: String },
    /// The program has ended. This is the last event.
    Exited(Exit),
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The request cannot be executed.
    #[error("{0}")]
    InvalidSpec(String),
    #[error("could not start the terminal")]
    Failed(#[source] SpawnError),
}

impl StartError {
    pub fn response(&self) -> Box<RawValue> {
        match self {
            Self::InvalidSpec(detail) => acp::error(error_code::INVALID_PARAMS, detail),
            Self::Failed(_) => {
                let error = self as &dyn std::error::Error;
                tracing::warn!(error, "could not start a terminal");
                acp::error(error_code::INTERNAL, &self.to_string())
            }
        }
    }
}

/// A terminal whose program runs and whose output has no reader yet. Dropping it kills the program.
#[derive(Debug)]
pub struct StartedTerminal {
    child: TerminalChild,
    output: TerminalOutput,
}

/// The characters of a shell line that the name of a program rarely has.
const SHELL_CHARACTERS: [char; 14] = [
    ' ', '\t', '\n', ';', '&', '|', '<', '>', '$', '`', '(', '"', '\'', '*',
];

/// Starts the terminal that an agent requests, in a directory of the session, under the agent of `terminals`.
pub async fn start_terminal(
    terminals: &Terminals,
    asked: &acp::CreateTerminal,
    cwd: PathBuf,
) -> Result<StartedTerminal, StartError> {
    let env = asked.env.iter();
    let env = env.map(|variable| (variable.name.clone(), variable.value.clone()));
    let spec = TerminalSpec {
        command: asked.command.clone(),
        args: asked.args.clone(),
        env: env.collect(),
        cwd,
    };
    check(&spec).map_err(|detail| StartError::InvalidSpec(detail.to_owned()))?;
    let line = shell_line(&spec);
    let mut spawned = terminals.spawn(spec).await;
    if let Err(SpawnError::Program { source, .. }) = &spawned
        && is_missing(source)
        && let Some(line) = line
    {
        spawned = terminals.spawn(line).await;
    }
    match spawned {
        Ok((child, output)) => Ok(StartedTerminal { child, output }),
        Err(error @ (SpawnError::Program { .. } | SpawnError::Directory { .. })) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
            Err(StartError::InvalidSpec(format!("{error}{cause}")))
        }
        Err(error) => Err(StartError::Failed(error)),
    }
}

/// The shell that runs `spec`, if its command can be a whole line for a shell: some agents send `{"command": "ls -l | wc"}`
/// without `args`. The line is run only if no program has this name.
fn shell_line(spec: &TerminalSpec) -> Option<TerminalSpec> {
    let is_line = spec.args.is_empty() && spec.command.contains(SHELL_CHARACTERS);
    is_line.then(|| TerminalSpec {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), spec.command.clone()],
        env: spec.env.clone(),
        cwd: spec.cwd.clone(),
    })
}

/// Whether no program has the name.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename
    )
}

/// Checks for arguments that no program can receive.
fn check(spec: &TerminalSpec) -> Result<(), &'static str> {
    let texts = || std::iter::once(&spec.command).chain(&spec.args);
    let variables = || spec.env.iter().flat_map(|(name, value)| [name, value]);
    if spec.command.is_empty() {
        return Err("the command is empty");
    }
    if texts().chain(variables()).any(|text| text.contains('\0')) {
        return Err("command, args and env must not contain NUL");
    }
    let mut names = spec.env.iter().map(|(name, _)| name);
    if names.any(|name| name.is_empty() || name.contains('=')) {
        return Err("the name of a variable must not be empty or contain `=`");
    }
    if texts().chain(variables()).map(String::len).sum::<usize>() > COMMAND_BYTES {
        return Err("command, args and env are too long (limit 256 KiB together)");
    }
    Ok(())
}

/// A terminal in use. Dropping it kills the program and all its descendants.
#[derive(Debug)]
pub struct Terminal {
    child: Option<TerminalChild>,
    scrollback: Scrollback,
}

impl Terminal {
    /// Kills the program and all its descendants. The exit event follows.
    pub fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }

    /// Whether the terminal was not killed.
    pub fn is_alive(&self) -> bool {
        self.child.is_some()
    }

    pub fn scrollback(&self) -> Scrollback {
        self.scrollback.clone()
    }
}

impl StartedTerminal {
    /// Returns the handle and the future that reads the output until the last process has closed it. The
    /// future stops reading while the event channel is full, so the program blocks and no buffer grows.
    /// `log_bytes` limits the output in events. The last part of the output is always sent.
    pub fn follow(
        self,
        terminal: TerminalId,
        scrollback: Scrollback,
        log_bytes: u64,
        news: mpsc::Sender<TerminalEvent>,
    ) -> (Terminal, impl Future<Output = ()> + Send + 'static) {
        let Self { child, output } = self;
        let exited = child.exited();
        let follower = Follower {
            terminal,
            output,
            decoder: Decoder::default(),
            scrollback: scrollback.clone(),
            events: news,
            log_bytes,
            chunk: OutputChunk::default(),
        };
        let terminal = Terminal {
            child: Some(child),
            scrollback,
        };
        (terminal, follower.run(exited))
    }
}

#[derive(Debug)]
struct Follower {
    terminal: TerminalId,
    output: TerminalOutput,
    decoder: Decoder,
    scrollback: Scrollback,
    events: mpsc::Sender<TerminalEvent>,
    /// The maximum output in the log. After it only the last part of the output is logged.
    log_bytes: u64,
    chunk: OutputChunk,
}

/// Output that waits for the log.
#[derive(Debug, Default)]
struct OutputChunk {
    text: String,
    /// The number of bytes before this chunk.
    offset: u64,
    /// The number of bytes that were sent.
    logged_bytes: u64,
    due: Option<Instant>,
}

impl Follower {
    /// Returns when the program has ended and its output is closed, or when the event channel is closed.
    async fn run(mut self, exited: impl Future<Output = Exit>) {
        let mut exited = std::pin::pin!(exited);
        let mut open = true;
        let exit = loop {
            let due = self.chunk.due;
            tokio::select! {
                read = self.output.read(), if open => {
                    open = read.is_some();
                    self.accept(read.as_deref());
                }
                exit = &mut exited => {
                    self.read_remaining();
                    break exit;
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            if self.is_due() && !self.send_chunk().await {
                return;
            }
        };
        // The last part of the output is always logged.
        if !self.chunk.text.is_empty() && !self.send_chunk().await {
            return;
        }
        if !self.send(OutputEvent::Exited(exit)).await {
            return;
        }
        // Background processes of the program may still write. Their output is available only in the scrollback.
        while let Some(bytes) = self.output.read().await {
            self.scrollback.push(&self.decoder.push(&bytes));
        }
    }

    /// Reads the output that the program wrote before its end.
    fn read_remaining(&mut self) {
        let mut read = 0;
        while read < MAX_FINAL_READ_BYTES {
            let bytes = self.output.read_now();
            self.accept(bytes.as_deref());
            match bytes {
                Some(bytes) if !bytes.is_empty() => read += bytes.len(),
                _ => return,
            }
        }
    }

    /// Adds output to the scrollback and to the chunk. `None` is the end of the output.
    fn accept(&mut self, bytes: Option<&[u8]>) {
        let Self { decoder, chunk, .. } = self;
        let text = match bytes {
            Some(bytes) => decoder.push(bytes),
            None => decoder.finish(),
        };
        if text.is_empty() {
            return;
        }
        self.scrollback.push(&text);
        chunk.text.push_str(&text);
        if chunk.logged_bytes < self.log_bytes {
            chunk.due.get_or_insert_with(|| Instant::now() + CHUNK_WAIT);
        } else if chunk.text.len() > CHUNK_BYTES {
            // The log limit is reached, so only the last part is kept for the end.
            let over = chunk.text.len() - CHUNK_BYTES;
            let over = chunk.text.ceil_char_boundary(over);
            chunk.text.drain(..over);
            chunk.offset += over as u64;
        }
    }

    fn is_due(&self) -> bool {
        let chunk = &self.chunk;
        let overdue = chunk.due.is_some_and(|due| due <= Instant::now());
        (chunk.text.len() >= CHUNK_BYTES || overdue) && chunk.logged_bytes < self.log_bytes
    }

    async fn send_chunk(&mut self) -> bool {
        let chunk = &mut self.chunk;
        let text = std::mem::take(&mut chunk.text);
        let offset = chunk.offset;
        chunk.offset += text.len() as u64;
        chunk.logged_bytes += text.len() as u64;
        chunk.due = None;
        self.send(OutputEvent::Output { offset, text }).await
    }

    async fn send(&self, event: OutputEvent) -> bool {
        let terminal = self.terminal;
        self.events
            .send(TerminalEvent { terminal, event })
            .await
            .is_ok()
    }
}
