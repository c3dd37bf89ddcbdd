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
//! A child with the mechanism `namespaces` has two supervisors. The outer one creates the namespaces and observes
//! the gateway. Inside, the init process of the PID namespace is the supervisor that starts the program.
//!
//! A supervisor has no environment. A variable of an agent or a terminal can name a library, which the loader would
//! load before the isolation. The environment of the program arrives with the instructions.
//!
//! Reading order: [`error`], [`stage`], [`watch`], [`exec`], [`parent`], [`channel`], then the isolation: [`namespaces`],
//! [`mounts`], [`mount_check`], [`user`], [`restrict`], [`probe`].

mod channel;
mod error;
mod exec;
mod mount_check;
mod mounts;
mod namespaces;
mod parent;
mod probe;
mod restrict;
mod stage;
mod user;
mod watch;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

use rustix::process::Pid;
use rustix::stdio::stderr;

use self::channel::write_report;
use self::error::{EXIT_SETUP_FAILED, SupervisorError};
use self::stage::StdioMode;
use super::open_files;

/// Runs the hidden subcommand. `args` are the arguments after its name:
///
/// | arguments | process |
/// | --- | --- |
/// | `watch GATEWAY-PID OPEN-FILES PROGRAM ARGS...` | the supervisor |
/// | `init USER PROGRAM ARGS...` | the init process of the child's PID namespace. USER is the user of the program, or `-` |
/// | `exec SUPERVISOR-PID PROGRAM ARGS...` | the stage in the child's process that becomes the program |
/// | `watch-pty`, `init-pty`, `exec-pty` | the same for a program in a pseudo terminal |
/// | `watch-terminal SUPERVISOR-PID` | the supervisor of a terminal, whose program arrives over its control socket |
/// | `map-ids PID USER` | writes the id maps of a new user namespace |
/// | `probe-namespaces`, `probe-init`, `probe-landlock`, `probe-landlock-sockets`, `probe-landlock-files` | uses a mechanism once |
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let stage = args.next().unwrap_or_default();
    let stage = stage.to_string_lossy();
    if stage == "map-ids" {
        return on_stderr(user::map_ids(number(args.next()), number(args.next())));
    }
    if stage.starts_with("probe-") {
        return on_stderr(probe::run(&stage, number(args.next())));
    }
    run_stage(&stage, args).unwrap_or_else(|error| {
        write_report(&error.report());
        ExitCode::from(EXIT_SETUP_FAILED)
    })
}

/// Reports the outcome of a stage that has no control socket.
fn on_stderr(outcome: Result<(), SupervisorError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody reads the text if the write fails.
            rustix::io::write(stderr(), error.to_string().as_bytes()).unwrap_or(0);
            ExitCode::from(EXIT_SETUP_FAILED)
        }
    }
}

fn number(argument: Option<OsString>) -> Option<u32> {
    argument?.to_str()?.parse().ok()
}

fn run_stage(
    stage: &str,
    mut args: impl Iterator<Item = OsString>,
) -> Result<ExitCode, SupervisorError> {
    let (role, stdio) = match stage.strip_suffix("-pty") {
        Some(role) => (role, StdioMode::Pty),
        None => (stage, StdioMode::Pipes),
    };
    let id = number(args.next());
    let parent = match role {
        "init" => None,
        _ => id.map(u32::cast_signed).and_then(Pid::from_raw),
    };
    if role == "watch" {
        let limit = args.next().unwrap_or_default();
        open_files::apply(&limit.to_string_lossy())
            .map_err(SupervisorError::at("limit of open files"))?;
    }
    let program = args.next();
    let args: Vec<OsString> = args.collect();
    match (role, parent, program) {
        ("watch", Some(gateway), Some(program)) => watch::run(gateway, stdio, &program, &args),
        ("init", None, Some(program)) => watch::run_init(id, stdio, &program, &args),
        ("watch-terminal", Some(supervisor), None) => watch::run_terminal(supervisor),
        ("exec", Some(supervisor), Some(program)) => exec::run(supervisor, stdio, &program, &args),
        _ => Err(SupervisorError::at("arguments")(ErrorKind::InvalidInput)),
    }
}
