//! Splits bytes into lines. A line ends with `\n`; a preceding `\r` is removed.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// A line exceeded the limit before its end arrived. The following bytes cannot be assigned to lines, so the
/// stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line is longer than {cap} bytes")]
pub struct LineTooLong {
    pub cap: usize,
}

#[derive(Debug)]
pub struct LineDecoder {
    buffer: BytesMut,
    /// The number of bytes at the start of `buffer` without a newline. They are not searched again.
    scanned: usize,
    cap: usize,
}

impl LineDecoder {
    /// Creates a decoder for lines of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            cap,
        }
    }

    /// Returns the buffer for the next read, with space for at least `room` bytes.
    pub fn read_buffer(&mut self, room: usize) -> &mut BytesMut {
        self.buffer.reserve(room);
        &mut self.buffer
    }

    pub fn take_block(&mut self) -> Bytes {
        let Some(last) = memchr::memrchr(b'\n', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            return Bytes::new();
        };
        let block = self.buffer.split_to(self.scanned + last + 1).freeze();
        self.scanned = self.buffer.len();
        block
    }

    pub fn line_ranges(
        &self,
        block: &[u8],
    ) -> impl Iterator<Item = Result<Range<usize>, LineTooLong>> {
        let cap = self.cap;
        let mut start = 0;
        memchr::memchr_iter(b'\n', block).map(move |end| {
            let line = start..end;
            start = end + 1;
            if line.len() > cap {
                return Err(LineTooLong { cap });
            }
            let end = if block[line.clone()].ends_with(b"\r") {
                end - 1
            } else {
                end
            };
            Ok(line.start..end)
        })
    }

    /// Returns an error if the incomplete line is already too long.
    pub fn check_length(&self) -> Result<(), LineTooLong> {
        if self.buffer.len() > self.cap {
            Err(LineTooLong { cap: self.cap })
        } else {
            Ok(())
        }
    }

    /// Returns the bytes after the last line end. At the end of the stream, they are an incomplete line.
    pub fn partial(&self) -> &[u8] {
        &self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feed(chunks: &[&[u8]], cap: usize) -> Result<Vec<Bytes>, LineTooLong> {
        let mut lines = LineDecoder::new(cap);
        let mut got = Vec::new();
        for chunk in chunks {
            lines.read_buffer(chunk.len()).extend_from_slice(chunk);
            let block = lines.take_block();
            for line in lines.line_ranges(&block) {
                got.push(block.slice(line?));
            }
            lines.check_length()?;
        }
        Ok(got)
    }

    #[test]
    fn a_line_over_the_limit_is_an_error() {
        assert_eq!(feed(&[b"12345", b"6"], 5), Err(LineTooLong { cap: 5 }));
        assert_eq!(feed(&[b"123456\n"], 5), Err(LineTooLong { cap: 5 }));
        assert_eq!(
            feed(&[b"12345\r\n"], 6).unwrap(),
            [Bytes::from_static(b"12345")]
        );
    }

    proptest! {
        #[test]
        fn any_chunking_yields_the_same_lines(
            lines in prop::collection::vec("[a-zé☃]{0,20}", 0..8),
            cuts in prop::collection::vec(1usize..7, 1..40),
        ) {
            let whole: Vec<u8> = lines.iter().flat_map(|l| [l.as_bytes(), b"\n"].concat()).collect();
            let mut chunks: Vec<&[u8]> = Vec::new();
            let mut rest = &whole[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            let got = feed(&chunks, 1000).unwrap();
            let expected: Vec<Bytes> = lines.iter().map(|l| Bytes::copy_from_slice(l.as_bytes())).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
