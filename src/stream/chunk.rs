//! Encodes a body of unknown length as chunks (RFC 9112, section 7.1), without copying large shared bytes.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Mutex;

use bytes::{Buf, Bytes};

use base::shutdown::lock_or_abort;

/// The number of pieces that one write takes. Further pieces of the chunk follow with the next write.
pub(super) const MAX_PIECES: usize = 16;

/// The limit of the gathered bytes of a chunk. A client that does not read keeps this much of the log in
/// memory.
const MAX_GATHERED_BYTES: usize = 64 << 10;

/// A chunk of up to this size is encoded as one piece. Up to this size, the number of slices costs more than
/// copying the bytes.
const SMALL_CHUNK_BYTES: usize = 4 << 10;

const CHUNK_END: &[u8] = b"\r\n";
const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

pub(super) struct ChunkWriter {
    head: Bytes,
    size_line: SizeLine,
    pieces: Vec<Bytes>,
    /// The end of the chunk, and after the last chunk the end of the body.
    suffix: &'static [u8],
    /// The chunk is encoded, and nothing can be added until it is written.
    started: bool,
}

struct SizeLine {
    text: [u8; 10],
    from: u8,
}

impl SizeLine {
    const EMPTY: Self = Self {
        text: [0; 10],
        from: 10,
    };

    fn encode(mut bytes: usize) -> Self {
        let mut line = Self {
            text: *b"        \r\n",
            from: 8,
        };
        while bytes > 0 && line.from > 0 {
            line.from -= 1;
            line.text[usize::from(line.from)] = b"0123456789abcdef"[bytes & 0xf];
            bytes >>= 4;
        }
        line
    }

    fn remaining(&self) -> &[u8] {
        &self.text[usize::from(self.from)..]
    }
}

/// The last small chunk that a thread encoded. A thousand readers of one session write the same chunk one
/// after the other.
///
/// The cache compares the content. A reference to the original piece would keep its whole run in memory until
/// the next chunk. Comparing a few bytes costs little next to the write that follows.
#[derive(Default)]
pub(super) struct ChunkCache(Mutex<CachedChunk>);

#[derive(Default)]
struct CachedChunk {
    bytes: Bytes,
    payload: Range<usize>,
}

impl ChunkCache {
    fn encode(&self, piece: &Bytes) -> Bytes {
        let mut last = lock_or_abort(self.0.lock());
        if last.bytes[last.payload.clone()] != **piece {
            let line = SizeLine::encode(piece.len());
            let line = line.remaining();
            last.payload = line.len()..line.len() + piece.len();
            last.bytes = [line, piece, CHUNK_END].concat().into();
        }
        last.bytes.clone()
    }
}

