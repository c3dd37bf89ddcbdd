//! The gateway's end of a starting child's control socket.
//!
//! std lets a child inherit three descriptors. The keeper needs a fourth, so the control socket stands
//! in for stdin and carries the real one: the last stage takes it out and puts it in its place.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;

use super::report::{self, Report};

/// More than a keeper ever says.
const MAX_REPORT_BYTES: u64 = 4096;

/// A control socket that already holds what the keeper takes for itself, and then the child's `stdin`; returns our end
/// and the keeper's.
pub(super) fn open_control_socket(own: &[BorrowedFd<'_>], stdin: impl AsFd) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    if !own.is_empty() {
        send_descriptors(&ours, own)?;
    }
    send_descriptors(&ours, &[stdin.as_fd()])?;
    Ok((ours, theirs))
}

/// Sends descriptors with one byte, which keeps messages apart; never waits.
pub(super) fn send_descriptors(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(b"0")], &mut control, flags)?;
    Ok(())
}

/// Waits until the keeper's side of the socket is closed, and reads what it said; `None` after `limit`.
pub(super) async fn read_report(ours: UnixStream, limit: Duration) -> io::Result<Option<Report>> {
    ours.set_nonblocking(true)?;
    let mut said = Vec::new();
    let mut socket = tokio::net::UnixStream::from_std(ours)?.take(MAX_REPORT_BYTES);
    match tokio::time::timeout(limit, socket.read_to_end(&mut said)).await {
        // A keeper that gave up before it took all that was sent resets the socket behind what it said.
        Ok(Err(error)) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) => Ok(Some(report::parse(&said))),
        Err(_) => Ok(None),
    }
}
