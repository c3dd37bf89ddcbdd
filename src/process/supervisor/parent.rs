//! The process with which a supervisor ends.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal,
};

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
            Err(SupervisorError {
                step: "gateway",
                source: io::Error::other("it has ended"),
            })
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
        self.end.as_ref().filter(|_| self.pid.is_none())
    }
}
