//! A terminal's output on its way: into the scrollback, and in pieces to the session's log.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::scrollback::Scrollback;
use super::utf8::Decoder;
use crate::acp;
use crate::process::{Exit, SpawnError, TerminalChild, TerminalOutput, TerminalSpec, Terminals};
use crate::types::TerminalId;

/// How long a piece waits for more, and bytes from which on it does not.
const CHUNK_WAIT: Duration = Duration::from_millis(50);
const CHUNK_BYTES: usize = 32 << 10;
/// Bytes that are looked for when a program has ended: what a pipe can hold.
const MAX_FINAL_READ_BYTES: usize = 1 << 20;

/// Bytes of a command with its arguments and variables. The kernel takes 128 KiB of each, and about 2 MiB of all.
const COMMAND_BYTES: usize = 256 << 10;

/// News of one terminal, in their order.
#[derive(Debug)]
pub struct TerminalEvent {
    pub terminal: TerminalId,
    pub event: OutputEvent,
}

#[derive(Debug, PartialEq, Eq)]
pub enum OutputEvent {
    /// Whole characters, and how many bytes came before them.
    Output { offset: u64, text: String },
    /// The program has ended, and this is the last of the news.
    Exited(Exit),
}

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot be run as it was asked for.
    #[error("{0}")]
    InvalidSpec(String),
    #[error("the terminal could not be started")]
    Failed(#[source] SpawnError),
}

/// A terminal whose program runs, and whose output nobody takes yet. Dropping it kills it.
#[derive(Debug)]
pub struct StartedTerminal {
    child: TerminalChild,
    output: TerminalOutput,
}

/// What an agent wants to run, in a folder that it may stand in.
pub fn terminal_spec(asked: &acp::CreateTerminal, cwd: PathBuf) -> TerminalSpec {
    TerminalSpec { command: asked.command.clone(), args: asked.args.clone(), env: asked.env.clone(), cwd }
}

/// Starts `spec` beside the agent that `terminals` is of.
pub async fn start_terminal(terminals: &Terminals, spec: TerminalSpec) -> Result<StartedTerminal, StartError> {
    check(&spec).map_err(|detail| StartError::InvalidSpec(detail.to_owned()))?;
    match terminals.spawn(spec).await {
        Ok((child, output)) => Ok(StartedTerminal { child, output }),
        Err(error @ (SpawnError::Program { .. } | SpawnError::Directory { .. })) => {
            let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
            Err(StartError::InvalidSpec(format!("{error}{cause}")))
        }
        Err(error) => Err(StartError::Failed(error)),
    }
}

/// What no program can be given.
fn check(spec: &TerminalSpec) -> Result<(), &'static str> {
    let texts = || std::iter::once(&spec.command).chain(&spec.args);
    let variables = || spec.env.iter().flat_map(|(name, value)| [name, value]);
    if spec.command.is_empty() {
        return Err("the command is empty");
    }
    if texts().chain(variables()).any(|text| text.contains('\0')) {
        return Err("command, args and env have no NUL");
    }
    if spec.env.iter().any(|(name, _)| name.is_empty() || name.contains('=')) {
        return Err("the name of a variable is not empty and has no `=`");
    }
    if texts().chain(variables()).map(String::len).sum::<usize>() > COMMAND_BYTES {
        return Err("command, args and env are too long together");
    }
    Ok(())
}

/// A terminal in use. Dropping it kills its program with everything that this started.
#[derive(Debug)]
pub struct Terminal {
    child: Option<TerminalChild>,
    scrollback: Scrollback,
}

impl Terminal {
    /// Kills the program with everything that it started; the news tell when it has ended.
    pub fn kill(&mut self) {
        if let Some(child) = self.child.take() {
            child.kill();
        }
    }

    /// It was not killed.
    pub fn is_alive(&self) -> bool {
        self.child.is_some()
    }

    pub fn scrollback(&self) -> Scrollback {
        self.scrollback.clone()
    }
}

