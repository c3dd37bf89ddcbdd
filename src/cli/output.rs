//! The output, the failures, the pipes and the temporary folders of subcommands.

use std::error::Error;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use base::telemetry::ErrorChain;
use base::types::text::strip_controls;

/// Writes and flushes `bytes`. A closed pipe (`| head`) is not an error.
pub(super) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

pub(super) fn write_line(text: &str) -> io::Result<()> {
    write_stdout(format!("{text}\n").as_bytes())
}

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Prints an error and its causes to stderr, without control characters.
pub(super) fn print_error(failure: &dyn Error) {
    // If stderr is closed, there is no other place to report the error.
    let text = ErrorChain(failure).to_string();
    drop(writeln!(
        std::io::stderr().lock(),
        "acp-gateway: {}",
        strip_controls(&text)
    ));
}

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

pub(super) struct RemovedFolder(pub(super) PathBuf);

impl Drop for RemovedFolder {
    fn drop(&mut self) {
        // It is in the folder for temporary files.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(super) fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(folder)
}

/// The runtime of a command that starts children.
pub(super) fn multi_thread_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// The runtime of a command between stdin and stdout.
pub(super) fn current_thread_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
