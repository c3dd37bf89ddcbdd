//! Starts a child from its spec.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::child::Child;
use super::control_groups::{ChildGroup, ControlGroups};
use super::exit::{ExitState, KillSwitch, StopRequest};
use super::isolation::{Confinement, FolderGrants, Sandbox, give, write_instructions};
use super::open_files::{self, OpenFiles};
use super::pty::{self, Pty, PtyChild, PtySize};
use super::real_folder::open_real_folder;
use super::reaper::{Pipes, Reaper, Resources};
use super::run_file::RunFile;
use super::stdin::StdinTask;
use super::{ChildSpec, SpawnError, StderrTail, Terminals, handshake};
use crate::limits::Limits;
use base::shutdown::Shutdown;
use base::types::{AppliedIsolation, Mechanism};

/// Starts children. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Spawner {
    supervisor: PathBuf,
    run_dir: Option<PathBuf>,
    /// Children with pipes write to the stderr of this process. Their tails stay empty.
    pub inherits_stderr: bool,
    shutdown: Shutdown,
    limits: Arc<Limits>,
    /// The limit of open files for children: the limit of this process before it was raised.
    pub open_files: Option<OpenFiles>,
    isolation: HostIsolation,
    /// Descriptors of which each supervisor holds copies until its end: the lock of the supervisors, and the listeners of
    /// the gateway. Without the listeners, an agent could bind the port after a crash of the gateway, and receive the keys
    /// of clients.
    pub held: Arc<[OwnedFd]>,
}

