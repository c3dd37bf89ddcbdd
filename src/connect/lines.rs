//! The output of the agent as complete lines.

use bytes::BytesMut;

/// The maximum size of a line that is examined. A longer line passes in parts, and the gateway rejects it.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Collects output until a line is complete.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: BytesMut,
    /// The bytes of `partial` that contain no end of a line.
    searched: usize,
    /// Whether the rest of a long line passes unchanged.
    is_passing: bool,
}

/// A piece of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A complete line with its end.
    Line(BytesMut),
    /// A part of a line that is too long, or the last line without its end.
    Part(BytesMut),
}

impl Lines {
    /// Adds output.
    pub(super) fn push(&mut self, block: &[u8]) {
        self.partial.extend_from_slice(block);
    }

    /// The next piece. `None`: the rest is not a complete line.
    pub(super) fn next_piece(&mut self) -> Option<Piece> {
        let end =
            memchr::memchr(b'\n', &self.partial[self.searched..]).map(|at| self.searched + at);
        self.searched = if end.is_some() { 0 } else { self.partial.len() };
        if self.is_passing {
            let part = self
                .partial
                .split_to(end.map_or(self.partial.len(), |at| at + 1));
            (self.is_passing, self.searched) = (end.is_none(), 0);
            return (!part.is_empty()).then_some(Piece::Part(part));
        }
        match end {
            Some(at) => Some(Piece::Line(self.partial.split_to(at + 1))),
            None if self.partial.len() > MAX_LINE_BYTES => {
                (self.is_passing, self.searched) = (true, 0);
                Some(Piece::Part(self.partial.split()))
            }
            None => None,
        }
    }

    /// The output after the last complete line, at the end of the output.
    pub(super) fn rest(&mut self) -> BytesMut {
        self.searched = 0;
        self.partial.split()
    }

    /// Whether the pieces so far end with a complete line, so that another line can follow.
    pub(super) fn is_at_line_start(&self) -> bool {
        !self.is_passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(lines: &mut Lines) -> Vec<Piece> {
        std::iter::from_fn(|| lines.next_piece()).collect()
    }

    #[test]
    fn lines_are_complete_and_long_lines_pass() {
        let line = |text: &str| Piece::Line(text.as_bytes().into());
        let mut lines = Lines::default();
        lines.push(b"a\nb");
        assert_eq!(pieces(&mut lines), [line("a\n")]);
        lines.push(b"c\n\nd");
        assert_eq!(pieces(&mut lines), [line("bc\n"), line("\n")]);
        assert_eq!(lines.rest(), "d");

        lines.push(&vec![b'x'; MAX_LINE_BYTES + 1]);
        assert!(
            matches!(&pieces(&mut lines)[..], [Piece::Part(part)] if part.len() == MAX_LINE_BYTES + 1)
        );
        assert!(!lines.is_at_line_start());
        lines.push(b"y");
        lines.push(b"z\nnext\n");
        assert_eq!(
            pieces(&mut lines),
            [Piece::Part(b"yz\n"[..].into()), line("next\n")]
        );
        assert!(lines.is_at_line_start());
    }
}
