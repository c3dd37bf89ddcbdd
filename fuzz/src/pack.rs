//! Compression of stored runs: decompression of arbitrary bytes, and round trips of frames.

use log::store::compress::{Compressor, MAX_FRAMES_BYTES, decompress};

use super::input::Input;

/// The maximum length of frames here, so that an input takes little time.
const MOST: usize = 1 << 18;

/// The first byte selects the meaning of the rest: stored bytes, an LZ4 block with a right length or one that
/// is off by one, or frames.
pub fn pack(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => stored(input.rest()),
        1 => {
            let off = input.below(3);
            let block = input.rest();
            let length = (decoded(block).map_or(0, |frames| frames.len()) + off).saturating_sub(1);
            stored(&packed(length, block));
        }
        _ => frames(input),
    }
}

fn packed(length: usize, block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(length).expect("an input is short");
    [&[0], &length.to_le_bytes()[..], block].concat()
}

fn stored(stored: &[u8]) {
    let frames = decompress(stored).map(Vec::from);
    assert!(frames == model(stored), "{stored:?}");
    assert!(frames.is_none_or(
        |frames| frames.len() <= stored.len().saturating_mul(255).min(MAX_FRAMES_BYTES)
    ));
}

/// Runs that one compressor handles in sequence. The input lists pieces, each with a repeat count and a bit
/// to flip.
fn frames(mut input: Input<'_>) {
    let mut packer = Compressor::default();
    for _ in 0..=input.below(3) {
        let flip = usize::try_from(input.number() % (1 << 20)).expect("it is small");
        let mut frames = b"id: ".to_vec();
        for _ in 0..input.below(32) {
            let times = usize::from(input.byte()) + 1;
            let piece = input.piece().unwrap_or_default();
            let room = MOST.saturating_sub(frames.len()) / piece.len().max(1);
            frames.extend(piece.repeat(times.min(room)));
        }
        let mut kept = packer.compress(&frames).to_vec();
        assert!(
            kept == frames || kept.len() <= frames.len() - frames.len() / 8,
            "it is worth it"
        );
        assert!(
            decompress(&kept).is_some_and(|unpacked| unpacked == frames),
            "{frames:?}"
        );
        stored(&kept);
        let at = flip % kept.len();
        kept[at] ^= 1 << (flip % 8);
        stored(&kept);
        stored(&kept[..at]);
    }
}

/// The model: restores frames from stored bytes.
fn model(stored: &[u8]) -> Option<Vec<u8>> {
    match stored {
        [b'i', ..] => Some(stored.to_vec()),
        [0, a, b, c, d, block @ ..] => {
            let length = u32::from_le_bytes([*a, *b, *c, *d]);
            decoded(block).filter(|frames| frames.len() == length as usize)
        }
        _ => None,
    }
}

/// Decodes an LZ4 block byte by byte, as in the format's description: literals, then a copy of earlier
/// output.
fn decoded(block: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = block.iter().copied();
    let mut out = Vec::new();
    loop {
        let token = bytes.next()?;
        for _ in 0..length(token >> 4, &mut bytes)? {
            out.push(bytes.next()?);
        }
        // The last literals have no match after them.
        if bytes.len() == 0 {
            return Some(out);
        }
        let back = usize::from(u16::from_le_bytes([bytes.next()?, bytes.next()?]));
        for _ in 0..length(token & 15, &mut bytes)? + 4 {
            let from = out.len().checked_sub(back).filter(|_| back > 0)?;
            out.push(out[from]);
        }
    }
}

/// A length of four bits. If all are set, it continues with bytes up to the first that is not 255.
fn length(bits: u8, bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    let mut length = usize::from(bits);
    let mut more = bits == 15;
    while more {
        let byte = bytes.next()?;
        length += usize::from(byte);
        more = byte == 255;
    }
    Some(length)
}
