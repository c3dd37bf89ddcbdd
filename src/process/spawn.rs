//! From a spec to a running child.

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

use super::child::{Child, ExitState, KillSwitch, StopRequest};
use super::reaper::{Reaper, Pipes};
use super::open_files::{self, OpenFiles};
use super::pty::{self, Pty, PtyChild, PtySize};
use super::report::Report;
use super::run_file::RunFile;
use super::stdin::StdinTask;
use super::{ChildSpec, StderrTail, StdinWriter, Terminals, handshake};
use crate::shutdown::Shutdown;
use crate::types::Limits;

/// Why no child came of a spec. Nothing of the attempt is left running.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("the program {program:?} cannot be executed")]
    Program { program: PathBuf, source: io::Error },
    #[error("the folder {folder:?} cannot be entered")]
    Directory { folder: PathBuf, source: io::Error },
    #[error("the keeper could not be started")]
    Supervisor(#[source] io::Error),
    #[error("the keeper failed before the program began: {0}")]
    Setup(String),
    #[error("the keeper did not start the program in time")]
    Timeout,
}

/// A keeper that runs, and has not said yet how its program began.
struct StartingChild<E> {
    kill_switch: KillSwitch,
    supervisor: Pid,
    control: UnixStream,
    /// Our ends of what the program reads and writes.
    ends: E,
}

struct PipeEnds {
    stdin: StdinWriter,
    stdout: ChildStdout,
    stderr: StderrTail,
    /// To the keeper: requests for terminals.
    terminal_requests: UnixStream,
}

/// Starts children. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Spawner {
    supervisor: PathBuf,
    run_dir: PathBuf,
    shutdown: Shutdown,
    limits: Arc<Limits>,
    open_files: Option<OpenFiles>,
}

impl Spawner {
    /// `keeper` is this program's own file; `run_dir` takes one small file for each living keeper.
    pub fn new(keeper: PathBuf, run_dir: PathBuf, shutdown: Shutdown, limits: Arc<Limits>) -> Self {
        Self { supervisor: keeper, run_dir, shutdown, limits, open_files: None }
    }

    /// Children get the limit of open files that this process had before it was raised.
    #[must_use]
    pub fn with_open_files(self, open_files: Option<OpenFiles>) -> Self {
        Self { open_files, ..self }
    }

