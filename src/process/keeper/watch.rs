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

use super::channel::Channel;
use super::signals::{self, Signals};
use super::{FAILED, KeeperError, Way, detach, receive};
use crate::process::terminal::TerminalSpec;
use crate::process::{procfs, report};

/// The interval of the check whether the parent still exists, also on kernels without pidfd.
const LOOK_SECONDS: i64 = 5;

/// A process that survives KILL for this long hangs in the kernel. The supervisor gives up.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The time between two rounds of KILL without a SIGCHLD.
const ROUND_NANOSECONDS: i64 = 5_000_000;

/// The base of a shell's exit codes for signals, for signals that a process cannot send to itself.
const SIGNAL_CODE: i32 = 128;

/// Runs the supervisor of the child that becomes `program`.
pub(super) fn run(
    gateway: Pid,
    way: Way,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, KeeperError> {
    detach::prepare()?;
    let signals = Signals::register().map_err(KeeperError::at("signals"))?;
    let gateway = Gateway::hold(gateway)?;
    let channel = match way {
        Way::Pipes => {
            let [orders] = receive::descriptors(stdin()).map_err(KeeperError::at("orders"))?;
            Channel::Orders(Some(orders))
        }
        Way::Pty => Channel::none(),
    };
    let child = start(way, &[], program, args).map_err(KeeperError::at("start"))?;
    Keeper { signals, gateway, channel, child, status: None }.keep()
}

/// Runs the supervisor of a terminal, as a child of the agent's supervisor.
pub(super) fn terminal(keeper: Pid) -> Result<ExitCode, KeeperError> {
    detach::prepare()?;
    let signals = Signals::register().map_err(KeeperError::at("signals"))?;
    let gateway = Gateway::hold(keeper)?;
    let [line, spec] = receive::descriptors(stdin()).map_err(KeeperError::at("terminal"))?;
    let spec = TerminalSpec::read(spec).map_err(KeeperError::at("terminal"))?;
    if let Err(errno) = chdir(&spec.cwd) {
        super::say(&report::no_folder_line(errno.raw_os_error()));
        return Ok(ExitCode::from(FAILED));
    }
    let args: Vec<OsString> = spec.args.iter().map(OsString::from).collect();
    let child = start(Way::Pipes, &spec.env, OsStr::new(&spec.command), &args);
    let child = child.map_err(KeeperError::at("start"))?;
    let channel = Channel::Hold { line, told: false };
    Keeper { signals, gateway, channel, child, status: None }.keep()
}

/// The process that this supervisor belongs to.
struct Gateway {
    pid: Pid,
    /// Readable after its end. `None` on kernels without pidfd.
    hold: Option<OwnedFd>,
}

impl Gateway {
    /// Opens the pidfd before the check of the parent. Therefore it never refers to a later process with the same pid.
    fn hold(pid: Pid) -> Result<Self, KeeperError> {
        let gateway = Self { pid, hold: pidfd_open(pid, PidfdFlags::empty()).ok() };
        if gateway.is_parent() {
            Ok(gateway)
        } else {
            Err(KeeperError { step: "gateway", source: io::Error::other("it has ended") })
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
fn start(way: Way, env: &[(String, String)], program: &OsStr, args: &[OsString]) -> io::Result<Pid> {
    let mut command = Command::new("/proc/self/exe");
    command.envs(env.iter().map(|(name, value)| (name, value))).arg("keeper");
    match way {
        Way::Pipes => command.arg("exec").process_group(0),
        Way::Pty => command.arg("exec-pty"),
    };
    let child = command.arg(getpid().as_raw_pid().to_string()).arg(program).args(args).spawn()?;
    Ok(Pid::from_child(&child))
}

struct Keeper {
    signals: Signals,
    /// The gateway, or the agent's supervisor in the supervisor of a terminal.
    gateway: Gateway,
    channel: Channel,
    child: Pid,
    /// The wait status of the child after the supervisor has reaped it. Until then no other process can have its pid.
    status: Option<WaitStatus>,
}

/// The result of a poll, without signals.
#[derive(Default)]
struct Woken {
    gateway_ended: bool,
    asked: bool,
}

impl Keeper {
    fn keep(mut self) -> Result<ExitCode, KeeperError> {
        // The child exists, so the exit goes through its kill.
        let released = detach::release_stdio();
        if released.is_ok() {
            self.watch();
        }
        self.kill_all();
        if let Some(status) = self.status {
            self.channel.outlasts(status);
        }
        released.map(|()| self.end())
    }

    /// Returns when the remaining processes must be killed.
    fn watch(&mut self) {
        let mut asked = 0;
        loop {
            let left = self.reap();
            if let Some(status) = self.status
                && (!self.channel.outlasts(status) || left == Left::None)
            {
                return;
            }
            let woken = self.sleep();
            if woken.gateway_ended || !self.gateway.is_parent() || (woken.asked && self.channel.heed()) {
                return;
            }
            signals::take(&self.signals.child);
            if signals::take(&self.signals.kill) > 0 {
                return;
            }
            let asks = signals::take(&self.signals.terminate);
            if asks > 0 && asked == 0 && self.status.is_none() {
                self.pass_on_term();
            }
            asked += asks;
            if asked > 1 {
                return;
            }
        }
    }

    /// Waits for a signal, the end of the parent, a message, or a timeout.
    fn sleep(&self) -> Woken {
        let signals = &self.signals;
        let limit = Timespec { tv_sec: LOOK_SECONDS, tv_nsec: 0 };
        let mut watched = vec![
            PollFd::new(&signals.terminate, PollFlags::IN),
            PollFd::new(&signals.kill, PollFlags::IN),
            PollFd::new(&signals.child, PollFlags::IN),
        ];
        let own = watched.len();
        watched.extend(self.gateway.hold.iter().map(|hold| PollFd::new(hold, PollFlags::IN)));
        let held = watched.len();
        watched.extend(self.channel.watched());
        // An interrupted poll is equivalent to a timeout: the loop checks everything after it.
        if poll(&mut watched, Some(&limit)).is_err() {
            return Woken::default();
        }
        let any = |polled: &[PollFd<'_>]| polled.iter().any(|one| !one.revents().is_empty());
        Woken { gateway_ended: any(&watched[own..held]), asked: any(&watched[held..]) }
    }

    /// The child is not reaped yet, so no other process can have its pid or group.
    fn pass_on_term(&self) {
        if kill_process_group(self.child, Signal::TERM).is_err() {
            // The child has changed its group or has ended. The next iteration detects the latter.
            kill_process(self.child, Signal::TERM).unwrap_or_default();
        }
    }

    /// Kills the children repeatedly, because each orphan becomes a child of this process. A process is
    /// killed before it is reaped, so its pid is still valid.
    fn kill_all(&mut self) {
        let deadline = Instant::now() + KILL_LIMIT;
        while self.reap() == Left::Some && Instant::now() < deadline {
            for child in procfs::own_children() {
                kill_process(child, Signal::KILL).unwrap_or_default();
            }
            let limit = Timespec { tv_sec: 0, tv_nsec: ROUND_NANOSECONDS };
            let mut deaths = [PollFd::new(&self.signals.child, PollFlags::IN)];
            poll(&mut deaths, Some(&limit)).unwrap_or(0);
            signals::take(&self.signals.child);
        }
    }

    /// Reaps ended processes, the child among them.
    fn reap(&mut self) -> Left {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.child => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Left::Some,
                Err(_) => return Left::None,
            }
        }
    }

    /// Exits as the child exited. The core limit is zero, so no core file is written.
    fn end(&self) -> ExitCode {
        let Some(status) = self.status else { return ExitCode::from(FAILED) };
        if let Some(signal) = status.terminating_signal() {
            // Returns only for signals that do not end a process by default.
            return match emulate_default_handler(signal) {
                Ok(()) | Err(_) => code(SIGNAL_CODE + signal),
            };
        }
        code(status.exit_status().unwrap_or(i32::from(FAILED)))
    }
}

#[derive(PartialEq, Eq)]
enum Left {
    Some,
    None,
}

fn code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(FAILED))
}
