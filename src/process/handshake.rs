//! The gateway's end of a starting child's control socket.
//!
//! std lets a child inherit three descriptors. The supervisor needs a fourth one. Therefore the control
//! socket replaces stdin and carries the real stdin, which the last stage installs.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;

use super::report::{self, Report};

/// More than a supervisor ever writes.
const MAX_REPORT_BYTES: u64 = 4096;

/// Creates a control socket that already carries the supervisor's own descriptors, and then the child's
/// `stdin`. Returns the gateway's end and the supervisor's end.
pub(super) fn open_control_socket(
    own: &[BorrowedFd<'_>],
    stdin: impl AsFd,
) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    if !own.is_empty() {
        send_descriptors(&ours, own)?;
    }
    send_descriptors(&ours, &[stdin.as_fd()])?;
    Ok((ours, theirs))
}

/// Sends descriptors with one byte, which separates messages. Never blocks.
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

/// Reads the supervisor's report until it closes its end of the socket. Returns `None` after `limit`.
pub(super) async fn read_report(ours: UnixStream, limit: Duration) -> io::Result<Option<Report>> {
    ours.set_nonblocking(true)?;
    let mut said = Vec::new();
    let mut socket = tokio::net::UnixStream::from_std(ours)?.take(MAX_REPORT_BYTES);
    match tokio::time::timeout(limit, socket.read_to_end(&mut said)).await {
        // A supervisor that failed before it read all messages resets the socket after its report.
        Ok(Err(error)) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) => Ok(Some(report::parse(&said))),
        Err(_) => Ok(None),
    }
}
