//! What the gateway can still ask of a keeper whose child runs.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags};
use rustix::io::write;
use rustix::process::{WaitStatus, getpid};

use super::receive;
use crate::process::report;

/// A socket that lasts as long as the keeper.
#[derive(Debug)]
pub(super) enum Channel {
    /// Terminals to start beside the child. A gateway that has closed it asks for no more.
    TerminalRequests(Option<OwnedFd>),
    /// The gateway's hold on a terminal. When it lets go, or says anything, the terminal is killed.
    Terminal { socket: OwnedFd, reported: bool },
}

impl Channel {
    pub(super) const fn none() -> Self {
        Self::TerminalRequests(None)
    }

    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let socket = match self {
            Self::TerminalRequests(orders) => orders.as_ref()?,
            Self::Terminal { socket: line, .. } => line,
        };
        Some(PollFd::new(socket, PollFlags::IN))
    }

    /// Does what is asked; true: everything is to be killed.
    pub(super) fn handle_request(&mut self) -> bool {
        let Self::TerminalRequests(orders) = self else { return true };
        let Some(socket) = orders else { return false };
        match receive::descriptors(socket) {
            Ok([control, output]) => start_terminal(&control, output),
            Err(_closed) => *orders = None,
        }
        false
    }

    /// Whether a keeper stays on after its child's end, for what the child has left: a terminal does, so that a server
    /// which a command has put into the background lives until its terminal is let go. The end itself is told at once.
    pub(super) fn stays_after_exit(&mut self, status: WaitStatus) -> bool {
        let Self::Terminal { socket: line, reported: told } = self else { return false };
        if !*told {
            *told = true;
            write_line(line, &report::exit_line(status));
        }
        true
    }
}

/// A keeper of its own for the terminal: so all that it starts is known as its own, also what moves to another session
/// and loses its parent. It is a child of this keeper and ends with it. It has this process's user, limits and
/// environment.
#[expect(clippy::disallowed_methods, reason = "a keeper starts the keepers of its terminals")]
fn start_terminal(control: &OwnedFd, output: OwnedFd) {
    let started = control.try_clone().and_then(|stdin| {
        Command::new("/proc/self/exe")
            .arg0("acp-gateway")
            .arg("keeper")
            .arg("watch-terminal")
            .arg(getpid().as_raw_pid().to_string())
            .stdin(stdin)
            .stdout(output.try_clone()?)
            .stderr(Stdio::from(output))
            .spawn()
    });
    if let Err(error) = started {
        write_line(control, &report::setup_failed_line(&format!("a terminal's keeper: {error}")));
    }
}

/// When the gateway is gone nobody hears it, and the keeper is about to see it.
pub(super) fn write_line(socket: &OwnedFd, line: &str) {
    write(socket, line.as_bytes()).unwrap_or(0);
}