    /// Starts `spec` under a keeper, and returns once the program itself runs.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, SpawnError> {
        let program = spec.program.clone();
        let StartingChild { kill_switch: leash, supervisor: keeper, control, ends } =
            self.run_blocking(move |spawner| spawner.start_with_pipes(spec)).await?;
        let pid = self.await_program(control, &leash, program).await?;
        let PipeEnds { stdin, stdout, stderr, terminal_requests: orders } = ends;
        let terminals = Terminals::new(orders, stderr.secrets(), &self.limits, &self.shutdown);
        Ok(Child { pid, supervisor: keeper, stdin, stdout: Some(stdout), stderr, terminals, kill_switch: leash })
    }

    /// Starts `spec` in a pseudo terminal of its own, under a keeper of its own; returns once the program itself runs.
    /// stdin, stdout and stderr are the terminal, and `TERM` says which one, unless `spec` does.
    pub async fn spawn_pty(&self, mut spec: ChildSpec, size: PtySize) -> Result<PtyChild, SpawnError> {
        if spec.env.iter().all(|(name, _)| name != "TERM") {
            spec.env.push(("TERM".into(), pty::TERM.into()));
        }
        let program = spec.program.clone();
        let StartingChild { kill_switch: leash, control, ends, .. } =
            self.run_blocking(move |spawner| spawner.start_with_pty(&spec, size)).await?;
        let pid = self.await_program(control, &leash, program).await?;
        Ok(PtyChild::new(pid, ends, leash))
    }

    /// Whoever starts a process stands still for a millisecond or more, and so does who writes a file: a thread that
    /// serves others has no time for that. It is one step, which ends with a leash on the keeper. When nobody waits for
    /// it any more it is not taken, or if it was already, what it gives is dropped, and the leash with it.
    async fn run_blocking<E: Send + 'static>(
        &self,
        step: impl FnOnce(&Self) -> Result<StartingChild<E>, SpawnError> + Send + 'static,
    ) -> Result<StartingChild<E>, SpawnError> {
        let spawner = self.clone();
        let begun = AbortOnDropHandle::new(self.shutdown.spawn_blocking(move || step(&spawner)));
        begun.await.map_err(|error| SpawnError::Supervisor(error.into()))?
    }

    fn start_with_pipes(&self, spec: ChildSpec) -> Result<StartingChild<PipeEnds>, SpawnError> {
        check_cwd(&spec)?;
        let (stdin_read, stdin_write) = pipe_with(PipeFlags::CLOEXEC).map_err(supervisor_error)?;
        let stdin_pipe = pipe::Sender::from_owned_fd(stdin_write).map_err(SpawnError::Supervisor)?;
        let (orders, their_orders) = UnixStream::pair().map_err(SpawnError::Supervisor)?;
        let (control, theirs) =
            handshake::open_control_socket(&[their_orders.as_fd()], &stdin_read).map_err(SpawnError::Supervisor)?;
        drop(their_orders);
        // Our copy would keep the pipe open after the child has closed its own.
        drop(stdin_read);
        let mut keeper = self.spawn_supervisor("watch", &spec, theirs, Stdio::piped)?;
        let stdout = keeper.stdout.take().expect("stdout is a pipe");
        let stderr_pipe = keeper.stderr.take().expect("stderr is a pipe");
        let stderr = StderrTail::new(self.limits.stderr_bytes, spec.secrets);
        let drain = self.shutdown.spawn_isolated(stderr.clone().drain(stderr_pipe));
        let (close_stdin, stalled) = (CancellationToken::new(), CancellationToken::new());
        let (stdin, stdin_task) =
            StdinTask::new(stdin_pipe, &self.limits, close_stdin.clone(), stalled.clone());
        self.shutdown.spawn_isolated(stdin_task.run());
        let (keeper, leash) = self.spawn_reaper(keeper, Pipes { close_stdin, stalled, stderr: drain });
        Ok(StartingChild { kill_switch: leash, supervisor: keeper, control, ends: PipeEnds { stdin, stdout, stderr, terminal_requests: orders } })
    }

    fn start_with_pty(&self, spec: &ChildSpec, size: PtySize) -> Result<StartingChild<Pty>, SpawnError> {
        check_cwd(spec)?;
        let (pty, terminal) = Pty::open(size).map_err(SpawnError::Supervisor)?;
        let (control, theirs) = handshake::open_control_socket(&[], &terminal).map_err(SpawnError::Supervisor)?;
        // Our copy would keep the terminal open after the child has closed its own.
        drop(terminal);
        let keeper = self.spawn_supervisor("watch-pty", spec, theirs, Stdio::null)?;
        let (keeper, leash) = self.spawn_reaper(keeper, Pipes::none(&self.shutdown));
        Ok(StartingChild { kill_switch: leash, supervisor: keeper, control, ends: pty })
    }

    /// From here on the leash answers for the keeper: dropped at any point, it stops it.
    fn spawn_reaper(&self, keeper: tokio::process::Child, pipes: Pipes) -> (Pid, KillSwitch) {
        let pid = keeper.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let pid = pid.expect("a keeper that was not awaited has a pid");
        let (orders_in, orders) = watch::channel(StopRequest::Run);
        let (ending_in, ending) = watch::channel(ExitState::default());
        let leash = KillSwitch { requests: orders_in, exit_state: ending };
        let guard = Reaper {
            supervisor: keeper,
            pid,
            requests: orders,
            pipes,
            exit_state: ending_in,
            run_file: self.run_file(pid),
            shutdown: self.shutdown.clone(),
            limits: Arc::clone(&self.limits),
        };
        self.shutdown.spawn(guard.run());
        (pid, leash)
    }

    /// Waits for the program to take over; when it does not, for the end of the keeper.
    async fn await_program(&self, control: UnixStream, leash: &KillSwitch, program: PathBuf) -> Result<u32, SpawnError> {
        let error = match await_report(control, self.limits.spawn, program).await {
            Ok(pid) => return Ok(pid),
            Err(error) => error,
        };
        leash.request(StopRequest::Kill);
        leash.exited().await;
        Err(error)
    }

    /// The environment and the arguments of the keeper are the child's own, so that no secret shows
    /// where the child itself would not show it.
    #[expect(clippy::disallowed_methods, reason = "the one place where the gateway starts a process")]
    fn spawn_supervisor(
        &self,
        stage: &str,
        spec: &ChildSpec,
        control: UnixStream,
        output: fn() -> Stdio,
    ) -> Result<tokio::process::Child, SpawnError> {
        let mut command = Command::new(&self.supervisor);
        command
            // The file has a name that says nothing in a list of processes.
            .arg0("acp-gateway")
            .arg("keeper")
            .arg(stage)
            .arg(OsString::from(std::process::id().to_string()))
            .arg(self.open_files.map_or_else(|| open_files::UNCHANGED.to_owned(), OpenFiles::child_argument))
            .arg(&spec.program)
            .args(&spec.args)
            .env_clear()
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&spec.cwd)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(control)))
            .stdout(output())
            .stderr(output());
        // Our copy of the control socket closes with the command, or its end would never be seen.
        command.spawn().map_err(SpawnError::Supervisor)
    }

    /// Without its file a keeper still ends with the gateway; only a stuck one would be missed.
    fn run_file(&self, pid: Pid) -> Option<RunFile> {
        RunFile::write(&self.run_dir, pid)
            .inspect_err(|error| tracing::warn!(%error, "a run file could not be written"))
            .ok()
    }
}

/// What the keeper says of the start of `program`.
pub(super) async fn await_report(
    control: UnixStream,
    limit: Duration,
    program: PathBuf,
) -> Result<u32, SpawnError> {
    match handshake::read_report(control, limit).await {
        Ok(Some(Report::Started(pid))) => Ok(pid.cast_unsigned()),
        Ok(Some(Report::ExecFailed(errno))) => {
            Err(SpawnError::Program { program, source: io::Error::from_raw_os_error(errno) })
        }
        Ok(Some(Report::NoDirectory(errno))) => {
            Err(SpawnError::Directory { folder: PathBuf::new(), source: io::Error::from_raw_os_error(errno) })
        }
        Ok(Some(Report::SetupFailed(text))) => Err(SpawnError::Setup(text)),
        Ok(None) => Err(SpawnError::Timeout),
        Err(error) => Err(SpawnError::Supervisor(error)),
    }
}

/// Told apart here, since the start of a process reports a missing folder like a missing program.
fn check_cwd(spec: &ChildSpec) -> Result<(), SpawnError> {
    let source = match fs::metadata(&spec.cwd) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => io::ErrorKind::NotADirectory.into(),
        Err(error) => error,
    };
    Err(SpawnError::Directory { folder: spec.cwd.clone(), source })
}

fn supervisor_error(errno: rustix::io::Errno) -> SpawnError {
    SpawnError::Supervisor(errno.into())
}
