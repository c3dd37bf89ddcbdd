//! Compression of a run's frames with LZ4. Events of one session are repetitive, and less data means less
//! work for checksums, syncs and checkpoints.
//!
//! The first byte selects the format. Uncompressed frames begin with `id: `. A compressed value begins with a
//! byte 0, then the length of the frames (32 bits, little-endian) and one LZ4 block. Any other value is
//! invalid. A fuzz target compares both directions with an independent LZ4 decoder.

use std::fmt;

use bytes::Bytes;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};

/// From the version without compression. No row changes. The version number prevents an older program from
/// sending compressed frames to readers.
pub(super) const MIGRATION: &str = "";

const PACKED: u8 = 0;
/// The first byte of uncompressed frames.
const PLAIN: u8 = b'i';
/// The mark and the length.
const HEAD: usize = 5;
/// Shorter frames are stored uncompressed: the gain is small, because a row occupies part of a page anyway.
const LEAST: usize = 512;
/// An LZ4 block decompresses to at most this multiple of its length.
const MOST: usize = 255;
/// Longer frames are stored uncompressed. The limit is twice the default limit of an agent's line. A larger
/// length field is invalid, and no memory is allocated for it.
pub const LARGEST: usize = 32 << 20;

/// Compresses runs one after the other and reuses its buffers.
#[derive(Default)]
pub struct Packer {
    room: Vec<u8>,
    table: Option<CompressTable>,
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packer")
    }
}

impl Packer {
    /// Returns the bytes to store for these frames.
    pub fn pack<'a>(&'a mut self, frames: &'a [u8]) -> &'a [u8] {
        debug_assert_eq!(frames.first(), Some(&PLAIN), "frames begin with an id");
        self.try_pack(frames).unwrap_or(frames)
    }

    /// Returns `None` if compression saves less than an eighth: every reader would have to decompress.
    fn try_pack(&mut self, frames: &[u8]) -> Option<&[u8]> {
        if !(LEAST..=LARGEST).contains(&frames.len()) {
            return None;
        }
        let length = u32::try_from(frames.len()).ok()?;
        let most = HEAD + get_maximum_output_size(frames.len());
        if self.room.len() < most {
            self.room.resize(most, 0);
        }
        let (head, block) = self.room.split_at_mut(HEAD);
        head[0] = PACKED;
        head[1..].copy_from_slice(&length.to_le_bytes());
        let table = self.table.get_or_insert_default();
        let end = HEAD + compress_into_with_table(frames, block, table).ok()?;
        (end <= frames.len() - frames.len() / 8).then(|| &self.room[..end])
    }
}

