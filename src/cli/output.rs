//! The output, the failures, the pipes and the temporary folders of subcommands.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::pin::Pin;

use serde::Serialize;
use tempfile::TempDir;
use tokio::fs::File;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use base::telemetry::ErrorChain;
use base::types::text::strip_controls;
use programs::stdio::pipes;

/// Writes and flushes `bytes`. A closed pipe (`| head`) is not an error.
pub(super) fn write_stdout(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(bytes.as_ref())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

pub(super) fn write_line(text: &str) -> io::Result<()> {
    write_stdout(format!("{text}\n"))
}

/// Writes the result of a command: its text, or one JSON document.
pub(super) fn write_result(result: &(impl Display + Serialize), json: bool) -> Result<(), Failure> {
    if json {
        return Ok(write_line(&serde_json::to_string_pretty(result)?)?);
    }
    Ok(write_stdout(result.to_string())?)
}

/// Writes rows in columns of equal width. `head`: the names of the columns, separated by commas.
pub(super) fn write_table(
    f: &mut Formatter<'_>,
    head: &str,
    rows: impl Iterator<Item = Vec<String>>,
) -> fmt::Result {
    let head = head.split(',').map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let mut widths = vec![0; rows[0].len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(f, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Prints an error and its causes to stderr, without control characters.
pub(super) fn print_error(failure: &dyn Error) {
    // If stderr is closed, there is no other place to report the error.
    let text = ErrorChain(failure).to_string();
    let _ = writeln!(io::stderr(), "acp-gateway: {}", strip_controls(&text));
}

pub(super) type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Resolves when a signal asks this process to end. The command then ends like at the end of stdin.
pub(super) fn stop_signal() -> io::Result<Stop> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(Box::pin(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hangup.recv() => {}
        }
    }))
}

/// A new folder that only its owner can read, in a folder for temporary files. Its drop deletes it.
pub(super) fn private_folder(name: &str, parent: &Path) -> io::Result<TempDir> {
    let mode = Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    builder.prefix(name).permissions(mode).tempdir_in(parent)
}

/// The runtime of a command that starts children.
pub(super) fn multi_thread_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Runs a command between stdin and stdout until it ends or a signal arrives.
pub(super) fn run_on_pipes<T, E: Into<Failure>, F: Future<Output = Result<T, E>>>(
    command: impl FnOnce(File, File, Stop) -> F,
) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let (input, output) = pipes()?;
        command(input, output, stop_signal()?)
            .await
            .map_err(Into::into)
    });
    // A thread can be blocked in a read of stdin.
    runtime.shutdown_background();
    done
}
