//! Failures of subcommands, as one line of text.

use std::error::Error;
use std::io::Write;

use crate::telemetry::ErrorChain;
use crate::types::text::strip_controls;

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
