//! The frame format: one event as a block of SSE.
//!
//! A frame is exactly `id: <epoch>-<seq>\nevent: <type>\ndata: <one line of JSON>\n\n`. Its parts contain no line
//! feed, so that an empty line ends a frame and nothing else does.

use bytes::{BufMut, BytesMut};
use memchr::memmem;
use serde::Serialize;

pub(super) const ID: &str = "id: ";
pub(super) const KIND: &str = "event: ";
pub(super) const DATA: &str = "data: ";
pub(super) const END: &str = "\n\n";

/// The ends of consecutive frames, as offsets.
pub fn ends(frames: &[u8]) -> impl Iterator<Item = usize> {
    memmem::find_iter(frames, END.as_bytes()).map(|at| at + END.len())
}

/// Writes a block of SSE. The caller guarantees that no part contains a line break.
pub fn write_block(out: &mut BytesMut, id: Option<&str>, kind: Option<&str>, data: &[u8]) {
    for (name, value) in [(ID, id), (KIND, kind)] {
        if let Some(value) = value {
            out.put_slice(name.as_bytes());
            out.put_slice(value.as_bytes());
            out.put_u8(b'\n');
        }
    }
    out.put_slice(DATA.as_bytes());
    out.put_slice(data);
    out.put_slice(END.as_bytes());
}

/// Writes a block of SSE that has data only: one line of compact JSON. The caller guarantees that raw values contain no
/// line break, and that all keys are strings.
pub fn write_json(out: &mut BytesMut, value: &impl Serialize) {
    out.put_slice(DATA.as_bytes());
    serde_json::to_writer((&mut *out).writer(), value).expect("a buffer in memory grows");
    out.put_slice(END.as_bytes());
}
