//! Signals as readable sockets, so that one `poll` waits for all events.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::pipe;

#[derive(Debug)]
pub(super) struct Signals {
    pub(super) terminate: UnixStream,
    pub(super) kill: UnixStream,
    pub(super) child: UnixStream,
}

impl Signals {
    pub(super) fn register() -> io::Result<Self> {
        Ok(Self {
            terminate: socket_of(&[SIGTERM, SIGINT, SIGHUP])?,
            kill: socket_of(&[SIGQUIT])?,
            child: socket_of(&[SIGCHLD])?,
        })
    }
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
pub(super) fn drain(mut socket: &UnixStream) -> usize {
    let mut buffer = [0; 64];
    socket.read(&mut buffer).unwrap_or(0)
}
