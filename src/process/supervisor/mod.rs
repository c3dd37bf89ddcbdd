//! The keeper: the process between the gateway and one child, which lets nothing of the child outlive it.
//!
//! It is the subreaper of all that the child starts, so that what moved to a session of its own and lost
//! its parent comes to it. It runs until the child ends, until it is told to kill, or until the gateway
//! is gone; then it kills every descendant and ends as the child ended. It has one thread, holds none of
//! the child's pipes, and knows nothing of what is said over them.
//!
//! Over a socket the gateway can ask an agent's keeper for terminals: other programs, which run as the agent
//! does and no longer than it. Each has a keeper of its own below the agent's.
//!
//! TERM (also INT and HUP) is passed on to the child's group, a second one kills; QUIT kills at once.

mod channel;
mod detach;
mod exec;
mod receive;
mod signals;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use rustix::io::write;
use rustix::process::Pid;

use super::open_files;

/// What a keeper ends with when it did not come to run the child.
const EXIT_SETUP_FAILED: u8 = 125;

/// What the program's stdin, stdout and stderr are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StdioMode {
    Pipes,
    /// One pseudo terminal, which is the program's controlling terminal.
    Pty,
}

/// A step that failed, and why.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
struct SupervisorError {
    step: &'static str,
    source: std::io::Error,
}

impl SupervisorError {
    fn at<E: Into<std::io::Error>>(step: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self { step, source: source.into() }
    }
}

/// Runs the hidden subcommand `keeper`; `args` is what stands after that word.
///
/// `watch GATEWAY-PID OPEN-FILES PROGRAM ARGS...` is the keeper; `exec KEEPER-PID PROGRAM ARGS...` is the stage in
/// the child's own process that becomes the program. `watch-pty` and `exec-pty` are the same for a program
/// in a pseudo terminal. `watch-terminal KEEPER-PID` is the keeper of a terminal beside an agent; what it runs comes
/// over its control socket.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let stage = args.next();
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let watches = stage.as_ref().is_some_and(|stage| stage == "watch" || stage == "watch-pty");
    if watches && let Err(error) = apply_limits(args.next()) {
        write_report(&super::report::setup_failed_line(&error.to_string()));
        return ExitCode::from(EXIT_SETUP_FAILED);
    }
    let program = args.next();
    let rest: Vec<OsString> = args.collect();
    let outcome = match (stage.as_ref().and_then(|stage| stage.to_str()), parent, program) {
        (Some("watch"), Some(gateway), Some(program)) => watch::run(gateway, StdioMode::Pipes, &program, &rest),
        (Some("watch-pty"), Some(gateway), Some(program)) => watch::run(gateway, StdioMode::Pty, &program, &rest),
        (Some("watch-terminal"), Some(keeper), None) => watch::run_terminal(keeper),
        (Some("exec"), Some(keeper), Some(program)) => exec::run(keeper, StdioMode::Pipes, &program, &rest),
        (Some("exec-pty"), Some(keeper), Some(program)) => exec::run(keeper, StdioMode::Pty, &program, &rest),
        _ => Err(SupervisorError { step: "arguments", source: std::io::ErrorKind::InvalidInput.into() }),
    };
    outcome.unwrap_or_else(|error| {
        write_report(&super::report::setup_failed_line(&error.to_string()));
        ExitCode::from(EXIT_SETUP_FAILED)
    })
}

/// All that it starts has them too.
fn apply_limits(open_files: Option<OsString>) -> Result<(), SupervisorError> {
    let open_files = open_files.unwrap_or_default();
    open_files::apply(&open_files.to_string_lossy()).map_err(SupervisorError::at("limit of open files"))
}

/// Tells the gateway over the control socket, which stands in for stdin until the program takes over.
/// A gateway that is gone hears nothing, and needs nothing.
fn write_report(line: &str) {
    write(rustix::stdio::stdin(), line.as_bytes()).unwrap_or(0);
}
