//! A terminal whose other side the test reads.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::pty::OpenptFlags;

/// Both sides of a new terminal.
pub(crate) fn terminal() -> (OwnedFd, File) {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
    let ours = ours.expect("a terminal");
    rustix::pty::grantpt(&ours).expect("it is ours");
    rustix::pty::unlockpt(&ours).expect("it is ours");
    let name = rustix::pty::ptsname(&ours, Vec::new())
        .expect("it has a name")
        .into_string()
        .expect("UTF-8");
    let theirs =
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, theirs, rustix::fs::Mode::empty()).expect("it is there");
    (ours, File::from(theirs))
}
