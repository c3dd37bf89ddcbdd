//! The requests that a supervisor still accepts while its child runs.

use std::fmt::Display;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::write;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{WaitStatus, getpid};
use rustix::stdio::stdin;

use super::stage::stage_command;
use crate::report::{Ended, Report};

/// A socket that is open as long as the supervisor runs.
#[derive(Debug)]
pub(super) enum Channel {
    /// Requests for terminals beside the child. `None` after the gateway has closed it.
    TerminalRequests(Option<OwnedFd>),
    /// The gateway's end of a terminal. Any message, or its close, kills the terminal.
    Terminal { socket: OwnedFd, reported: bool },
}

impl Channel {
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let socket = match self {
            Self::TerminalRequests(requests) => requests.as_ref()?,
            Self::Terminal { socket, .. } => socket,
        };
        Some(PollFd::new(socket, PollFlags::IN))
    }

    /// Handles a message. Returns true if the supervisor must kill everything.
    pub(super) fn handle_request(&mut self) -> bool {
        let Self::TerminalRequests(requests) = self else {
            return true;
        };
        let Some(socket) = requests else { return false };
        match descriptors(socket) {
            Ok([control, output]) => start_terminal(&control, output),
            Err(_closed) => *requests = None,
        }
        false
    }

    /// Reports the exit of the child. Returns true if the supervisor stays for the descendants: a server that
    /// a command started in the background lives until the gateway closes its terminal.
    pub(super) fn stays_after_exit(&mut self, status: WaitStatus) -> bool {
        let Self::Terminal { socket, reported } = self else {
            return false;
        };
        if !*reported {
            *reported = true;
            write_line(socket, &Ended::from(Some(status)));
        }
        true
    }
}

/// Starts a separate supervisor for the terminal. It identifies all descendants of the terminal, also those
/// that change their session and lose their parent. It is a child of this supervisor and ends with it. It
/// inherits this process's user, limits and environment.
fn start_terminal(control: &OwnedFd, output: OwnedFd) {
    let started = control.try_clone().and_then(|stdin| {
        stage_command("watch-terminal")
            .arg(getpid().as_raw_pid().to_string())
            .stdin(stdin)
            .stdout(output.try_clone()?)
            .stderr(Stdio::from(output))
            .spawn()
    });
    if let Err(error) = started {
        let text = format!("could not start the supervisor of a terminal: {error}");
        write_line(control, &Report::SetupFailed(text));
    }
}

/// The write fails only if the gateway has ended, which the supervisor detects by itself.
pub(super) fn write_line(socket: &OwnedFd, line: &impl Display) {
    write(socket, line.to_string().as_bytes()).unwrap_or(0);
}

/// Reports to the gateway over the control socket, which replaces stdin until the program starts. An error
/// means that the gateway has ended.
pub(super) fn write_report(report: &Report) {
    write(stdin(), report.to_string().as_bytes()).unwrap_or(0);
}

/// The messages were sent before this process started, so they arrive at once or never.
const RECEIVE_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Waits for the next message and returns the `N` descriptors that it carries.
pub(super) fn descriptors<const N: usize>(socket: impl AsFd) -> io::Result<[OwnedFd; N]> {
    let carried = all_descriptors(socket)?.try_into();
    carried.map_err(|_| io::ErrorKind::NotFound.into())
}

/// As [`descriptors`]. Further descriptors can follow.
pub(super) fn descriptors_and_others<const N: usize>(
    socket: impl AsFd,
) -> io::Result<([OwnedFd; N], Vec<OwnedFd>)> {
    let mut carried = all_descriptors(socket)?;
    let others = carried.split_off(N.min(carried.len()));
    let carried = carried.try_into();
    Ok((
        carried.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?,
        others,
    ))
}

fn all_descriptors(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut watched = [PollFd::new(&socket, PollFlags::IN)];
    if poll(&mut watched, Some(&RECEIVE_TIMEOUT))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    // Space for the largest message.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(&socket, &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let carried = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok(carried.flatten().collect())
}
