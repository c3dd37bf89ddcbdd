//! Pure folds of events: the snapshot of a session, and the turns of its transcript.
//!
//! This module owns the rules by which events combine. It has no clock and does no I/O. The same events yield
//! the same result, live or read from the log after a restart. It must not know the store, readers or the
//! session's actor.
//!
//! Reading order: `session_fold`, `turn_fold` and `output_fold` (the folds), `items`, `plans`, `tool_call`,
//! `content`, `halves` and `members` (their parts), `diff` and `markdown` (export).

mod content;
mod diff;
pub(crate) mod halves;
mod items;
mod markdown;
mod members;
mod output_fold;
mod plans;
mod session_fold;
mod tool_call;
mod turn_fold;

pub use content::{array, decode, raw_text, text, text_of};
pub use diff::Diff;
pub use halves::replace_halves;
pub use markdown::markdown;
pub use members::Null;
pub use output_fold::OutputFold;
pub use plans::Plans;
pub(crate) use session_fold::SUBAGENT_ID_BYTES;
pub use session_fold::SessionFold;
pub use tool_call::{Description, ToolCall};
pub use turn_fold::TurnFold;

/// The size in bytes of one raw member (modes, options, commands, a plan) in a session's snapshot. The
/// snapshot omits a larger member, and the log still contains it. The value is a constant, so that folding
/// the same events always yields the same snapshot.
pub(crate) const FOLDED_MEMBER_BYTES: usize = 1 << 20;

/// The bytes that a fold may still add. Members that do not fit are omitted, and the turn is marked as
/// truncated.
#[derive(Debug)]
pub struct Budget {
    pub left: usize,
    exceeded: bool,
}

impl Budget {
    pub fn new(bytes: usize) -> Self {
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

    pub fn release(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
