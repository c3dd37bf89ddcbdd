//! The life of a supervisor: starts the child, watches it and the gateway, and kills all descendants at the end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, wait,
};
use rustix::stdio::{stderr, stdin, stdout};

use super::channel::{Channel, write_line};
use super::error::SupervisorError;
use super::exec::StdioMode;
use super::exit::Ended;
use super::parent::ParentProcess;
use super::signals::{self, Signals};
use super::{detach, namespaces, outer, receive, user};
use crate::process::isolation::{Confinement, give};
use crate::process::terminal::TerminalSpec;
use crate::process::{procfs, report};
use crate::types::Mechanism;

/// The interval of the check whether the parent still exists, also on kernels without pidfd.
const PARENT_CHECK_SECONDS: i64 = 5;

/// A process that survives KILL for this long hangs in the kernel. The supervisor gives up.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two rounds of KILL without a SIGCHLD.
const KILL_ROUND_NANOSECONDS: i64 = 5_000_000;

/// Runs the supervisor of the child that becomes `program`.
pub(super) fn run(
    gateway: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    // The listeners of the gateway close with this process, so no descendant can bind its port. Its lock ends too.
    let ([confinement, link, requests], _held) =
        receive::descriptors_and_others(stdin()).map_err(SupervisorError::at("confinement"))?;
    let confinement = Confinement::read(confinement).map_err(SupervisorError::at("confinement"))?;
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
        return outer::run(
            gateway,
            (stdio, program, args),
            &confinement,
            (link, requests),
        );
    }
    drop((link, requests));
    detach::prepare()?;
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
    detach::prepare()?;
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
        StdioMode::Pipes => receive::descriptors(stdin())
            .map(|[link, requests]| (link, Channel::TerminalRequests(Some(requests)))),
        StdioMode::Pty => receive::descriptors(stdin()).map(|[link]| (link, Channel::none())),
    };
    received.map_err(SupervisorError::at("terminal requests"))
}

/// Runs the supervisor of a terminal, as a child of the agent's supervisor.
pub(super) fn run_terminal(supervisor: Pid) -> Result<ExitCode, SupervisorError> {
    detach::prepare()?;
    let parent = ParentProcess::open(supervisor)?;
    let [socket, spec] = receive::descriptors(stdin()).map_err(SupervisorError::at("terminal"))?;
    let spec = TerminalSpec::read(spec).map_err(SupervisorError::at("terminal"))?;
    let args: Vec<OsString> = spec.args.iter().map(OsString::from).collect();
    let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
    let child = start(StdioMode::Pipes, OsStr::new(&spec.command), &args);
    let child = child.map_err(SupervisorError::at("start"))?;
    let channel = Channel::Terminal {
        socket,
        reported: false,
    };
    Ok(Supervisor {
        signals,
        parent,
        channel,
        child,
        status: None,
    }
    .run()?
    .exit_code())
}

/// Starts the stage that becomes the program, as the leader of its own process group. In a pseudo terminal it
/// leads a session, which includes a group. `/proc/self/exe` names the running file also after its
/// replacement on disk. It becomes the program in its own environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the supervisor starts its one child"
)]
fn start(stdio: StdioMode, program: &OsStr, args: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("supervisor");
    match stdio {
        StdioMode::Pipes => command.arg("exec").process_group(0),
        StdioMode::Pty => command.arg("exec-pty"),
    };
    let child = command
        .arg(getpid().as_raw_pid().to_string())
        .arg(program)
        .args(args)
        .spawn()?;
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
    /// Starts the program.
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
        // The child exists, so the exit goes through its kill.
        let released = detach::release_stdio();
        if released.is_ok() {
            self.watch();
        }
        self.kill_all();
        if let Some(status) = self.status {
            self.channel.stays_after_exit(status);
            if let Some(link) = self.parent.link() {
                write_line(link, &report::exit_line(status));
            }
        }
        released.map(|()| Ended::from(self.status))
    }

    /// Returns when the remaining processes must be killed.
    fn watch(&mut self) {
        let mut received = 0;
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
            signals::drain(&self.signals.child);
            if signals::drain(&self.signals.kill) > 0 {
                return;
            }
            let terms = signals::drain(&self.signals.terminate);
            if terms > 0 && received == 0 && self.status.is_none() {
                self.forward_term();
            }
            received += terms;
            if received > 1 {
                return;
            }
        }
    }

    /// Waits for a signal, the end of the parent, a message, or a timeout.
    fn poll_events(&self) -> PollEvents {
        let signals = &self.signals;
        let limit = Timespec {
            tv_sec: PARENT_CHECK_SECONDS,
            tv_nsec: 0,
        };
        let mut watched = vec![
            PollFd::new(&signals.terminate, PollFlags::IN),
            PollFd::new(&signals.kill, PollFlags::IN),
            PollFd::new(&signals.child, PollFlags::IN),
        ];
        let first_parent = watched.len();
        watched.extend(self.parent.poll_fd());
        let first_channel = watched.len();
        watched.extend(self.channel.poll_fd());
        // An interrupted poll is equivalent to a timeout: the loop checks everything after it.
        if poll(&mut watched, Some(&limit)).is_err() {
            return PollEvents::default();
        }
        let any = |polled: &[PollFd<'_>]| polled.iter().any(|one| !one.revents().is_empty());
        PollEvents {
            parent_ended: any(&watched[first_parent..first_channel]),
            channel_readable: any(&watched[first_channel..]),
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
            let limit = Timespec {
                tv_sec: 0,
                tv_nsec: KILL_ROUND_NANOSECONDS,
            };
            let mut deaths = [PollFd::new(&self.signals.child, PollFlags::IN)];
            poll(&mut deaths, Some(&limit)).unwrap_or(0);
            signals::drain(&self.signals.child);
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
