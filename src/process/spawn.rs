//! Starts a child from its spec.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::process::{ChildStdout, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::child::{Child, Ending, Leash, Order};
use super::guard::{Guard, Pipes};
use super::open_files::{self, OpenFiles};
use super::pty::{self, Pty, PtyChild, PtySize};
use super::report::Report;
use super::run_file::RunFile;
use super::stdin::StdinTask;
use super::{ChildSpec, StderrTail, StdinWriter, Terminals, handshake};
use crate::shutdown::Shutdown;
use crate::types::Limits;

/// Why a spawn failed. No process of the attempt is left.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("could not execute the program {program:?}")]
    Program { program: PathBuf, source: io::Error },
    #[error("could not enter the directory {folder:?}")]
    Folder { folder: PathBuf, source: io::Error },
    #[error("could not start the supervisor")]
    Keeper(#[source] io::Error),
    #[error("the supervisor failed before the program started: {0}")]
    Setup(String),
    #[error("the supervisor did not start the program in time (`limits.spawn`)")]
    Timeout,
}

/// A running supervisor whose program has not started yet.
struct Begun<E> {
    leash: Leash,
    keeper: Pid,
    control: UnixStream,
    /// The gateway's ends of the program's stdio.
    ends: E,
}

struct PipeEnds {
    stdin: StdinWriter,
    stdout: ChildStdout,
    stderr: StderrTail,
    /// Requests for terminals to the supervisor.
    orders: UnixStream,
}

/// Starts children. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Spawner {
    program: PathBuf,
    run_dir: PathBuf,
    shutdown: Shutdown,
    limits: Arc<Limits>,
    open_files: Option<OpenFiles>,
}

impl Spawner {
    /// `supervisor` is the file of this program. `run_dir` contains one small file per running supervisor.
    pub fn new(keeper: PathBuf, run_dir: PathBuf, shutdown: Shutdown, limits: Arc<Limits>) -> Self {
        Self { program: keeper, run_dir, shutdown, limits, open_files: None }
    }

    /// Sets the limit of open files for children: the limit of this process before it was raised.
    #[must_use]
    pub fn handing_down(self, open_files: Option<OpenFiles>) -> Self {
        Self { open_files, ..self }
    }

