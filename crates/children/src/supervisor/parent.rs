//! The process with which a supervisor ends.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal,
};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;

use super::error::SupervisorError;

/// The gateway, or another supervisor.
#[derive(Debug)]
pub(super) struct ParentProcess {
    /// `None` in a PID namespace, in which the parent has no pid.
    pid: Option<Pid>,
    /// Readable after its end: a pidfd or a socket. `None` on kernels without pidfd.
    end: Option<OwnedFd>,
}

impl ParentProcess {
    /// Opens the pidfd before the check of the parent. Therefore it never refers to a later process with the same pid.
    pub(super) fn open(pid: Pid) -> Result<Self, SupervisorError> {
        // A child with the rights of this process can suspend it, and it would then outlive its parent. The kernel also
        // sends the signal at the end of a thread of the parent, where it has no effect.
        set_parent_process_death_signal(Some(Signal::CONT))
            .map_err(SupervisorError::at("death signal"))?;
        let parent = Self {
            pid: Some(pid),
            end: pidfd_open(pid, PidfdFlags::empty()).ok(),
        };
        if parent.is_alive() {
            Ok(parent)
        } else {
            Err(SupervisorError::other("gateway", "it has ended"))
        }
    }

    /// The parent outside of the PID namespace of this process. It holds the other end of the socket.
    pub(super) fn outside(link: OwnedFd) -> Self {
        Self {
            pid: None,
            end: Some(link),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.pid.is_none_or(|pid| getppid() == Some(pid)) && !self.has_end_event()
    }

    fn has_end_event(&self) -> bool {
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let polled = self.poll_fd().map(|end| poll(&mut [end], Some(&at_once)));
        polled.is_some_and(|ready| ready.is_ok_and(|ready| ready > 0))
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.end.as_ref().map(|end| PollFd::new(end, PollFlags::IN))
    }

    /// The socket to a parent outside of the PID namespace.
    pub(super) fn link(&self) -> Option<&OwnedFd> {
        match self.pid {
            None => self.end.as_ref(),
            Some(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Signals {
    terminate: UnixStream,
    kill: UnixStream,
    child: UnixStream,
    is_terminated: bool,
}

/// The request that the received signals express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Continue,
    /// The first signal to terminate.
    Terminate,
    Kill,
}

impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: socket_of(&[SIGTERM, SIGINT, SIGHUP])?,
            kill: socket_of(&[SIGQUIT])?,
            child: socket_of(&[SIGCHLD])?,
            is_terminated: false,
        })
    }

    /// The request of the signals since the last call. A second signal to terminate kills.
    pub(super) fn request(&mut self) -> Request {
        drain(&self.child);
        if drain(&self.kill) > 0 {
            return Request::Kill;
        }
        match drain(&self.terminate) {
            0 => Request::Continue,
            1 if !std::mem::replace(&mut self.is_terminated, true) => Request::Terminate,
            _ => Request::Kill,
        }
    }

    pub(super) fn poll_fds(&self) -> Vec<PollFd<'_>> {
        [&self.terminate, &self.kill, &self.child]
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .into()
    }
    /// Waits for the end of a child, at most for `limit`.
    pub(super) fn wait_for_child(&self, limit: &Timespec) {
        let mut deaths = [PollFd::new(&self.child, PollFlags::IN)];
        poll(&mut deaths, Some(limit)).unwrap_or(0);
        drain(&self.child);
    }
}
pub(super) fn any_event(polled: &[PollFd<'_>]) -> bool {
    polled.iter().any(|one| !one.revents().is_empty())
}

fn socket_of(signals: &[i32]) -> io::Result<UnixStream> {
    let (readable, written) = UnixStream::pair()?;
    readable.set_nonblocking(true)?;
    for signal in signals {
        pipe::register(*signal, written.try_clone()?)?;
    }
    Ok(readable)
}

/// The number of signals since the last call.
fn drain(mut socket: &UnixStream) -> usize {
    let mut buffer = [0; 64];
    socket.read(&mut buffer).unwrap_or(0)
}
