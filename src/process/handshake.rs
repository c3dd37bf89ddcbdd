//! The gateway's end of a starting child's control socket.
//!
//! std lets a child inherit three descriptors. The supervisor needs a fourth one. Therefore the control
//! socket replaces stdin and carries the real stdin, which the last stage installs.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;

use super::report::{self, Report};
use super::spawn_error::SpawnError;

/// More than a supervisor ever writes.
const MAX_REPORT_BYTES: u64 = 4096;

/// Creates a control socket that already carries the supervisor's own descriptors, and then the child's
/// `stdin`. Returns the gateway's end and the supervisor's end.
pub(super) fn open_control_socket(
    own: &[BorrowedFd<'_>],
    stdin: impl AsFd,
) -> io::Result<(UnixStream, UnixStream)> {
    let (gateway_end, supervisor_end) = UnixStream::pair()?;
    if !own.is_empty() {
        send_descriptors(&gateway_end, own)?;
    }
    send_descriptors(&gateway_end, &[stdin.as_fd()])?;
    Ok((gateway_end, supervisor_end))
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

/// Waits for the supervisor's report about the start of `program`, at most for `limit`. Returns the pid of the
/// program.
pub(super) async fn await_report(
    control: UnixStream,
    limit: Duration,
    program: PathBuf,
) -> Result<u32, SpawnError> {
    let report = tokio::time::timeout(limit, read_report(control)).await.map_err(|_| SpawnError::Timeout)?;
    match report.map_err(SpawnError::Supervisor)? {
        Report::Started(pid) => Ok(pid.cast_unsigned()),
        Report::ExecFailed(errno) => {
            Err(SpawnError::Program { program, source: io::Error::from_raw_os_error(errno) })
        }
        Report::NoDirectory(errno) => {
            Err(SpawnError::Directory { folder: PathBuf::new(), source: io::Error::from_raw_os_error(errno) })
        }
        Report::SetupFailed(text) => Err(SpawnError::Setup(text)),
    }
}

/// Reads the report until the supervisor closes its end of the socket.
async fn read_report(control: UnixStream) -> io::Result<Report> {
    control.set_nonblocking(true)?;
    let mut bytes = Vec::new();
    let mut socket = tokio::net::UnixStream::from_std(control)?.take(MAX_REPORT_BYTES);
    match socket.read_to_end(&mut bytes).await {
        // A supervisor that failed before it read all messages resets the socket after its report.
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        _ => Ok(report::parse(&bytes)),
    }
}
