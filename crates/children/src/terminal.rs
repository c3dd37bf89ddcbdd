//! Programs beside an agent. They run under the agent's supervisor, with its user, limits and environment,
//! and end with it.
//!
//! A process group or a session id does not identify all descendants of a command, because servers move to other
//! sessions and lose their parents. Therefore each terminal has its own supervisor, which adopts them.
//!
//! - The output is masked before any reader gets it. The environment of the agent contains its secrets, and the log
//!   must not contain them.
//! - A command has no pseudo terminal. Agents expect output without colours.
//! - An agent can kill the supervisor of its own terminal. The result of the command is then unknown, and the agent's
//!   supervisor adopts the descendants.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::isolation::{Confinement, give, write_instructions};
use super::mask::Mask;
use super::report::Ended;
use super::{Exit, SpawnError, handshake};
use base::shutdown::Shutdown;

const READ_BYTES: usize = 32 << 10;

/// The program to run: an argument vector, never a shell command line.
#[derive(Clone, derive_more::Debug, Serialize, Deserialize)]
pub struct TerminalSpec {
    /// A bare name is searched on the `PATH` of its environment. A relative path starts at `cwd`.
    pub command: String,
    // Arguments and variables may contain secrets.
    #[debug("{}", args.len())]
    pub args: Vec<String>,
    /// Added to the agent's own environment. The program's stage receives the result with the confinement.
    #[serde(skip)]
    #[debug("{}", env.len())]
    pub env: Vec<(String, String)>,
    #[serde(skip)]
    pub cwd: PathBuf,
}

/// Starts programs under the supervisor of a child. Cheap to clone. After the end of the child every start fails.
#[derive(Clone, derive_more::Debug)]
#[debug("Terminals")]
pub struct Terminals {
    pub(super) requests: Arc<UnixStream>,
    pub(super) secrets: Arc<[Vec<u8>]>,
    pub(super) confinement: Arc<Confinement>,
    /// The entrance of the child's control group.
    pub(super) group: Option<Arc<OwnedFd>>,
    pub(super) shutdown: Shutdown,
}
impl Terminals {
    /// Changes the path of a folder that terminals of this handle may access.
    pub fn rename_folder(&mut self, from: &Path, to: &Path) {
        Arc::make_mut(&mut self.confinement).rename_folder(from, to);
    }

    /// Starts `spec`. Returns when the program itself runs. Its stdin is empty.
    pub async fn spawn(
        &self,
        spec: TerminalSpec,
    ) -> Result<(TerminalChild, TerminalOutput), SpawnError> {
        let (control, socket, output) = self.request(&spec).map_err(SpawnError::Supervisor)?;
        // From here on this handle owns the terminal: dropping it kills the terminal.
        let child = TerminalChild::watch(socket, &self.shutdown).map_err(SpawnError::Supervisor)?;
        let folder = spec.cwd;
        let program = PathBuf::from(spec.command);
        match handshake::await_report(control, program).await {
            Ok(_pid) => Ok((child, TerminalOutput::new(output, &self.secrets))),
            Err(SpawnError::Directory { source, .. }) => {
                Err(SpawnError::Directory { folder, source })
            }
            Err(error) => Err(error),
        }
    }

    /// Sends the request with its descriptors to the supervisor, and closes this process's copies of them.
    fn request(&self, spec: &TerminalSpec) -> io::Result<(UnixStream, UnixStream, pipe::Receiver)> {
        let (socket, supervisor_socket) = UnixStream::pair()?;
        let (output, supervisor_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let written = write_instructions(spec)?;
        give(&supervisor_output, self.confinement.user)?;
        let confinement = self.confinement.for_terminal(&spec.env, &spec.cwd);
        let confinement = write_instructions(&confinement)?;
        let stdin = File::open("/dev/null")?;
        let (control, supervisor_control) = handshake::open_control_socket(&[
            &[supervisor_socket.as_fd(), written.as_fd()],
            &handshake::and_optional(&[stdin.as_fd(), confinement.as_fd()], self.group.as_deref()),
        ])?;
        let descriptors = [supervisor_control.as_fd(), supervisor_output.as_fd()];
        handshake::send_descriptors(&self.requests, &descriptors)?;
        Ok((control, socket, pipe::Receiver::from_owned_fd(output)?))
    }
}

/// A handle of a terminal. Dropping it kills the program and all its descendants.
#[derive(Debug)]
pub struct TerminalChild {
    exit: watch::Receiver<Option<Exit>>,
    kill: DropGuard,
}

impl TerminalChild {
    fn watch(socket: UnixStream, shutdown: &Shutdown) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = tokio::net::UnixStream::from_std(socket)?;
        let (exit_sender, exit) = watch::channel(None);
        let kill = CancellationToken::new();
        shutdown.spawn_isolated(watch_exit(socket, exit_sender, kill.clone()));
        Ok(Self {
            exit,
            kill: kill.drop_guard(),
        })
    }

