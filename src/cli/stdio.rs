//! Stdin, stdout and the signals of `attach`, `connect` and `translate`.

use std::fs::File;
use std::future::Future;
use std::os::fd::{AsFd as _, BorrowedFd};

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when a signal asks this process to end. The command then ends like at the end of stdin.
pub(super) fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Stdin and stdout without the buffers of the standard library, so that a line is one write.
pub(super) fn pipes() -> std::io::Result<(tokio::fs::File, tokio::fs::File)> {
    let open = |fd: BorrowedFd<'_>| {
        fd.try_clone_to_owned()
            .map(|fd| tokio::fs::File::from_std(File::from(fd)))
    };
    Ok((
        open(std::io::stdin().as_fd())?,
        open(std::io::stdout().as_fd())?,
    ))
}
