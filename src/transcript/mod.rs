//! A pure fold of events: a session's snapshot, and the turns of its transcript.
//!
//! It owns how events add up. It has no clock and does no I/O: the same events give the same result, whether they
//! come one by one while a session lives or from the log after a restart.

mod command_output;
mod content;
mod diff;
mod items;
mod markdown;
mod members;
mod output_fold;
mod parts;
mod plan_text;
mod plans;
mod session_fold;
mod escape;
mod subagents;
mod tool_call;
mod turn_fold;

pub use markdown::markdown;
pub use output_fold::OutputFold;
pub use session_fold::SessionFold;
pub use turn_fold::TurnFold;

/// What a fold may still hold. What does not fit is left out, and the turn says so.
#[derive(Debug)]
struct Budget {
    left: usize,
    exceeded: bool,
}

impl Budget {
    fn new(bytes: usize) -> Self {
        Self { left: bytes, exceeded: false }
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.exceeded |= left.is_none();
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Takes as many of these bytes as are left.
    fn reserve_up_to(&mut self, bytes: usize) -> usize {
        self.exceeded |= bytes > self.left;
        let part = bytes.min(self.left);
        self.left -= part;
        part
    }

    fn release(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
