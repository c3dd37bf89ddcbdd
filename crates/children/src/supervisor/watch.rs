//! The life of a supervisor: starts the child, watches it and the gateway, and kills all descendants at the end.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait,
};
use rustix::stdio::{stderr, stdin, stdout};

use super::channel::{self, Channel, write_line};
use super::error::SupervisorError;
use super::exec;
use super::mounts::Mounts;
use super::parent::{ParentProcess, Request, Signals, any_event};
use super::stage::StdioMode;
use super::{namespaces, user};
use crate::isolation::{
    Confinement, GRANTED_LINE, GrantRequest, error_line, give, read_instructions,
};
use crate::procfs;
use crate::report::Ended;
use crate::terminal::TerminalSpec;
use base::types::Mechanism;

/// The interval of the check whether the parent still exists, also on kernels without pidfd.
const PARENT_CHECK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// A process that survives KILL for this long hangs in the kernel. The supervisor gives up.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two rounds of KILL without a SIGCHLD.
const KILL_ROUND: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Runs the supervisor of the child that becomes `program`.
pub(super) fn run(
    gateway: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    // The listeners of the gateway close with this process, so no descendant can bind its port. Its lock ends too.
    let ([confinement, link, requests], _held) =
        channel::descriptors_and_others(stdin()).map_err(SupervisorError::at("confinement"))?;
    let confinement: Confinement =
        read_instructions(confinement).map_err(SupervisorError::at("confinement"))?;
    if stdio == StdioMode::Pipes {
        // Without pipes, these are shared devices.
        give(stdout(), confinement.user).map_err(SupervisorError::at("stdout"))?;
        give(stderr(), confinement.user).map_err(SupervisorError::at("stderr"))?;
    }
    if matches!(
        confinement.mechanism,
        Mechanism::Namespaces | Mechanism::Landlock
    ) {
        user::drop_groups().map_err(SupervisorError::at("groups"))?;
    }
    if confinement.mechanism == Mechanism::Namespaces {
        return run_outer(gateway, stdio, program, args, &confinement, link, requests);
    }
    drop(link);
    drop(requests);
    exec::detach()?;
    let (_link, channel) = receive_channel(stdio)?;
    let supervisor =
        Supervisor::start(ParentProcess::open(gateway)?, channel, stdio, program, args)?;
    Ok(supervisor.run()?.exit_code())
}

/// Runs the init process of a PID namespace: the supervisor of the child inside of its namespaces.
pub(super) fn run_init(
    user: Option<u32>,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    namespaces::complete(&Confinement {
        user,
        ..Confinement::default()
    })?;
    exec::detach()?;
    let (link, channel) = receive_channel(stdio)?;
    let supervisor =
        Supervisor::start(ParentProcess::outside(link), channel, stdio, program, args)?;
    supervisor.run()?;
    Ok(ExitCode::SUCCESS)
}

/// Receives the link to the outer supervisor. With pipes, also receives the channel for terminal requests of the
/// gateway.
fn receive_channel(stdio: StdioMode) -> Result<(OwnedFd, Channel), SupervisorError> {
    let received = match stdio {
        StdioMode::Pipes => channel::descriptors(stdin())
            .map(|[link, requests]| (link, Channel::TerminalRequests(Some(requests)))),
        StdioMode::Pty => {
            channel::descriptors(stdin()).map(|[link]| (link, Channel::TerminalRequests(None)))
        }
    };
    received.map_err(SupervisorError::at("terminal requests"))
}

/// Runs the supervisor of a terminal, as a child of the agent's supervisor.
pub(super) fn run_terminal(supervisor: Pid) -> Result<ExitCode, SupervisorError> {
    exec::detach()?;
    let parent = ParentProcess::open(supervisor)?;
    let [socket, spec] = channel::descriptors(stdin()).map_err(SupervisorError::at("terminal"))?;
    let spec: TerminalSpec = read_instructions(spec).map_err(SupervisorError::at("terminal"))?;
    let args: Vec<OsString> = spec.args.iter().map(OsString::from).collect();
    let channel = Channel::Terminal {
        socket,
        reported: false,
    };
    let program = OsStr::new(&spec.command);
    let supervisor = Supervisor::start(parent, channel, StdioMode::Pipes, program, &args)?;
    Ok(supervisor.run()?.exit_code())
}

