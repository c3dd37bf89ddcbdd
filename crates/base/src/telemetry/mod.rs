//! Logging to stderr, metrics, and spans for OTLP.
//!
//! The format of logs is human-readable on a terminal and one JSON object a line elsewhere (`format`). `metrics` has the table of
//! instruments, which `exposition` writes for a scrape; `process` reads the figures of this process. `recent` keeps
//! the latest warnings and errors. `traces` has the spans of requests and prompts, and `resource` describes this process to a
//! collector.

mod exposition;
mod format;
pub mod metrics;
pub mod process;
mod recent;
mod resource;
pub mod traces;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use format::{Format, Records};
use recent::RecentRecords;

pub use exposition::TextFormat;
pub use metrics::metrics;
pub use recent::RecentRecord;

const DEFAULT_FILTER: &str = "info";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "invalid log filter {filter:?}: use a filter such as \"info\" or \"info,acp_gateway_sessions=debug\""
    )]
    Filter {
        filter: String,
        source: tracing_subscriber::filter::ParseError,
    },
    #[error("could not use the file of the log")]
    File(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("logging is already initialized")]
    AlreadyStarted(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Formats an error and its sources on one line.
#[derive(Debug)]
pub struct ErrorChain<'a>(pub &'a dyn std::error::Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(error) = source {
            let cause = error.to_string();
            // Some errors already contain the message of their source.
            if !text.ends_with(&cause) {
                text = format!("{text}: {cause}");
            }
            source = error.source();
        }
        f.write_str(&text)
    }
}

/// Initializes logging for this process, also for panics. `filter` has the format of `RUST_LOG`; the default is `info`.
/// `colors`: whether text may have colors.
pub fn init(filter: Option<&str>, colors: bool) -> Result<(), TelemetryError> {
    let format = if io::stderr().is_terminal() {
        Format::Text { colors }
    } else {
        Format::Json
    };
    install(filter, format, io::stderr)
}

/// The same, if stderr is a file that no other program bounds. The file must be open for appending. It is emptied when it
/// exceeds a limit.
pub fn init_bounded(filter: Option<&str>) -> Result<(), TelemetryError> {
    let file = BoundedFile::stderr().map_err(|error| TelemetryError::File(error.into()))?;
    install(filter, Format::Json, Arc::new(file))
}

fn install<W>(filter: Option<&str>, format: Format, writer: W) -> Result<(), TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let filter = filter.unwrap_or(DEFAULT_FILTER);
    let subscriber = subscriber(filter, format, writer, RECENT.clone())?;
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| TelemetryError::AlreadyStarted(error.into()))?;
    // The panic itself continues as before.
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn subscriber<W>(
    filter: &str,
    format: Format,
    writer: W,
    recent: RecentRecords,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let levels = EnvFilter::builder().parse(filter);
    let levels = levels.map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let records = Records { format, writer };
    let layers = tracing_subscriber::registry().with(levels).with(records);
    Ok(Box::new(layers.with(recent)))
}

static RECENT: LazyLock<RecentRecords> = LazyLock::new(RecentRecords::default);

/// The latest warnings and errors in the log of this process, the newest first.
pub fn recent_records() -> Vec<RecentRecord> {
    RECENT.newest_first()
}

/// Logs a panic as a record of the configured format.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("the panic has no text");
    let thread = std::thread::current();
    // `RUST_BACKTRACE` enables it.
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        location = panic.location().map(tracing::field::display),
        thread = thread.name(),
        backtrace = is_captured.then(|| tracing::field::display(&backtrace)),
        "panicked: {message}"
    );
}

/// A file above this size is emptied.
const MAX_BYTES: u64 = 4 << 20;

/// A file that is open for appending, so that an empty file begins again at its start.
#[derive(Debug)]
struct BoundedFile {
    file: File,
    bytes: AtomicU64,
    max: u64,
}

impl BoundedFile {
    fn stderr() -> io::Result<Self> {
        let file = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        Self::new(file, MAX_BYTES)
    }

    fn new(file: File, max: u64) -> io::Result<Self> {
        let bytes = AtomicU64::new(file.metadata()?.len());
        Ok(Self { file, bytes, max })
    }
}

impl Write for &BoundedFile {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let size = record.len() as u64;
        if self.bytes.fetch_add(size, Ordering::Relaxed) + size > self.max {
            self.file.set_len(0)?;
            self.bytes.store(size, Ordering::Relaxed);
        }
        (&self.file).write(record)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.file).flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_above_its_limit_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "first\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        let bounded = BoundedFile::new(file, 16).unwrap();
        let size = |record: &str| {
            (&bounded).write_all(record.as_bytes()).unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(size("second\n"), "first\nsecond\n");
        assert_eq!(size("third\n"), "third\n");
        assert_eq!(size("fourth\n"), "third\nfourth\n");
    }
}
