//! The output of terminals while it arrives.

use std::collections::HashMap;

use crate::types::TerminalId;

/// The end of the output that is kept for each terminal.
const MAX_BYTES: usize = 16 << 10;

/// The end of the output of each terminal of a turn, for clients that replace a terminal as a whole.
#[derive(Debug, Default)]
pub struct TerminalTails(HashMap<TerminalId, String>);

impl TerminalTails {
    /// Appends output. Returns the end of the output so far.
    pub fn append(&mut self, terminal: TerminalId, data: &str) -> &str {
        let tail = self.0.entry(terminal).or_default();
        tail.push_str(data);
        let start = tail.ceil_char_boundary(tail.len().saturating_sub(MAX_BYTES));
        tail.drain(..start);
        tail
    }
}
