//! The encoding of events for the protocol of a client: Server-Sent Events and newline-delimited JSON.

use std::fmt::Write as _;

use bytes::{BufMut, BytesMut};

use events::event::{self, ControlFrame, EventRef};

/// Encodes the events of a stream in the protocol of its client.
///
/// An encoder has no clock and no input other than the events of the stream. Therefore, a replay has the same
/// bytes as the live stream. An encoder without state has no size, so its box needs no memory.
pub trait Encoder: Send + Sync {
    fn media_type(&self) -> &'static str;

    /// Whether the stored frame of an event is its encoding. If so, the stream sends stored runs without a
    /// copy, and direct delivery can write them.
    fn uses_stored_frames(&self) -> bool;

    /// Appends an event of the log. `id` formats the cursor of the client after the event.
    fn event(&mut self, out: &mut BytesMut, id: &dyn Fn() -> String, event: &EventRef<'_>);

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame);

    /// Appends the delay before a client reconnects. It may belong to the next frame.
    fn retry(&mut self, out: &mut BytesMut, milliseconds: u64);

    /// Bytes that keep an idle connection open. They do not belong to a frame.
    fn keep_alive(&self) -> &'static [u8];

    /// Whether the encoder has written the last frame of its protocol. The stream then ends without another frame.
    fn is_complete(&self) -> bool {
        false
    }
}

/// One block for each event. Its `data` is a single line of JSON.
///
/// `NAMED`: with the `event:` field. Without it, a single `onmessage` handler receives all events.
///
/// Every block must have data. `@microsoft/fetch-event-source` and `httpx-sse` deliver a block without data as an
/// event with empty data. `JSON.parse("")` then throws, and the client reconnects endlessly. Therefore `retry:` is a
/// line of a block with data, and no empty line follows a keep-alive.
#[derive(Clone, Copy)]
pub struct Sse<const NAMED: bool>;

impl<const NAMED: bool> Sse<NAMED> {
    fn kind(kind: &str) -> Option<&str> {
        NAMED.then_some(kind)
    }
}

/// The gateway creates ids and types, and the data is a single line. Therefore, no content can end a block
/// early.
impl<const NAMED: bool> Encoder for Sse<NAMED> {
    fn media_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn uses_stored_frames(&self) -> bool {
        NAMED
    }

    fn event(&mut self, out: &mut BytesMut, id: &dyn Fn() -> String, event: &EventRef<'_>) {
        event::write_block(out, Some(&id()), Self::kind(event.kind()), event.raw_json());
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        let data = frame.json();
        out.reserve(data.len() + 96);
        event::write_block(out, frame.id(), Self::kind(frame.kind()), &data);
    }

    /// The line belongs to the block that the next frame completes, because some clients deliver a block
    /// without data as an empty event.
    fn retry(&mut self, out: &mut BytesMut, milliseconds: u64) {
        writeln!(out, "retry: {milliseconds}").expect("a buffer in memory grows");
    }

    fn keep_alive(&self) -> &'static [u8] {
        b":\n"
    }
}

#[derive(Clone, Copy)]
pub struct Ndjson;

impl Ndjson {
    fn line(out: &mut BytesMut, object: &[u8]) {
        out.reserve(object.len() + 1);
        out.put_slice(object);
        out.put_u8(b'\n');
    }
}

impl Encoder for Ndjson {
    fn media_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn uses_stored_frames(&self) -> bool {
        false
    }

    fn event(&mut self, out: &mut BytesMut, _: &dyn Fn() -> String, event: &EventRef<'_>) {
        Self::line(out, event.raw_json());
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        Self::line(out, &frame.json());
    }

    fn retry(&mut self, _: &mut BytesMut, _: u64) {}

    fn keep_alive(&self) -> &'static [u8] {
        b" "
    }
}

#[cfg(test)]
mod sse_tests {
    use super::*;
    use base::types::Timestamp;
    use events::event::Ready;

    #[test]
    fn control_frames_have_an_id_only_when_they_move_the_cursor() {
        let encoded = |named, frame: &ControlFrame| {
            let mut out = BytesMut::new();
            if named {
                Sse::<true>.control(&mut out, frame);
            } else {
                Sse::<false>.control(&mut out, frame);
            }
            out
        };
        let ready = ControlFrame::new(
            &Ready {
                last_event_id: "k3-42",
            },
            Timestamp::from_millis(0),
        );
        let data = r#"{"type":"ready","time":"1970-01-01T00:00:00.000Z","lastEventId":"k3-42"}"#;
        assert_eq!(
            encoded(true, &ready),
            format!("event: ready\ndata: {data}\n\n")
        );
        assert_eq!(encoded(false, &ready), format!("data: {data}\n\n"));
        let ready = ready.with_id("k3-42".to_owned());
        let data = data.replacen('{', r#"{"id":"k3-42","#, 1);
        assert_eq!(
            encoded(true, &ready),
            format!("id: k3-42\nevent: ready\ndata: {data}\n\n")
        );
    }
}

#[cfg(test)]
mod ndjson_tests {
    use super::*;
    use base::types::Timestamp;
    use events::event::Ready;

    #[test]
    fn a_control_frame_is_one_line() {
        let mut out = BytesMut::new();
        let ready = Ready {
            last_event_id: "k3-42",
        };
        Ndjson.control(
            &mut out,
            &ControlFrame::new(&ready, Timestamp::from_millis(0)),
        );
        let data = r#"{"type":"ready","time":"1970-01-01T00:00:00.000Z","lastEventId":"k3-42"}"#;
        assert_eq!(out, format!("{data}\n"));
    }
}