impl Spawner {
    /// `supervisor` is the file of this program. `run_dir` contains one small file per running supervisor. Without it,
    /// the next gateway does not find a supervisor that hangs.
    pub fn new(
        supervisor: PathBuf,
        run_dir: impl Into<Option<PathBuf>>,
        shutdown: Shutdown,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            supervisor,
            run_dir: run_dir.into(),
            inherits_stderr: false,
            shutdown,
            limits,
            open_files: None,
            isolation: HostIsolation::new(Sandbox::disabled(), ControlGroups::default()),
            held: Arc::default(),
        }
    }

    /// Sets the isolation and the control groups of children. Without it, children are not isolated, and stay in the group
    /// of this process.
    #[must_use]
    pub fn with_isolation(mut self, isolation: HostIsolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// The isolation of children. Blocks for some milliseconds after the start of the gateway.
    pub fn sandbox(&self) -> &Sandbox {
        self.isolation.sandbox()
    }

    /// Starts `spec` under a supervisor. Returns when the program itself runs.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, SpawnError> {
        let program = spec.program.clone();
        let start = move |spawner: &Self| spawner.start_with_pipes(spec);
        let (mut child, control) = self.run_blocking(start).await?;
        child.pid = self
            .await_program(control, &child.kill_switch, program)
            .await?;
        Ok(child)
    }

    /// Starts `spec` in its own pseudo terminal, under its own supervisor. Returns when the program itself
    /// runs. stdin, stdout and stderr are the terminal. `TERM` names its type, unless `spec` sets it.
    pub async fn spawn_pty(
        &self,
        mut spec: ChildSpec,
        size: PtySize,
    ) -> Result<PtyChild, SpawnError> {
        if spec.env.iter().all(|(name, _)| name != "TERM") {
            spec.env.push(("TERM".into(), pty::TERM.into()));
        }
        let program = spec.program.clone();
        let start = move |spawner: &Self| spawner.start_with_pty(spec, size);
        let (mut child, control) = self.run_blocking(start).await?;
        child.pid = self
            .await_program(control, &child.kill_switch, program)
            .await?;
        Ok(child)
    }

    /// Runs a start on a blocking thread, because starting a process and writing a file block for a
    /// millisecond or more. The result owns a kill switch of the supervisor. If the caller stops waiting, the
    /// step does not run, or its result is dropped and stops the supervisor.
    async fn run_blocking<C: Send + 'static>(
        &self,
        step: impl FnOnce(&Self) -> Result<C, SpawnError> + Send + 'static,
    ) -> Result<C, SpawnError> {
        let spawner = self.clone();
        let task = AbortOnDropHandle::new(self.shutdown.spawn_blocking(move || step(&spawner)));
        task.await
            .map_err(|error| SpawnError::Supervisor(error.into()))?
    }

    /// Starts the supervisor of a child, whose program does not run yet. Returns also the gateway's end of the control
    /// socket.
    fn start_with_pipes(&self, mut spec: ChildSpec) -> Result<(Child, UnixStream), SpawnError> {
        let supervisor_error = SpawnError::Supervisor;
        let socket_pair = || UnixStream::pair().map_err(supervisor_error);
        check_folders(&spec)?;
        let (confinement, resources) = self.confine(&mut spec)?;
        let group = resources.group.as_ref().map(ChildGroup::entrance);
        let pipes = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (stdin_read, stdin_write) = pipes.map_err(supervisor_error)?;
        let stdin_pipe = pipe::Sender::from_owned_fd(stdin_write).map_err(supervisor_error)?;
        let (terminal_requests, supervisor_requests) = socket_pair()?;
        let (folder_requests, supervisor_folders) = socket_pair()?;
        let (mut supervisor, control) = self.start_supervisor(
            &spec,
            &confinement,
            group.as_deref(),
            stdin_read,
            supervisor_folders,
            Some(supervisor_requests),
        )?;
        let stdout = supervisor.stdout.take().expect("stdout is a pipe");
        let stderr_pipe = supervisor.stderr.take();
        let stderr = StderrTail::new(self.limits.max_stderr_bytes, spec.secrets);
        let drained = stderr.clone();
        let drain = self.shutdown.spawn_isolated(async move {
            if let Some(pipe) = stderr_pipe {
                drained.drain(pipe).await;
            }
        });
        let close_stdin = CancellationToken::new();
        let stalled = CancellationToken::new();
        let closed = close_stdin.clone();
        let (stdin, stdin_task) = StdinTask::new(
            stdin_pipe,
            self.limits.stdin_stall_timeout,
            closed,
            stalled.clone(),
        );
        self.shutdown.spawn_isolated(stdin_task.run());
        let pipes = Pipes {
            close_stdin,
            stalled,
            stderr: drain,
        };
        let (supervisor, kill_switch) = self.spawn_reaper(supervisor, pipes, resources);
        let isolation = AppliedIsolation {
            level: spec.isolation.level,
            mechanism: confinement.reported(),
            ..AppliedIsolation::default()
        };
        let folders = if confinement.mechanism == Mechanism::Namespaces {
            Some(FolderGrants::new(folder_requests).map_err(supervisor_error)?)
        } else {
            None
        };
        let child = Child {
            pid: 0,
            user: confinement.user,
            supervisor,
            stdin,
            stdout: Some(stdout),
            terminals: Terminals {
                requests: Arc::new(terminal_requests),
                secrets: stderr.secrets(),
                confinement: Arc::new(confinement),
                group,
                shutdown: self.shutdown.clone(),
            },
            stderr,
            kill_switch,
            isolation,
            folders,
        };
        Ok((child, control))
    }

    /// Like `start_with_pipes`, for a child in a pseudo terminal.
    fn start_with_pty(
        &self,
        mut spec: ChildSpec,
        size: PtySize,
    ) -> Result<(PtyChild, UnixStream), SpawnError> {
        let supervisor_error = SpawnError::Supervisor;
        check_folders(&spec)?;
        let (confinement, resources) = self.confine(&mut spec)?;
        let group = resources.group.as_ref().map(ChildGroup::entrance);
        let (pty, terminal) = Pty::open(size).map_err(supervisor_error)?;
        let (_, no_folders) = UnixStream::pair().map_err(supervisor_error)?;
        let (supervisor, control) = self.start_supervisor(
            &spec,
            &confinement,
            group.as_deref(),
            terminal,
            no_folders,
            None,
        )?;
        // A child in a pseudo terminal has no pipes.
        let pipes = Pipes {
            close_stdin: CancellationToken::new(),
            stalled: CancellationToken::new(),
            stderr: self.shutdown.spawn(std::future::ready(())),
        };
        let (_, kill_switch) = self.spawn_reaper(supervisor, pipes, resources);
        let child = PtyChild {
            pid: 0,
            reader: Some(pty.reader),
            writer: Some(pty.writer),
            size: pty.size,
            kill_switch,
        };
        Ok((child, control))
    }

    /// Starts the supervisor of a program with this stdin: a pipe, or a terminal, whose supervisor accepts no `requests`.
    /// Returns also the gateway's end of the control socket.
    fn start_supervisor(
        &self,
        spec: &ChildSpec,
        confinement: &Confinement,
        group: Option<&OwnedFd>,
        stdin: OwnedFd,
        folders: UnixStream,
        requests: Option<UnixStream>,
    ) -> Result<(tokio::process::Child, UnixStream), SpawnError> {
        let supervisor_error = SpawnError::Supervisor;
        give(&stdin, confinement.user).map_err(supervisor_error)?;
        let (link, init_link) = UnixStream::pair().map_err(supervisor_error)?;
        let outer_confinement = write_instructions(confinement).map_err(supervisor_error)?;
        let confinement = write_instructions(confinement).map_err(supervisor_error)?;
        let own = [outer_confinement.as_fd(), link.as_fd(), folders.as_fd()];
        // The outer supervisor only holds the others.
        let outer: Vec<_> = own
            .into_iter()
            .chain(self.held.iter().map(AsFd::as_fd))
            .collect();
        let (control, supervisor_end) = handshake::open_control_socket(&[
            &outer,
            &handshake::and_optional(&[init_link.as_fd()], requests.as_ref()),
            &handshake::and_optional(&[stdin.as_fd(), confinement.as_fd()], group),
        ])
        .map_err(supervisor_error)?;
        let error_output = if self.inherits_stderr {
            Stdio::inherit
        } else {
            Stdio::piped
        };
        let stage = match requests {
            Some(_) => "watch",
            None => "watch-pty",
        };
        let outputs: [fn() -> Stdio; 2] = match requests {
            Some(_) => [Stdio::piped, error_output],
            None => [Stdio::null, Stdio::null],
        };
        // These copies would keep the pipe, the terminal and the sockets open after the child has closed its own.
        drop((stdin, folders, requests, link, init_link));
        let supervisor = self.spawn_supervisor(stage, spec, supervisor_end, outputs)?;
        Ok((supervisor, control))
    }

    /// Decides what the child may access, moves its environment there, and creates its temporary folder and its control
    /// group. Without namespaces, a variable names the folder.
    fn confine(&self, spec: &mut ChildSpec) -> Result<(Confinement, Resources), SpawnError> {
        let groups = self.isolation.groups();
        let (mut confinement, temporary) = self.isolation.sandbox().confinement(spec)?;
        let group = groups.create_child(spec.isolation.limits);
        let group = group.map_err(SpawnError::ControlGroup)?;
        let isolation = self.isolation.clone();
        let prepare = move || isolation.groups().prepare_entrance();
        // The start does not wait for this task, because waiting would delay the creation of the group.
        drop(self.shutdown.spawn_blocking(prepare));
        if groups.limit_processes() && confinement.mechanism != Mechanism::Namespaces {
            // This limit would count the processes of all agents of the user.
            confinement.maximum.processes = None;
        }
        if let Some(folder) = &confinement.temporary
            && confinement.mechanism != Mechanism::Namespaces
        {
            spec.env.retain(|(name, _)| name != "TMPDIR");
            spec.env.push(("TMPDIR".into(), folder.into()));
        }
        self.isolation.sandbox().add_variables(spec);
        confinement.env = std::mem::take(&mut spec.env);
        let resources = Resources {
            group,
            _temporary: temporary,
        };
        Ok((confinement, resources))
    }

    /// From here on the kill switch owns the supervisor: dropping it stops the supervisor.
    fn spawn_reaper(
        &self,
        supervisor: tokio::process::Child,
        pipes: Pipes,
        resources: Resources,
    ) -> (Pid, KillSwitch) {
        let pid = supervisor
            .id()
            .map(u32::cast_signed)
            .and_then(Pid::from_raw);
        let pid = pid.expect("a supervisor that was not awaited has a pid");
        let (request_sender, requests) = watch::channel(StopRequest::Run);
        let (exit_sender, exit_state) = watch::channel(ExitState::default());
        let kill_switch = KillSwitch {
            requests: request_sender,
            exit_state,
        };
        let reaper = Reaper {
            supervisor,
            pid,
            requests,
            pipes,
            exit_state: exit_sender,
            run_file: self.run_file(pid),
            resources,
            shutdown: self.shutdown.clone(),
            limits: Arc::clone(&self.limits),
        };
        self.shutdown.spawn(reaper.run().in_current_span());
        (pid, kill_switch)
    }

    /// Waits for the program to start. If the start fails, waits for the end of the supervisor.
    async fn await_program(
        &self,
        control: UnixStream,
        kill_switch: &KillSwitch,
        program: PathBuf,
    ) -> Result<u32, SpawnError> {
        let started = handshake::await_report(control, program).await;
        if started.is_err() {
            kill_switch.request(StopRequest::Kill);
            kill_switch.exited().await;
        }
        started
    }

    /// The supervisor gets the arguments of the child. Therefore no secret is visible that would not be visible in the
    /// child itself.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the gateway starts a process"
    )]
    fn spawn_supervisor(
        &self,
        stage: &str,
        spec: &ChildSpec,
        control: UnixStream,
        [output, error_output]: [fn() -> Stdio; 2],
    ) -> Result<tokio::process::Child, SpawnError> {
        let open_files = self.open_files.map(OpenFiles::child_argument);
        let mut command = Command::new(&self.supervisor);
        command
            // The file name is not meaningful in a list of processes.
            .arg0("acp-gateway")
            .arg("supervisor")
            .arg(stage)
            .arg(std::process::id().to_string())
            .arg(open_files.unwrap_or_else(|| open_files::UNCHANGED.to_owned()))
            .arg(&spec.program)
            .args(&spec.args)
            .env_clear()
            .current_dir(&spec.home)
            .stdin(OwnedFd::from(control))
            .stdout(output())
            .stderr(error_output());
        // This copy of the control socket closes with the command. Otherwise the end would never arrive.
        command.spawn().map_err(SpawnError::Supervisor)
    }

    /// Without its run file a supervisor still ends with the gateway. Only the sweep of a hanging one would miss it.
    fn run_file(&self, pid: Pid) -> Option<RunFile> {
        RunFile::write(self.run_dir.as_ref()?, pid)
            .inspect_err(|error| tracing::warn!(%error, "could not write a run file"))
            .ok()
    }
}

