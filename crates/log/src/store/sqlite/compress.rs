//! Compression of a run's frames with LZ4. Events of one session are repetitive, and less data means less
//! work for checksums, syncs and checkpoints.
//!
//! The first byte selects the format. Uncompressed frames begin with `id: `. A compressed value begins with a
//! byte 0, then the length of the frames (32 bits, little-endian) and one LZ4 block. Any other value is
//! invalid. A fuzz target compares both directions with an independent LZ4 decoder.

use bytes::Bytes;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};

const COMPRESSED: u8 = 0;
/// The first byte of uncompressed frames.
const PLAIN: u8 = b'i';
/// The mark and the length.
const HEADER_BYTES: usize = 5;
/// Shorter frames are stored uncompressed: the gain is small, because a row occupies part of a page anyway.
const MIN_BYTES: usize = 512;
/// An LZ4 block decompresses to at most this multiple of its length.
const MAX_RATIO: usize = 255;
/// Longer frames are stored uncompressed. The limit is twice the default limit of an agent's line. A larger
/// length field is invalid, and no memory is allocated for it.
pub const MAX_FRAMES_BYTES: usize = 32 << 20;

/// Compresses runs one after the other and reuses its buffers.
#[derive(Default)]
pub struct Compressor {
    buffer: Vec<u8>,
    table: Option<CompressTable>,
}

impl Compressor {
    pub fn compress<'a>(&'a mut self, frames: &'a [u8]) -> &'a [u8] {
        debug_assert_eq!(frames.first(), Some(&PLAIN), "frames begin with an id");
        self.try_compress(frames).unwrap_or(frames)
    }

    /// Returns `None` if compression saves less than an eighth: every reader would have to decompress.
    fn try_compress(&mut self, frames: &[u8]) -> Option<&[u8]> {
        if !(MIN_BYTES..=MAX_FRAMES_BYTES).contains(&frames.len()) {
            return None;
        }
        let length = u32::try_from(frames.len()).ok()?;
        let most = HEADER_BYTES + get_maximum_output_size(frames.len());
        if self.buffer.len() < most {
            self.buffer.resize(most, 0);
        }
        let (head, block) = self.buffer.split_at_mut(HEADER_BYTES);
        head[0] = COMPRESSED;
        head[1..].copy_from_slice(&length.to_le_bytes());
        let table = self.table.get_or_insert_default();
        let end = HEADER_BYTES + compress_into_with_table(frames, block, table).ok()?;
        (end <= frames.len() - frames.len() / 8).then(|| &self.buffer[..end])
    }
}

