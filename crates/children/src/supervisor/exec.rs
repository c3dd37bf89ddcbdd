//! The last stage before the program, in the child's own process: drops the privileges that the program must not have.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::fs::Mode;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, chdir, getpid, getppid, ioctl_tiocsctty,
    set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, setsid,
    umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};
use rustix::thread::set_no_new_privs;

use super::channel::{self, write_line};
use super::error::{EXIT_SETUP_FAILED, SupervisorError};
use super::stage::StdioMode;
use super::{restrict, user};
use crate::isolation::{Confinement, read_instructions};
use crate::report::Report;

/// Becomes `program`. Returns only if the kernel refuses to execute it.
pub(super) fn run(
    supervisor: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    // The duplicate closes by itself when the program starts.
    let control = fcntl_dupfd_cloexec(stdin(), 3).map_err(SupervisorError::at("control socket"))?;
    confine(supervisor).inspect_err(|error| write_line(&control, &error.report()))?;
    let ([own_stdin, confinement], group) =
        channel::descriptors_and_others(stdin()).map_err(SupervisorError::at("stdin"))?;
    let confined = match stdio {
        StdioMode::Pipes => Ok(()),
        StdioMode::Pty => acquire_terminal(&own_stdin),
    };
    let confinement = confined
        .and_then(|()| read_instructions(confinement).map_err(SupervisorError::at("confinement")))
        .and_then(|confinement: Confinement| {
            user::become_user(&confinement)?;
            end_with(supervisor)?;
            // The supervisor could enter folders that are closed for this user.
            if let Some(Err(errno)) = confinement.cwd.as_deref().map(chdir) {
                return Ok(Err(errno));
            }
            restrict::apply(&confinement)?;
            // As late as possible: the gateway has begun the kernel's wait for it.
            // The kernel checks the rights of the gateway, which opened the file.
            if let Some(entrance) = group.first() {
                rustix::io::write(entrance, b"0").map_err(SupervisorError::at("control group"))?;
            }
            Ok(Ok(confinement))
        })
        .inspect_err(|error| write_line(&control, &error.report()))?;
    let confinement = match confinement {
        Ok(confinement) => confinement,
        Err(errno) => {
            write_line(&control, &Report::NoDirectory(errno.raw_os_error()));
            return Ok(ExitCode::from(EXIT_SETUP_FAILED));
        }
    };
    write_line(&control, &Report::Started(getpid().as_raw_pid()));
    dup2_stdin(own_stdin).map_err(SupervisorError::at("stdin"))?;
    let error = execute(program, args, confinement.env);
    let errno = error.raw_os_error().unwrap_or(0);
    write_line(&control, &Report::ExecFailed(errno));
    Ok(ExitCode::from(EXIT_SETUP_FAILED))
}

/// Confines the process. The supervisor already created its process group.
fn confine(supervisor: Pid) -> Result<(), SupervisorError> {
    rustix::thread::set_no_new_privs(true).map_err(SupervisorError::at("no_new_privs"))?;
    no_core().map_err(SupervisorError::at("core limit"))?;
    // The program of a supervisor could trace the stage of a terminal. The next program can be traced again.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(SupervisorError::at("dumpable"))?;
    umask(Mode::from_raw_mode(0o077));
    end_with(supervisor)
}

/// Sets the death signal: the kernel kills this process when its parent ends. A change of the user clears the signal.
/// The parent is checked after the call, because a parent that ended before the call causes no signal.
fn end_with(supervisor: Pid) -> Result<(), SupervisorError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SupervisorError::at("death signal"))?;
    if getppid() == Some(supervisor) {
        Ok(())
    } else {
        Err(SupervisorError::other("supervisor", "it has ended"))
    }
}

/// Makes the pseudo terminal the program's controlling terminal, and its stdout and stderr.
fn acquire_terminal(terminal: &OwnedFd) -> Result<(), SupervisorError> {
    setsid().map_err(SupervisorError::at("session"))?;
    ioctl_tiocsctty(terminal).map_err(SupervisorError::at("controlling terminal"))?;
    dup2_stdout(terminal).map_err(SupervisorError::at("stdout"))?;
    dup2_stderr(terminal).map_err(SupervisorError::at("stderr"))
}

#[expect(clippy::disallowed_methods, reason = "this stage becomes the program")]
fn execute(program: &OsStr, args: &[OsString], env: Vec<(OsString, OsString)>) -> io::Error {
    Command::new(program)
        .args(args)
        .env_clear()
        .envs(env)
        .exec()
}

/// The number after stderr: children inherit no descriptor from here on.
const FIRST_INHERITED: i32 = 3;

/// Creates a session without a terminal, becomes the subreaper, and protects its memory (with the child's
/// environment) from other processes of the same user. Marks all descriptors that the gateway inherited as
/// close-on-exec.
pub(super) fn detach() -> Result<(), SupervisorError> {
    close_fds::set_fds_cloexec(FIRST_INHERITED, &[]);
    setsid().map_err(SupervisorError::at("session"))?;
    let own = Some(rustix::process::getpid());
    set_child_subreaper(own).map_err(SupervisorError::at("subreaper"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(SupervisorError::at("dumpable"))?;
    no_core().map_err(SupervisorError::at("core limit"))?;
    // The last stage sets it too. But that stage starts with an environment that may name libraries of other users.
    set_no_new_privs(true).map_err(SupervisorError::at("no_new_privs"))?;
    Ok(())
}

pub(super) fn no_core() -> rustix::io::Result<()> {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)
}

/// Closes the supervisor's copies of the child's pipes, so that the child alone decides when they end.
pub(super) fn release_stdio() -> Result<(), SupervisorError> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(SupervisorError::at("/dev/null"))?;
    dup2_stdout(&null).map_err(SupervisorError::at("stdout"))?;
    dup2_stderr(&null).map_err(SupervisorError::at("stderr"))?;
    dup2_stdin(&null).map_err(SupervisorError::at("stdin"))
}
