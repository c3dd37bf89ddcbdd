//! Child processes: spawn under a supervisor, graceful stop, the writer of stdin, the tail of stderr. No
//! other module starts processes.
//!
//! This module owns every process from its start to the end of its last descendant. It must not know the
//! protocol on the pipes: lines in, bytes out.
//!
//! # How a child runs
//!
//! The [`Spawner`] starts a supervisor on a blocking thread. The [`supervisor`] is this same binary, and it
//! starts the program. It adopts the descendants of the program and kills them at the end: after the
//! program's own end, after [`Child::stop`], and after the end of the gateway.
//!
//! A [`Child`] is the gateway's handle. Three tasks serve it: one writes stdin, one drains stderr, and the
//! reaper owns the supervisor process and stops it gracefully. Dropping the handle requests a stop.
//!
//! Reading order: [`limits`], [`spec`], [`spawn`], [`handshake`] with [`report`], [`supervisor`], [`exit`], [`child`],
//! [`reaper`], [`stdin`], [`stderr`] with [`mask`], then [`pty`] and [`terminal`].
//! [`isolation`] decides what a child may access, and [`control_groups`] limits and ends it.
//! [`run_file`] and [`procfs`] find processes,
//! [`resolve`] finds programs, [`real_folder`] opens folders, and [`mount_table`] finds what a path shows.

mod child;
mod control_groups;
mod exit;
mod handshake;
mod limits;
mod isolation;
mod mask;
mod mount_table;
mod open_files;
mod procfs;
mod pty;
mod real_folder;
mod reaper;
mod report;
mod resolve;
mod run_file;
mod spawn;
mod spec;
mod stderr;
mod stdin;
pub mod supervisor;
mod terminal;

pub use child::Child;
pub use control_groups::{ControlGroups, sweep_groups};
pub use exit::{Exit, StopReason};
pub use isolation::{
    AgentUsers, FolderGrants, IsolationPolicy, PACKAGE_FILE, Sandbox, UserError, UserRange,
    UserRangeError, UsersError, default_users,
};
pub use limits::{Limits, STDIN_STALL_TIMEOUT};
pub use mask::masked;
pub use open_files::OpenFiles;
pub use procfs::{ProcessTree, descends_from_this_process};
pub use pty::{PtyChild, PtyReader, PtySize, PtyWriter};
pub use real_folder::check_real_folder;
pub use resolve::{ResolveError, resolve, trusted_path};
pub use run_file::{SupervisorLock, sweep};
pub use spawn::{HostIsolation, Spawner, spawn_detached};
pub use spec::{ChildIsolation, ChildSpec, NO_ROOT_AGENTS, ResourceLimits, SpawnError};
pub use stderr::StderrTail;
pub use stdin::{MAX_STDIN_LINES, RESERVED_STDIN_LINES, StdinError, StdinWriter};
pub use terminal::{TerminalChild, TerminalOutput, TerminalSpec, Terminals};

/// Protects this process's memory, environment and descriptors from other processes of the same user.
///
/// Call it before reading a secret. The initial environment is readable until then. Only an executable that
/// its user may run but not read is protected from its first instruction on.
pub fn set_not_dumpable() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