/// Starts the stage that becomes the program, as the leader of its own process group. In a pseudo terminal it
/// leads a session, which includes a group. It becomes the program in its own environment.
fn start(stdio: StdioMode, program: &OsStr, args: &[OsString]) -> io::Result<Pid> {
    let mut command = stdio.stage_command("exec");
    if stdio == StdioMode::Pipes {
        command.process_group(0);
    }
    let own = getpid().as_raw_pid().to_string();
    let child = command.arg(own).arg(program).args(args).spawn()?;
    Ok(Pid::from_child(&child))
}

struct Supervisor {
    signals: Signals,
    /// The gateway, the supervisor outside of the namespaces, or the agent's supervisor of a terminal.
    parent: ParentProcess,
    channel: Channel,
    child: Pid,
    /// The wait status of the child after the supervisor has reaped it. Until then no other process can have its pid.
    status: Option<WaitStatus>,
}

/// The result of a poll, without signals.
#[derive(Default)]
struct PollEvents {
    parent_ended: bool,
    channel_readable: bool,
}

impl Supervisor {
    fn start(
        parent: ParentProcess,
        channel: Channel,
        stdio: StdioMode,
        program: &OsStr,
        args: &[OsString],
    ) -> Result<Self, SupervisorError> {
        let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
        let child = start(stdio, program, args).map_err(SupervisorError::at("start"))?;
        Ok(Self {
            signals,
            parent,
            channel,
            child,
            status: None,
        })
    }

    /// Returns how the child ended, after the end of all its descendants.
    fn run(mut self) -> Result<Ended, SupervisorError> {
        // The child exists, so an error must not return before the child is killed.
        let released = exec::release_stdio();
        if released.is_ok() {
            self.watch();
        }
        self.kill_all();
        if let Some(status) = self.status {
            self.channel.stays_after_exit(status);
            if let Some(link) = self.parent.link() {
                write_line(link, &Ended::from(Some(status)));
            }
        }
        released.map(|()| Ended::from(self.status))
    }

    /// Returns when the remaining processes must be killed.
    fn watch(&mut self) {
        loop {
            let remaining = self.reap();
            if let Some(status) = self.status
                && (!self.channel.stays_after_exit(status) || remaining == Remaining::None)
            {
                return;
            }
            let events = self.poll_events();
            if events.parent_ended
                || !self.parent.is_alive()
                || (events.channel_readable && self.channel.handle_request())
            {
                return;
            }
            match self.signals.request() {
                Request::Kill => return,
                Request::Terminate if self.status.is_none() => self.forward_term(),
                Request::Terminate | Request::Continue => {}
            }
        }
    }

    /// Waits for a signal, the end of the parent, a message, or a timeout.
    fn poll_events(&self) -> PollEvents {
        let mut watched = self.signals.poll_fds();
        let first_parent = watched.len();
        watched.extend(self.parent.poll_fd());
        let first_channel = watched.len();
        watched.extend(self.channel.poll_fd());
        // An interrupted poll is equivalent to a timeout: the loop checks everything after it.
        if poll(&mut watched, Some(&PARENT_CHECK)).is_err() {
            return PollEvents::default();
        }
        PollEvents {
            parent_ended: any_event(&watched[first_parent..first_channel]),
            channel_readable: any_event(&watched[first_channel..]),
        }
    }

    /// The child is not reaped yet, so no other process can have its pid or group.
    fn forward_term(&self) {
        if kill_process_group(self.child, Signal::TERM).is_err() {
            // The child has changed its group or has ended. The next iteration detects the latter.
            kill_process(self.child, Signal::TERM).unwrap_or_default();
        }
    }

