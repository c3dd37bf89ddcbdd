//! Folds a terminal's output from the log.

use serde::Deserialize;

use crate::api::event::{EventMembers, TerminalOutput};
use crate::types::TerminalId;

/// The latest contiguous output of a terminal.
#[derive(Debug)]
pub struct OutputFold {
    terminal: TerminalId,
    limit: usize,
    pub output: String,
    /// The number of bytes before `output`.
    pub offset: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputChunk {
    terminal_id: String,
    offset: u64,
    data: String,
}

impl OutputFold {
    /// Creates a fold that keeps `limit` bytes.
    pub fn new(terminal: TerminalId, limit: usize) -> Self {
        Self { terminal, limit, output: String::new(), offset: 0 }
    }

    /// Folds an event. Events of other types and terminals are ignored.
    pub fn event(&mut self, kind: &str, data: &[u8]) {
        if kind != TerminalOutput::TYPE {
            return;
        }
        let Ok(piece) = serde_json::from_slice::<OutputChunk>(data) else { return };
        if piece.terminal_id != self.terminal.to_string() {
            return;
        }
        if piece.offset != self.offset + self.output.len() as u64 {
            // The output in between was not logged or has been pruned.
            self.output.clear();
            self.offset = piece.offset;
        }
        self.output.push_str(&piece.data);
        let over = self.output.ceil_char_boundary(self.output.len().saturating_sub(self.limit));
        self.output.drain(..over);
        self.offset += over as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(terminal: &str, offset: u64, data: &str) -> Vec<u8> {
        serde_json::json!({ "id": "k-1", "terminalId": terminal, "offset": offset, "data": data })
            .to_string()
            .into_bytes()
    }

    #[test]
    fn chunks_join_and_gap_restarts_output() {
        let mut fold = OutputFold::new(TerminalId::new(1), 8);
        fold.event("terminal.output", &output("t1", 0, "one "));
        fold.event("terminal.output", &output("t2", 0, "another's"));
        fold.event("session.update", &output("t1", 0, "no output"));
        fold.event("terminal.output", b"{}");
        fold.event("terminal.output", &output("t1", 4, "two é"));
        assert_eq!((fold.output.as_str(), fold.offset), ("e two é", 2));
        fold.event("terminal.output", &output("t1", 100, "end"));
        assert_eq!((fold.output.as_str(), fold.offset), ("end", 100));
    }
}
