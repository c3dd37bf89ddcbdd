//! Children: spawn under a keeper, stop ladder, stdin's writer, stderr's tail. Nobody else starts processes.
//!
//! It owns every process from its start to the last of its descendants. It must not know what is said
//! over the pipes: lines go in, bytes come out.
//!
//! # How a child runs
//!
//! The [`Spawner`] starts a keeper (this same binary, see [`keeper`]) on a thread for what blocks, and the keeper starts
//! the program.
//! The keeper adopts whatever the program leaves behind, so that at the end nothing of it lives on: not
//! after the program's own end, not after [`Child::stop`], not after the gateway was killed.
//!
//! A [`Child`] is the gateway's side. Behind it are three tasks: one feeds stdin, one drains stderr, and
//! the guard, which alone owns the keeper's process and walks the stop ladder. Whoever drops the child
//! has ordered a stop.

mod child;
mod reaper;
mod handshake;
pub mod supervisor;
mod mask;
mod open_files;
mod procfs;
mod pty;
mod report;
mod resolve;
mod run_file;
mod spawn;
mod spec;
mod stderr;
mod stdin;
mod terminal;
mod tree;

pub use child::{Child, Exit, StopReason};
pub use mask::masked;
pub use open_files::OpenFiles;
pub use pty::{PtyChild, PtyReader, PtySize, PtyWriter};
pub use resolve::{ResolveError, resolve, trusted_path};
pub use run_file::sweep;
pub use spawn::{SpawnError, Spawner};
pub use spec::ChildSpec;
pub use stderr::StderrTail;
pub use stdin::{StdinError, StdinWriter};
pub use terminal::{TerminalChild, TerminalOutput, TerminalSpec, Terminals};
pub use tree::ProcessTree;

/// Closes this process's memory, environment and descriptors to others of the same user.
///
/// Whoever may hold a secret calls it before anything else. The environment that a process began with is open until
/// then; only an executable that its user may run but not read is closed from its first instruction on.
pub fn set_not_dumpable() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