    /// Kills the children repeatedly, because each orphan becomes a child of this process. A process is
    /// killed before it is reaped, so its pid is still valid.
    fn kill_all(&mut self) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        while self.reap() == Remaining::Some && Instant::now() < deadline {
            for child in procfs::own_children() {
                kill_process(child, Signal::KILL).unwrap_or_default();
            }
            self.signals.wait_for_child(&KILL_ROUND);
        }
    }

    /// Reaps ended processes, the child among them.
    fn reap(&mut self) -> Remaining {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Remaining::Some,
                Err(_) => return Remaining::None,
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Remaining {
    Some,
    None,
}

/// The time for one request of the gateway after its first byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the supervisor of a child in its own namespaces.
pub(super) fn run_outer(
    gateway: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
    confinement: &Confinement,
    init_link: OwnedFd,
    requests: OwnedFd,
) -> Result<ExitCode, SupervisorError> {
    let mounts = namespaces::enter(confinement)?;
    exec::detach()?;
    let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
    let gateway = ParentProcess::open(gateway)?;
    let requests = UnixStream::from(requests);
    let limited = requests.set_read_timeout(Some(REQUEST_TIMEOUT));
    limited.map_err(SupervisorError::at("folder requests"))?;
    let init = start_init(confinement.user, stdio, program, args)
        .map_err(SupervisorError::at("init process"))?;
    let mut outer = Outer {
        signals,
        gateway,
        init,
        mounts,
        requests: Some(BufReader::new(requests)),
    };
    // The init process exists, so an error must not return before the init process is killed.
    let released = exec::release_stdio();
    let status = released.as_ref().ok().and_then(|()| outer.watch());
    let status = status.or_else(|| outer.kill_init());
    released.map(|()| reported_exit(UnixStream::from(init_link), status))
}

fn start_init(
    user: Option<u32>,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> io::Result<Pid> {
    let user = user.map_or_else(|| "-".to_owned(), |user| user.to_string());
    let mut command = stdio.stage_command("init");
    let init = command.arg(user).arg(program).args(args).spawn()?;
    Ok(Pid::from_child(&init))
}

struct Outer {
    signals: Signals,
    gateway: ParentProcess,
    init: Pid,
    mounts: Mounts,
    /// Requests for folders. `None` after the gateway has closed them.
    requests: Option<BufReader<UnixStream>>,
}

impl Outer {
    /// Returns the status of the init process after its end, or `None` if it must be killed.
    fn watch(&mut self) -> Option<WaitStatus> {
        loop {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            let requested = self.wait_for_events();
            match self.signals.request() {
                Request::Continue if self.gateway.is_alive() => {}
                Request::Terminate if self.gateway.is_alive() => {
                    kill_process(self.init, Signal::TERM).unwrap_or_default();
                }
                _ => return self.reap(),
            }
            if requested {
                self.serve_request();
            }
        }
    }

    /// Waits for a signal, the end of the gateway, a request, or a timeout. Returns whether there is a request.
    fn wait_for_events(&self) -> bool {
        let mut watched = self.signals.poll_fds();
        watched.extend(self.gateway.poll_fd());
        let first_request = watched.len();
        let requests = self.requests.as_ref().map(BufReader::get_ref);
        watched.extend(requests.map(|socket| PollFd::new(socket, PollFlags::IN)));
        // An interrupted poll is equivalent to a timeout: the loop checks everything after it.
        poll(&mut watched, Some(&PARENT_CHECK)).is_ok() && any_event(&watched[first_request..])
    }

    /// Mounts the requested folders and answers.
    fn serve_request(&mut self) {
        let Some(socket) = &mut self.requests else {
            return;
        };
        let mut line = String::new();
        if !matches!(socket.read_line(&mut line), Ok(read) if read > 0) {
            self.requests = None;
            return;
        }
        let request = serde_json::from_str::<GrantRequest>(&line).map_err(io::Error::from);
        let granted = request.and_then(|request| {
            let mut folders = request.folders.iter();
            folders.try_for_each(|folder| self.mounts.grant(folder))
        });
        let answer = match granted {
            Ok(()) => GRANTED_LINE.to_owned(),
            Err(error) => error_line(&error),
        };
        if socket.get_mut().write_all(answer.as_bytes()).is_err() {
            self.requests = None;
        }
    }

    /// The kernel kills all other processes of the namespace with the init process.
    fn kill_init(&mut self) -> Option<WaitStatus> {
        kill_process(self.init, Signal::KILL).unwrap_or_default();
        let deadline = Instant::now() + KILL_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            let limit = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            self.signals.wait_for_child(&limit);
        }
        None
    }

    /// The init process is the only child: it adopts all orphans of the namespace.
    fn reap(&self) -> Option<WaitStatus> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.init => return Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Exits as the child exited. The init process reported it before its own end, because the kernel does not let it
/// end by a signal that it sends to itself.
fn reported_exit(mut link: UnixStream, status: Option<WaitStatus>) -> ExitCode {
    let mut report = String::new();
    let read = link.set_nonblocking(true);
    let read = read.and_then(|()| link.read_to_string(&mut report));
    match Ended::parse(&report) {
        Some(ended) if read.is_ok() => ended.exit_code(),
        _ => Ended::from(status).exit_code(),
    }
}
