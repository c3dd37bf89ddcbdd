//! How a supervisor starts another process of this program.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kind of the program's stdin, stdout and stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdioMode {
    Pipes,
    /// One pseudo terminal, which is the program's controlling terminal.
    Pty,
}

impl StdioMode {
    /// The command of a stage that exists for both kinds.
    pub(super) fn stage_command(self, name: &str) -> Command {
        match self {
            Self::Pipes => stage_command(name),
            Self::Pty => stage_command(&format!("{name}-pty")),
        }
    }
}

/// The command of a stage. `/proc/self/exe` names the running file also after its replacement on disk.
#[expect(
    clippy::disallowed_methods,
    reason = "a supervisor starts its one child, helpers, and supervisors of terminals"
)]
pub(super) fn stage_command(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    // The file name is not meaningful in a list of processes.
    command.arg0("acp-gateway").arg("supervisor").arg(name);
    command
}