/// Checks the directories here, since a spawn reports a missing directory and a missing program alike. The command of
/// the level `strict` receives only the path of the session's folder.
fn check_folders(spec: &ChildSpec) -> Result<(), SpawnError> {
    for folder in std::iter::once(&spec.home).chain(&spec.cwd) {
        let source = match fs::metadata(folder) {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) => io::ErrorKind::NotADirectory.into(),
            Err(error) => error,
        };
        return Err(SpawnError::Directory {
            folder: folder.clone(),
            source,
        });
    }
    for folder in &spec.isolation.folders {
        open_real_folder(folder)?;
    }
    Ok(())
}

/// Starts a program without stdin and stdout. `log` is the stderr of the program, and its environment does not contain
/// the variable `secret`. The program calls `setsid` itself.
#[expect(
    clippy::disallowed_methods,
    reason = "a supervisor would end the program with this process"
)]
pub fn spawn_detached(
    program: &Path,
    args: &[OsString],
    secret: &str,
    log: File,
) -> io::Result<std::process::Child> {
    let mut command = std::process::Command::new(program);
    command.args(args).env_remove(secret);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}

type Prepare = Box<dyn FnOnce() -> (Sandbox, ControlGroups) + Send>;

/// How this machine isolates children. Cheap to clone.
///
/// The preparation takes about 15 ms, mostly waits of the kernel. It begins when the gateway accepts connections, or at
/// the first use, for example by a queued prompt that a restart restores.
#[derive(Clone, derive_more::Debug)]
#[debug("HostIsolation({:?})", LazyLock::get(_0))]
pub struct HostIsolation(Arc<LazyLock<(Sandbox, ControlGroups), Prepare>>);

