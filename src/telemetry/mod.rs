//! Logging to stderr.
//!
//! The format is human-readable on a terminal and one JSON object a line elsewhere. Values may contain text
//! from agents and clients. Therefore the output escapes control characters: a value cannot move the cursor
//! of a terminal or start a line.

use std::fmt;
use std::io::IsTerminal;

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format;
use tracing_subscriber::fmt::format::Writer;

const DEFAULT_FILTER: &str = "info";

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "invalid log filter {filter:?}: use a filter such as \"info\" or \"info,acp_gateway::session=debug\""
    )]
    Filter { filter: String, source: tracing_subscriber::filter::ParseError },
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

/// Initializes logging for this process. `filter` has the format of `RUST_LOG`; the default is `info`.
pub fn init(filter: Option<&str>) -> Result<(), TelemetryError> {
    let filter = filter.unwrap_or(DEFAULT_FILTER);
    let levels = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| TelemetryError::Filter { filter: filter.to_owned(), source })?;
    let terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(levels).with_writer(std::io::stderr);
    // A failed write to stderr (terminal closed, disk full) must not end the task that logs.
    let log = log.log_internal_errors(false);
    if terminal {
        log.with_ansi(true).fmt_fields(format::debug_fn(write_escaped_field).delimited(" ")).try_init()
    } else {
        log.json().flatten_event(true).with_current_span(false).try_init()
    }
    .map_err(TelemetryError::AlreadyStarted)
}

/// Writes one field in the human-readable format.
fn write_escaped_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    fmt::write(&mut EscapeWriter(writer), format_args!("{value:?}"))
}

/// A writer that writes printable characters as they are and all others as `\u{..}`.
struct EscapeWriter<W>(W);

impl<W: fmt::Write> fmt::Write for EscapeWriter<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if letter.is_control() || is_bidi_or_separator(letter) {
                write!(self.0, "{}", letter.escape_unicode())?;
            } else {
                self.0.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// Returns true for characters that change the display order of text or separate lines.
fn is_bidi_or_separator(letter: char) -> bool {
    matches!(
        letter,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn values_cannot_add_lines_or_move_the_cursor() {
        let mut shown = String::new();
        let hostile = "ok\n2026 ERROR \u{1b}[2Jforged \u{202e}txt.exe\u{2028}next \u{9b}31m tab\tü";
        write!(EscapeWriter(&mut shown), "{hostile}").unwrap();
        assert_eq!(
            shown,
            "ok\\u{a}2026 ERROR \\u{1b}[2Jforged \\u{202e}txt.exe\\u{2028}next \\u{9b}31m tab\\u{9}ü"
        );
        assert!(!shown.chars().any(|letter| letter.is_control() || is_bidi_or_separator(letter)));
    }
}