    /// Starts `spec` under a supervisor. Returns when the program itself runs.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, SpawnError> {
        let program = spec.program.clone();
        let Begun { leash, keeper, control, ends } =
            self.begin(move |spawner| spawner.with_pipes(spec)).await?;
        let pid = self.started(control, &leash, program).await?;
        let PipeEnds { stdin, stdout, stderr, orders } = ends;
        let terminals = Terminals::new(orders, stderr.secrets(), &self.limits, &self.shutdown);
        Ok(Child { pid, keeper, stdin, stdout: Some(stdout), stderr, terminals, leash })
    }

    /// Starts `spec` in its own pseudo terminal, under its own supervisor. Returns when the program itself
    /// runs. stdin, stdout and stderr are the terminal. `TERM` names its type, unless `spec` sets it.
    pub async fn spawn_pty(&self, mut spec: ChildSpec, size: PtySize) -> Result<PtyChild, SpawnError> {
        if spec.env.iter().all(|(name, _)| name != "TERM") {
            spec.env.push(("TERM".into(), pty::TERM.into()));
        }
        let program = spec.program.clone();
        let Begun { leash, control, ends, .. } =
            self.begin(move |spawner| spawner.with_pty(&spec, size)).await?;
        let pid = self.started(control, &leash, program).await?;
        Ok(PtyChild::new(pid, ends, leash))
    }

    /// Runs a start on a blocking thread, because starting a process and writing a file block for a
    /// millisecond or more. The result owns a kill switch of the supervisor. If the caller stops waiting, the
    /// step does not run, or its result is dropped and stops the supervisor.
    async fn begin<E: Send + 'static>(
        &self,
        step: impl FnOnce(&Self) -> Result<Begun<E>, SpawnError> + Send + 'static,
    ) -> Result<Begun<E>, SpawnError> {
        let spawner = self.clone();
        let begun = AbortOnDropHandle::new(self.shutdown.spawn_blocking(move || step(&spawner)));
        begun.await.map_err(|error| SpawnError::Keeper(error.into()))?
    }

    fn with_pipes(&self, spec: ChildSpec) -> Result<Begun<PipeEnds>, SpawnError> {
        enter(&spec)?;
        let (stdin_read, stdin_write) = pipe_with(PipeFlags::CLOEXEC).map_err(keeper_error)?;
        let stdin_pipe = pipe::Sender::from_owned_fd(stdin_write).map_err(SpawnError::Keeper)?;
        let (orders, their_orders) = UnixStream::pair().map_err(SpawnError::Keeper)?;
        let (control, theirs) =
            handshake::offer(&[their_orders.as_fd()], &stdin_read).map_err(SpawnError::Keeper)?;
        drop(their_orders);
        // This copy would keep the pipe open after the child has closed its own.
        drop(stdin_read);
        let mut keeper = self.keeper("watch", &spec, theirs, Stdio::piped)?;
        let stdout = keeper.stdout.take().expect("stdout is a pipe");
        let stderr_pipe = keeper.stderr.take().expect("stderr is a pipe");
        let stderr = StderrTail::new(self.limits.stderr_bytes, spec.secrets);
        let drain = self.shutdown.spawn_confined(stderr.clone().drain(stderr_pipe));
        let (close_stdin, stalled) = (CancellationToken::new(), CancellationToken::new());
        let (stdin, stdin_task) =
            StdinTask::new(stdin_pipe, &self.limits, close_stdin.clone(), stalled.clone());
        self.shutdown.spawn_confined(stdin_task.run());
        let (keeper, leash) = self.guard(keeper, Pipes { close_stdin, stalled, stderr: drain });
        Ok(Begun { leash, keeper, control, ends: PipeEnds { stdin, stdout, stderr, orders } })
    }

    fn with_pty(&self, spec: &ChildSpec, size: PtySize) -> Result<Begun<Pty>, SpawnError> {
        enter(spec)?;
        let (pty, terminal) = Pty::open(size).map_err(SpawnError::Keeper)?;
        let (control, theirs) = handshake::offer(&[], &terminal).map_err(SpawnError::Keeper)?;
        // This copy would keep the terminal open after the child has closed its own.
        drop(terminal);
        let keeper = self.keeper("watch-pty", spec, theirs, Stdio::null)?;
        let (keeper, leash) = self.guard(keeper, Pipes::none(&self.shutdown));
        Ok(Begun { leash, keeper, control, ends: pty })
    }

    /// From here on the kill switch owns the supervisor: dropping it stops the supervisor.
    fn guard(&self, keeper: tokio::process::Child, pipes: Pipes) -> (Pid, Leash) {
        let pid = keeper.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.expect("a supervisor that was not awaited has a pid");
        let (orders_in, orders) = watch::channel(Order::Run);
        let (ending_in, ending) = watch::channel(Ending::default());
        let leash = Leash { orders: orders_in, ending };
        let guard = Guard {
            keeper,
            pid,
            orders,
            pipes,
            ending: ending_in,
            run_file: self.run_file(pid),
            shutdown: self.shutdown.clone(),
            limits: Arc::clone(&self.limits),
        };
        self.shutdown.spawn(guard.run());
        (pid, leash)
    }

    /// Waits for the program to start. If the start fails, waits for the end of the supervisor.
    async fn started(&self, control: UnixStream, leash: &Leash, program: PathBuf) -> Result<u32, SpawnError> {
        let error = match reported(control, self.limits.spawn, program).await {
            Ok(pid) => return Ok(pid),
            Err(error) => error,
        };
        leash.order(Order::Kill);
        leash.exited().await;
        Err(error)
    }

    /// The supervisor gets the environment and the arguments of the child. Therefore no secret is visible
    /// that would not be visible in the child itself.
    #[expect(clippy::disallowed_methods, reason = "the one place where the gateway starts a process")]
    fn keeper(
        &self,
        stage: &str,
        spec: &ChildSpec,
        control: UnixStream,
        output: fn() -> Stdio,
    ) -> Result<tokio::process::Child, SpawnError> {
        let mut command = Command::new(&self.program);
        command
            // The file name is not meaningful in a list of processes.
            .arg0("acp-gateway")
            .arg("keeper")
            .arg(stage)
            .arg(OsString::from(std::process::id().to_string()))
            .arg(self.open_files.map_or_else(|| open_files::KEEP.to_owned(), OpenFiles::handed_down))
            .arg(&spec.program)
            .args(&spec.args)
            .env_clear()
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&spec.cwd)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(control)))
            .stdout(output())
            .stderr(output());
        // This copy of the control socket closes with the command. Otherwise the end would never arrive.
        command.spawn().map_err(SpawnError::Keeper)
    }

    /// Without its run file a supervisor still ends with the gateway. Only the sweep of a hanging one would miss it.
    fn run_file(&self, pid: Pid) -> Option<RunFile> {
        RunFile::write(&self.run_dir, pid)
            .inspect_err(|error| tracing::warn!(%error, "could not write a run file"))
            .ok()
    }
}

/// Reads the supervisor's report about the start of `program`.
pub(super) async fn reported(
    control: UnixStream,
    limit: Duration,
    program: PathBuf,
) -> Result<u32, SpawnError> {
    match handshake::report(control, limit).await {
        Ok(Some(Report::Started(pid))) => Ok(pid.cast_unsigned()),
        Ok(Some(Report::Refused(errno))) => {
            Err(SpawnError::Program { program, source: io::Error::from_raw_os_error(errno) })
        }
        Ok(Some(Report::NoFolder(errno))) => {
            Err(SpawnError::Folder { folder: PathBuf::new(), source: io::Error::from_raw_os_error(errno) })
        }
        Ok(Some(Report::Broken(text))) => Err(SpawnError::Setup(text)),
        Ok(None) => Err(SpawnError::Timeout),
        Err(error) => Err(SpawnError::Keeper(error)),
    }
}

/// Checks the directory here, since a spawn reports a missing directory and a missing program alike.
fn enter(spec: &ChildSpec) -> Result<(), SpawnError> {
    let source = match fs::metadata(&spec.cwd) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => io::ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    Err(SpawnError::Folder { folder: spec.cwd.clone(), source })
}

fn keeper_error(errno: rustix::io::Errno) -> SpawnError {
    SpawnError::Keeper(errno.into())
}
