//! Pure folds of events: the snapshot of a session, and the turns of its transcript.
//!
//! This module owns the rules by which events combine. It has no clock and does no I/O. The same events yield
//! the same result, live or read from the log after a restart. It must not know the store, readers or the
//! session's actor.
//!
//! Reading order: `event_view` (the decoded members), `session_fold`, `turn_fold` and `output_fold` (the
//! folds), `items`, `tool_call`, `content`, `members` and `prompt_title` (their parts), `markdown` and `escape` (export).

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
mod prompt_title;
mod session_fold;
mod escape;
mod subagents;
mod tool_call;
mod turn_fold;

pub use content::{decode, text_of};
pub use diff::lines as diff_lines;
pub use markdown::markdown;
pub use output_fold::OutputFold;
pub use session_fold::SessionFold;
pub use turn_fold::TurnFold;

/// The bytes that a fold may still add. Members that do not fit are omitted, and the turn is marked as
/// truncated.
#[derive(Debug)]
struct Budget {
    left: usize,
    exceeded: bool,
}

impl Budget {
    fn new(bytes: usize) -> Self {
        Self {
            left: bytes,
            exceeded: false,
        }
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.exceeded |= left.is_none();
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Reserves up to `bytes` and returns the reserved number.
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