impl StartedTerminal {
    /// A hold on the terminal, and what reads its output for as long as somebody holds its pipe. When the news are not
    /// taken it does not read, so that the program waits and nothing grows. Of the output `log_bytes` become news, and
    /// the end in any case.
    pub fn follow(
        self,
        terminal: TerminalId,
        scrollback: Scrollback,
        log_bytes: u64,
        news: mpsc::Sender<TerminalEvent>,
    ) -> (Terminal, impl Future<Output = ()> + Send + 'static) {
        let Self { child, output } = self;
        let exited = child.exited();
        let follower = Follower { terminal, output, scrollback: scrollback.clone(), events: news, log_bytes };
        (Terminal { child: Some(child), scrollback }, follower.run(exited))
    }
}

#[derive(Debug)]
struct Follower {
    terminal: TerminalId,
    output: TerminalOutput,
    scrollback: Scrollback,
    events: mpsc::Sender<TerminalEvent>,
    /// Bytes that go into the log; of what comes after them only the end does.
    log_bytes: u64,
}

/// What is gathered for the log.
#[derive(Debug, Default)]
struct OutputChunk {
    text: String,
    /// Bytes that came before it.
    offset: u64,
    /// Bytes that were told.
    logged_bytes: u64,
    due: Option<Instant>,
}

impl Follower {
    /// Ends when the program has ended and nobody holds the pipe, or when nobody takes the news.
    async fn run(mut self, exited: impl Future<Output = Exit>) {
        let mut exited = std::pin::pin!(exited);
        let (mut decoder, mut piece, mut open) = (Decoder::default(), OutputChunk::default(), true);
        let exit = loop {
            tokio::select! {
                read = self.output.read(), if open => {
                    open = read.is_some();
                    let text = match read {
                        Some(bytes) => decoder.push(&bytes),
                        None => decoder.finish(),
                    };
                    self.accept(&mut piece, &text);
                }
                exit = &mut exited => {
                    self.read_remaining(&mut decoder, &mut piece);
                    break exit;
                }
                () = due(piece.due) => {}
            }
            if piece.is_due(self.log_bytes) && !self.send_chunk(&mut piece).await {
                return;
            }
        };
        // The end goes into the log in any case.
        if !piece.text.is_empty() && !self.send_chunk(&mut piece).await {
            return;
        }
        let news = OutputEvent::Exited(exit);
        if self.events.send(TerminalEvent { terminal: self.terminal, event: news }).await.is_err() {
            return;
        }
        // What the program has left behind may still show something, to who asks for it.
        while let Some(bytes) = self.output.read().await {
            self.scrollback.push(&decoder.push(&bytes));
        }
    }

    /// What was written before the program ended is there now.
    fn read_remaining(&mut self, decoder: &mut Decoder, piece: &mut OutputChunk) {
        let mut read = 0;
        while read < MAX_FINAL_READ_BYTES {
            match self.output.read_now() {
                Some(bytes) if bytes.is_empty() => return,
                Some(bytes) => {
                    read += bytes.len();
                    let text = decoder.push(&bytes);
                    self.accept(piece, &text);
                }
                None => {
                    let rest = decoder.finish();
                    return self.accept(piece, &rest);
                }
            }
        }
    }

    fn accept(&self, piece: &mut OutputChunk, text: &str) {
        self.scrollback.push(text);
        piece.push(text, self.log_bytes);
    }

    async fn send_chunk(&self, piece: &mut OutputChunk) -> bool {
        let (text, offset) = (std::mem::take(&mut piece.text), piece.offset);
        piece.offset += text.len() as u64;
        piece.logged_bytes += text.len() as u64;
        piece.due = None;
        let news = OutputEvent::Output { offset, text };
        self.events.send(TerminalEvent { terminal: self.terminal, event: news }).await.is_ok()
    }
}

impl OutputChunk {
    fn push(&mut self, text: &str, log_bytes: u64) {
        if text.is_empty() {
            return;
        }
        self.text.push_str(text);
        if self.logged_bytes < log_bytes {
            self.due.get_or_insert_with(|| Instant::now() + CHUNK_WAIT);
        } else if self.text.len() > CHUNK_BYTES {
            // Nothing more is told before the end: its last part is kept for then.
            let over = self.text.ceil_char_boundary(self.text.len() - CHUNK_BYTES);
            self.text.drain(..over);
            self.offset += over as u64;
        }
    }

    fn is_due(&self, log_bytes: u64) -> bool {
        let ripe = self.text.len() >= CHUNK_BYTES || self.due.is_some_and(|due| due <= Instant::now());
        ripe && self.logged_bytes < log_bytes
    }
}

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