/// Restores the frames from stored bytes. Returns `None` if the bytes are invalid.
pub fn unpack(stored: &[u8]) -> Option<Bytes> {
    match stored.split_first()? {
        (&PLAIN, _) => Some(Bytes::copy_from_slice(stored)),
        (&PACKED, packed) => {
            let (length, block) = packed.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            if length > block.len().saturating_mul(MOST).min(LARGEST) {
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
    use super::super::checksum;
    use super::*;

    fn packed(frames: &[u8]) -> Vec<u8> {
        Packer::default().pack(frames).to_vec()
    }

    /// Stored bytes with another length field.
    fn with_length(stored: &[u8], length: u32) -> Vec<u8> {
        [&[PACKED], &length.to_le_bytes()[..], &stored[HEAD..]].concat()
    }

    #[test]
    fn what_is_said_again_is_stored_once() {
        let frames = run(1, 1..=400).frames;
        let stored = packed(&frames);
        assert!(stored[0] == PACKED && stored.len() < frames.len() / 3, "{}", stored.len());
        assert_eq!(unpack(&stored), Some(frames));
        // The maximum compression ratio of LZ4.
        let frames = [b"id: ", &vec![b'x'; 20 << 20][..]].concat();
        let stored = packed(&frames);
        assert!(stored.len() < frames.len() / 240, "{}", stored.len());
        assert!(unpack(&stored).unwrap() == frames);
    }

    #[test]
    fn what_packs_badly_and_what_is_small_stays_as_it_is() {
        let small = format!("id: {}", "x".repeat(LEAST - 5));
        for frames in [small.clone(), format!("id: {}", noise(1, 100_000)), "id: ".to_owned()] {
            assert_eq!(packed(frames.as_bytes()), frames.as_bytes());
            assert_eq!(unpack(frames.as_bytes()).unwrap(), frames);
        }
        assert!(packed(format!("{small}x").as_bytes()).len() < LEAST, "one byte more is compressed");
        // Compression must save at least an eighth.
        let part = |share| format!("id: {}{}", noise(2, 8000 - share), "x".repeat(share));
        assert_eq!(packed(part(900).as_bytes()).len(), 8004);
        assert!(packed(part(1200).as_bytes()).len() < 7000);
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let frames = run(1, 1..=100).frames;
        let (stored, length) = (packed(&frames), u32::try_from(frames.len()).unwrap());
        assert_eq!(unpack(&with_length(&stored, length)), Some(frames));
        for lie in [0, 1, length - 1, length + 1, length * 2, u32::MAX] {
            assert_eq!(unpack(&with_length(&stored, lie)), None, "{lie}");
        }
    }

    #[test]
    fn no_length_makes_room_for_more_than_is_packed() {
        // One byte longer than the limit for compression.
        let frames = [b"id: ", &vec![b'x'; LARGEST - 3][..]].concat();
        assert!(packed(&frames) == frames, "the frames are stored uncompressed");
        assert!(unpack(&frames).unwrap() == frames);
        let most = &frames[..LARGEST];
        let stored = packed(most);
        assert!(stored.len() < LARGEST / 240 && unpack(&stored).unwrap() == most);
        // A larger length is rejected, even if it is correct.
        let length = u32::try_from(frames.len()).unwrap();
        let block = lz4_flex::block::compress(&frames);
        assert_eq!(unpack(&with_length(&[&[0; HEAD], &block[..]].concat(), length)), None);
    }

    #[test]
    fn what_was_never_written_is_no_frames() {
        for stored in
            [&b""[..], b"\0", b"\0\0\0\0", b"\0\0\0\0\0", b"\0\x01\0\0\0", b"x", b"\x01id: ", b"d: "]
        {
            assert_eq!(unpack(stored), None, "{stored:?}");
        }
    }

    /// Frames of arbitrary bytes with repetitions.
    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let part = (prop::collection::vec(any::<u8>(), 0..80), 1..60_usize);
        prop::collection::vec(part, 0..60).prop_map(|parts| {
            let parts = parts.into_iter().map(|(bytes, times)| bytes.repeat(times));
            [b"id: ".to_vec()].into_iter().chain(parts).flatten().collect()
        })
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(all in prop::collection::vec(frames(), 1..4)) {
            let mut packer = Packer::default();
            for frames in all {
                let stored = packer.pack(&frames).to_vec();
                prop_assert!(stored.len() <= frames.len());
                prop_assert_eq!(unpack(&stored).unwrap(), frames);
            }
        }

        #[test]
        fn other_bytes_than_were_stored_are_told(
            frames in frames(),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let stored = packed(&frames);
            let crc = |stored: &[u8]| checksum(session(1), 1, 2, stored);
            let at = at.index(stored.len());
            let mut flipped = stored.clone();
            flipped[at] ^= 1 << bit;
            for other in [&flipped[..], &stored[..at], &stored[at..][1..]] {
                // Changed bytes may decompress, but their checksum differs.
                if let Some(frames) = unpack(other) {
                    prop_assert!(frames.len() <= other.len() * MOST);
                }
                prop_assert_ne!(crc(other), crc(&stored));
            }
        }

        #[test]
        fn no_bytes_become_more_than_lz4_makes_of_them(
            length in any::<u32>(),
            block in prop::collection::vec(any::<u8>(), 0..400),
        ) {
            let length = if length % 2 == 0 { length % 2000 } else { length };
            let stored = [&[PACKED], &length.to_le_bytes()[..], &block].concat();
            if let Some(frames) = unpack(&stored) {
                prop_assert!(frames.len() == usize::try_from(length).unwrap());
                prop_assert!(frames.len() <= block.len() * MOST);
            }
        }
    }
}
