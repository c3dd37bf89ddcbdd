//! Writes the output of a subcommand to stdout.

use std::io::{self, Write};

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
