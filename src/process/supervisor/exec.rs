//! The last stage before the program, in the child's own process: drops the privileges that the program must not have.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::fs::Mode;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{
    DumpableBehavior, Pid, Signal, chdir, getpid, getppid, ioctl_tiocsctty, set_dumpable_behavior,
    set_parent_process_death_signal, setsid, umask,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stdin};

use super::channel::write_line;
use super::error::{EXIT_SETUP_FAILED, SupervisorError};
use super::{detach, receive, restrict, user};
use crate::process::isolation::Confinement;
use crate::process::report;

/// The kind of the program's stdin, stdout and stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdioMode {
    Pipes,
    /// One pseudo terminal, which is the program's controlling terminal.
    Pty,
}

/// Becomes `program`. Returns only if the kernel refuses to execute it.
pub(super) fn run(
    supervisor: Pid,
    stdio: StdioMode,
    program: &OsStr,
    args: &[OsString],
) -> Result<ExitCode, SupervisorError> {
    // The duplicate closes by itself when the program starts.
    let control = fcntl_dupfd_cloexec(stdin(), 3).map_err(SupervisorError::at("control socket"))?;
    confine(supervisor).inspect_err(|error| write_line(&control, &error.report_line()))?;
    let ([own_stdin, confinement], group) =
        receive::descriptors_and_others(stdin()).map_err(SupervisorError::at("stdin"))?;
    let confined = match stdio {
        StdioMode::Pipes => Ok(()),
        StdioMode::Pty => acquire_terminal(&own_stdin),
    };
    let confinement = confined
        .and_then(|()| Confinement::read(confinement).map_err(SupervisorError::at("confinement")))
        .and_then(|confinement| {
            user::become_user(&confinement)?;
            end_with(supervisor)?;
            // The supervisor could enter folders that are closed for this user.
            if let Some(Err(errno)) = confinement.cwd.as_deref().map(chdir) {
                return Ok(Err(errno));
            }
            restrict::apply(&confinement)?;
            // As late as possible: the gateway has begun the kernel's wait for it.
            group.first().map_or(Ok(()), enter_group)?;
            Ok(Ok(confinement))
        })
        .inspect_err(|error| write_line(&control, &error.report_line()))?;
    let confinement = match confinement {
        Ok(confinement) => confinement,
        Err(errno) => {
            write_line(&control, &report::no_directory_line(errno.raw_os_error()));
            return Ok(ExitCode::from(EXIT_SETUP_FAILED));
        }
    };
    write_line(&control, &report::exec_line(getpid().as_raw_pid()));
    dup2_stdin(own_stdin).map_err(SupervisorError::at("stdin"))?;
    let error = execute(program, args, confinement.env);
    write_line(
        &control,
        &report::exec_failed_line(error.raw_os_error().unwrap_or(0)),
    );
    Ok(ExitCode::from(EXIT_SETUP_FAILED))
}

/// Confines the process. The supervisor already created its process group.
fn confine(supervisor: Pid) -> Result<(), SupervisorError> {
    rustix::thread::set_no_new_privs(true).map_err(SupervisorError::at("no_new_privs"))?;
    detach::no_core().map_err(SupervisorError::at("core limit"))?;
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
        Err(SupervisorError {
            step: "supervisor",
            source: io::Error::other("it has ended"),
        })
    }
}

/// Enters the control group of the child. The kernel checks the rights of the gateway, which opened the file.
fn enter_group(entrance: &OwnedFd) -> Result<(), SupervisorError> {
    rustix::io::write(entrance, b"0")
        .map(drop)
        .map_err(SupervisorError::at("control group"))
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
