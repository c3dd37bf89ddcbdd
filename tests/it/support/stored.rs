//! Reads and writes the stored form of a run's frames, independently of the gateway's code, because the form is a
//! disk format.

use lz4_flex::block;

/// The frames.
pub(crate) fn unpacked(stored: &[u8]) -> Vec<u8> {
    match stored {
        [b'i', ..] => stored.to_vec(),
        [0, packed @ ..] => block::decompress_size_prepended(packed).expect("one block of LZ4"),
        _ => panic!("neither frames nor packed: {:?}", stored.first()),
    }
}

/// The same as it would be stored if these were its frames.
pub(crate) fn stored_like(stored: &[u8], frames: &[u8]) -> Vec<u8> {
    if stored[0] == 0 {
        [vec![0], block::compress_prepend_size(frames)].concat()
    } else {
        frames.to_vec()
    }
}
