//! A program that outlives this process. All other children run under a supervisor.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts a program without stdin and stdout. `log` is its stderr, and it does not get the variable `secret`. The program
/// begins a session of its own itself.
#[expect(
    clippy::disallowed_methods,
    reason = "a supervisor would end the program with this process"
)]
pub fn spawn_detached(
    program: &Path,
    args: &[OsString],
    secret: &str,
    log: File,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(args).env_remove(secret);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
}
