//! The frame of a body whose length nobody knows: chunks (RFC 9112, section 7.1), made of bytes that others hold too.

use std::io::IoSlice;
use std::sync::Mutex;

use bytes::{Buf, Bytes};

use crate::shutdown::lock_or_abort;

/// Pieces of one chunk. More of them than a write takes go with the next write.
pub(super) const MAX_PIECES: usize = 16;

/// Up to so many bytes a chunk is one piece, its frame and all: then what a write costs is not its bytes.
const SMALL_CHUNK_BYTES: usize = 4 << 10;

const CHUNK_END: &[u8] = b"\r\n";
const CHUNK_END_AND_LAST: &[u8] = b"\r\n0\r\n\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What is to be written: first it is gathered, then it is a chunk of which less and less is left.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    /// The answer's head, before the first one.
    head: Bytes,
    size_line: SizeLine,
    pieces: Vec<Bytes>,
    /// What ends the chunk, and the answer after its last one.
    suffix: &'static [u8],
    /// It is on its way, and nothing can be added.
    started: bool,
}

/// The line before a chunk: how long that is.
#[derive(Debug)]
struct SizeLine {
    text: [u8; 10],
    from: u8,
}

impl SizeLine {
    const EMPTY: Self = Self { text: [0; 10], from: 10 };

    fn encode(mut bytes: usize) -> Self {
        let mut line = Self { text: *b"        \r\n", from: 8 };
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

/// The last small chunk that a thread has made: a thousand readers of one session say the same, one after the other.
///
/// It is known by its bytes. To hold what it was made of would hold the whole run, however large, until another one is
/// made, and to look at so few bytes is nothing beside the write that follows.
#[derive(Debug, Default)]
pub(in crate::http) struct ChunkCache(Mutex<Bytes>);

impl ChunkCache {
    fn encode(&self, piece: &Bytes) -> Bytes {
        let line = SizeLine::encode(piece.len());
        let mut made = lock_or_abort(self.0.lock());
        let payload = made.strip_prefix(line.remaining()).and_then(|rest| rest.strip_suffix(CHUNK_END));
        if payload != Some(&**piece) {
            *made = [line.remaining(), piece, CHUNK_END].concat().into();
        }
        made.clone()
    }
}

impl ChunkWriter {
    pub(super) fn with_head(head: Bytes) -> Self {
        Self { head, size_line: SizeLine::EMPTY, pieces: Vec::new(), suffix: &[], started: false }
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        debug_assert!(!self.started, "what was begun is written first");
        self.pieces.push(piece);
    }

    /// It is on its way, and to be through before anything is added.
    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// How many bytes were gathered, and in how many pieces.
    pub(super) fn gathered(&self) -> (usize, usize) {
        (self.pieces.iter().map(Bytes::len).sum(), self.pieces.len())
    }

    /// Makes a chunk of what was gathered, if it is none yet; the last one when `last`.
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

    /// What is left of it, as far as one write goes.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; MAX_PIECES + 3]) -> usize {
        let edges = [&*self.head, self.size_line.remaining()];
        let parts = edges.into_iter().chain(self.pieces.iter().map(|piece| &**piece)).chain([self.suffix]);
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts.filter(|part| !part.is_empty())) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        count
    }

    /// Forgets what is written. Nothing of a piece that is through is kept for who takes no more.
    pub(super) fn advance(&mut self, mut written: usize) {
        let mut take = |len: usize| {
            let taken = written.min(len);
            written -= taken;
            taken
        };
        self.head.advance(take(self.head.len()));
        if self.head.is_empty() {
            self.head = Bytes::new();
        }
        self.size_line.from += u8::try_from(take(self.size_line.remaining().len())).expect("a line has ten bytes");
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

    /// Whether it is through; then it keeps no room for the next.
    pub(super) fn finish_if_written(&mut self) -> bool {
        let over = self.head.is_empty()
            && self.size_line.remaining().is_empty()
            && self.pieces.is_empty()
            && self.suffix.is_empty();
        if over {
            self.pieces = Vec::new();
            self.started = false;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything that is written, in steps of these sizes.
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
            let all: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
            let step = steps.next().expect("they have no end").min(all.len());
            out.extend_from_slice(&all[..step]);
            chunk.advance(step);
            // As when a write had to wait.
            chunk.start(last, made);
        }
        out
    }

    #[test]
    fn chunks_have_a_size_line_and_the_last_chunk_ends_the_body() {
        let (mut chunk, made) = (ChunkWriter::with_head(Bytes::from_static(b"head\r\n\r\n")), ChunkCache::default());
        let mut steps = std::iter::repeat(1000);
        for piece in ["0123456789", "abcdef"] {
            chunk.push(Bytes::from(piece));
        }
        assert_eq!(write_in_steps(&mut chunk, false, &made, &mut steps), b"head\r\n\r\n10\r\n0123456789abcdef\r\n");
        assert_eq!(
            write_in_steps(&mut chunk, false, &made, &mut steps),
            b"",
            "nothing to say is no chunk: it would be the last"
        );
        chunk.push(Bytes::from_static(b"end"));
        assert_eq!(write_in_steps(&mut chunk, true, &made, &mut steps), b"3\r\nend\r\n0\r\n\r\n");
        assert_eq!(write_in_steps(&mut chunk, true, &made, &mut steps), b"0\r\n\r\n");
    }

    #[test]
    fn a_small_shared_chunk_is_encoded_once() {
        let (made, piece) = (ChunkCache::default(), Bytes::from(vec![b'x'; 300]));
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
        assert_eq!(other, [b"c8\r\n", &piece[..200], b"\r\n"].concat(), "it begins at the same byte");
        let (_, last) = write(&piece, true);
        assert_eq!(last, [&out[..], LAST_CHUNK].concat());
        let large = Bytes::from(vec![b'x'; SMALL_CHUNK_BYTES + 1]);
        assert_eq!(write(&large, false).0.as_ptr(), large.as_ptr(), "many bytes are not copied");
    }

    #[test]
    fn the_chunk_cache_does_not_keep_the_run() {
        let (made, run) = (ChunkCache::default(), Bytes::from(vec![b'x'; 1 << 20]));
        let mut chunk = ChunkWriter::with_head(Bytes::new());
        chunk.push(run.slice(run.len() - 300..));
        assert!(!run.is_unique(), "it is held until it is written");
        let out = write_in_steps(&mut chunk, false, &made, &mut std::iter::repeat(1000));
        assert_eq!(out, [b"12c\r\n", &run[..300], b"\r\n"].concat());
        assert!(run.is_unique());
        assert_eq!(made.0.lock().unwrap().len(), out.len(), "the chunk is there for the next");
    }

    proptest! {
        #[test]
        fn output_does_not_depend_on_write_sizes(
            chunks in prop::collection::vec(prop::collection::vec(1_usize..5000, 0..40), 1..5),
            steps in prop::collection::vec(1_usize..3000, 1..20),
        ) {
            let (mut chunk, made) = (ChunkWriter::with_head(Bytes::from_static(b"head")), ChunkCache::default());
            let (mut out, mut expected) = (Vec::new(), b"head".to_vec());
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
