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
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, chdir, getpid, getppid, kill_process,
    kill_process_group, pidfd_open, wait,
};
use rustix::stdio::stdin;
use signal_hook::low_level::emulate_default_handler;

use super::channel::{Channel, write_report};
use super::error::{EXIT_SETUP_FAILED, SupervisorError};
use super::exec::StdioMode;
use super::signals::{self, Signals};
use super::{detach, receive};
use crate::process::terminal::TerminalSpec;
use crate::process::{procfs, report};

/// The interval of the check whether the parent still exists, also on kernels without pidfd.
const PARENT_CHECK_SECONDS: i64 = 5;

/// A process that survives KILL for this long hangs in the kernel. The supervisor gives up.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two rounds of KILL without a SIGCHLD.
const KILL_ROUND_NANOSECONDS: i64 = 5_000_000;

/// The base of a shell's exit codes for signals, for signals that a process cannot send to itself.
const SIGNAL_CODE_BASE: i32 = 128;

/// Runs the supervisor of the child that becomes `program`.
pub(super) fn run(
    gateway: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    detach::prepare()?;
    let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
    let gateway = ParentProcess::open(gateway)?;
    let channel = match stdio {
        StdioMode::Pipes => {
            let [requests] =
                receive::descriptors(stdin()).map_err(SupervisorError::at("terminal requests"))?;
            Channel::TerminalRequests(Some(requests))
        }
        StdioMode::Pty => Channel::none(),
    };
    let child = start(stdio, &[], program, args).map_err(SupervisorError::at("start"))?;
    Supervisor { signals, parent: gateway, channel, child, status: None }.run()
}

/// Runs the supervisor of a terminal, as a child of the agent's supervisor.
pub(super) fn run_terminal(supervisor: Pid) -> Result<ExitCode, SupervisorError> {
    detach::prepare()?;
    let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
    let gateway = ParentProcess::open(supervisor)?;
    let [socket, spec] = receive::descriptors(stdin()).map_err(SupervisorError::at("terminal"))?;
    let spec = TerminalSpec::read(spec).map_err(SupervisorError::at("terminal"))?;
    if let Err(errno) = chdir(&spec.cwd) {
        write_report(&report::no_directory_line(errno.raw_os_error()));
        return Ok(ExitCode::from(EXIT_SETUP_FAILED));
    }
    let args: Vec<OsString> = spec.args.iter().map(OsString::from).collect();
    let child = start(StdioMode::Pipes, &spec.env, OsStr::new(&spec.command), &args);
    let child = child.map_err(SupervisorError::at("start"))?;
    let channel = Channel::Terminal { socket, reported: false };
    Supervisor { signals, parent: gateway, channel, child, status: None }.run()
}

/// The process that this supervisor belongs to.
struct ParentProcess {
    pid: Pid,
    /// Readable after its end. `None` on kernels without pidfd.
    pidfd: Option<OwnedFd>,
}

impl ParentProcess {
    /// Opens the pidfd before the check of the parent. Therefore it never refers to a later process with the same pid.
    fn open(pid: Pid) -> Result<Self, SupervisorError> {
        let gateway = Self { pid, pidfd: pidfd_open(pid, PidfdFlags::empty()).ok() };
        if gateway.is_parent() {
            Ok(gateway)
        } else {
            Err(SupervisorError { step: "gateway", source: io::Error::other("it has ended") })
        }
    }

    fn is_parent(&self) -> bool {
        getppid() == Some(self.pid)
    }
}

/// Starts the stage that becomes the program, as the leader of its own process group. In a pseudo terminal it
/// leads a session, which includes a group. `/proc/self/exe` names the running file also after its
/// replacement on disk.
#[expect(clippy::disallowed_methods, reason = "the supervisor starts its one child")]
fn start(stdio: StdioMode, env: &[(String, String)], program: &OsStr, args: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    command.envs(env.iter().map(|(name, value)| (name, value))).arg("supervisor");
    match stdio {
        StdioMode::Pipes => command.arg("exec").process_group(0),
        StdioMode::Pty => command.arg("exec-pty"),
    };
    let child = command.arg(getpid().as_raw_pid().to_string()).arg(program).args(args).spawn()?;
    Ok(Pid::from_child(&child))
}

struct Supervisor {
    signals: Signals,
    /// The gateway, or the agent's supervisor in the supervisor of a terminal.
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
    fn run(mut self) -> Result<ExitCode, SupervisorError> {
        // The child exists, so the exit goes through its kill.
        let released = detach::release_stdio();
        if released.is_ok() {
            self.watch();
        }
        self.kill_all();
        if let Some(status) = self.status {
            self.channel.stays_after_exit(status);
        }
        released.map(|()| self.exit_code())
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
                || !self.parent.is_parent()
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
        let limit = Timespec { tv_sec: PARENT_CHECK_SECONDS, tv_nsec: 0 };
        let mut watched = vec![
            PollFd::new(&signals.terminate, PollFlags::IN),
            PollFd::new(&signals.kill, PollFlags::IN),
            PollFd::new(&signals.child, PollFlags::IN),
        ];
        let first_parent = watched.len();
        watched.extend(self.parent.pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
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
            let limit = Timespec { tv_sec: 0, tv_nsec: KILL_ROUND_NANOSECONDS };
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

    /// Exits as the child exited. The core limit is zero, so no core file is written.
    fn exit_code(&self) -> ExitCode {
        let Some(status) = self.status else { return ExitCode::from(EXIT_SETUP_FAILED) };
        if let Some(signal) = status.terminating_signal() {
            // Returns only for signals that do not end a process by default.
            return match emulate_default_handler(signal) {
                Ok(()) | Err(_) => code(SIGNAL_CODE_BASE + signal),
            };
        }
        code(status.exit_status().unwrap_or(i32::from(EXIT_SETUP_FAILED)))
    }
}

#[derive(PartialEq, Eq)]
enum Remaining {
    Some,
    None,
}

fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(EXIT_SETUP_FAILED))
}
