//! A child in a pseudo terminal: its end is stdin, stdout and stderr, and the gateway's end is a stream of
//! bytes in each direction.
//!
//! The child and its descendants hold the terminal, and the gateway holds the other end. The kernel hangs the
//! terminal up when the reader, the writer and the child are dropped. Reading ends when the last process has
//! closed the terminal.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, ioctl_fionbio};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use super::exit::{Exit, KillSwitch, StopRequest};

/// The terminal type of the program. Terminals in browsers support it.
pub(super) const TERM: &str = "xterm-256color";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PtySize {
    pub cols: u16,
    pub rows: u16,
}

impl Default for PtySize {
    fn default() -> Self {
        Self { cols: 80, rows: 24 }
    }
}

impl From<PtySize> for Winsize {
    fn from(PtySize { cols, rows }: PtySize) -> Self {
        Self {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        }
    }
}

/// The gateway's end, duplicated for each use.
#[derive(Debug)]
pub(super) struct Pty {
    pub(super) reader: PtyReader,
    pub(super) writer: PtyWriter,
    pub(super) size: OwnedFd,
}

impl Pty {
    /// Opens a pseudo terminal. Returns the gateway's end and the child's end.
    pub(super) fn open(size: PtySize) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        tcsetwinsize(&ours, size.into())?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        ioctl_fionbio(&ours, true)?;
        // A terminal is polled like a pipe.
        let reader = PtyReader(pipe::Receiver::from_owned_fd_unchecked(ours.try_clone()?)?);
        let writer = PtyWriter(pipe::Sender::from_owned_fd_unchecked(ours.try_clone()?)?);
        let pty = Self {
            reader,
            writer,
            size: ours,
        };
        Ok((pty, theirs))
    }
}

/// A program in a pseudo terminal. Dropping it requests a stop, which runs in the background.
#[derive(Debug)]
pub struct PtyChild {
    /// The program's own pid, for people.
    pub pid: u32,
    /// The output of the program. It ends when the program and all its descendants have closed the terminal.
    pub reader: Option<PtyReader>,
    pub writer: Option<PtyWriter>,
    pub(super) size: OwnedFd,
    pub(super) kill_switch: KillSwitch,
}
impl PtyChild {
    /// Notifies the program of a new window size.
    pub fn resize(&self, size: PtySize) -> io::Result<()> {
        Ok(tcsetwinsize(&self.size, size.into())?)
    }

    pub async fn exited(&self) -> Exit {
        self.kill_switch.exited().await
    }

    /// Stops the program and waits for its end: TERM, then KILL by the supervisor. The stop continues if the
    /// caller stops waiting.
    pub async fn stop(&self) -> Exit {
        self.kill_switch.request(StopRequest::Terminate);
        self.exited().await
    }
}

const EIO: i32 = Errno::IO.raw_os_error();
#[derive(Debug)]
pub struct PtyReader(pipe::Receiver);

impl AsyncRead for PtyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(cx, buf)) {
            // The kernel reports EIO when no process holds the terminal any more.
            Err(error) if error.raw_os_error() == Some(EIO) => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome),
        }
    }
}

/// A terminal has no end of input, so shutdown does nothing. A user types the end of input.
#[derive(Debug)]
pub struct PtyWriter(pipe::Sender);

impl AsyncWrite for PtyWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
