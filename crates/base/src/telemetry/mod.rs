//! Logging to stderr.
//!
//! The format is human-readable on a terminal and one JSON object a line elsewhere (`format`).

mod bounded_file;
mod format;
mod panics;

use std::fmt;
use std::io::IsTerminal;
use std::sync::Arc;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::JsonFields;

use bounded_file::BoundedFile;
use format::{JsonRecords, TextFields};

const DEFAULT_FILTER: &str = "info";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "invalid log filter {filter:?}: use a filter such as \"info\" or \"info,acp_gateway::session=debug\""
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

/// The format of log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// One line of text, with colors.
    Terminal,
    /// One JSON object a line.
    Json,
}

/// Initializes logging for this process, also for panics. `filter` has the format of `RUST_LOG`; the default is `info`.
pub fn init(filter: Option<&str>) -> Result<(), TelemetryError> {
    let format = if std::io::stderr().is_terminal() {
        Format::Terminal
    } else {
        Format::Json
    };
    install(filter, format, std::io::stderr)
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
    let subscriber = subscriber(filter.unwrap_or(DEFAULT_FILTER), format, writer)?;
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|error| TelemetryError::AlreadyStarted(error.into()))?;
    panics::install_hook();
    Ok(())
}

fn subscriber<W>(
    filter: &str,
    format: Format,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let levels = EnvFilter::builder().parse(filter);
    let levels = levels.map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(levels);
    // A failed write to stderr (terminal closed, disk full) must not end the task that logs.
    let log = log.with_writer(writer).log_internal_errors(false);
    Ok(match format {
        Format::Terminal => Box::new(log.with_ansi(true).fmt_fields(TextFields).finish()),
        Format::Json => {
            let records = tracing_subscriber::fmt::format().json();
            let records = JsonRecords(records.flatten_event(true).with_current_span(false));
            let log = log.fmt_fields(JsonFields::new());
            Box::new(log.event_format(records).finish())
        }
    })
}
