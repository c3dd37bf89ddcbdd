//! The encoding of events for the protocol of a client.

use std::fmt;

use bytes::BytesMut;

use crate::event::{ControlFrame, EventRef};

/// Encodes the events of a stream in the protocol of its client.
///
/// An encoder has no clock and no input other than the events of the stream. Therefore, a replay has the same
/// bytes as the live stream. An encoder without state has no size, so its box needs no memory.
pub trait Encoder: fmt::Debug + Send + Sync {
    /// The media type of the response.
    fn media_type(&self) -> &'static str;

    /// Whether the stored frame of an event is its encoding. If so, the stream sends stored runs without a
    /// copy, and direct delivery can write them.
    fn uses_stored_frames(&self) -> bool;

    /// Appends an event of the log. `id` formats the cursor of the client after the event.
    fn event(&mut self, out: &mut BytesMut, id: &dyn Fn() -> String, event: &EventRef<'_>);

    /// Appends a frame that is not in the log.
    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame);

    /// Appends the delay before a client reconnects. It may belong to the next frame.
    fn retry(&mut self, out: &mut BytesMut, milliseconds: u64);

    /// Bytes that keep an idle connection open. They are no frame, and end none.
    fn keep_alive(&self) -> &'static [u8];

    /// Whether the encoder has written the last frame of its protocol. The stream then ends without another frame.
    fn is_complete(&self) -> bool {
        false
    }
}
