//! Failures of subcommands, as one line of text.

use std::error::Error;
use std::io::Write;

use crate::telemetry::ErrorChain;

pub(super) type Failure = Box<dyn Error + Send + Sync>;

/// Prints an error and its causes to stderr.
pub(super) fn print_error(failure: &dyn Error) {
    // If stderr is closed, there is no other place to report the error.
    drop(writeln!(std::io::stderr().lock(), "acp-gateway: {}", ErrorChain(failure)));
}
