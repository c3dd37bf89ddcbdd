//! File descriptors that arrive over a socket.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The messages were sent before this process started, so they arrive at once or never.
const RECEIVE_TIMEOUT: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Waits for the next message and returns the `N` descriptors that it carries.
pub(super) fn descriptors<const N: usize>(socket: impl AsFd) -> io::Result<[OwnedFd; N]> {
    all_descriptors(socket)?
        .try_into()
        .map_err(|_| io::ErrorKind::NotFound.into())
}

/// As [`descriptors`]. Further descriptors can follow.
pub(super) fn descriptors_and_others<const N: usize>(
    socket: impl AsFd,
) -> io::Result<([OwnedFd; N], Vec<OwnedFd>)> {
    let mut carried = all_descriptors(socket)?;
    let others = carried.split_off(N.min(carried.len()));
    Ok((
        carried
            .try_into()
            .map_err(|_| io::Error::from(io::ErrorKind::NotFound))?,
        others,
    ))
}

fn all_descriptors(socket: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    if poll(
        &mut [PollFd::new(&socket, PollFlags::IN)],
        Some(&RECEIVE_TIMEOUT),
    )? == 0
    {
        return Err(io::ErrorKind::TimedOut.into());
    }
    // Space for the largest message.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(6))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect())
}