/// Restores the frames from stored bytes. Returns `None` if the bytes are invalid.
pub fn decompress(stored: &[u8]) -> Option<Bytes> {
    match stored.split_first()? {
        (&PLAIN, _) => Some(Bytes::copy_from_slice(stored)),
        (&COMPRESSED, packed) => {
            let (length, block) = packed.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            if length > block.len().saturating_mul(MAX_RATIO).min(MAX_FRAMES_BYTES) {
                return None;
            }
            let mut frames = vec![0; length];
            (decompress_into(block, &mut frames).ok()? == length).then(|| frames.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::contract::{noise, run, session};
    use super::super::row::checksum;
    use super::*;

    fn compressed(frames: &[u8]) -> Vec<u8> {
        Compressor::default().compress(frames).to_vec()
    }

    /// Stored bytes with another length field.
    fn with_length(stored: &[u8], length: u32) -> Vec<u8> {
        [
            &[COMPRESSED],
            &length.to_le_bytes()[..],
            &stored[HEADER_BYTES..],
        ]
        .concat()
    }

    #[test]
    fn repetitive_frames_are_compressed() {
        let frames = run(1, 1..=400).frames;
        let stored = compressed(&frames);
        assert!(
            stored[0] == COMPRESSED && stored.len() < frames.len() / 3,
            "{}",
            stored.len()
        );
        assert_eq!(decompress(&stored), Some(frames));
        // The maximum compression ratio of LZ4.
        let frames = [b"id: ", &vec![b'x'; 20 << 20][..]].concat();
        let stored = compressed(&frames);
        assert!(stored.len() < frames.len() / 240, "{}", stored.len());
        assert!(decompress(&stored).unwrap() == frames);
    }

    #[test]
    fn incompressible_and_small_frames_are_stored_plain() {
        let small = format!("id: {}", "x".repeat(MIN_BYTES - 5));
        for frames in [
            small.clone(),
            format!("id: {}", noise(1, 100_000)),
            "id: ".to_owned(),
        ] {
            assert_eq!(compressed(frames.as_bytes()), frames.as_bytes());
            assert_eq!(decompress(frames.as_bytes()).unwrap(), frames);
        }
        assert!(
            compressed(format!("{small}x").as_bytes()).len() < MIN_BYTES,
            "one byte more is compressed"
        );
        // Compression must save at least an eighth.
        let part = |share| format!("id: {}{}", noise(2, 8000 - share), "x".repeat(share));
        assert_eq!(compressed(part(900).as_bytes()).len(), 8004);
        assert!(compressed(part(1200).as_bytes()).len() < 7000);
    }

    #[test]
    fn wrong_length_is_rejected() {
        let frames = run(1, 1..=100).frames;
        let stored = compressed(&frames);
        let length = u32::try_from(frames.len()).unwrap();
        assert_eq!(decompress(&with_length(&stored, length)), Some(frames));
        for lie in [0, 1, length - 1, length + 1, length * 2, u32::MAX] {
            assert_eq!(decompress(&with_length(&stored, lie)), None, "{lie}");
        }
    }

    #[test]
    fn length_over_limit_allocates_nothing() {
        // One byte longer than the limit for compression.
        let frames = [b"id: ", &vec![b'x'; MAX_FRAMES_BYTES - 3][..]].concat();
        assert!(
            compressed(&frames) == frames,
            "the frames are stored uncompressed"
        );
        assert!(decompress(&frames).unwrap() == frames);
        let most = &frames[..MAX_FRAMES_BYTES];
        let stored = compressed(most);
        assert!(stored.len() < MAX_FRAMES_BYTES / 240 && decompress(&stored).unwrap() == most);
        // A larger length is rejected, even if it is correct.
        let length = u32::try_from(frames.len()).unwrap();
        let block = lz4_flex::block::compress(&frames);
        assert_eq!(
            decompress(&with_length(
                &[&[0; HEADER_BYTES], &block[..]].concat(),
                length
            )),
            None
        );
    }

    #[test]
    fn unknown_format_is_rejected() {
        for stored in [
            &b""[..],
            b"\0",
            b"\0\0\0\0",
            b"\0\0\0\0\0",
            b"\0\x01\0\0\0",
            b"x",
            b"\x01id: ",
            b"d: ",
        ] {
            assert_eq!(decompress(stored), None, "{stored:?}");
        }
    }

    /// Frames of arbitrary bytes with repetitions.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let part = (prop::collection::vec(any::<u8>(), 0..80), 1..60_usize);
        prop::collection::vec(part, 0..60).prop_map(|parts| {
            let parts = parts.into_iter().map(|(bytes, times)| bytes.repeat(times));
            [b"id: ".to_vec()]
                .into_iter()
                .chain(parts)
                .flatten()
                .collect()
        })
    }

    proptest! {
        #[test]
        fn round_trip(all in prop::collection::vec(frames(), 1..4)) {
            let mut packer = Compressor::default();
            for frames in all {
                let stored = packer.compress(&frames).to_vec();
                prop_assert!(stored.len() <= frames.len());
                prop_assert_eq!(decompress(&stored).unwrap(), frames);
            }
        }

        #[test]
        fn changed_bytes_fail_the_checksum(
            frames in frames(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let stored = compressed(&frames);
            let crc = |stored: &[u8]| checksum(session(1), 1, 2, stored);
            let at = at.index(stored.len());
            let mut flipped = stored.clone();
            flipped[at] ^= 1 << bit;
            for other in [&flipped[..], &stored[..at], &stored[at..][1..]] {
                // Changed bytes may decompress, but their checksum differs.
                if let Some(frames) = decompress(other) {
                    prop_assert!(frames.len() <= other.len() * MAX_RATIO);
                }
                prop_assert_ne!(crc(other), crc(&stored));
            }
        }

        #[test]
        fn decompressed_size_is_bounded(
            length in any::<u32>(),
            block in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let length = if length % 2 == 0 { length % 2000 } else { length };
            let stored = [&[COMPRESSED], &length.to_le_bytes()[..], &block].concat();
            if let Some(frames) = decompress(&stored) {
                prop_assert!(frames.len() == usize::try_from(length).unwrap());
                prop_assert!(frames.len() <= block.len() * MAX_RATIO);
            }
        }
    }
}
