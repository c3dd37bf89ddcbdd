//! The terminal of the person, in raw mode while the value exists.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Restores the former mode at its drop, also after a panic.
pub(super) struct RawTerminal {
    terminal: OwnedFd,
    former: Termios,
}

impl RawTerminal {
    pub(super) fn enter(terminal: impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let former = tcgetattr(&terminal)?;
        let mut raw = former.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, former })
    }

    /// The columns and rows. A terminal without a size has those of a usual one.
    pub(super) fn size(&self) -> (u16, u16) {
        match tcgetwinsize(&self.terminal) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
            _ => (80, 24),
        }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.terminal, OptionalActions::Now, &self.former) {
            tracing::warn!(%error, "could not restore the terminal: run `reset`");
        }
    }
}
