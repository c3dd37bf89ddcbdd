//! The gateway's end of a starting child's control socket.
//!
//! std lets a child inherit three descriptors. The supervisor needs a fourth one. Therefore the control
//! socket replaces stdin and carries the real stdin, which the last stage installs.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;

use super::report::{self, Report};
use super::spec::SpawnError;

/// More than a supervisor ever writes.
const MAX_REPORT_BYTES: usize = 4096;

/// Creates a control socket that already carries the descriptors of each stage, one message for each. Returns
/// the gateway's end and the supervisor's end.
pub(super) fn open_control_socket(
    stages: &[&[BorrowedFd<'_>]],
) -> io::Result<(UnixStream, UnixStream)> {
    let (gateway_end, supervisor_end) = UnixStream::pair()?;
    // Each report carries the pid of its writer, as this process sees it.
    set_socket_passcred(&gateway_end, true)?;
    for descriptors in stages {
        send_descriptors(&gateway_end, descriptors)?;
    }
    Ok((gateway_end, supervisor_end))
}

/// Descriptors of a stage, and one more if there is one.
pub(super) fn and_optional<'a>(
    own: &[BorrowedFd<'a>],
    more: Option<&'a impl AsFd>,
) -> Vec<BorrowedFd<'a>> {
    own.iter().copied().chain(more.map(AsFd::as_fd)).collect()
}

/// Sends at most five descriptors with one byte, which separates messages. Never blocks.
pub(super) fn send_descriptors(
    socket: &UnixStream,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(b"0")], &mut control, flags)?;
    Ok(())
}

/// The time from the start of a supervisor until it reports that the program runs. When it expires, the start fails.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits for the supervisor's report about the start of `program`. Returns the pid of the program.
pub(super) async fn await_report(control: UnixStream, program: PathBuf) -> Result<u32, SpawnError> {
    let report = tokio::time::timeout(START_TIMEOUT, read_report(control))
        .await
        .map_err(|_| SpawnError::Timeout)?;
    let (report, writer) = report.map_err(SpawnError::Supervisor)?;
    match report {
        // The program knows only its pid in its own namespace.
        Report::Started(pid) => Ok(writer.unwrap_or(pid).cast_unsigned()),
        Report::ExecFailed(errno) => Err(SpawnError::Program {
            program,
            source: io::Error::from_raw_os_error(errno),
        }),
        Report::NoDirectory(errno) => Err(SpawnError::Directory {
            folder: PathBuf::new(),
            source: io::Error::from_raw_os_error(errno),
        }),
        Report::Folder(error) => Err(error.into()),
        Report::SetupFailed(text) => Err(SpawnError::Setup(text)),
    }
}

/// Reads the report until the supervisor closes its end of the socket. Returns also the pid of the process that
/// wrote the last line.
async fn read_report(control: UnixStream) -> io::Result<(Report, Option<i32>)> {
    control.set_nonblocking(true)?;
    let socket = tokio::net::UnixStream::from_std(control)?;
    let mut bytes = Vec::new();
    let mut writer = None;
    while bytes.len() < MAX_REPORT_BYTES {
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || receive_line(&socket)) {
            Ok((line, _)) if line.is_empty() => break,
            Ok((line, pid)) => {
                bytes.extend(line);
                writer = pid.or(writer);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // A supervisor that failed before it read all messages resets the socket after its report.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => return Err(error),
        }
    }
    Ok((report::parse(&bytes), writer))
}

fn receive_line(socket: impl AsFd) -> io::Result<(Vec<u8>, Option<i32>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; MAX_REPORT_BYTES];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut buffers, &mut control, flags)?;
    bytes.truncate(received.bytes);
    let pid = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid.as_raw_pid()),
        _ => None,
    });
    Ok((bytes, pid))
}
