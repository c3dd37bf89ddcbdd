//! The gateway's end of a starting child's control socket.
//!
//! std lets a child inherit three descriptors. The keeper needs a fourth, so the control socket stands
//! in for stdin and carries the real one: the last stage takes it out and puts it in its place.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;

use super::report::{self, Report};

/// More than a keeper ever says.
const REPORT_BYTES: u64 = 4096;

/// A control socket that already holds `stdin`; returns our end and the keeper's.
pub(super) fn offer(stdin: &OwnedFd) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(&ours, &[IoSlice::new(b"0")], &mut control, SendFlags::NOSIGNAL)?;
    Ok((ours, theirs))
}

/// Waits until the keeper's side of the socket is closed, and reads what it said; `None` after `limit`.
pub(super) async fn report(ours: UnixStream, limit: Duration) -> io::Result<Option<Report>> {
    ours.set_nonblocking(true)?;
    let mut said = Vec::new();
    let mut socket = tokio::net::UnixStream::from_std(ours)?.take(REPORT_BYTES);
    match tokio::time::timeout(limit, socket.read_to_end(&mut said)).await {
        Ok(read) => read.map(|_| Some(report::parse(&said))),
        Err(_) => Ok(None),
    }
}