impl HostIsolation {
    pub fn new(sandbox: Sandbox, groups: ControlGroups) -> Self {
        Self::with_preparation(Sandbox::disabled(), move || (sandbox, groups))
    }

    /// An isolation that `prepare` determines. If it panics, the result is `fallback` without control groups.
    pub fn with_preparation(
        fallback: Sandbox,
        prepare: impl FnOnce() -> (Sandbox, ControlGroups) + Send + 'static,
    ) -> Self {
        let prepare: Prepare = Box::new(move || {
            // The panic is in the log.
            catch_unwind(AssertUnwindSafe(prepare)).unwrap_or((fallback, ControlGroups::default()))
        });
        Self(Arc::new(LazyLock::new(prepare)))
    }

    /// Begins the preparation on a blocking thread. The handle reports its end.
    pub fn prepare(&self, shutdown: &Shutdown) -> JoinHandle<()> {
        let isolation = self.clone();
        shutdown.spawn_blocking(move || {
            LazyLock::force(&isolation.0);
        })
    }

    /// The isolation of children. Blocks until the end of the preparation.
    pub fn sandbox(&self) -> &Sandbox {
        &self.0.0
    }

    /// The control groups of children. Blocks until the end of the preparation.
    pub fn groups(&self) -> &ControlGroups {
        &self.0.1
    }
}
