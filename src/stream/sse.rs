//! Server-Sent Events.
//!
//! Every block must have data. `@microsoft/fetch-event-source` and `httpx-sse` deliver a block without data as an
//! event with empty data. `JSON.parse("")` then throws, and the client reconnects endlessly. Therefore `retry:` is a
//! line of a block with data, and no empty line follows a keep-alive.

use std::fmt::Write as _;

use bytes::BytesMut;

use super::encoder::Encoder;
use crate::event::{self, ControlFrame, EventRef};

/// One block for each event. Its `data` is a single line of JSON.
///
/// `NAMED`: with the `event:` field. Without it, a single `onmessage` handler receives all events.
#[derive(Debug, Clone, Copy)]
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

    /// A comment line.
    fn keep_alive(&self) -> &'static [u8] {
        b":\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Ready;
    use crate::types::Timestamp;

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
