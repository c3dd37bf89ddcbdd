//! Bytes with other bytes in them: how the records of one session become those of another.

use memchr::memmem;

pub(crate) fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    for found in memmem::find_iter(bytes, from) {
        out.extend_from_slice(&bytes[at..found]);
        out.extend_from_slice(to);
        at = found + from.len();
    }
    out.extend_from_slice(&bytes[at..]);
    out
}