impl ChunkWriter {
    pub(super) fn with_head(head: Bytes) -> Self {
        Self {
            head,
            size_line: SizeLine::EMPTY,
            pieces: Vec::new(),
            suffix: &[],
            started: false,
        }
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        debug_assert!(
            !self.started,
            "an encoded chunk must be written before pieces are added"
        );
        self.pieces.push(piece);
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    pub(super) fn gathered(&self) -> (usize, usize) {
        (self.pieces.iter().map(Bytes::len).sum(), self.pieces.len())
    }

    pub(super) fn is_full(&self) -> bool {
        let (bytes, pieces) = self.gathered();
        bytes >= MAX_GATHERED_BYTES || pieces >= MAX_PIECES
    }

    /// Encodes the gathered pieces as a chunk, unless one is already encoded. `last` also ends the body.
    pub(super) fn start(&mut self, last: bool, cache: &ChunkCache) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        if let ([piece], false) = (&mut self.pieces[..], last)
            && (1..=SMALL_CHUNK_BYTES).contains(&piece.len())
        {
            *piece = cache.encode(piece);
            return;
        }
        let (bytes, _) = self.gathered();
        (self.size_line, self.suffix) = match (bytes, last) {
            (0, false) => (SizeLine::EMPTY, &[][..]),
            (0, true) => (SizeLine::EMPTY, LAST_CHUNK),
            (_, false) => (SizeLine::encode(bytes), CHUNK_END),
            (_, true) => (SizeLine::encode(bytes), CHUNK_END_AND_LAST),
        };
    }

    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; MAX_PIECES + 3]) -> usize {
        let pieces = self.pieces.iter().map(|piece| &**piece);
        let parts = [&*self.head, self.size_line.remaining()].into_iter();
        let parts = parts.chain(pieces).chain([self.suffix]);
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts.filter(|part| !part.is_empty())) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        count
    }

    /// Removes the written bytes. A completely written piece is released at once, also while the peer does
    /// not read.
    pub(super) fn advance(&mut self, mut written: usize) {
        let mut take = |len: usize| {
            let removed = written.min(len);
            written -= removed;
            removed
        };
        self.head.advance(take(self.head.len()));
        if self.head.is_empty() {
            self.head = Bytes::new();
        }
        self.size_line.from += u8::try_from(take(self.size_line.remaining().len()))
            .expect("a size line has ten bytes");
        let mut whole = 0;
        for piece in &mut self.pieces {
            piece.advance(take(piece.len()));
            if !piece.is_empty() {
                break;
            }
            whole += 1;
        }
        self.pieces.drain(..whole);
        self.suffix = &self.suffix[take(self.suffix.len())..];
    }

    pub(super) fn finish_if_written(&mut self) -> bool {
        let written = self.head.is_empty()
            && self.size_line.remaining().is_empty()
            && self.pieces.is_empty()
            && self.suffix.is_empty();
        if written {
            self.pieces = Vec::new();
            self.started = false;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Writes the chunk in steps of these sizes, and returns all written bytes.
    fn write_in_steps(
        chunk: &mut ChunkWriter,
        last: bool,
        made: &ChunkCache,
        steps: &mut impl Iterator<Item = usize>,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        chunk.start(last, made);
        while !chunk.finish_if_written() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES + 3];
            let count = chunk.slices(&mut slices);
            let all: Vec<u8> = slices[..count]
                .iter()
                .flat_map(|slice| slice.iter().copied())
                .collect();
            let step = steps
                .next()
                .expect("the iterator is endless")
                .min(all.len());
            out.extend_from_slice(&all[..step]);
            chunk.advance(step);
            // Repeats the call, as after a write that had to wait.
            chunk.start(last, made);
        }
        out
    }

    #[test]
    fn chunks_have_a_size_line_and_the_last_chunk_ends_the_body() {
        let mut chunk = ChunkWriter::with_head(Bytes::from_static(b"head\r\n\r\n"));
        let made = ChunkCache::default();
        let mut steps = std::iter::repeat(1000);
        for piece in ["0123456789", "abcdef"] {
            chunk.push(Bytes::from(piece));
        }
        assert_eq!(
            write_in_steps(&mut chunk, false, &made, &mut steps),
            b"head\r\n\r\n10\r\n0123456789abcdef\r\n"
        );
        assert_eq!(
            write_in_steps(&mut chunk, false, &made, &mut steps),
            b"",
            "no data is no chunk: an empty chunk ends the body"
        );
        chunk.push(Bytes::from_static(b"end"));
        assert_eq!(
            write_in_steps(&mut chunk, true, &made, &mut steps),
            b"3\r\nend\r\n0\r\n\r\n"
        );
        assert_eq!(
            write_in_steps(&mut chunk, true, &made, &mut steps),
            b"0\r\n\r\n"
        );
    }

    #[test]
    fn a_small_shared_chunk_is_encoded_once() {
        let made = ChunkCache::default();
        let piece = Bytes::from(vec![b'x'; 300]);
        let mut steps = std::iter::repeat(1000);
        let mut write = |piece: &Bytes, last| {
            let mut chunk = ChunkWriter::with_head(Bytes::new());
            chunk.push(piece.clone());
            chunk.start(last, &made);
            let whole = chunk.pieces[0].clone();
            (whole, write_in_steps(&mut chunk, last, &made, &mut steps))
        };
        let (first, out) = write(&piece, false);
        assert_eq!(out, [b"12c\r\n", &piece[..], b"\r\n"].concat());
        let (second, again) = write(&piece, false);
        assert_eq!((second.as_ptr(), &again), (first.as_ptr(), &out));
        let (_, other) = write(&piece.slice(..200), false);
        assert_eq!(
            other,
            [b"c8\r\n", &piece[..200], b"\r\n"].concat(),
            "a shorter piece is another chunk"
        );
        let (_, last) = write(&piece, true);
        assert_eq!(last, [&out[..], LAST_CHUNK].concat());
        let large = Bytes::from(vec![b'x'; SMALL_CHUNK_BYTES + 1]);
        assert_eq!(
            write(&large, false).0.as_ptr(),
            large.as_ptr(),
            "a large piece is not copied"
        );
    }

    #[test]
    fn the_chunk_cache_does_not_keep_the_run() {
        let made = ChunkCache::default();
        let run = Bytes::from(vec![b'x'; 1 << 20]);
        let mut chunk = ChunkWriter::with_head(Bytes::new());
        chunk.push(run.slice(run.len() - 300..));
        assert!(
            !run.is_unique(),
            "the chunk holds the run until it is written"
        );
        let out = write_in_steps(&mut chunk, false, &made, &mut std::iter::repeat(1000));
        assert_eq!(out, [b"12c\r\n", &run[..300], b"\r\n"].concat());
        assert!(run.is_unique());
        assert_eq!(
            made.0.lock().unwrap().bytes.len(),
            out.len(),
            "the cache holds the encoded chunk"
        );
    }

    proptest! {
        #[test]
        fn output_does_not_depend_on_write_sizes(
            chunks in prop::collection::vec(prop::collection::vec(1_usize..5000, 0..40), 1..5),
            steps in prop::collection::vec(1_usize..3000, 1..20),
        ) {
            let mut chunk = ChunkWriter::with_head(Bytes::from_static(b"head"));
            let made = ChunkCache::default();
            let mut out = Vec::new();
            let mut expected = b"head".to_vec();
            let mut steps = steps.into_iter().cycle();
            for pieces in chunks {
                let bytes: usize = pieces.iter().sum();
                if bytes > 0 {
                    expected.extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
                    expected.extend(std::iter::repeat_n(b'x', bytes));
                    expected.extend_from_slice(b"\r\n");
                }
                for piece in pieces {
                    chunk.push(Bytes::from(vec![b'x'; piece]));
                }
                out.extend(write_in_steps(&mut chunk, false, &made, &mut steps));
            }
            prop_assert_eq!(out, expected);
        }
    }
}
