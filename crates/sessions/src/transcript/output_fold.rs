//! Folds a terminal's output from the log.

use base::types::TerminalId;
use events::event::{EventMembers, EventRef, Payload, TerminalOutput};

/// The latest contiguous output of a terminal.
#[derive(Debug)]
pub struct OutputFold {
    terminal: TerminalId,
    limit: usize,
    pub output: String,
    pub offset: u64,
}

impl OutputFold {
    pub fn new(terminal: TerminalId, limit: usize) -> Self {
        Self {
            terminal,
            limit,
            output: String::new(),
            offset: 0,
        }
    }

    /// Folds an event. Events of other types and terminals are ignored.
    pub fn event(&mut self, event: &EventRef<'_>) {
        if event.kind() != TerminalOutput::TYPE {
            return;
        }
        let Some(Payload {
            terminal_id,
            offset: Some(offset),
            data: Some(data),
            ..
        }) = event.payload()
        else {
            return;
        };
        if terminal_id != Some(self.terminal) {
            return;
        }
        if offset != self.offset + self.output.len() as u64 {
            // The output in between was not logged or has been pruned.
            self.output.clear();
            self.offset = offset;
        }
        self.output.push_str(&data);
        let over = self
            .output
            .ceil_char_boundary(self.output.len().saturating_sub(self.limit));
        self.output.drain(..over);
        self.offset += over as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use events::event::testing::{event, frame};

    fn framed(kind: &str, members: &str) -> Vec<u8> {
        frame(1, kind, None, "2026-11-21T22:15:00.000Z", members)
    }

    fn output(terminal: &str, offset: u64, data: &str) -> String {
        format!(r#""terminalId":"{terminal}","offset":{offset},"data":"{data}""#)
    }

    #[test]
    fn chunks_join_and_gap_restarts_output() {
        let mut fold = OutputFold::new(TerminalId::new(1), 8);
        let mut push = |kind: &str, members: &str| {
            fold.event(&event(&framed(kind, members)));
            (fold.output.clone(), fold.offset)
        };
        push("terminal.output", &output("t1", 0, "one "));
        push("terminal.output", &output("t2", 0, "another's"));
        push("session.update", &output("t1", 0, "no output"));
        push("terminal.output", "");
        assert_eq!(
            push("terminal.output", &output("t1", 4, "two é")),
            ("e two é".to_owned(), 2)
        );
        assert_eq!(
            push("terminal.output", &output("t1", 100, "end")),
            ("end".to_owned(), 100)
        );
    }
}
