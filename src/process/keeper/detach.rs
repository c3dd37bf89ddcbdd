//! What the keeper does to itself before and after the start of the child.

use std::fs::OpenOptions;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, set_child_subreaper, set_dumpable_behavior, setrlimit, setsid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_no_new_privs;

use super::KeeperError;

/// The number after stderr: from here on nothing is handed down.
const FIRST_FOREIGN: i32 = 3;

/// Leads a session without a terminal, adopts orphans, keeps its memory (with the child's environment)
/// from other processes of the same user, and hands down nothing that the gateway itself had inherited.
pub(super) fn prepare() -> Result<(), KeeperError> {
    close_fds::set_fds_cloexec(FIRST_FOREIGN, &[]);
    setsid().map_err(KeeperError::at("session"))?;
    set_child_subreaper(Some(rustix::process::getpid())).map_err(KeeperError::at("subreaper"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(KeeperError::at("dumpable"))?;
    no_core().map_err(KeeperError::at("core limit"))?;
    // The last stage sets it too, but that stage begins with an environment that may name libraries of others.
    set_no_new_privs(true).map_err(KeeperError::at("no_new_privs"))?;
    Ok(())
}

pub(super) fn no_core() -> rustix::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })
}

/// Lets go of the child's pipes, so that their ends are the child's alone to close.
pub(super) fn release_stdio() -> Result<(), KeeperError> {
    let null =
        OpenOptions::new().read(true).write(true).open("/dev/null").map_err(KeeperError::at("/dev/null"))?;
    dup2_stdout(&null).map_err(KeeperError::at("stdout"))?;
    dup2_stderr(&null).map_err(KeeperError::at("stderr"))?;
    dup2_stdin(&null).map_err(KeeperError::at("stdin"))
}
