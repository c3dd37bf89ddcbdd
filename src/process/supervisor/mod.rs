//! The supervisor: the process between the gateway and one child. No descendant of the child outlives it.
//!
//! It is the subreaper of all descendants, so it adopts orphans that moved to their own session. It runs until the
//! child ends, until it is asked to kill, or until the gateway ends. Then it kills every descendant and exits as the
//! child exited. It has one thread, holds none of the child's pipes, and does not know their protocol.
//!
//! Over a socket the gateway can ask an agent's supervisor for terminals: other programs, which run with the
//! agent's user and environment and end with it. Each terminal has its own supervisor below the agent's.
//!
//! Signals:
//!
//! - TERM, INT and HUP go to the child's process group. A second one kills everything.
//! - QUIT kills everything at once.
//!
//! Reading order: [`error`], [`watch`], [`exec`], [`channel`], [`signals`], [`receive`], [`detach`].

mod channel;
mod detach;
mod error;
mod exec;
mod receive;
mod signals;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use rustix::process::Pid;

use self::channel::write_report;
use self::error::{EXIT_SETUP_FAILED, SupervisorError};
use self::exec::StdioMode;
use super::{open_files, report};

/// Runs the hidden subcommand. `args` are the arguments after its name:
///
/// | arguments | process |
/// | --- | --- |
/// | `watch GATEWAY-PID OPEN-FILES PROGRAM ARGS...` | the supervisor |
/// | `exec SUPERVISOR-PID PROGRAM ARGS...` | the stage in the child's process that becomes the program |
/// | `watch-pty`, `exec-pty` | the same for a program in a pseudo terminal |
/// | `watch-terminal SUPERVISOR-PID` | the supervisor of a terminal, whose program arrives over its control socket |
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let stage = args.next();
    let parent = args.next().and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
    let watches = stage.as_ref().is_some_and(|stage| stage == "watch" || stage == "watch-pty");
    if watches && let Err(error) = apply_limits(args.next()) {
        write_report(&report::setup_failed_line(&error.to_string()));
        return ExitCode::from(EXIT_SETUP_FAILED);
    }
    let program = args.next();
    let rest: Vec<OsString> = args.collect();
    let outcome = match (stage.as_ref().and_then(|stage| stage.to_str()), parent, program) {
        (Some("watch"), Some(gateway), Some(program)) => {
            watch::run(gateway, StdioMode::Pipes, &program, &rest)
        }
        (Some("watch-pty"), Some(gateway), Some(program)) => {
            watch::run(gateway, StdioMode::Pty, &program, &rest)
        }
        (Some("watch-terminal"), Some(supervisor), None) => watch::run_terminal(supervisor),
        (Some("exec"), Some(supervisor), Some(program)) => {
            exec::run(supervisor, StdioMode::Pipes, &program, &rest)
        }
        (Some("exec-pty"), Some(supervisor), Some(program)) => {
            exec::run(supervisor, StdioMode::Pty, &program, &rest)
        }
        _ => Err(SupervisorError { step: "arguments", source: std::io::ErrorKind::InvalidInput.into() }),
    };
    outcome.unwrap_or_else(|error| {
        write_report(&report::setup_failed_line(&error.to_string()));
        ExitCode::from(EXIT_SETUP_FAILED)
    })
}

/// Sets the limit of open files for this process and all its descendants.
fn apply_limits(open_files: Option<OsString>) -> Result<(), SupervisorError> {
    let open_files = open_files.unwrap_or_default();
    open_files::apply(&open_files.to_string_lossy()).map_err(SupervisorError::at("limit of open files"))
}