    /// Waits for the end of the program. Its background processes may live until the handle is dropped.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + use<> {
        let mut exit = self.exit.clone();
        async move {
            let end = exit.wait_for(Option::is_some).await;
            let exit = end.ok().and_then(|exit| exit.clone());
            exit.unwrap_or_default()
        }
    }

    /// Kills the program and all its descendants. [`TerminalChild::exited`] returns after its end.
    pub fn kill(self) {
        drop(self.kill);
    }
}

/// Waits for the program's exit, and closes the socket when the handle is dropped. Returns when the
/// terminal's supervisor has ended.
async fn watch_exit(
    mut socket: tokio::net::UnixStream,
    exit_sender: watch::Sender<Option<Exit>>,
    kill: CancellationToken,
) {
    let (read, mut write) = socket.split();
    let mut lines = BufReader::new(read).lines();
    let mut running = true;
    loop {
        tokio::select! {
            message = lines.next_line() => match message {
                Ok(Some(message)) => {
                    exit_sender.send_replace(Ended::parse(&message).map(Exit::from));
                }
                Ok(None) | Err(_) => break,
            },
            () = kill.cancelled(), if running => {
                running = false;
                // A supervisor that has ended has already closed its end, and the next read returns its end.
                let _ = write.shutdown().await;
            }
        }
    }
    // A supervisor without a report was killed, and the kernel has killed the program with it.
    if exit_sender.borrow().is_none() {
        exit_sender.send_replace(Some(Exit::killed_by(Signal::KILL.as_raw())));
    }
}

/// The output of a terminal: stdout and stderr in their order, with secrets masked.
#[derive(Debug)]
pub struct TerminalOutput {
    pipe: pipe::Receiver,
    mask: Mask,
    buffer: Box<[u8]>,
}

impl TerminalOutput {
    fn new(pipe: pipe::Receiver, secrets: &Arc<[Vec<u8>]>) -> Self {
        Self {
            pipe,
            mask: Mask::new(Arc::clone(secrets)),
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
        }
    }

    /// The next bytes, or `None` after the last process has closed the output. Cancel-safe.
    pub async fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            self.pipe.readable().await.ok()?;
            match self.pipe.try_read(&mut self.buffer) {
                Ok(0) => return self.finish(),
                Ok(read) => match self.mask.push(&self.buffer[..read]) {
                    shown if shown.is_empty() => {}
                    shown => return Some(shown),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.finish(),
            }
        }
    }

    /// The bytes that are already available, possibly none. Returns `None` after the last process has closed the
    /// output.
    pub fn read_now(&mut self) -> Option<Vec<u8>> {
        loop {
            // Reads the descriptor directly, because the runtime may not know yet that it is readable.
            match rustix::io::read(&self.pipe, &mut self.buffer[..]) {
                Ok(0) => return self.finish(),
                Ok(read) => match self.mask.push(&self.buffer[..read]) {
                    shown if shown.is_empty() => {}
                    shown => return Some(shown),
                },
                Err(Errno::AGAIN) => return Some(Vec::new()),
                Err(Errno::INTR) => {}
                Err(_) => return self.finish(),
            }
        }
    }

    fn finish(&mut self) -> Option<Vec<u8>> {
        Some(self.mask.finish()).filter(|rest| !rest.is_empty())
    }
}
