//! The isolation of the supervisor process before and after the start of the child.

use std::fs::OpenOptions;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, set_child_subreaper, set_dumpable_behavior, setrlimit,
    setsid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_no_new_privs;

use super::error::SupervisorError;

/// The number after stderr: children inherit no descriptor from here on.
const FIRST_INHERITED: i32 = 3;

/// Creates a session without a terminal, becomes the subreaper, and protects its memory (with the child's
/// environment) from other processes of the same user. Marks all descriptors that the gateway inherited as
/// close-on-exec.
pub(super) fn prepare() -> Result<(), SupervisorError> {
    close_fds::set_fds_cloexec(FIRST_INHERITED, &[]);
    setsid().map_err(SupervisorError::at("session"))?;
    set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(SupervisorError::at("subreaper"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(SupervisorError::at("dumpable"))?;
    no_core().map_err(SupervisorError::at("core limit"))?;
    // The last stage sets it too. But that stage starts with an environment that may name libraries of other users.
    set_no_new_privs(true).map_err(SupervisorError::at("no_new_privs"))?;
    Ok(())
}

pub(super) fn no_core() -> rustix::io::Result<()> {
    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )
}

/// Closes the supervisor's copies of the child's pipes, so that the child alone decides when they end.
pub(super) fn release_stdio() -> Result<(), SupervisorError> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(SupervisorError::at("/dev/null"))?;
    dup2_stdout(&null).map_err(SupervisorError::at("stdout"))?;
    dup2_stderr(&null).map_err(SupervisorError::at("stderr"))?;
    dup2_stdin(&null).map_err(SupervisorError::at("stdin"))
}
