//! The encodings of a stream.

use bytes::{BufMut, Bytes, BytesMut};

use crate::event::{self, ControlFrame};

/// The encoding of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// SSE, with or without the `event:` field. Without it, a single `onmessage` handler receives all events.
    Sse { named: bool },
    /// One JSON object per line.
    Ndjson,
}

impl Encoder {
    /// Encodes one event. The gateway creates `id` and `kind`, and `data` is a single line. Therefore, no
    /// content can end the frame early.
    pub fn encode_into(self, out: &mut BytesMut, id: Option<&str>, kind: &str, data: &[u8]) {
        if let Self::Sse { named } = self {
            event::write_block(out, id, named.then_some(kind), data);
        } else {
            out.put_slice(data);
            out.put_u8(b'\n');
        }
    }

    pub(super) fn encode_control(self, frame: &ControlFrame) -> Bytes {
        let data = frame.json();
        let mut out = BytesMut::with_capacity(data.len() + 96);
        self.encode_into(&mut out, frame.id(), frame.kind(), &data);
        out.freeze()
    }

    /// The delay before a client reconnects. The line belongs to the block that the next frame completes,
    /// because some clients deliver a block without data as an empty event.
    pub fn encode_retry(self, milliseconds: u64) -> Bytes {
        match self {
            Self::Sse { .. } => format!("retry: {milliseconds}\n").into(),
            Self::Ndjson => Bytes::new(),
        }
    }

    /// Bytes that keep an idle connection open. They complete neither a block nor a line: SSE receives a
    /// comment line, and NDJSON a space before the next object.
    pub const fn keep_alive(self) -> &'static [u8] {
        match self {
            Self::Sse { .. } => b":\n",
            Self::Ndjson => b" ",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Ready;
    use crate::types::Timestamp;

    #[test]
    fn control_frames_have_an_id_only_when_they_move_the_cursor() {
        let ready = ControlFrame::new(&Ready { last_event_id: "k3-42" }, Timestamp::from_millis(0));
        let data = r#"{"type":"ready","time":"1970-01-01T00:00:00.000Z","lastEventId":"k3-42"}"#;
        let named = Encoder::Sse { named: true };
        assert_eq!(named.encode_control(&ready), format!("event: ready\ndata: {data}\n\n"));
        assert_eq!(Encoder::Sse { named: false }.encode_control(&ready), format!("data: {data}\n\n"));
        assert_eq!(Encoder::Ndjson.encode_control(&ready), format!("{data}\n"));
        let ready = ready.with_id("k3-42".to_owned());
        let data = data.replacen('{', r#"{"id":"k3-42","#, 1);
        assert_eq!(named.encode_control(&ready), format!("id: k3-42\nevent: ready\ndata: {data}\n\n"));
    }
}
