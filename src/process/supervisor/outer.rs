//! The supervisor outside of the namespaces of an isolated child.
//!
//! It stays in the PID namespace of the gateway, so it can observe it. It forwards requests to the init process of the
//! child's PID namespace, which supervises the child. When the init process ends, the kernel kills all
//! processes of the namespace.
//!
//! It keeps descriptors of the hidden folders and mounts the folders of a session into the namespace when the gateway
//! requests it. It forwards TERM, and kills the init process to end the child.
//!
//! A process with PID 1 cannot end by its own signal. It therefore reports the program's exit over a socket, and this
//! supervisor exits in the same way. The program's PID in the gateway's namespace comes from the credentials of its
//! start report.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use super::error::SupervisorError;
use super::exec::StdioMode;
use super::mounts::Mounts;
use super::parent::ParentProcess;
use super::signals::{self, Signals};
use super::{detach, exit, namespaces};
use crate::process::isolation::{Confinement, GRANTED_LINE, GrantRequest, error_line};

/// The interval of the check whether the gateway still exists.
const GATEWAY_CHECK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// The kernel needs milliseconds to kill a PID namespace, unless a process hangs in it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for one request of the gateway after its first byte.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the supervisor of a child in its own namespaces.
pub(super) fn run(
    gateway: Pid,
    (stdio, program, args): (StdioMode, &OsStr, &[OsString]),
    confinement: &Confinement,
    (init_link, requests): (OwnedFd, OwnedFd),
) -> Result<ExitCode, SupervisorError> {
    let mounts = namespaces::enter(confinement)?;
    detach::prepare()?;
    let signals = Signals::register().map_err(SupervisorError::at("signals"))?;
    let gateway = ParentProcess::open(gateway)?;
    let requests = UnixStream::from(requests);
    requests
        .set_read_timeout(Some(REQUEST_TIMEOUT))
        .map_err(SupervisorError::at("folder requests"))?;
    let init = start_init(confinement.user, stdio, program, args)
        .map_err(SupervisorError::at("init process"))?;
    let requests = Some(BufReader::new(requests));
    let mut outer = Outer {
        signals,
        gateway,
        init,
        mounts,
        requests,
    };
    // The init process exists, so the exit goes through its kill.
    let released = detach::release_stdio();
    let status = if released.is_ok() {
        outer.watch()
    } else {
        None
    };
    let status = status.or_else(|| outer.kill_init());
    released.map(|()| reported_exit(UnixStream::from(init_link), status))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the supervisor starts the init process of its child"
)]
fn start_init(
    user: Option<u32>,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> std::io::Result<Pid> {
    let stage = match stdio {
        StdioMode::Pipes => "init",
        StdioMode::Pty => "init-pty",
    };
    let user = user.map_or_else(|| "-".to_owned(), |user| user.to_string());
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("acp-gateway")
        .arg("supervisor")
        .arg(stage)
        .arg(user)
        .arg(program)
        .args(args);
    let init = command.spawn()?;
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
        let mut received = 0;
        loop {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            let requested = self.wait_for_events();
            signals::drain(&self.signals.child);
            if !self.gateway.is_alive() || signals::drain(&self.signals.kill) > 0 {
                return self.reap();
            }
            let terms = signals::drain(&self.signals.terminate);
            if terms > 0 && received == 0 {
                kill_process(self.init, Signal::TERM).unwrap_or_default();
            }
            received += terms;
            if received > 1 {
                return self.reap();
            }
            if requested {
                self.serve_request();
            }
        }
    }

    /// Waits for a signal, the end of the gateway, a request, or a timeout. Returns whether there is a request.
    fn wait_for_events(&self) -> bool {
        let signals = &self.signals;
        let mut watched = vec![
            PollFd::new(&signals.terminate, PollFlags::IN),
            PollFd::new(&signals.kill, PollFlags::IN),
            PollFd::new(&signals.child, PollFlags::IN),
        ];
        watched.extend(self.gateway.poll_fd());
        let first_request = watched.len();
        watched.extend(
            self.requests
                .iter()
                .map(|socket| PollFd::new(socket.get_ref(), PollFlags::IN)),
        );
        // An interrupted poll is equivalent to a timeout: the loop checks everything after it.
        let polled = poll(&mut watched, Some(&GATEWAY_CHECK)).is_ok();
        polled
            && watched[first_request..]
                .iter()
                .any(|one| !one.revents().is_empty())
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
        let granted = serde_json::from_str::<GrantRequest>(&line)
            .map_err(std::io::Error::from)
            .and_then(|request| {
                request
                    .folders
                    .iter()
                    .try_for_each(|folder| self.mounts.grant(folder))
            });
        let answer = granted.map_or_else(|error| error_line(&error), |()| GRANTED_LINE.to_owned());
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
            poll(
                &mut [PollFd::new(&self.signals.child, PollFlags::IN)],
                Some(&limit),
            )
            .unwrap_or(0);
            signals::drain(&self.signals.child);
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
    let read = link
        .set_nonblocking(true)
        .and_then(|()| link.read_to_string(&mut report));
    match exit::parse(&report) {
        Some(ended) if read.is_ok() => ended.exit_code(),
        _ => exit::Ended::from(status).exit_code(),
    }
}
