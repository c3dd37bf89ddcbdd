//! Failures of subcommands, as one line of text.

use std::error::Error;
use std::io::Write;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Prints an error and its causes to stderr.
pub(super) fn print_error(failure: &dyn Error) {
    // If stderr is closed, there is no other place to report the error.
    drop(writeln!(std::io::stderr().lock(), "acp-gateway: {}", error_chain(failure)));
}

/// An error and its causes on one line.
pub(super) fn error_chain(failure: &dyn Error) -> String {
    let mut text = failure.to_string();
    let mut cause = failure.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // Some errors already contain the message of their source.
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
