//! Programs beside an agent: they run under the agent's own keeper, with its user, its limits and its environment, and
//! no longer than it.

use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::mask::Mask;
use super::spawn::await_report;
use super::{Exit, SpawnError, handshake, report};
use crate::shutdown::Shutdown;
use crate::types::Limits;

const READ_BYTES: usize = 32 << 10;

/// What to run: argv, never a line for a shell.
#[derive(Clone, Serialize, Deserialize)]
pub struct TerminalSpec {
    /// A bare name is looked up on the `PATH` of its environment; a relative path counts from `cwd`.
    pub command: String,
    pub args: Vec<String>,
    /// On top of the agent's own environment.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
}

impl fmt::Debug for TerminalSpec {
    /// Arguments and environment may hold secrets, so only their number shows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TerminalSpec")
            .field("command", &self.command)
            .field("args", &self.args.len())
            .field("env", &self.env.len())
            .field("cwd", &self.cwd)
            .finish()
    }
}

impl TerminalSpec {
    /// In a file without a name: so it shows in no list of processes, and no socket has to hold it at once.
    fn write(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("terminal", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        Ok(file.into())
    }

    pub(super) fn read(file: OwnedFd) -> io::Result<Self> {
        Ok(serde_json::from_reader(io::BufReader::new(File::from(file)))?)
    }
}

/// Starts programs under the keeper of a child. Cheap to clone; when the child has ended nothing starts any more.
#[derive(Clone)]
pub struct Terminals {
    requests: Arc<UnixStream>,
    secrets: Arc<[Vec<u8>]>,
    start_timeout: Duration,
    shutdown: Shutdown,
}

impl fmt::Debug for Terminals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminals").finish_non_exhaustive()
    }
}

impl Terminals {
    pub(super) fn new(
        orders: UnixStream,
        secrets: Arc<[Vec<u8>]>,
        limits: &Limits,
        shutdown: &Shutdown,
    ) -> Self {
        let start_limit = limits.spawn;
        Self { requests: Arc::new(orders), secrets, start_timeout: start_limit, shutdown: shutdown.clone() }
    }

    /// Starts `spec`, and returns once the program itself runs. It reads an empty stdin.
    pub async fn spawn(&self, spec: TerminalSpec) -> Result<(TerminalChild, TerminalOutput), SpawnError> {
        let (control, line, output) = self.request(&spec).map_err(SpawnError::Supervisor)?;
        // From here on this hold answers for the terminal: let go at any point, it is killed.
        let child = TerminalChild::watch(line, &self.shutdown).map_err(SpawnError::Supervisor)?;
        let folder = spec.cwd;
        match await_report(control, self.start_timeout, PathBuf::from(spec.command)).await {
            Ok(_pid) => Ok((child, TerminalOutput::new(output, &self.secrets))),
            Err(SpawnError::Directory { source, .. }) => Err(SpawnError::Directory { folder, source }),
            Err(error) => Err(error),
        }
    }

    /// Sends the keeper all that it needs, and keeps none of its ends.
    fn request(&self, spec: &TerminalSpec) -> io::Result<(UnixStream, UnixStream, pipe::Receiver)> {
        let (line, their_line) = UnixStream::pair()?;
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let written = spec.write()?;
        let (control, their_control) =
            handshake::open_control_socket(&[their_line.as_fd(), written.as_fd()], File::open("/dev/null")?)?;
        handshake::send_descriptors(&self.requests, &[their_control.as_fd(), their_output.as_fd()])?;
        Ok((control, line, pipe::Receiver::from_owned_fd(output)?))
    }
}

/// A hold on a terminal. Dropping it kills the program with everything that it started.
#[derive(Debug)]
pub struct TerminalChild {
    exit: watch::Receiver<Option<Exit>>,
    kill: DropGuard,
}

impl TerminalChild {
    fn watch(line: UnixStream, shutdown: &Shutdown) -> io::Result<Self> {
        line.set_nonblocking(true)?;
        let line = tokio::net::UnixStream::from_std(line)?;
        let (told, exit) = watch::channel(None);
        let kill = CancellationToken::new();
        shutdown.spawn_isolated(watch_exit(line, told, kill.clone()));
        Ok(Self { exit, kill: kill.drop_guard() })
    }

    /// Waits for the end of the program. What it has put into the background may live on until the hold is dropped.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + use<> {
        let mut exit = self.exit.clone();
        async move {
            let end = exit.wait_for(Option::is_some).await;
            end.ok().and_then(|exit| exit.clone()).unwrap_or(Exit::from(None))
        }
    }

    /// Kills the program with everything that it started; [`TerminalChild::exited`] tells when it has ended.
    pub fn kill(self) {
        drop(self.kill);
    }
}

/// Hears of the program's end, and lets go when the hold was dropped. Ends when nothing of the terminal is left.
async fn watch_exit(
    mut line: tokio::net::UnixStream,
    told: watch::Sender<Option<Exit>>,
    kill: CancellationToken,
) {
    let (read, mut write) = line.split();
    let mut lines = BufReader::new(read).lines();
    let mut held = true;
    loop {
        tokio::select! {
            said = lines.next_line() => match said {
                Ok(Some(said)) => {
                    told.send_replace(report::parse_exit(&said));
                }
                Ok(None) | Err(_) => break,
            },
            () = kill.cancelled(), if held => {
                held = false;
                // One that is gone has closed its end, and is read to it.
                drop(write.shutdown().await);
            }
        }
    }
    // A keeper that was itself killed has told nothing.
    told.send_if_modified(|exit| {
        let silent = exit.is_none();
        exit.get_or_insert(Exit::from(None));
        silent
    });
}

/// What a terminal shows: its stdout and stderr in their order, without the configured secrets.
#[derive(Debug)]
pub struct TerminalOutput {
    pipe: pipe::Receiver,
    mask: Mask,
    buffer: Box<[u8]>,
}

impl TerminalOutput {
    fn new(pipe: pipe::Receiver, secrets: &Arc<[Vec<u8>]>) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { pipe, mask: Mask::new(Arc::clone(secrets)), buffer }
    }

    /// The next bytes; None: everybody has closed it. Nothing is lost when the wait is given up.
    pub async fn read(&mut self) -> Option<Vec<u8>> {
        loop {
            self.pipe.readable().await.ok()?;
            match self.pipe.try_read(&mut self.buffer) {
                Ok(0) => return self.finish(),
                Ok(read) => {
                    let shown = self.mask.push(&self.buffer[..read]);
                    if !shown.is_empty() {
                        return Some(shown);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.finish(),
            }
        }
    }

    /// What is there already: some bytes, or none while there are none, or None when everybody has closed it.
    pub fn read_now(&mut self) -> Option<Vec<u8>> {
        loop {
            // Past the runtime, which may not have heard yet of what is in the pipe.
            match rustix::io::read(&self.pipe, &mut self.buffer[..]) {
                Ok(0) => return self.finish(),
                Ok(read) => {
                    let shown = self.mask.push(&self.buffer[..read]);
                    if !shown.is_empty() {
                        return Some(shown);
                    }
                }
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
