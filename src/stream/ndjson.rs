//! Newline-delimited JSON.

use bytes::{BufMut, BytesMut};

use super::encoder::Encoder;
use crate::event::{ControlFrame, EventRef};

/// One JSON object on each line.
#[derive(Debug, Clone, Copy)]
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

    /// The object contains the id of the event.
    fn event(&mut self, out: &mut BytesMut, _: &dyn Fn() -> String, event: &EventRef<'_>) {
        Self::line(out, event.raw_json());
    }

    fn control(&mut self, out: &mut BytesMut, frame: &ControlFrame) {
        Self::line(out, &frame.json());
    }

    fn retry(&mut self, _: &mut BytesMut, _: u64) {}

    /// A space before the next object.
    fn keep_alive(&self) -> &'static [u8] {
        b" "
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Ready;
    use crate::types::Timestamp;

    #[test]
    fn a_control_frame_is_one_line() {
        let (mut out, ready) = (
            BytesMut::new(),
            Ready {
                last_event_id: "k3-42",
            },
        );
        Ndjson.control(
            &mut out,
            &ControlFrame::new(&ready, Timestamp::from_millis(0)),
        );
        let data = r#"{"type":"ready","time":"1970-01-01T00:00:00.000Z","lastEventId":"k3-42"}"#;
        assert_eq!(out, format!("{data}\n"));
    }
}
